"""`poslens lengths`: trained runs on sequences longer than those of their training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from poslens import results
from poslens.cli.options import parse, print_json
from poslens.errors import InputError
from poslens.training import runs_below


@dataclass(frozen=True)
class Lengths:
    """Try every run on its own held-out sequences with more words around them, and none changed.

    Writes lengths.parquet into every run. Encodings that end with training length say so.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """A run, or a folder of runs."""
    factors: tuple[int, ...] = (1, 2, 3, 4)
    """Longest sequence over the longest in training."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print the table as JSON."""


def run(arguments: list[str]) -> None:
    import torch

    from poslens.experiments.lengths import lengthen_run

    command = parse(Lengths, arguments, "lengths")
    torch.set_num_threads(1)
    if not command.factors or min(command.factors) < 1:
        raise InputError(f"factors are {command.factors}; give whole numbers from 1")
    for folder in runs_below(command.path):
        lengthen_run(folder, command.device, sorted(set(command.factors)))
    table = results.read(command.path).lengths
    if command.json:
        print_json(table.to_dicts())
        return
    for (scheme, task, seed), rows in table.group_by(*results.KEY, maintain_order=True):
        can = rows.filter(rows["accuracy"].is_not_nan())
        told = [f"{factor}x {value:.3f}" for factor, value in can["factor", "accuracy"].rows()]
        print(f"{scheme} on {task}, seed {seed}: accuracy {', '.join(told)}")
        cannot = rows.filter(rows["accuracy"].is_nan())
        for factor, reason in cannot["factor", "reason"].head(1).rows():
            print(f"  not at {factor}x: {reason}")
