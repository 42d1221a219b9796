"""Longer sequences: curves, ends, dots and correlations."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from poslens.claims.extrapolation import correlations
from poslens.report.build import render
from poslens.report.extrapolation import concentration_frame, correlation_listing, length_part
from poslens.report.intervals import wilson
from poslens.report.lengths import (
    End,
    end_notes,
    ends,
    length_frame,
    length_lines,
    length_panel,
    words_of,
)
from poslens.results import Tables, read


@pytest.fixture(scope="module")
def tables(standard: Path) -> Tables:
    return read(standard)


def test_the_frame_has_every_run_and_length_with_its_interval(tables: Tables) -> None:
    frame = length_frame(tables, "distance")
    assert frame.height == 9 * 3 * 4
    assert frame["scheme"].unique(maintain_order=True).to_list()[:3] == [
        "nope",
        "sinusoidal",
        "learned",
    ]
    row = frame.row(0, named=True)
    assert (row["low"], row["high"]) == wilson(row["accuracy"], 4096)
    assert words_of(frame) == {1: "34", 2: "68", 3: "102", 4: "136"}


def test_a_scheme_that_cannot_read_a_length_ends_with_its_reason(tables: Tables) -> None:
    frame = length_frame(tables, "distance")
    (end,) = ends(frame)
    assert (end.scheme, end.factor) == ("learned", 1)
    assert frame.filter(scheme="learned")["accuracy"].null_count() == 3 * 3
    ((_, words),) = end_notes(tables, "distance")
    assert words.startswith("Learned ends at 1× (34 words): position 34 is not in the learned")
    crosses = [
        trace
        for trace in length_panel(tables, "distance").figure.data
        if trace.marker.symbol == "x"
    ]
    mean = frame.filter(scheme="learned", factor=1)["accuracy"].to_numpy().mean()
    assert [(cross.x[0], cross.y[0]) for cross in crosses] == [(1, pytest.approx(100 * mean))]


def test_a_scheme_that_reads_none_has_a_reason_and_no_line(tables: Tables) -> None:
    frame = length_frame(tables, "distance").with_columns(
        accuracy=pl.when(pl.col("scheme") == "learned").then(None).otherwise("accuracy"),
        reason=pl.when(pl.col("scheme") == "learned").then(pl.lit("no")).otherwise("reason"),
    )
    assert ends(frame) == [End("learned", 0, "no")]


def test_thick_lines_are_means_over_seeds(tables: Tables) -> None:
    rope = tables.lengths.filter(scheme="rope", task="count").group_by("factor")
    expected = rope.agg(pl.col("accuracy").mean()).sort("factor")["accuracy"]
    thick = [
        trace
        for trace in length_panel(tables, "count").figure.data
        if trace.name == "RoPE" and trace.line.width > 2
    ]
    assert list(thick[0].y) == pytest.approx(100 * expected)


def test_one_seed_has_intervals_instead(quick: Path) -> None:
    lines = [
        trace
        for trace in length_panel(read(quick), "distance").figure.data
        if trace.name == "ALiBi"
    ]
    (alibi,) = lines
    row = length_frame(read(quick), "distance").filter(scheme="alibi", factor=2).row(0, named=True)
    assert alibi.error_y.array[1] == pytest.approx(100 * (row["high"] - row["accuracy"]))


def test_answers_without_a_model_are_lines_and_the_ceiling_is_not(tables: Tables) -> None:
    assert [name for _, name, _ in length_lines(tables, "distance")] == ["chance", "length-only"]
    assert [name for _, name, _ in length_lines(tables, "count")] == ["chance = length-only"]


def test_dots_are_the_runs_that_correlations_are_over(tables: Tables) -> None:
    for task in ("distance", "count"):
        frame = concentration_frame(tables, task)
        for row in correlations(tables).filter(task=task).iter_rows(named=True):
            assert frame.filter(target=row["target"], factor=row["factor"]).height == row["runs"]
    assert "learned" not in set(concentration_frame(tables, "distance")["scheme"])
    part = length_part(tables, "distance")
    assert [it.lost for it in part.scatters] == [
        "Heads set to zero",
        "Heads that lose their position",
    ]
    assert [len(panels) for it in part.scatters for _, panels in it.measures] == [3, 3, 3, 3]


def test_correlations_are_told_with_their_intervals(tables: Tables) -> None:
    listing = correlation_listing(tables, "count")
    rows = correlations(tables).filter(task="count")
    assert len(listing.rows) == rows.height == 12
    first = rows.row(0, named=True)
    assert listing.rows[0][1][2:4] == [f"{first['factor']}×", str(first["runs"])]
    assert listing.rows[0][1][4].replace("−", "-") == f"{first['correlation']:.2f}"


def test_few_runs_have_no_correlation(make: Callable[..., Path], tmp_path: Path) -> None:
    folder = make(tmp_path / "runs", schemes=("rope", "alibi"), tasks=("distance",))
    tables = read(folder)
    texts = correlation_listing(tables, "distance").rows[0][1]
    assert texts[3:] == ["2", "–", "fewer than 5 schemes"]
    assert "A correlation over runs is no cause" in render(tables, folder, [])


def test_lengths_without_ablation_are_curves_alone(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make(tmp_path / "runs", schemes=("rope",), tasks=("distance",))
    (folder / "rope-distance-seed0" / "concentration.parquet").unlink()
    page = render(read(folder), folder, [])
    assert 'id="lengths-distance"' in page
    assert "Is it tied to concentration?" not in page
