"""Probes find what is planted, as well as can be, and nothing where there is nothing."""

import math
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
import torch
from scipy.stats import norm, ttest_1samp

from poslens.claims.implicit import appears
from poslens.model import TransformerSites
from poslens.probing import Score, filler_sequences, probe, residual_streams
from poslens.probing.probes import mean_and_interval, shuffled
from poslens.results import KEY
from poslens.tasks import Distance

LENGTH = 12
VARIANCE = (LENGTH**2 - 1) / 12


def scores(x_BLE: torch.Tensor, shuffle: int = 0) -> dict[tuple[str, str], Score]:
    return {(it.target, it.score): it for it in probe(x_BLE, shuffle)}


@pytest.mark.parametrize("size", [0.2, 1.0, 10.0])
def test_a_planted_direction_is_read_as_well_as_can_be(planted: Callable, size: float) -> None:
    """The best linear answer, and the best nearest mean, are known for normal content."""
    found = scores(planted(size))
    share = size**2 * VARIANCE / (size**2 * VARIANCE + 1)
    inner, outer = 2 * norm.cdf(size / 2) - 1, norm.cdf(size / 2)
    right = ((LENGTH - 2) * inner + 2 * outer) / LENGTH
    r2, accuracy = found["true", "r2"], found["true", "accuracy"]
    assert r2.value == pytest.approx(share, abs=0.03)
    assert accuracy.value == pytest.approx(right, abs=0.03)
    assert r2.low <= r2.value <= r2.high
    if size > 5:
        assert r2.value > 0.99
        assert found["true", "error"].value < 0.15


def test_shuffled_positions_are_at_chance_whatever_is_planted(planted: Callable) -> None:
    for size in (0.0, 10.0):
        found = scores(planted(size))
        for score, near in (("r2", 0.01), ("error", 0.03), ("accuracy", 0.012)):
            it = found["shuffled", score]
            assert it.value == pytest.approx(it.chance, abs=near)


def test_without_position_true_labels_do_no_better(planted: Callable) -> None:
    found = scores(planted(0.0))
    for score, near in (("r2", 0.01), ("error", 0.03), ("accuracy", 0.012)):
        it = found["true", score]
        assert it.value == pytest.approx(it.chance, abs=near)


@pytest.mark.parametrize("length", [5, 12])
def test_chance_is_the_best_constant_answer(planted: Callable, length: int) -> None:
    found = scores(planted(0.0, sequences=40, length=length))
    positions = np.arange(length)
    best = min(abs(positions - constant / 2).mean() for constant in range(2 * length))
    assert found["true", "error"].chance == pytest.approx(best)
    assert found["true", "accuracy"].chance == 1 / length
    assert found["true", "r2"].chance == 0


def test_intervals_are_over_sequences() -> None:
    """Position is plain in half of the sequences and drowned in the others: a sequence is one draw,
    and tokens taken as independent would promise a third of the width."""
    generator = torch.Generator().manual_seed(0)
    loud_B11 = torch.tensor([0.01, 5.0]).repeat(300)[:, None, None]
    content_BLE = loud_B11 * torch.randn(600, LENGTH, 16, generator=generator)
    it = scores(content_BLE + torch.arange(LENGTH)[:, None])["true", "accuracy"]
    deviation = (1 - it.value) ** 0.5 * (it.value - 0.08) ** 0.5  # of a mixture of two
    assert (it.high - it.low) / 2 == pytest.approx(1.97 * deviation / 300**0.5, rel=0.25)


def test_a_mean_has_students_interval() -> None:
    values_N = np.random.default_rng(0).random(50)
    mean, low, high = mean_and_interval(values_N)
    expected = ttest_1samp(values_N, 0).confidence_interval(0.95)
    assert (mean, low, high) == pytest.approx((values_N.mean(), expected.low, expected.high))


def test_an_interval_covers_the_next_sequences(planted: Callable) -> None:
    """Half of the sequences again: their score lies near the interval of the first."""
    first = scores(planted(0.3, seed=0))["true", "r2"]
    for seed in (1, 2, 3):
        other = scores(planted(0.3, seed=seed))["true", "r2"]
        assert abs(other.value - first.value) < 2 * math.hypot(
            (first.high - first.low) / 2, (other.high - other.low) / 2
        )


def test_scored_sequences_are_not_fitted_on(planted: Callable) -> None:
    """Labels that only the first half's words know are not read in the second."""
    x_BLE = planted(0.0, sequences=40, length=6, width=120)
    assert scores(x_BLE)["true", "accuracy"].value < 0.35


def test_shuffled_positions_are_permutations_of_their_own() -> None:
    order = shuffled(200, 7, 0)
    assert (np.sort(order, 1) == np.arange(7)).all()
    assert len({tuple(row) for row in order.tolist()}) > 150
    assert (order == shuffled(200, 7, 0)).all()
    assert (order != shuffled(200, 7, 1)).any()


def rows(sites: TransformerSites, task: Distance, sequences: int) -> pl.DataFrame:
    streams = residual_streams(sites, filler_sequences(task, sequences))
    found = [
        {"scheme": "s", "task": "t", "seed": 0, "state": state, **vars(score)}
        for state, x_BLE in enumerate(streams)
        for score in probe(x_BLE, state)
    ]
    return pl.DataFrame(found, schema_overrides=KEY)


def test_without_position_or_mask_no_state_tells_it(small: Callable, task: Distance) -> None:
    table = rows(TransformerSites(small("nope")), task, 300)
    assert appears(table)["appears"].to_list() == [None]
    read = table.filter(score="r2")
    assert read.height == 2 * 3
    assert read["value"].abs().max() < 0.02
    named = table.filter(score="accuracy")
    assert (named["value"] - 1 / task.max_length).abs().max() < 0.03


def test_a_causal_mask_tells_it_after_the_first_layer(small: Callable, task: Distance) -> None:
    table = rows(TransformerSites(small("nope", causal=True)), task, 300)
    assert appears(table)["appears"].to_list() == [1]
    read = table.filter(score="r2", target="true")["value"]
    assert abs(read[0]) < 0.02
    assert read[1] > 0.05


def test_a_table_tells_it_at_once(small: Callable, task: Distance) -> None:
    table = rows(TransformerSites(small("sinusoidal")), task, 100)
    assert appears(table)["appears"].to_list() == [0]
