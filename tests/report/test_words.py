from pathlib import Path
from typing import Any

import polars as pl
import pytest

from poslens.report.provenance import Provenance, read_provenance
from poslens.report.words import (
    best_of,
    findings,
    first_layer,
    first_positions,
    position_free,
)
from poslens.results import read


@pytest.fixture(scope="module")
def summary(quick: Path) -> pl.DataFrame:
    return read(quick).summary


def with_accuracy(summary: pl.DataFrame, scheme: str, accuracy: float) -> pl.DataFrame:
    chosen = pl.when(scheme=scheme).then(accuracy).otherwise("accuracy")
    return summary.with_columns(accuracy=chosen)


def config(**settings: Any) -> Provenance:
    return Provenance({}, {("nope", "distance", 0): settings}, {})


def test_the_best_scheme_is_told_with_its_interval(summary: pl.DataFrame) -> None:
    text = best_of(summary, "count")
    assert text.startswith("On count, MLA is most accurate: 94.7\u202f%")
    assert "5.3 points below the ceiling" in text
    assert "next comes T5 bias with 87.3\u202f%, last Sinusoidal" in text
    assert "overlap" not in text


def test_a_lead_within_the_intervals_is_called_so(summary: pl.DataFrame) -> None:
    assert "(their intervals overlap)" in best_of(summary, "distance")


def test_one_scheme_is_compared_with_none(summary: pl.DataFrame) -> None:
    assert "next" not in best_of(summary.filter(scheme="rope"), "distance")


def test_nope_is_held_against_the_length_only_baseline(summary: pl.DataFrame) -> None:
    (text,) = position_free(summary, "distance", config())
    assert "20.7\u202f%, 0.1 points below the 20.8\u202f% that sequence length alone" in text


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model": {"causal": True}}, "causal mask"),
        ({"task_settings": {"fillers": "published"}}, "without replacement"),
        ({}, "points to a fault"),
    ],
)
def test_an_excess_of_nope_is_explained(
    summary: pl.DataFrame, settings: dict[str, Any], reason: str
) -> None:
    (text,) = position_free(with_accuracy(summary, "nope", 0.4), "distance", config(**settings))
    assert "19.2 points above" in text
    assert reason in text


def test_nope_on_count_needs_no_excuse(summary: pl.DataFrame) -> None:
    assert position_free(summary, "count", config()) == []


def test_first_layers_are_told_by_verdict(quick: Path) -> None:
    (text,) = first_layer(read(quick).concentration, "distance")
    assert "deposit in RoPE on 1 head;" in text
    assert "undecidable in NoPE." in text
    assert "takes 87.0 points of accuracy, the next 53.0 points" in text


def test_first_positions_are_told_by_verdict(quick: Path) -> None:
    (text,) = first_positions(read(quick).concentration, "distance")
    assert text.startswith("Taking from first-layer heads nothing but their position on distance:")
    assert "deposit in RoPE on 1 head" in text
    assert "undefined in NoPE." in text
    assert "position is worth 87.0 points, that of all heads of the model 74.4 points." in text


def test_without_position_effects_nothing_is_said_of_them(early: Path) -> None:
    tables = read(early)
    assert first_positions(tables.concentration, "distance") == []
    assert len(findings(tables, read_provenance(early))) == 5


def test_seeds_that_differ_are_counted(standard: Path) -> None:
    table = read(standard).concentration
    one = (pl.col("scheme") == "rope") & (pl.col("seed") == 1)
    table = table.with_columns(verdict=pl.when(one).then(pl.lit("deposit")).otherwise("verdict"))
    (text,) = first_layer(table, "distance")
    assert "deposit in RoPE (1 of 3 seeds) and RoPE on 1 head" in text
    assert "RoPE (2 of 3 seeds)" in text


def test_without_ablation_nothing_is_said_of_heads(quick: Path) -> None:
    tables = read(quick)
    assert first_layer(tables.concentration.clear(), "distance") == []
    assert len(findings(tables, read_provenance(quick))) == 7
