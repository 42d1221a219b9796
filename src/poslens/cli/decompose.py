"""`poslens decompose`: what the attention logits of trained runs are made of."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
import tyro

from poslens import results
from poslens.cli.each import each
from poslens.cli.options import parse, print_json
from poslens.report.decomposition import algebra_counts, build_decomposition, largest_terms
from poslens.training import runs_below


@dataclass(frozen=True)
class Decompose:
    """Split the logits of every head into named terms of position and content, and measure them.

    Measured on sequences of independent tokens. Writes decomposition, covariances, symbols and
    spectra (.parquet) and terms.safetensors into every run, and decomposition.html into PATH.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """A run, or a folder of runs."""
    split: Literal["mean", "embedding"] = "mean"
    """How position is told from content: mean over sequences, or embedding (layer 0 only)."""
    jobs: int | None = None
    """Runs at once, in processes of one thread [default: one a core]."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print tables and the page's path as JSON."""


def run(arguments: list[str]) -> None:
    from poslens.toeplitz.tables import prepare

    command = parse(Decompose, arguments, "decompose")
    folders = runs_below(command.path)
    for folder in folders:  # all that can be refused is, before anything is written
        prepare(folder, command.split, command.device)
    each(folders, partial(decompose, command=command), command.jobs)
    page = build_decomposition(command.path)
    tables = results.read(command.path)
    if command.json:
        own = tables.covariances.filter(pl.col("term") == pl.col("other")).drop("other")
        found = {"decomposition": tables.decomposition, "terms": own, "spectra": tables.spectra}
        print_json({"page": str(page), **{name: it.to_dicts() for name, it in found.items()}})
        return
    if command.split == "embedding":
        print("layer 0 only: above it the layers below have mixed embedding and position")
    for (scheme, task, seed), heads in tables.decomposition.group_by(
        *results.KEY, maintain_order=True
    ):
        terms = tables.covariances.filter(scheme=scheme, task=task, seed=seed)
        largest = ", ".join(f"{term} {share:.2f}" for term, share in largest_terms(terms))
        print(f"{scheme} on {task}, seed {seed}; heads measured: {algebra_counts(heads)}")
        print(f"  largest terms (share of variance within rows): {largest}")
    print(page)


def decompose(folder: Path, command: Decompose) -> None:
    from poslens.toeplitz.tables import decompose_run

    decompose_run(folder, command.split, command.device)
