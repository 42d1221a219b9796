"""Runs still improving at the end of their budget, where the page marks them."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from poslens.report.build import render
from poslens.report.curves import end_names
from poslens.report.improving import rising_schemes, still_rising
from poslens.report.listings import run_listing
from poslens.report.provenance import read_provenance
from poslens.results import read


@pytest.fixture
def folder(make: Callable[..., Path], tmp_path: Path) -> Path:
    """NoPE whose last tenth is better than the tenth before, and ALiBi whose curve is flat."""
    folder = make(tmp_path / "runs", schemes=("nope", "alibi"), tasks=("count",))
    for scheme, rise in (("nope", 0.004), ("alibi", 0.0)):
        path = folder / f"{scheme}-count-seed0" / "curve.parquet"
        rising = 0.5 + rise * pl.int_range(pl.len())
        pl.read_parquet(path).with_columns(accuracy=rising).write_parquet(path)
        summary = folder / f"{scheme}-count-seed0" / "summary.parquet"
        pl.read_parquet(summary).with_columns(solved=pl.lit(False)).write_parquet(summary)
    return folder


def test_rising_curves_are_marked_and_said_of(folder: Path) -> None:
    tables = read(folder)
    assert still_rising(tables) == {("nope", "count", 0)}
    assert rising_schemes(tables, "count") == {"nope"}
    assert end_names(tables, "count") == {"nope": "NoPE ↑", "alibi": "ALiBi"}
    ended = {
        texts[0]: texts[6]
        for _, texts in run_listing(tables, read_provenance(folder), "count").rows
    }
    assert ended == {"NoPE": "at the budget, still improving", "ALiBi": "at the budget"}
    assert "Schemes marked ↑" in render(tables, folder, [])


def test_nothing_is_said_where_all_curves_are_flat(folder: Path) -> None:
    (folder / "nope-count-seed0" / "curve.parquet").unlink()
    tables = read(folder)
    assert still_rising(tables) == set()  # without a curve there is nothing to mark
    assert "↑" not in render(tables, folder, []).split("<script>")[0]
