"""Published beside right measurements."""

from pathlib import Path

import pytest

from poslens.report.published import (
    difference_listing,
    largest_listing,
    published_frame,
    wrong_axis,
)
from poslens.results import Tables, read


@pytest.fixture(scope="module")
def tables(quick: Path) -> Tables:
    return read(quick)


def test_differences_are_from_the_right_measurement_of_the_same_head(tables: Tables) -> None:
    frame = published_frame(tables)
    data = frame.filter(method="published data")
    assert data.height == 9 * 2 * 3 * 8
    assert data["differs"].to_list() == pytest.approx([-0.01] * data.height)
    loop = frame.filter(method="published loop", layer=0)
    assert loop["differs"].to_list() == pytest.approx([0.0] * loop.height)


def test_the_head_furthest_off_is_named(tables: Tables) -> None:
    listing = difference_listing(tables, "distance")
    assert listing.columns[2:] == [
        "Wrong axis (columns)",
        "Weights not restored (loop)",
        "Training data too (data)",
    ]
    rows = {texts[0]: texts for _, texts in listing.rows}
    assert rows["RoPE"][2] == "–"
    mla = published_frame(tables).filter(scheme="mla", task="distance", method="published columns")
    row = mla.row(int(mla["differs"].abs().arg_max() or 0), named=True)
    assert rows["MLA"][2] == (
        f"{100 * abs(row['differs']):.1f} points: L{row['layer']}\u202fH{row['head']} shown as "
        f"{100 * row['effect']:.1f}, is {100 * row['right']:.1f}"
    )


def test_largest_effects_are_told_by_layer(tables: Tables) -> None:
    listing = largest_listing(tables, "distance")
    (row,) = [texts for _, texts in listing.rows if texts[0] == "RoPE" and texts[2] == "0"]
    assert row[3:] == [
        "head 3: 87.0 points",
        "–",
        "head 3: 87.0 points",
        "head 3: 86.0 points",
    ]


def test_the_wrong_axis_is_mapped_beside_the_right_one(tables: Tables) -> None:
    (pair,) = wrong_axis(tables, "distance")
    assert pair.title == "MLA"
    right, published = (half.panel for half in pair.halves)
    assert right is not None
    assert published is not None
    assert published.figure.data[0].z[0][4:] == [0.0] * 4
    assert right.figure.data[0].z[0] != published.figure.data[0].z[0]
    assert right.figure.data[0].zmax == published.figure.data[0].zmax


def test_an_early_folder_has_none(early: Path) -> None:
    tables = read(early)
    assert published_frame(tables).is_empty()
    assert wrong_axis(tables, "distance") == []
