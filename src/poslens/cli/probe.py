"""`poslens probe`: where position can be read in the residual stream of trained runs."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import polars as pl
import tyro

from poslens import results
from poslens.claims.implicit import appears
from poslens.cli.each import each
from poslens.cli.options import parse, print_json
from poslens.training import runs_below


@dataclass(frozen=True)
class Probe:
    """Read each word's position from the residual stream after every layer, on held-out sequences.

    Sequences are of independent fillers. Writes probes.parquet (probes beside their shuffled
    control) and subspaces.parquet (the directions that hold position) into every run.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """A run, or a folder of runs."""
    sequences: int = 1024
    """Sequences of fillers; probes are fitted on one half and scored on the other."""
    jobs: int | None = None
    """Runs at once, in processes of one thread [default: one a core]."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print the tables as JSON."""


def run(arguments: list[str]) -> None:
    from poslens.probing import prepare

    command = parse(Probe, arguments, "probe")
    folders = runs_below(command.path)
    for folder in folders:  # all that can be refused is, before anything is written
        prepare(folder, command.sequences, command.device)
    each(folders, partial(probe, command=command), command.jobs)
    tables = results.read(command.path)
    first = appears(tables.probes)
    if command.json:
        found = {"probes": tables.probes, "subspaces": tables.subspaces, "appears": first}
        print_json({name: table.to_dicts() for name, table in found.items()})
        return
    for line in told(tables, first):
        print(line)


def probe(folder: Path, command: Probe) -> None:
    from poslens.probing import probe_run

    probe_run(folder, command.sequences, command.device)


def told(tables: results.Tables, first: pl.DataFrame) -> list[str]:
    """For each run its R^2 by state, from which state position is read, and the angles."""
    lines = []
    for (scheme, task, seed), rows in tables.probes.group_by(*results.KEY, maintain_order=True):
        run = {"scheme": scheme, "task": task, "seed": seed}
        read = rows.filter(target="true", score="r2").sort("state")
        (start,) = first.filter(**run)["appears"]
        values = " ".join(f"{value:.3f}" for value in read["value"])
        where = "none" if start is None else str(start)
        lines.append(
            f"{scheme} on {task}, seed {seed}: R2 of position by layers passed {values}; "
            f"read from: {where}"
        )
        own = tables.subspaces.filter(**run).sort("state")
        if own["dimensions"].max():
            cosines = " ".join(f"{value:.3f}" for value in own["mean_cos2"])
            lines.append(
                f"  mean cos2 with the input's position subspace ({own['dimensions'][0]} "
                f"dimensions; random {own['null'][0]:.3f}): {cosines}"
            )
    return lines
