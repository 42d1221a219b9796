"""What the figures draw: the frames made from result tables."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from poslens.report.accuracy import accuracy_frame, references
from poslens.report.by_label import grid, label_frame
from poslens.report.curves import ends_frame, mean_frame
from poslens.report.effects import (
    all_limits,
    both_frame,
    effect_frame,
    effect_limits,
    every_head,
)
from poslens.report.heads import head_ticks
from poslens.results import Tables, read


@pytest.fixture(scope="module")
def tables(quick: Path) -> Tables:
    return read(quick)


def test_accuracy_is_sorted_and_keeps_the_tables_values(tables: Tables) -> None:
    frame = accuracy_frame(tables.summary, "distance")
    assert frame["mean"].is_sorted(descending=True)
    expected = tables.summary.filter(task="distance").sort("accuracy", descending=True)
    assert frame["accuracy"].to_list() == expected["accuracy"].to_list()
    assert ((frame["low"] <= frame["accuracy"]) & (frame["accuracy"] <= frame["high"])).all()


def test_the_studys_numbers_stand_only_where_it_gives_one(tables: Tables) -> None:
    frame = accuracy_frame(tables.summary, "count").drop_nulls("paper")
    assert dict(frame["scheme", "paper"].iter_rows()) == {
        "mla": 0.9741,
        "rope": 0.6943,
        "nope": 0.7769,
    }


def test_seeds_share_a_mean(standard: Path) -> None:
    frame = accuracy_frame(read(standard).summary, "count").filter(scheme="mla")
    assert frame["runs"].to_list() == [3, 3, 3]
    assert frame["mean"].to_list() == pytest.approx([frame["accuracy"].mean()] * 3)


def test_equal_references_share_a_line(tables: Tables) -> None:
    assert [name for _, name in references(tables.summary, "distance")] == [
        "chance",
        "length-only",
        "ceiling",
    ]
    assert [name for _, name in references(tables.summary, "count")] == [
        "chance = length-only",
        "ceiling",
    ]


def test_labels_are_counted_in_the_tasks_unit_and_pooled_over_seeds(standard: Path) -> None:
    tables = read(standard)
    frame = label_frame(tables, "distance")
    assert (frame["label"].min(), frame["label"].max()) == (2, 21)
    cell = frame.filter(scheme="rope", label=2)
    runs = tables.labels.filter(scheme="rope", task="distance", label=0)
    assert cell["count"].item() == runs["count"].sum()
    assert cell["accuracy"].item() == runs["correct"].sum() / runs["count"].sum()


def test_the_best_scheme_is_the_top_row(tables: Tables) -> None:
    schemes, labels, cells = grid(label_frame(tables, "distance"))
    assert schemes[-1] == "rope@1"
    assert schemes[0] == "nope"
    assert all(len(row) == len(labels) == 20 for row in cells)


def test_a_seed_that_stopped_early_keeps_its_last_accuracy() -> None:
    runs = pl.DataFrame(
        {
            "scheme": ["rope"] * 5,
            "seed": [0, 0, 1, 1, 1],
            "thousands": [1.0, 2.0, 1.0, 2.0, 3.0],
            "accuracy": [0.5, 1.0, 0.1, 0.2, 0.6],
        }
    )
    assert mean_frame(runs)["accuracy"].to_list() == pytest.approx([0.3, 0.6, 0.8])
    end = ends_frame(runs, 4).row(0, named=True)
    assert (end["thousands"], end["accuracy"]) == (3.0, pytest.approx(80))


def test_effects_are_certain_where_holms_interval_leaves_zero_out(tables: Tables) -> None:
    frame = effect_frame(tables)
    rope = frame.filter(scheme="rope", task="distance", layer=0)
    assert rope.filter(head=3)["effect"].item() == 0.87
    assert rope.filter(head=3)["certain"].item()
    quiet = frame.filter(scheme="rope@1", task="distance", layer=0, head=3)
    assert not quiet["certain"].item()
    assert rope.filter(head=3)["loss"].item() == pytest.approx(2.61)


def test_all_runs_share_one_scale(tables: Tables) -> None:
    frame = effect_frame(tables)
    low, high = effect_limits(frame)
    assert low <= 0 < high
    assert high == pytest.approx(100 * max(frame["effect"]))
    assert low == pytest.approx(min(0, 100 * min(frame["effect"])))


def test_noise_stays_pale(tables: Tables) -> None:
    quiet = effect_frame(tables).with_columns(effect=pl.col("effect") / 1000)
    assert effect_limits(quiet)[1] == 10


def test_position_effects_are_those_of_position_taken_away(tables: Tables) -> None:
    rope = effect_frame(tables, "position").filter(scheme="rope", task="distance", layer=0)
    values = dict(rope["head", "effect"].iter_rows())
    assert values[1] == 0.53
    assert values[0] == 0.0
    assert values[2] == pytest.approx(0.24)
    other = rope.row(1, named=True)
    assert other["margin"] == pytest.approx(5 * other["effect"])
    assert other["mean"] == pytest.approx(0.7 * other["effect"])
    assert other["resample_low"] == pytest.approx(1.1 * other["effect"] - 0.006)


def test_what_all_heads_cost_is_no_cell(tables: Tables) -> None:
    for target in ("head", "position"):
        assert min(effect_frame(tables, target)["layer"].to_list()) == 0
    points, words = every_head(tables, "position")["rope", "distance", 0]
    model = tables.effects.filter(
        scheme="rope", task="distance", target="position", layer=-1, method="none"
    )
    fall = model.filter(metric="accuracy")["effect"].item()
    assert points == f"{100 * fall:.1f}"
    assert words.startswith("position taken away in every head of the model, accuracy falls by")
    assert ("nope", "distance", 0) not in every_head(tables, "position")


def test_both_targets_share_one_scale(tables: Tables) -> None:
    loud = pl.when(target="position").then(pl.col("effect") * 3).otherwise("effect")
    louder = replace(tables, effects=tables.effects.with_columns(effect=loud))
    assert all_limits(louder)[1] > effect_limits(effect_frame(louder))[1]


def test_single_heads_have_both_effects_side_by_side(tables: Tables) -> None:
    both = both_frame(tables, "distance")
    assert both.height == 8 * 3 * 8
    row = both.filter(scheme="rope", layer=0, head=0)
    assert (row["effect"].item(), row["effect_position"].item()) == (0.31, 0.0)


def test_an_early_folder_has_no_position_and_no_margin(early: Path) -> None:
    tables = read(early)
    assert effect_frame(tables, "position").is_empty()
    assert both_frame(tables, "distance").is_empty()
    assert every_head(tables, "head") == {}
    frame = effect_frame(tables)
    assert frame["margin"].null_count() == frame["mean"].null_count() == frame.height


def test_heads_are_named_as_far_as_there_is_room() -> None:
    assert head_ticks(2) == ([0, 1, 2.5], ["0", "1", "all"])
    assert head_ticks(16)[1] == ["0", "2", "4", "6", "8", "10", "12", "14", "all"]
