"""`poslens mechanism`: whether attention goes where the task needs it, and what falls first."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import polars as pl
import tyro

from poslens import results
from poslens.cli.each import each
from poslens.cli.options import parse, print_json
from poslens.training import runs_below

SHOWN = 4  # heads told of each run and target


@dataclass(frozen=True)
class Mechanism:
    """Take away each head, and each head's position, by degrees: accuracy beside attention mass.

    Mass is the attention weight between the words that are no fillers. Writes mechanism.parquet (by
    gain) and falls.parquet (whether accuracy or mass has lost half first) into every run.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """A run, or a folder of runs."""
    sequences: int = 512
    """Held-out sequences of each run; all, where it has fewer."""
    jobs: int | None = None
    """Runs at once, in processes of one thread [default: one a core]."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print the tables as JSON."""


def run(arguments: list[str]) -> None:
    from poslens.theory.mechanism import prepare

    command = parse(Mechanism, arguments, "mechanism")
    folders = runs_below(command.path)
    for folder in folders:  # all that can be refused is, before anything is written
        prepare(folder, command.sequences, command.device)
    each(folders, partial(measure, command=command), command.jobs)
    tables = results.read(command.path)
    if command.json:
        names = ("mechanism", "falls")
        print_json({name: getattr(tables, name).to_dicts() for name in names})
        return
    for line in told(tables):
        print(line)


def measure(folder: Path, command: Mechanism) -> None:
    from poslens.theory.mechanism import mechanism_run

    mechanism_run(folder, command.sequences, command.device)


def told(tables: results.Tables) -> list[str]:
    """For each run and target the heads that cost most, and what fell first."""
    place = ["layer", "head"]
    lines = []
    for key, rows in tables.mechanism.group_by(*results.KEY, "target", maintain_order=True):
        scheme, task, seed, target = key
        run = {"scheme": scheme, "task": task, "seed": seed, "target": target}
        whole, gone = (rows.filter(gain=gain) for gain in (1.0, 0.0))
        both = whole.join(gone, on=place, suffix="_gone").with_columns(
            fall=pl.col("accuracy") - pl.col("accuracy_gone")
        )
        lines.append(f"{scheme} on {task}, seed {seed}, {target}")
        for row in both.sort("fall", descending=True).head(SHOWN).iter_rows(named=True):
            where = {name: row[name] for name in place}
            (found,) = tables.falls.filter(**run, **where).iter_rows(named=True)
            mass = f"{found['mass']}_mass"
            lines.append(
                f"  layer {row['layer']} head {row['head']}: accuracy {-row['fall']:+.3f}, "
                f"{found['mass']} mass {row[mass]:.3f} to {row[mass + '_gone']:.3f}; first: "
                f"{found['verdict']}"
            )
    return lines
