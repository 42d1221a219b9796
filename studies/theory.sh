#!/usr/bin/env bash
# What is measured in the name of the study's theory, results/theory: seeds, margins, interventions,
# probes. An hour to an hour and a half on two cores. Stopped, it continues with the same command.
# POSLENS is the command to call.
set -euo pipefail
cd "$(dirname "$0")/.."
poslens=${POSLENS:-.venv/bin/poslens} out=${1:-runs/theory}

$poslens reproduce --config studies/seeds_along.toml --out "$out/along"
$poslens reproduce --config studies/seeds.toml --out "$out/others"
$poslens reproduce --config studies/seeds_count.toml --out "$out/count"
$poslens theory "$out/along"
$poslens theory "$out/others" --steps 0
$poslens theory "$out/count" --steps 0
for name in along others count; do
    $poslens mechanism "$out/$name"
done
$poslens interventions --config studies/seeds.toml --out "$out/interventions"
for name in depth depth_causal; do
    $poslens reproduce --config "studies/$name.toml" --out "$out/$name"
    $poslens probe "$out/$name"
done
for name in along others; do
    $poslens collect "$out/$name" --out results/theory/distance
done
for name in count depth depth_causal interventions; do
    $poslens collect "$out/$name" --out "results/theory/$name"
done
