"""Intervals under early stopping, by the engine's own rule applied look by look: they still cover.

Shapes: R repetitions, V variants, N sequences.
"""

import numpy as np
import pytest

from poslens.heads.intervals import LossBootstrap, paired_accuracy
from poslens.heads.stopping import DISCORDANT, LOOK, precise

MOST = 16 * LOOK


def seen_by_then(intact_N: np.ndarray, ablated_RVN: np.ndarray, precision: float) -> np.ndarray:
    """After how many sequences each repetition stops, (R,)."""
    seen_R = np.full(len(ablated_RVN), len(intact_N))
    for look in range(len(intact_N) - LOOK, 0, -LOOK):  # the first look that may stop has its way
        stop_R = precise(intact_N[:look], ablated_RVN[..., :look], precision)
        seen_R[stop_R] = look
    return seen_R


def answers(
    rates: list[float], gained_share: float, repetitions: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Intact (N,) and ablated (R, V, N) answers, changed at these rates, and true effects (V,)."""
    rate_V1 = np.array(rates)[:, None]
    intact_N = np.arange(MOST) % 2 >= 2 * gained_share  # right ones are lost, wrong gained
    changed_RVN = generator.random((repetitions, len(rates), MOST), np.float32) < rate_V1
    return intact_N, intact_N ^ changed_RVN, (1 - 2 * gained_share) * rate_V1[:, 0]


# Changed answers per look, of one variant or several; one of them is enough for every day.
HEAVY = ([1.0], [10.0], [40.0], [150.0], [1.0, 150.0])
RATES = [[3.0], *(pytest.param(rates, marks=pytest.mark.slow) for rates in HEAVY)]


@pytest.mark.parametrize(("gained_share", "precision"), [(0.0, 0.01), (0.0, 0.03), (0.5, 0.02)])
@pytest.mark.parametrize("per_look", RATES)
def test_accuracy_intervals_cover(
    per_look: list[float], gained_share: float, precision: float
) -> None:
    """At most 1.5 points under nominal, binomial error apart; a fixed number has nearly a point.

    Above nominal goes what is made from few changed answers, and, since all repetitions share the
    intact answers, what changes many of both kinds.
    """
    repetitions = 4000 // len(per_look)
    generator = np.random.default_rng(1)
    rates = [pairs / LOOK for pairs in per_look]
    intact_N, ablated_RVN, truth_V = answers(rates, gained_share, repetitions, generator)
    seen_R = seen_by_then(intact_N, ablated_RVN, precision)
    covered_V = np.zeros(len(rates))
    for seen in np.unique(seen_R):
        for variant, truth in enumerate(truth_V):
            stopped_RN = ablated_RVN[seen_R == seen, variant, :seen]
            found = paired_accuracy(intact_N[:seen], stopped_RN)
            covered_V[variant] += ((found.low <= truth) & (truth <= found.high)).sum()
    error = 0.015 + 2 * np.sqrt(0.95 * 0.05 / repetitions)
    assert (covered_V / repetitions >= 0.95 - error).all()
    if min(per_look) >= 40 and not gained_share:
        assert (covered_V / repetitions <= 0.95 + error).all()


@pytest.mark.parametrize("per_look", [10.0, 60.0, 200.0])
def test_loss_intervals_cover(per_look: float) -> None:
    """Losses rise, by skewed amounts, where answers are lost; answers decide when to stop."""
    repetitions = 300
    generator = np.random.default_rng(2)
    intact_N, ablated_RVN, _ = answers([per_look / LOOK], 0.0, repetitions, generator)
    changed_RN = ablated_RVN[:, 0] != intact_N
    rise_RN = changed_RN * generator.exponential(size=changed_RN.shape) + 0.05 * generator.normal(
        size=changed_RN.shape
    )
    truth, covered = per_look / LOOK, 0
    seen_R = seen_by_then(intact_N, ablated_RVN, 0.03)
    assert (seen_R < MOST).all()
    for seen in np.unique(seen_R):
        found = LossBootstrap(rise_RN[seen_R == seen, :seen], family=1).interval()
        covered += int(((found.low <= truth) & (truth <= found.high)).sum())
    error = 0.01 + 2 * np.sqrt(0.95 * 0.05 / repetitions)
    assert 0.95 - error <= covered / repetitions <= 0.95 + error


def test_the_rule_waits_for_a_look_for_width_and_for_changed_answers() -> None:
    intact_N = np.ones(2 * LOOK, bool)
    ablated_VN = np.ones((2, 2 * LOOK), bool)
    assert not precise(intact_N, ablated_VN, 0.5)  # nothing changed
    ablated_VN[1, : DISCORDANT - 1] = False
    ablated_VN[1, LOOK : LOOK + 5] = False  # in the second half
    assert not precise(intact_N, ablated_VN, 0.5)
    ablated_VN[1, DISCORDANT - 1] = False
    assert precise(intact_N, ablated_VN, 0.5)
    assert not precise(intact_N[: LOOK - 1], ablated_VN[:, : LOOK - 1], 0.5)
    found = paired_accuracy(intact_N, ablated_VN)
    reach = max((found.high - found.effect).max(), (found.effect - found.low).max())
    assert precise(intact_N, ablated_VN, reach + 1e-9)
    assert not precise(intact_N, ablated_VN, reach - 1e-9)
    apart = np.stack([ablated_VN, np.ones_like(ablated_VN)])
    np.testing.assert_array_equal(precise(intact_N, apart, 0.5), [True, False])
