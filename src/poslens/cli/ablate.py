"""`poslens ablate`: what each head of trained runs is worth."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import polars as pl
import tyro

from poslens import results
from poslens.cli.options import parse, print_json
from poslens.heads import ablate_run
from poslens.training import runs_below


@dataclass(frozen=True)
class Ablate:
    """Set each head's output to zero, one at a time, on held-out sequences, and measure.

    Writes effects.parquet and concentration.parquet into every run; prints the heads that matter
    most. Positive effects are harm: a fall in accuracy, a rise in loss (nats).
    """

    path: Annotated[Path, tyro.conf.Positional]
    """A run, or a folder of runs."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print all effects as JSON."""


def run(arguments: list[str]) -> None:
    import torch

    command = parse(Ablate, arguments, "ablate")
    torch.set_num_threads(1)
    folders = runs_below(command.path)
    for folder in folders:
        ablate_run(folder, command.device)
    tables = results.read(command.path)
    if command.json:
        print_json(tables.effects.to_dicts())
        return
    for (scheme, task, seed), verdicts in tables.concentration.group_by(
        "scheme", "task", "seed", maintain_order=True
    ):
        of_run = (pl.col("scheme") == scheme) & (pl.col("task") == task) & (pl.col("seed") == seed)
        top = (
            tables.effects.filter(of_run, pl.col("metric") == "accuracy", pl.col("head") >= 0)
            .sort("effect", descending=True)
            .head(4)
        )
        words = ", ".join(verdicts.filter(pl.col("metric") == "accuracy")["verdict"].to_list())
        print(f"{scheme} on {task}, seed {seed}; by layer: {words}")
        for row in top.iter_rows(named=True):
            print(
                f"  layer {row['layer']} head {row['head']}: accuracy falls by "
                f"{row['effect']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
            )
