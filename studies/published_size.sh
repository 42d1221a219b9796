#!/usr/bin/env bash
# RoPE and MLA on distance at the published size, standard and as in the study's code.
#
#   studies/published_size.sh small cpu     # the budget of published_size.toml
#   studies/published_size.sh full cuda     # the study's own budget: a GPU
#
# The same command continues where it was stopped. POSLENS is the command to call.
set -euo pipefail
cd "$(dirname "$0")/.."
budget=${1:?small or full} device=${2:?cpu or cuda} out=${3:-runs/published_size}
poslens=${POSLENS:-.venv/bin/poslens}

case $budget in
    small) what=(--config studies/published_size.toml) ;;
    full) what=(--profile paper) ;;
    *) echo "budget $budget is unknown; use small or full" >&2; exit 2 ;;
esac
what+=(--schemes rope mla --tasks distance --seeds 0 --device "$device")
$poslens reproduce "${what[@]}" --out "$out/standard"
$poslens reproduce "${what[@]}" --published --out "$out/published"
