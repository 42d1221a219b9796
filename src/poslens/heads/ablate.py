"""Ablate a finished run and write its tables of effects and concentration."""

from pathlib import Path

from poslens import results
from poslens.heads.concentration import concentration_rows
from poslens.heads.edits import Edit, Reference, reference_batch
from poslens.heads.effects import measure
from poslens.heads.estimates import effect_rows, estimate
from poslens.model import TransformerSites
from poslens.tasks import held_out
from poslens.training import load_model

# Sequences that mean and resample take their replacements from.
REFERENCE = 512
LAST_TABLE = "concentration.parquet"


def ablate_run(folder: Path, device: str = "cpu") -> None:
    """Effects of every head of the run in `folder` on its evaluation data, as tables.

    Raises InputError where the folder holds no trained model or a damaged one.
    """
    model, run, task = load_model(folder, device)
    data = held_out(task, run.training.evaluation, run.seed).to(device)
    batch = reference_batch(task, data.lengths_B.cpu(), REFERENCE, run.seed).to(device)
    reference = Reference(TransformerSites(model), batch, run.model.causal)
    found = measure(data, Edit(), reference)
    accuracy, loss = estimate(found["accuracy"]), estimate(found["loss"])
    results.write_table(folder, "effects", [*effect_rows(accuracy), *effect_rows(loss)])
    rows = concentration_rows(accuracy, loss, task.baseline().value)
    results.write_table(folder, LAST_TABLE.removesuffix(".parquet"), rows)
