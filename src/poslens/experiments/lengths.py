"""Trained runs on sequences longer than those they were trained on.

A run's own held-out sequences, each with as many extra words around it (`Task.lengthen`):
labels, and what there is to know, stay as they are.
"""

from collections.abc import Iterable
from pathlib import Path

from poslens.errors import InputError
from poslens.results import read_table, write_table
from poslens.tasks import generator_for, held_out
from poslens.training import RunFolder, load_model
from poslens.training.folder import make_folder
from poslens.training.loop import evaluate

FACTORS = (1, 2, 3, 4)

Row = dict[str, object]


def lengthen_run(folder: Path, device: str = "cpu", factors: Iterable[int] = FACTORS) -> None:
    """Add lengths to the table LENGTHS (`poslens.results`) of a finished run in its folder.

    At factor f every sequence has (f - 1) times the task's longest more words. A model that cannot
    read them (a learned table ends) gets a row that says why. Raises InputError where the folder
    holds no trained model or a damaged one, or a task that cannot be lengthened.
    """
    model, run, task = load_model(folder, device)
    if not RunFolder(folder).finished:
        raise InputError(f"{folder} holds no finished run; run its training again to the end")
    make_folder(folder)
    data = held_out(task, run.training.evaluation, run.seed)
    rows: list[Row] = []
    for factor in factors:
        extra = (factor - 1) * task.max_length
        longer = task.lengthen(data, extra, generator_for(run.seed, "lengthen", factor))
        row: Row = {"factor": factor, "longest": task.max_length + extra, "sequences": len(data)}
        try:
            correct_N, losses_N = evaluate(model, longer.to(device))
        except InputError as error:
            rows.append(
                row | {"accuracy": float("nan"), "loss": float("nan"), "reason": str(error)}
            )
            continue
        accuracy, loss = correct_N.double().mean().item(), losses_N.double().mean().item()
        rows.append(row | {"accuracy": accuracy, "loss": loss, "reason": ""})
    before = read_table(folder, "lengths")
    by_factor = {
        row["factor"]: row for row in [*([] if before is None else before.to_dicts()), *rows]
    }
    write_table(folder, "lengths", [by_factor[factor] for factor in sorted(by_factor)])
