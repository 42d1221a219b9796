"""Coverage, duality with p-values, and known answers of the intervals."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import multinomial, norm

from poslens.errors import InputError
from poslens.heads.intervals import (
    ALPHA,
    LossBootstrap,
    holm,
    paired_accuracy,
    resampled_means,
)


def pairs(lost: int, gained: int, sequences: int) -> tuple[np.ndarray, np.ndarray]:
    """One head's answers with so many sequences lost and gained by ablating it."""
    intact_N, ablated_N = np.zeros((2, sequences), bool)
    intact_N[:lost] = True
    ablated_N[lost : lost + gained] = True
    return intact_N, ablated_N[None]


@pytest.mark.parametrize(
    ("lost", "gained", "sequences", "level", "low", "high", "decimals"),
    [
        (0, 1, 44, 0.90, -0.096, 0.037, 3),  # Tango 1998, cross-over trial of contact lenses
        (9, 3, 32, 0.95, -0.027, 0.390, 3),  # the example of Newcombe 1998, by Tango's method
        # Fagerland, Lydersen and Laake 2017, table 8.4 (Cavo et al. 2012)
        (6, 16, 161, 0.95, -0.1240, -0.0054, 4),
    ],
)
def test_published_examples_of_tangos_interval(
    lost: int, gained: int, sequences: int, level: float, low: float, high: float, decimals: int
) -> None:
    estimate = paired_accuracy(*pairs(lost, gained, sequences), level)
    assert estimate.effect[0] == pytest.approx((lost - gained) / sequences)
    assert round(float(estimate.low[0]), decimals) == low
    assert round(float(estimate.high[0]), decimals) == high


@pytest.mark.parametrize(("lost", "gained"), [(30, 12), (5, 0), (0, 5), (1, 1), (200, 3)])
def test_bounds_are_where_the_score_test_rejects(lost: int, gained: int) -> None:
    """The nuisance maximises the likelihood numerically here, in the closed form in the code."""
    sequences = 512
    estimate = paired_accuracy(*pairs(lost, gained, sequences))
    for bound, side in ((estimate.low[0], 1), (estimate.high[0], -1)):

        def cost(gain_rate: float, difference: float = bound) -> float:
            rates = [gain_rate + difference, gain_rate, 1 - 2 * gain_rate - difference]
            counts = [lost, gained, sequences - lost - gained]
            return -sum(n * np.log(max(r, 1e-300)) for n, r in zip(counts, rates, strict=True) if n)

        least, most = max(0.0, -bound), (1 - bound) / 2
        gain_rate = minimize_scalar(
            cost, bounds=(least, most), method="bounded", options={"xatol": 1e-12}
        ).x
        variance = (2 * gain_rate + bound - bound**2) / sequences
        score = ((lost - gained) / sequences - bound) / np.sqrt(variance)
        assert score == pytest.approx(side * norm.ppf(0.975), abs=2e-3)


def test_no_discordant_pair_and_all_discordant() -> None:
    z2 = norm.ppf(0.975) ** 2
    none = paired_accuracy(*pairs(0, 0, 2048))
    assert none.high[0] == pytest.approx(z2 / (2048 + z2))
    assert none.low[0] == pytest.approx(-z2 / (2048 + z2))
    assert none.p[0] == 1
    everything = paired_accuracy(*pairs(512, 0, 512))
    assert (everything.effect[0], everything.high[0]) == (1, 1)
    assert 0.98 < everything.low[0] < 1
    assert everything.p[0] < 1e-100


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.5, 0.9999))
def test_accuracy_interval_excludes_zero_exactly_where_p_says(
    lost: int, gained: int, level: float
) -> None:
    estimate = paired_accuracy(*pairs(lost, gained, 256), level)
    assert estimate.low[0] <= estimate.effect[0] <= estimate.high[0]
    excluded = estimate.low[0] > 0 or estimate.high[0] < 0
    assert excluded == (estimate.p[0] < 1 - level)
    mirrored = paired_accuracy(*pairs(gained, lost, 256), level)
    assert mirrored.low[0] == pytest.approx(-estimate.high[0], abs=1e-12)


