#!/usr/bin/env bash
# Everything in results/, from nothing: hours on two cores. Stopped, it continues with the same
# command. POSLENS is the command to call.
set -euo pipefail
cd "$(dirname "$0")/.."
poslens=${POSLENS:-.venv/bin/poslens}

$poslens reproduce --profile quick --out runs/quick
$poslens decompose runs/quick
$poslens lengths runs/quick
for run in runs/quick/*-distance-seed0; do
    $poslens ablate "$run" --sets
done
for scheme in rope mla; do
    $poslens ablate "runs/quick/$scheme-distance-seed0" --published
done
$poslens reproduce --profile standard --out runs/standard
$poslens lengths runs/standard
$poslens corrections --schemes nope sinusoidal learned t5 alibi rope rope@1 rope@2 mla \
    --out runs/corrections
$poslens reproduce --config studies/memory.toml --out runs/memory
studies/published_size.sh small cpu
studies/theory.sh
for name in quick standard corrections memory published_size; do
    $poslens collect "runs/$name" --out "results/$name"
done
$(dirname "$poslens")/python studies/render.py
