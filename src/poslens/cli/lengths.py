"""`poslens lengths`: trained runs on sequences longer than those of their training."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from poslens import results
from poslens.cli.each import each
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
    jobs: int | None = None
    """Runs at once, in processes of one thread [default: one a core]."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print the table as JSON."""


def run(arguments: list[str]) -> None:
    command = parse(Lengths, arguments, "lengths")
    if not command.factors or min(command.factors) < 1:
        raise InputError(f"factors are {command.factors}; give whole numbers from 1")
    each(runs_below(command.path), partial(lengthen, command=command), command.jobs)
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


def lengthen(folder: Path, command: Lengths) -> None:
    from poslens.experiments.lengths import lengthen_run

    lengthen_run(folder, command.device, sorted(set(command.factors)))
