"""Concentration of outputs and of positions, and over seeds."""

from pathlib import Path

import polars as pl

from poslens.report.concentration import (
    concentration_listing,
    layer_listing,
    metrics_of,
    seed_listings,
)
from poslens.report.listings import Listing
from poslens.results import read


def lines(listing: Listing, scheme: str) -> list[dict[str, str]]:
    rows = (dict(zip(listing.columns, texts, strict=True)) for _, texts in listing.rows)
    return [row for row in rows if row["Scheme"] == scheme]


def test_outputs_and_positions_stand_under_each_other(quick: Path) -> None:
    listing = concentration_listing(read(quick), "distance")
    output, position = lines(listing, "RoPE")
    assert (output["Taken away"], position["Taken away"]) == ("output", "position")
    assert output["Can be lost (points)"] == "89.0"
    assert position["Can be lost (points)"] == "74.4"
    assert listing.joined == 2


def test_what_has_no_position_is_undefined(quick: Path) -> None:
    _, position = lines(concentration_listing(read(quick), "distance"), "NoPE")
    assert position["Verdict"] == "undefined"
    assert set(list(position.values())[4:]) == {"–"}


def test_an_early_folder_has_one_line_a_run(early: Path) -> None:
    tables = read(early)
    listing = concentration_listing(tables, "distance")
    assert listing.columns[:3] == ["Scheme", "Seed", "Verdict"]
    assert len(listing.rows) == 9
    assert len(layer_listing(tables, "distance").rows) == 9 * 3 * 2
    assert metrics_of(tables) == "accuracy and loss"
    assert seed_listings(tables, "distance") is None


def test_all_layers_have_every_target_and_metric(quick: Path) -> None:
    tables = read(quick)
    rows = lines(layer_listing(tables, "count"), "RoPE")
    assert [(row["Layer"], row["Taken away"], row["Metric"]) for row in rows[:7]] == [
        *(("0", "output", metric) for metric in ("accuracy", "loss", "margin")),
        *(("0", "position", metric) for metric in ("accuracy", "loss", "margin")),
        ("1", "output", "accuracy"),
    ]
    assert rows[2]["Largest effect"].endswith(" nats")
    assert metrics_of(tables) == "accuracy, loss and margin"


def test_seeds_are_joined_by_mean_and_range(standard: Path) -> None:
    tables = read(standard)
    found = seed_listings(tables, "distance")
    assert found is not None
    first, every = found
    output, position = lines(first, "Sinusoidal")
    shares = tables.concentration.filter(
        scheme="sinusoidal", task="distance", layer=0, target="head", metric="accuracy"
    )["top_share"]
    values = shares.to_list()
    assert output["Top share"] == (f"{sum(values) / 3:.2f} ({min(values):.2f}–{max(values):.2f})")
    assert output["Defined in"] == position["Defined in"] == "3 of 3"
    assert len(lines(every, "Sinusoidal")) == 6
    nope = lines(first, "NoPE")
    assert (nope[1]["Verdicts"], nope[1]["Defined in"]) == ("undefined 3", "0 of 3")
    counted = tables.concentration.filter(
        pl.col("counted") > 0, scheme="nope", task="distance", layer=0, metric="accuracy"
    )
    assert nope[0]["Defined in"] == f"{counted.height} of 3"
