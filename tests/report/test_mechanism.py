"""Where attention goes: the frame behind the dots, and the heads that cost most."""

from pathlib import Path

import polars as pl
import pytest

from poslens.report.build import render
from poslens.report.mechanism import LISTED, mechanism_frame, mechanism_part
from poslens.results import Tables, read


@pytest.fixture(scope="module")
def tables(quick: Path) -> Tables:
    return read(quick)


def test_the_frame_has_what_each_head_costs_and_both_masses(tables: Tables) -> None:
    frame = mechanism_frame(tables, "distance")
    assert frame.height == 24 * (2 * 9 - 1)  # NoPE has no position to lose
    row = frame.filter(scheme="rope", target="position", layer=0, head=0).row(0, named=True)
    own = tables.mechanism.filter(
        scheme="rope", task="distance", target="position", layer=0, head=0, gain=1.0
    )
    assert row["cost"] == pytest.approx(0.6)
    assert (row["mass"], row["gone"]) == (own["own_mass"][0], 0)
    silenced = frame.filter(scheme="rope", target="head", layer=1, head=3).row(0, named=True)
    assert (silenced["mass"], silenced["gone"]) == (0.3, 0.3)
    assert frame.filter(target="head", layer=2)["mass"].is_nan().all()  # none above


def test_a_dot_is_a_head_and_the_listing_has_those_that_cost_most(tables: Tables) -> None:
    part = mechanism_part(tables, "distance")
    head, position = part.panels
    assert len(head.figure.data[0].x) == 9 * 16  # the top layer has no heads above
    assert len(position.figure.data[0].x) == 8 * 24
    assert max(position.figure.data[0].x) == pytest.approx(60)
    of_rope = [texts for _, texts in part.listing.rows if texts[0] == "RoPE"]
    assert len(of_rope) == 2 * LISTED
    assert of_rope[0][1:5] == ["output", "0", "0", "60.0 points"]
    assert {texts[-1] for _, texts in part.listing.rows} == {"not told apart"}


@pytest.mark.slow
def test_the_section_is_there_where_there_are_tables(tables: Tables, quick: Path) -> None:
    assert 'id="mechanism"' in render(tables, quick, [])
    empty = Tables(**{**vars(tables), "mechanism": tables.mechanism.filter(pl.lit(False))})
    assert 'id="mechanism"' not in render(empty, quick, [])
