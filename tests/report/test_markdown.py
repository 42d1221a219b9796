"""The Markdown summary says what the tables hold."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from poslens.claims import ledger
from poslens.claims.extrapolation import correlations
from poslens.report.corrections import judged, read_all
from poslens.report.markdown import (
    accuracy_table,
    correlation_table,
    ledger_table,
    length_table,
    matrix_table,
)
from poslens.results import read


def cells(text: str) -> list[list[str]]:
    """The rows of a Markdown table, its heading first and its rule left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [found[0], *found[2:]]


def test_every_scheme_has_a_line_with_its_own_accuracy(quick: Path) -> None:
    tables = read(quick)
    text = accuracy_table(tables)
    row = tables.summary.filter(scheme="mla", task="distance").row(0, named=True)
    (line,) = [line for line in text.splitlines() if line.startswith("| MLA |")]
    assert f"{100 * row['accuracy']:.1f} [88.34]" in line
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 2 + 9
    assert "length only 20.8" in text


def test_the_ledger_names_every_claim_with_its_verdict(quick: Path) -> None:
    verdicts = ledger(read(quick))
    lines = ledger_table(verdicts).splitlines()[2:]
    assert len(lines) == len(verdicts)
    for verdict, line in zip(verdicts, lines, strict=True):
        assert line.startswith(f"| {verdict.claim} |")
        assert f"**{verdict.label}**" in line


def test_seeds_make_a_mean_with_a_range_and_a_tally(make: Callable, tmp_path: Path) -> None:
    tables = read(make(tmp_path / "runs", schemes=("rope",), tasks=("distance",), seeds=(0, 1, 2)))
    _, row = cells(accuracy_table(tables))
    values = 100 * tables.summary["accuracy"]
    range_of = f"({values.min():.1f} to {values.max():.1f})"
    assert row[1].startswith(f"{values.mean():.1f} {range_of}")
    steady = tables.curve.with_columns(accuracy=pl.lit(0.5))
    rising = tables.curve.with_columns(accuracy=pl.int_range(pl.len()).over("seed") / pl.len())
    unsolved = tables.summary.with_columns(solved=pl.lit(False))
    for curve, marked in ((steady, False), (rising, True)):
        text = accuracy_table(replace(tables, curve=curve, summary=unsolved))
        assert ("\u2191" in text) is marked


@pytest.mark.parametrize(
    ("sequences", "solved", "told"),
    [
        ((400, 500, 600), (True, True, True), "500 (400 to 600)"),
        ((400, 500, 600), (True, True, False), "400 to > 600"),
        ((600, 600, 600), (False, False, False), "> 600"),
    ],
)
def test_sequences_of_unsolved_runs_are_a_bound(
    sequences: tuple, solved: tuple, told: str, make: Callable, tmp_path: Path
) -> None:
    tables = read(make(tmp_path / "runs", schemes=("rope",), tasks=("distance",), seeds=(0, 1, 2)))
    columns = {"sequences": pl.Series(sequences), "solved": pl.Series(solved)}
    text = accuracy_table(replace(tables, summary=tables.summary.with_columns(**columns)))
    _, row = cells(text)
    assert row[2] == told
    assert ("> marks" in text) is not all(solved)


def test_lengths_and_correlations_have_a_row_each(quick: Path) -> None:
    tables = read(quick)
    heading, *rows = cells(length_table(tables, "distance"))
    assert heading[:2] == ["scheme", "1x"]
    for row in rows:
        assert len(row) == len(heading)
    by_name = {row[0]: row for row in rows}
    own = tables.lengths.filter(scheme="rope", task="distance").sort("factor")["accuracy"]
    assert by_name["RoPE"][1:] == [f"{100 * value:.1f}" for value in own]
    assert "cannot" in by_name["Learned"]
    heading, *rows = cells(correlation_table(tables))
    found = correlations(tables)
    assert len(rows) == found.n_unique(["task", "target", "measure"])
    assert heading[3:] == ["2x", "3x", "4x", "runs of schemes"]


def test_the_matrix_says_what_the_page_says(corrected: Path) -> None:
    rows = judged(read_all(corrected))
    heading, *lines = cells(matrix_table(rows))
    assert heading[1:] == [cell.claim for cell in rows[0]]
    for row, line in zip(rows, lines, strict=True):
        assert line[0] == row[0].correction
        for cell, told in zip(row, line[1:], strict=True):
            assert (told == "\u00b7") is cell.same
            assert told.startswith("**") is (bool(cell.change) and not cell.same)
            assert cell.same or cell.count in told
