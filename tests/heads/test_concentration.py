"""Planted patterns of effects and the verdicts they must get."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from poslens.errors import InputError
from poslens.heads.concentration import (
    PERMUTATIONS,
    Concentration,
    concentration,
    concentration_rows,
    permutation_p,
    shares,
    verdict,
)
from poslens.heads.estimates import Effects, Measured, Metric, estimate
from poslens.results import CONCENTRATION

HEADS, SEQUENCES = 8, 1024
BASELINE = 0.05


def plant(
    costs_H: list[float], whole: float, intact: float = 0.95, seed: int = 0
) -> tuple[Effects, Effects]:
    """A model of one layer in which ablating head h spoils a share `costs_H[h]` of the answers.

    A spoiled answer costs about 3 nats; any other changes its loss by noise of deviation 0.05.
    """
    generator = np.random.default_rng(seed)
    intact_N = generator.random(SEQUENCES) < intact
    loss_N = np.where(intact_N, 0.1, 2.0) + generator.exponential(0.05, SEQUENCES)

    def ablate(cost: float) -> tuple[np.ndarray, np.ndarray]:
        hit_N = generator.random(SEQUENCES) < cost
        noise_N = generator.normal(0, 0.05, SEQUENCES)
        rise_N = np.where(hit_N, generator.gamma(6, 0.5, SEQUENCES), noise_N)
        # Some answers flip whatever the head does, as many to wrong as to right on average.
        flips_N = generator.random(SEQUENCES) < 0.05 * np.where(intact_N, 1 - intact, intact)
        return (intact_N & ~hit_N) ^ flips_N, loss_N + rise_N

    correct, losses = zip(*(ablate(cost) for cost in [*costs_H, whole]), strict=True)
    accuracy = Measured("accuracy", intact_N, np.stack(correct[:-1])[None], correct[-1][None])
    loss = Measured("loss", loss_N, np.stack(losses[:-1])[None], losses[-1][None])
    return estimate(accuracy), estimate(loss)


def found(*pattern: Any, **more: Any) -> dict[Metric, Effects]:
    accuracy, loss = plant(*pattern, **more)
    return {"accuracy": accuracy, "loss": loss}


PATTERNS = {
    "deposit": ([0.0, 0.0, 0.6, 0.01, 0.0, 0.02, 0.0, 0.0], 0.9, 0.95),
    "weak deposit": ([0.0, 0.0, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0], 0.9, 0.95),
    "spread": ([0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0], 0.9, 0.95),
    "none": ([0.0] * HEADS, 0.0, 0.95),
    "undecidable": ([0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0], 0.1, 0.2),
}


@pytest.mark.parametrize("expected", PATTERNS)
def test_planted_patterns_get_their_verdict(expected: str) -> None:
    costs_H, whole, intact = PATTERNS[expected]
    rows = concentration_rows(found(costs_H, whole, intact), BASELINE)
    table = pl.DataFrame(rows, schema=CONCENTRATION)
    assert rows[0].keys() == CONCENTRATION.keys()
    assert table["metric"].to_list() == ["accuracy", "loss"]
    assert table["verdict"].to_list() == [expected, expected]


def test_one_head_that_carries_all_and_two_that_share() -> None:
    alone, loss = (concentration(e, 0) for e in plant(*PATTERNS["deposit"]))
    assert alone.top_head == loss.top_head == 2
    assert alone.top_share > 0.9
    assert alone.effective_heads < 1.2
    assert alone.deposit_index == pytest.approx((alone.top_share - 1 / 8) / (7 / 8))
    assert alone.top_share_low <= alone.top_share <= alone.top_share_high
    assert alone.null_p == loss.null_p == 1 / (1 + PERMUTATIONS)
    assert alone.lost == pytest.approx(0.85, abs=0.05)
    assert alone.largest == pytest.approx(0.57, abs=0.05)
    split, _ = (concentration(e, 0) for e in plant(*PATTERNS["spread"]))
    assert split.counted == 2
    assert split.effective_heads_low <= 2 <= split.effective_heads_high + 0.01
    assert split.second_high > split.largest_low / 3


def test_nothing_above_noise_has_no_shares() -> None:
    accuracy, _ = (concentration(e, 0) for e in plant(*PATTERNS["none"]))
    assert accuracy.counted == 0
    assert np.isnan([accuracy.top_share, accuracy.effective_heads, accuracy.top_share_low]).all()
    assert np.isfinite([accuracy.largest, accuracy.second_high, accuracy.lost]).all()
    assert accuracy.null_p > 0.01


def test_noise_rarely_counts_as_an_effect() -> None:
    """Holm keeps the chance that any head counts at 5 % a metric, so 10 % for two."""
    verdicts = [
        concentration_rows(found(*PATTERNS["none"], seed=seed), BASELINE)[0]["verdict"]
        for seed in range(5)
    ]
    assert verdicts.count("none") >= 4
    assert "deposit" not in verdicts


def test_a_layer_of_one_head_is_undecidable() -> None:
    rows = concentration_rows(found([0.6], 0.9), BASELINE)
    assert {row["verdict"] for row in rows} == {"undecidable"}
    for name in ("top_share", "effective_heads", "deposit_index", "null_p", "second"):
        assert np.isnan(rows[0][name])


def test_shares_known_answers() -> None:
    top, effective = shares(np.array([[3.0, 1.0, 0.0, -2.0], [1, 1, 1, 1], [0, -1, 0, 0]]))
    np.testing.assert_allclose(top, [0.75, 0.25, np.nan])
    np.testing.assert_allclose(effective, [1.6, 4.0, np.nan])


def test_null_tells_a_fixed_head_from_one_drawn_for_each_example() -> None:
    generator = np.random.default_rng(0)
    fixed_HN = np.zeros((4, 500), np.float32)
    fixed_HN[1, :50] = 1
    drawn_HN = np.zeros((4, 500), np.float32)
    drawn_HN[generator.integers(0, 4, 500), np.arange(500)] = 1
    assert permutation_p(fixed_HN) == 1 / (1 + PERMUTATIONS)
    assert permutation_p(drawn_HN) > 0.05
    assert np.isnan(permutation_p(np.zeros((4, 500), np.float32)))


def test_null_p_is_uniform_under_the_null() -> None:
    generator = np.random.default_rng(4)
    p = [
        permutation_p(generator.exponential(size=(4, 128)).astype(np.float32), seed)
        for seed in range(60)
    ]
    assert 0.3 < np.mean(p) < 0.7
    assert np.mean(np.array(p) <= 0.2) < 0.4


SHAPE = Concentration(
    heads=8,
    counted=2,
    top_head=3,
    top_share=0.9,
    top_share_low=0.8,
    top_share_high=0.95,
    effective_heads=1.2,
    effective_heads_low=1.1,
    effective_heads_high=1.4,
    deposit_index=0.89,
    null_p=0.002,
    lost=0.9,
    largest=0.6,
    largest_low=0.5,
    second=0.05,
    second_high=0.08,
)


@pytest.mark.parametrize(
    ("accuracy", "loss", "room", "expected"),
    [
        ({}, {}, 0.3, "deposit"),
        ({}, {}, 0.29, "undecidable"),
        ({"largest_low": 0.271}, {}, 0.9, "deposit"),
        ({"largest_low": 0.269}, {}, 0.9, "weak deposit"),
        ({}, {"largest_low": 0.269}, 0.9, "weak deposit"),
        ({"second_high": 0.17}, {}, 0.9, "spread"),
        ({}, {"second_high": 0.17}, 0.9, "spread"),
        ({"effective_heads": 2.0}, {}, 0.9, "spread"),
        ({}, {"top_head": 4}, 0.9, "spread"),
        ({"lost": -0.1}, {}, 0.9, "weak deposit"),
        ({"counted": 0, "largest_low": -0.1, "effective_heads": np.nan}, {}, 0.9, "spread"),
        ({"counted": 0}, {"counted": 0}, 0.9, "none"),
        ({"counted": 0}, {"counted": 0}, 0.1, "undecidable"),
    ],
)
def test_each_condition_of_the_verdict(
    accuracy: dict[str, float], loss: dict[str, float], room: float, expected: str
) -> None:
    assert verdict(replace(SHAPE, **accuracy), replace(SHAPE, **loss), room) == expected


def test_metrics_of_different_heads_are_refused() -> None:
    accuracy, _ = plant([0.1] * 4, 0.5)
    _, loss = plant([0.1] * 5, 0.5)
    with pytest.raises(InputError, match="measure all on the same heads"):
        concentration_rows({"accuracy": accuracy, "loss": loss}, BASELINE)
    with pytest.raises(InputError, match="a verdict needs accuracy and loss, got accuracy; measur"):
        concentration_rows({"accuracy": accuracy}, BASELINE)


@pytest.mark.parametrize(("everything", "expected"), [(False, "deposit"), (True, "weak deposit")])
def test_what_position_can_lose_is_what_all_of_it_is_worth(everything: bool, expected: str) -> None:
    """A quarter of the answers is most of what the layer can lose, not of what the model can."""
    judged = {}
    for metric, effects in found([0.0, 0.0, 0.25, 0.0], 0.26).items():
        measured = effects.measured
        all_wrong_N = np.zeros_like if metric == "accuracy" else lambda loss_N: loss_N + 9
        model_N = all_wrong_N(measured.intact_N) if everything else measured.layers_AN[0]
        judged[metric] = estimate(replace(measured, target="position", model_N=model_N))
    rows = concentration_rows(judged, BASELINE)
    assert {row["verdict"] for row in rows} == {expected}
    assert rows[0]["lost"] == pytest.approx(float(judged["accuracy"].model.effect))
    alone = replace(judged["accuracy"].measured, model_N=None)
    with pytest.raises(InputError, match="every head's position taken; give them as model_N"):
        concentration(estimate(alone), 0)
