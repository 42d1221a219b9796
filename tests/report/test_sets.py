"""Sets of heads: the curves of heads kept, the heads needed, the pairs."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from poslens.report.kept import kept_curves
from poslens.report.set_listings import by_excess, interaction_listing, necessity_listing
from poslens.report.style import number, percent
from poslens.results import Tables, read


@pytest.fixture(scope="module")
def tables(quick: Path) -> Tables:
    return read(quick)


def cells(listing, scheme: str, edit: str = "") -> dict[str, str]:
    (row,) = [
        dict(zip(listing.columns, texts, strict=True))
        for _, texts in listing.rows
        if texts[0] == scheme and edit in ("", texts[2])
    ]
    return row


def test_curves_show_the_table_position_first(tables: Tables) -> None:
    position, head = kept_curves(tables, "distance")
    assert (position.edit, head.edit) == ("position taken away", "output set to zero")
    assert [panel.title for panel in head.panels] == ["RoPE"]
    panel = next(panel for panel in position.panels if panel.title == "RoPE")
    rows = tables.sufficiency.filter(
        scheme="rope", task="distance", target="position", layer=1
    ).sort("kept")
    line = panel.figure.data[1]
    assert list(line.x) == list(range(9))
    assert list(line.y) == pytest.approx((100 * rows["accuracy"]).to_list())
    assert list(line.error_y.array) == pytest.approx([1.5] * 9)
    assert line.customdata[1].startswith(f"layer 1: 1 kept, head {rows['head'][1]} added<br>")
    assert line.customdata[0].startswith("layer 1: 0 kept<br>")
    floor = tables.necessity.filter(scheme="rope", task="distance", target="position")["floor"][0]
    names = {note.text for note in panel.figure.layout.annotations}
    assert names == {f"intact {percent(rows['accuracy'][8])}", f"every head {percent(floor)}"}


def test_without_a_floor_none_is_drawn(tables: Tables) -> None:
    unknown = replace(tables, necessity=tables.necessity.clear())
    panel = kept_curves(unknown, "count")[0].panels[0]
    assert len(panel.figure.layout.annotations) == 1


def test_seeds_are_thin_lines_about_their_mean(standard: Path) -> None:
    tables = read(standard)
    panel = kept_curves(tables, "count")[0].panels[0]
    assert len(panel.figure.data) == 3 * 3 + 3
    seeds, mean = panel.figure.data[:9:3], panel.figure.data[9]
    assert mean.y[0] == pytest.approx(sum(line.y[0] for line in seeds) / 3)
    assert seeds[1].customdata[0].startswith("seed 1, layer 0: 0 kept")


def test_heads_needed_are_counted_with_the_path(tables: Tables) -> None:
    row = cells(necessity_listing(tables, "distance"), "RoPE", "position")
    assert row["Heads needed"] == "2 (2 to 3)"
    path = row["Heads in order, with the accuracy after each"].split("; ")
    assert len(path) == 3
    first = tables.necessity.filter(scheme="rope", task="distance", target="position", step=1)
    assert path[0] == f"L0\u202fH3: {percent(first['accuracy'].item())}"


def test_a_floor_that_is_not_reached_takes_more_than_was_tried(tables: Tables) -> None:
    row = cells(necessity_listing(tables, "count"), "MLA")
    assert row["Heads needed"] == "more than 12 (11 to more than 12)"


def test_pairs_are_told_by_the_side_of_zero_their_interval_is_on(tables: Tables) -> None:
    row = cells(interaction_listing(tables, "count"), "ALiBi")
    assert row["Pairs"] == "6"
    more = row["Stand in for each other"].split("; ")
    assert [text.split(": ")[1] for text in more] == [
        "+13.0 (+11.0 to +15.0)",
        "+5.0 (+3.0 to +7.0)",
    ]
    assert row["Either alone costs what both do"].endswith(
        f"{number(-24.0, 1)} ({number(-26.0, 1)} to {number(-22.0, 1)})"
    )
    assert row["Add up"] == "3"


def test_every_pair_is_of_one_kind_largest_first(tables: Tables) -> None:
    pairs = tables.interactions.filter(scheme="rope", task="distance", target="position")
    kinds = by_excess(pairs)
    assert sum(kind.height for kind in kinds) == pairs.height
    for kind in kinds:
        assert kind["excess"].abs().is_sorted(descending=True)


def test_many_pairs_are_cut_and_counted(tables: Tables) -> None:
    clear = tables.interactions.with_columns(low=pl.lit(0.01), high=pl.lit(0.5))
    row = cells(interaction_listing(replace(tables, interactions=clear), "count"), "ALiBi")
    assert row["Stand in for each other"].endswith("; 3 more")
    assert row["Either alone costs what both do"] == row["Add up"] == "–"
