"""Head beside position effects."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from poslens.report.effects import absent, edits_of
from poslens.report.pairs import Comparison, comparison
from poslens.results import read


@pytest.fixture(scope="module")
def distance(quick: Path) -> Comparison:
    found = comparison(read(quick), "distance")
    assert found is not None
    return found


def test_every_run_has_both_maps_on_one_scale(distance: Comparison) -> None:
    rope = next(pair for pair in distance.pairs if pair.title == "RoPE")
    panels = [half.panel for half in rope.halves]
    assert all(panels)
    scales = {(t.zmin, t.zmax) for panel in panels if panel for t in panel.figure.data}
    assert len(scales) == 1
    assert [half.name for half in rope.halves] == ["Output set to zero", "Position taken away"]
    assert rope.halves[1].every == "74.4"
    position = rope.halves[1].panel
    assert position is not None
    assert "taking position from each of 8 heads" in position.alt
    assert "in every head of the model" in position.alt


def test_without_position_in_attention_the_effect_is_undefined(distance: Comparison) -> None:
    head, position = distance.pairs[0].halves
    assert distance.pairs[0].title == "NoPE"
    assert head.panel is not None
    assert position.panel is None
    assert position.reason == "No position in its attention: undefined."


def test_what_was_not_measured_is_not_called_undefined(quick: Path) -> None:
    tables = read(quick)
    kept = (pl.col("scheme") != "alibi") | (pl.col("target") != "position")
    fewer = replace(tables, effects=tables.effects.filter(kept))
    found = comparison(fewer, "distance")
    assert found is not None
    alibi = next(pair for pair in found.pairs if pair.title == "ALiBi")
    assert alibi.halves[1].reason == "Not measured, or no position in its attention."
    assert absent(tables)(("nope", "count", 0)) == "undefined"


def test_doors_of_a_hybrid_are_told_on_hover(quick: Path) -> None:
    tables = read(quick)
    door = tables.effects.filter(
        scheme="sinusoidal+rope", target="position", method="none"
    ).with_columns(target=pl.lit("rotation"), effect=pl.lit(0.125))
    found = comparison(replace(tables, effects=pl.concat([tables.effects, door])), "distance")
    assert found is not None
    pair = next(pair for pair in found.pairs if pair.title == "Sin. + RoPE")
    assert pair.halves[1].panel is not None
    hover = pair.halves[1].panel.figure.data[0].customdata[0][1]
    assert "<br>only the rotation taken away: 12.5 points (" in hover


def test_hovering_tells_every_metric_and_method(distance: Comparison) -> None:
    rope = next(pair for pair in distance.pairs if pair.title == "RoPE")
    assert rope.halves[1].panel is not None
    hover = rope.halves[1].panel.figure.data[0].customdata[0][1]
    assert hover.split("<br>") == [
        "<b>layer 0, head 1</b>",
        "accuracy falls by 53.0 points (52.4 to 53.6)",
        "loss rises by 1.59 nats (1.57 to 1.61)",
        "margin falls by 2.65 nats (2.62 to 2.68)",
        "kernel at its mean: 37.1 points (36.5 to 37.7)",
        "positions permuted: 58.3 points (57.7 to 58.9)",
    ]


def test_each_head_is_a_dot_with_both_effects(distance: Comparison) -> None:
    dots = {trace.customdata[0][0]: trace for trace in distance.against.figure.data}
    rope = next(trace for name, trace in dots.items() if name.startswith("<b>RoPE, seed 0"))
    assert (rope.x[0], rope.y[0]) == (31.0, 0.0)
    assert (rope.x[1], rope.y[1]) == (53.0, 53.0)
    assert len(distance.legend) == len(dots) == 8
    assert "RoPE, layer 0, head 6, 37.0 points against 0.0" in distance.against.alt or (
        "RoPE, 1 head, layer 0, head 0" in distance.against.alt
    )


def test_seeds_are_named_where_there_are_several(standard: Path) -> None:
    found = comparison(read(standard), "count")
    assert found is not None
    assert [pair.title for pair in found.pairs[:2]] == ["NoPE, seed 0", "NoPE, seed 1"]
    assert len({half.panel.id for pair in found.pairs for half in pair.halves if half.panel}) == 51


def test_an_early_folder_has_no_pairs(early: Path) -> None:
    assert comparison(read(early), "distance") is None


def test_edits_come_position_first() -> None:
    table = pl.DataFrame(
        [("head", "zero"), ("position", "mean"), ("other", "x"), ("position", "none")],
        schema=["target", "method"],
        orient="row",
    )
    assert edits_of(table) == [
        ("position", "none"),
        ("position", "mean"),
        ("head", "zero"),
        ("other", "x"),
    ]