@pytest.mark.parametrize("sequences", [512, 2048])
@pytest.mark.parametrize("gained_share", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("expected", [1, 3, 10, 40, 150])
def test_accuracy_interval_covers(sequences: int, gained_share: float, expected: int) -> None:
    """At most about 2 points under nominal, from one expected discordant pair up.

    Few discordant pairs are a coarse lattice: coverage there swings, mostly to the safe side.
    """
    lost_rate = expected * (1 - gained_share) / sequences
    gained_rate = expected * gained_share / sequences
    counts, weights = np.unique(
        multinomial.rvs(
            sequences,
            [lost_rate, gained_rate, 1 - lost_rate - gained_rate],
            size=20_000,
            random_state=expected,
        )[:, :2],
        axis=0,
        return_counts=True,
    )
    intact_N = np.arange(sequences) < sequences // 2
    ablated_HN = np.tile(intact_N, (len(counts), 1))
    for head, (lost, gained) in enumerate(counts):
        ablated_HN[head, :lost] = False
        ablated_HN[head, sequences - gained :] = True
    estimate = paired_accuracy(intact_N, ablated_HN)
    truth = lost_rate - gained_rate
    covered = np.average((estimate.low <= truth) & (truth <= estimate.high), weights=weights)
    assert covered >= 0.935
    if expected >= 40:
        assert covered <= 0.965


SKEWED = {
    "normal": (lambda generator, size: generator.normal(0.1, 1, size), 0.1),
    "lognormal": (lambda generator, size: generator.lognormal(size=size), np.exp(0.5)),
    "one example in twenty": (
        lambda generator, size: generator.exponential(size=size) * (generator.random(size) < 0.05),
        0.05,
    ),
}


@pytest.mark.parametrize("sequences", [512, 2048])
@pytest.mark.parametrize("name", SKEWED)
def test_loss_interval_covers(name: str, sequences: int) -> None:
    draw, truth = SKEWED[name]
    generator = np.random.default_rng(7)
    covered = []
    for repeat in range(1 if sequences == 2048 else 4):
        difference_HN = draw(generator, (300, sequences))
        estimate = LossBootstrap(difference_HN, family=1, seed=repeat).interval()
        covered.append((estimate.low <= truth) & (truth <= estimate.high))
    # Two binomial standard errors about 95 %, and a point for the residual skewness.
    error = 0.01 + 2 * np.sqrt(0.95 * 0.05 / np.size(covered))
    assert 0.95 - error <= np.mean(covered) <= 0.95 + error


def test_loss_interval_excludes_zero_exactly_where_p_says() -> None:
    generator = np.random.default_rng(3)
    shift_H = np.linspace(-0.25, 0.25, 201)
    bootstrap = LossBootstrap(generator.exponential(size=(201, 256)) - 1 + shift_H[:, None])
    for level in (0.8, 0.95, 0.995, 1 - ALPHA / 201):
        estimate = bootstrap.interval(level)
        excluded_H = (estimate.low > 0) | (estimate.high < 0)
        np.testing.assert_array_equal(excluded_H, estimate.p <= 1 - level + 1e-12)
        assert 0 < excluded_H.sum() < 201


@pytest.mark.parametrize(("lost", "gained"), [(1, 0), (3, 0), (1, 1), (3, 3), (20, 5)])
def test_intervals_of_averaged_draws_cover(lost: int, gained: int) -> None:
    """Two draws of a random edit, answers lost and gained anew in each: wider rather than not."""
    sequences, repetitions = 512, 1000
    generator = np.random.default_rng(3)
    intact_N = np.arange(sequences) % 2 == 0
    rate_N = np.where(intact_N, 2 * lost, 2 * gained) / sequences
    changed_RN = (generator.random((2, repetitions, sequences)) < rate_N).mean(0)
    ablated_RN = np.where(intact_N, 1 - changed_RN, changed_RN)
    found = paired_accuracy(intact_N, ablated_RN)
    truth = (lost - gained) / sequences
    covered = ((found.low <= truth) & (truth <= found.high)).mean()
    assert covered > 0.95 - 4 * np.sqrt(0.95 * 0.05 / repetitions)
    assert (found.high > found.low).all()


def test_a_share_of_draws_that_is_whole_is_an_answer() -> None:
    generator = np.random.default_rng(0)
    intact_N, ablated_HN = generator.random(300) < 0.8, generator.random((3, 300)) < 0.6
    for one, other in zip(
        paired_accuracy(intact_N, ablated_HN),
        paired_accuracy(intact_N, ablated_HN.astype(float)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_loss_of_heads_that_do_nothing_or_always_the_same() -> None:
    difference_HN = np.stack([np.zeros(512), np.full(512, 0.25), np.eye(1, 512)[0]])
    estimate = LossBootstrap(difference_HN).interval()
    assert (estimate.low[0], estimate.high[0], estimate.p[0]) == (0, 0, 1)
    assert (estimate.low[1], estimate.high[1]) == (0.25, 0.25)
    assert estimate.p[1] < 0.001
    assert estimate.low[2] <= 0
    assert estimate.high[2] == 1  # one example tells nothing
    assert np.isfinite(estimate.high).all()


def test_loss_bootstrap_is_a_function_of_its_seed() -> None:
    difference_HN = np.random.default_rng(0).normal(size=(3, 256))
    first, again, other = (LossBootstrap(difference_HN, seed=seed).interval() for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert (first.low != other.low).all()


def test_resampled_means_are_means_with_replacement() -> None:
    generator = np.random.default_rng(1)
    values_HN = generator.normal(size=(2, 400))
    means_RH = resampled_means(np.vstack([values_HN, np.ones(400)]), 5000)
    np.testing.assert_allclose(means_RH[:, 2], 1)  # each resample has N draws
    np.testing.assert_allclose(means_RH[:, :2].mean(0), values_HN.mean(1), atol=3e-3)
    np.testing.assert_allclose(means_RH[:, :2].std(0), values_HN.std(1) / 20, rtol=0.05)


@pytest.mark.parametrize(("heads", "seconds"), [(24, 2.0), (96, 6.0)])
def test_loss_bootstrap_is_quick(heads: int, seconds: float) -> None:
    difference_HN = np.random.default_rng(0).normal(size=(heads, 2048))
    start = time.process_time()
    bootstrap = LossBootstrap(difference_HN)
    bootstrap.interval(holm(bootstrap.p_H)[1])
    assert time.process_time() - start < seconds


def test_holm_known_answer() -> None:
    """Sorted, 0.005 0.01 0.03 0.04 against 0.0125 0.0167 0.025 0.05: two are rejected."""
    rejected_H, level_H = holm([0.01, 0.04, 0.03, 0.005])
    np.testing.assert_array_equal(rejected_H, [True, False, False, True])
    np.testing.assert_allclose(1 - level_H, [0.05 / 3, 0.05 / 2, 0.05 / 2, 0.05 / 4])
    assert holm([0.001, 0.02])[0].all()
    assert not holm([0.9, 0.03])[0].any()
    assert holm([0.04])[0].all()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=12))
def test_holm_interval_excludes_zero_exactly_where_rejected(
    discordant: list[tuple[int, int]],
) -> None:
    intact_N = np.arange(128) < 64
    ablated_HN = np.tile(intact_N, (len(discordant), 1))
    for head, (lost, gained) in enumerate(discordant):
        ablated_HN[head, :lost] = False
        ablated_HN[head, 128 - gained :] = True
    rejected_H, level_H = holm(paired_accuracy(intact_N, ablated_HN).p)
    estimate = paired_accuracy(intact_N, ablated_HN, level_H)
    np.testing.assert_array_equal((estimate.low > 0) | (estimate.high < 0), rejected_H)


def test_bad_input_is_named() -> None:
    answers_N = np.ones(8, bool)
    with pytest.raises(InputError, match=r"shapes \(8,\) .* and \(2, 7\)"):
        paired_accuracy(answers_N, np.ones((2, 7), bool))
    with pytest.raises(InputError, match="outside"):
        paired_accuracy(answers_N, answers_N[None], 1.0)
    with pytest.raises(InputError, match="NaN"):
        LossBootstrap([[0.0, np.nan]])
    with pytest.raises(InputError, match="at least 2 sequences"):
        LossBootstrap([[0.0]])
