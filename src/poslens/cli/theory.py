"""`poslens theory`: gradient seeds of trained runs, along their training."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import polars as pl
import tyro

from poslens import results
from poslens.cli.each import each
from poslens.cli.options import parse, print_json
from poslens.theory.batches import SIZES
from poslens.theory.tables import EXAMPLES, Plan, check, theory_run, with_seeds


@dataclass(frozen=True)
class Theory:
    """Record for every head what a little more of its position would do to the loss.

    The seed of a head is minus the derivative of the loss by its positional gain. Recorded on fresh
    sequences: untrained, at every step whose weights were kept (train with --snapshots), and
    trained. Writes seeds, seed_batches and margins (.parquet) into every run.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """A run, or a folder of runs; those without position in their attention are left out."""
    examples: int = EXAMPLES
    """Sequences; the claims on seeds ask for as many as the default."""
    initialisations: int = 4
    """Other initialisations of each run, on up to 8,192 of these sequences."""
    steps: tuple[int, ...] = ()
    """Training steps, 0 is untrained [default: all whose weights there are]."""
    batches: tuple[int, ...] = SIZES
    """Sizes of batches that seeds are averaged over."""
    jobs: int | None = None
    """Runs at once, in processes of one thread [default: one a core]."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print the tables as JSON."""


def run(arguments: list[str]) -> None:
    command = parse(Theory, arguments, "theory")
    plan = Plan(command.examples, command.initialisations, command.steps or None, command.batches)
    folders, lacking = with_seeds(command.path)
    for folder in folders:  # all that can be refused is, before anything is written
        check(folder, plan, command.device)
    each(folders, partial(theory_run, plan=plan, device=command.device), command.jobs)
    tables = results.read(command.path)
    if command.json:
        names = ("seeds", "seed_batches", "margins")
        print_json(
            {
                **{name: getattr(tables, name).to_dicts() for name in names},
                "undefined": {folder.name: reason for folder, reason in lacking},
            }
        )
        return
    for folder, reason in lacking:
        print(f"{folder.name}: left out; {reason}")
    for (scheme, task, seed), rows in tables.seeds.group_by(*results.KEY, maintain_order=True):
        print(f"{scheme} on {task}, seed {seed}")
        own = {"scheme": scheme, "task": task, "seed": seed}
        for line in told(rows, tables.margins.filter(**own)):
            print(f"  {line}")


def told(seeds: pl.DataFrame, margins: pl.DataFrame) -> list[str]:
    """A line for each step of one run, and one for the other initialisations."""
    lines = []
    rows = seeds.filter(pl.col("ratio").is_not_nan())
    for (step,), heads in (
        rows.filter(initialisation=0).sort("step").group_by("step", maintain_order=True)
    ):
        top = heads.sort("ratio", descending=True).row(0, named=True)
        most = max(
            max(high, -low) for low, high in heads.select("ratio_low", "ratio_high").iter_rows()
        )
        leads = margins.filter(step=step, initialisation=0).sort("layer")["margin"]
        lines.append(
            f"step {step}: largest mu/sigma {top['ratio']:.3f} (at least {top['ratio_low']:.3f}; "
            f"layer {top['layer']}, head {top['head']}), |mu|/sigma at most {most:.3f} in any; "
            f"margins by layer {' '.join(f'{lead:.2g}' for lead in leads)}"
        )
    others = (
        rows.filter(pl.col("initialisation") > 0)
        .group_by("initialisation")
        .agg(pl.col("ratio").max())
    )
    if not others.is_empty():
        found = " ".join(f"{ratio:.3f}" for ratio in others.sort("initialisation")["ratio"])
        lines.append(f"largest mu/sigma at other initialisations: {found}")
    return lines
