"""Ablate a finished run and write its tables of effects and concentration."""

from pathlib import Path

from poslens import results
from poslens.heads.concentration import concentration_rows
from poslens.heads.effects import zero_ablation
from poslens.heads.estimates import effect_rows, estimate
from poslens.model import TransformerSites
from poslens.tasks import held_out
from poslens.training import load_model

LAST_TABLE = "concentration.parquet"


def ablate_run(folder: Path, device: str = "cpu") -> None:
    """Effects of every head of the run in `folder` on its evaluation data, as tables.

    Raises InputError where the folder holds no trained model or a damaged one.
    """
    model, run, task = load_model(folder, device)
    data = held_out(task, run.training.evaluation, run.seed).to(device)
    accuracy, loss = (estimate(part) for part in zero_ablation(TransformerSites(model), data))
    results.write_table(folder, "effects", [*effect_rows(accuracy), *effect_rows(loss)])
    rows = concentration_rows(accuracy, loss, task.baseline().value)
    results.write_table(folder, LAST_TABLE.removesuffix(".parquet"), rows)
