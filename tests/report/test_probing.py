"""Where position can be read: lines, what they are held against, the table."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from poslens.report.build import render
from poslens.report.probing import (
    ANGLE,
    HELD,
    MEASURES,
    NAMED,
    READ,
    limits,
    marks,
    measure_frame,
    names_frame,
    passed,
    probing_listing,
    probing_panel,
    probing_part,
)
from poslens.report.style import COLOURS
from poslens.results import Tables, read

TABLES = ["sinusoidal", "learned", "sinusoidal+rope"]


@pytest.fixture(scope="module")
def tables(standard: Path) -> Tables:
    return read(standard)


def test_frames_have_every_run_and_state(tables: Tables) -> None:
    for measure in (READ, NAMED, HELD):
        frame = measure_frame(tables, "distance", measure)
        assert frame.height == 9 * 3 * 4
        assert frame["scheme"].unique(maintain_order=True).to_list()[:3] == [
            "nope",
            "sinusoidal",
            "learned",
        ]
    row = measure_frame(tables, "count", READ).filter(scheme="rope", seed=0, state=2).row(0)
    assert row == ("rope", 0, 2, 0.2, pytest.approx(0.196), pytest.approx(0.204))


def test_angles_are_of_schemes_with_a_table(tables: Tables) -> None:
    frame = measure_frame(tables, "distance", ANGLE)
    assert frame["scheme"].unique(maintain_order=True).to_list() == TABLES
    assert frame["value"].is_not_nan().all()


def test_lines_are_held_against_the_control_and_the_thresholds(tables: Tables) -> None:
    (control,) = marks(tables, "distance", READ)
    assert (control.height, control.low, control.high) == pytest.approx((0, -0.0045, 0.0035))
    (named,) = marks(tables, "distance", NAMED)
    assert named.height == pytest.approx(1 / 34)
    random, displaced = marks(tables, "distance", ANGLE)
    assert (random.height, displaced.height) == (pytest.approx(9 / 64), 0.5)
    assert marks(tables, "distance", HELD)[0].height == 0


@pytest.mark.parametrize("measure", MEASURES, ids=lambda it: it.id)
def test_lines_have_their_schemes_colours_and_their_means(tables: Tables, measure) -> None:
    figure = probing_panel(tables, "distance", measure).figure
    thick = {trace.line.color: trace for trace in figure.data if trace.line.width == 2.4}
    frame = measure_frame(tables, "distance", measure)
    assert set(thick) == {COLOURS[scheme] for scheme in frame["scheme"].unique()}
    own = frame.filter(scheme="sinusoidal").group_by("state").agg(pl.col("value").mean())
    expected = measure.unit * own.sort("state")["value"]
    assert list(thick[COLOURS["sinusoidal"]].y) == pytest.approx(expected.to_list())
    thin = [
        trace for trace in figure.data if trace.line.width == 1 and trace.customdata is not None
    ]
    assert len(thin) == 3 * frame["scheme"].n_unique()


def test_one_seed_has_intervals_instead(quick: Path) -> None:
    figure = probing_panel(read(quick), "distance", NAMED).figure
    (rope,) = [it for it in figure.data if it.name == "RoPE"]
    assert list(rope.error_y.array) == pytest.approx([0.3] * 4)
    assert rope.customdata[2].startswith("<b>RoPE</b>, after 2 layers: ")
    assert "seed" not in rope.customdata[0]


@pytest.mark.parametrize("measure", MEASURES, ids=lambda it: it.id)
def test_names_keep_apart_and_inside(tables: Tables, measure) -> None:
    frame = measure_frame(tables, "distance", measure)
    low, high = limits(frame, measure)
    places = sorted(names_frame(frame, measure)["place"].to_list())
    assert low < places[0]
    assert places[-1] < high
    gaps = [b - a for a, b in pairwise(places)]
    assert min(gaps) >= 0.05 * (high - low)


def test_the_table_tells_from_where_position_is_read(tables: Tables) -> None:
    listing = probing_listing(tables, "distance")
    told = {(cells[0], cells[1]): cells[2:] for _, cells in listing.rows}
    assert len(told) == 9 * 3
    assert told["NoPE", "0"][0] == "nowhere"
    assert told["RoPE", "2"][0] == "after 2 layers"
    assert told["Learned", "1"][0] == "the input"
    assert told["RoPE", "0"][5:] == ["no table", "–"]
    assert told["Sinusoidal + RoPE", "0"][5:] == ["9", "0.300"]
    assert [passed(state) for state in (None, 0, 1, 2)] == [
        *("nowhere", "the input", "after 1 layer", "after 2 layers"),
    ]


def test_without_a_table_there_is_no_panel_of_angles(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make(tmp_path / "runs", schemes=("rope", "nope"), tasks=("distance",))
    part = probing_part(read(folder), "distance")
    assert [panel.id for panel in part.panels] == [
        f"probe-{name}-distance" for name in ("r2", "accuracy", "share")
    ]
    page = render(read(folder), folder, [])
    assert 'id="probe-r2-distance"' in page
    assert "probe-cos2" not in page
