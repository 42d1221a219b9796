"""Intervals and tests for paired effects: score intervals for accuracy, bootstrap for losses, Holm.

An effect compares the same sequences with a head in place and with it ablated. Every interval here
is dual to its p-value: at level 1 - a it excludes 0 exactly where p <= a.
Shapes: H compared heads, N sequences, R resamples.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from poslens.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ALPHA = 0.05  # familywise error of Holm's procedure
LEVEL = 0.95  # of every interval that is not Holm's
RESAMPLES = 9_999  # bootstrap resamples, at least
TAIL_RESAMPLES = 5  # resamples wanted beyond the tightest Holm bound
BISECTIONS = 60  # halvings of [-1, 1]: below double precision
CHUNK = 2**20  # resampling counts held at once


class Estimate(NamedTuple):
    """Effects of H heads (positive is harm), their intervals, two-sided p-values of no effect."""

    effect: Floats
    low: Floats
    high: Floats
    p: Floats


def paired_accuracy(
    intact_N: ArrayLike, ablated_HN: ArrayLike, level: ArrayLike = LEVEL
) -> Estimate:
    """Fall in accuracy of each head, with Tango's score interval for paired proportions.

    `intact_N` and `ablated_HN` say which sequences were answered rightly, the latter perhaps as a
    share of random draws: each draw then counts as that part of an answer, which overstates the
    spread rather than understates it, since draws average. `level` is one level or one per head.
    The interval inverts the score test of the difference, with the nuisance at its
    maximum likelihood under each difference tried; at 0 that test is McNemar's, whose p-value is
    given. It stays within [-1, 1] and holds for no discordant pair as well as for all discordant.

    Source: Tango (1998), Statistics in Medicine 17, 891-908.
    Raises `InputError` for shapes that do not fit and levels outside (0, 1).
    """
    intact_N, ablated_HN = _answers(intact_N, ablated_HN)
    z_H: Floats = -ndtri((1 - _levels(level, len(ablated_HN))) / 2)
    sequences = ablated_HN.shape[1]
    lost_H = (1 - ablated_HN[:, intact_N]).sum(axis=1)
    gained_H = ablated_HN[:, ~intact_N].sum(axis=1)
    effect_H = (lost_H - gained_H) / sequences

    def bound(far: float, sign: int) -> Floats:
        """Where the score, falling in the difference, crosses sign * z between effect and far."""
        inner_H: Floats = effect_H
        outer_H: Floats = np.full_like(effect_H, far)
        for _ in range(BISECTIONS):
            middle_H = (inner_H + outer_H) / 2
            inside_H = sign * tango_score(lost_H, gained_H, sequences, middle_H) <= z_H
            inner_H = np.where(inside_H, middle_H, inner_H)
            outer_H = np.where(inside_H, outer_H, middle_H)
        return outer_H

    score_H = tango_score(lost_H, gained_H, sequences, np.zeros_like(effect_H))
    return Estimate(effect_H, bound(-1.0, 1), bound(1.0, -1), 2 * ndtr(-np.abs(score_H)))


def tango_score(lost_H: Floats, gained_H: Floats, sequences: int, difference_H: Floats) -> Floats:
    """Score statistic of `difference_H` for `lost_H` and `gained_H` discordant pairs.

    Standard normal where that is the true difference. Source: Tango (1998), sections 2 and 3.
    """
    quadratic = 2.0 * sequences
    linear_H = -lost_H - gained_H + (2 * sequences - lost_H + gained_H) * difference_H
    constant_H = -gained_H * difference_H * (1 - difference_H)
    root_H = np.sqrt(np.maximum(linear_H**2 - 4 * quadratic * constant_H, 0.0))
    gain_rate_H = (root_H - linear_H) / (2 * quadratic)  # restricted maximum likelihood
    variance_H = sequences * (2 * gain_rate_H + difference_H * (1 - difference_H))
    surprise_H = lost_H - gained_H - sequences * difference_H
    with np.errstate(divide="ignore", invalid="ignore"):
        score_H = surprise_H / np.sqrt(np.maximum(variance_H, 0.0))
    return np.where(surprise_H == 0, 0.0, score_H)


class LossBootstrap:
    """Rise in loss of H heads, with studentised bootstrap intervals over sequences.

    One set of resamples serves all heads, so that they stay comparable. Each resample gives a
    head's t = (resampled mean - mean) / resampled deviation; the bounds are mean - t * deviation
    at the quantiles of t, which keeps the coverage of skewed differences near nominal where the
    percentile bootstrap does not (Efron and Tibshirani 1993, section 12.5).

    The number of resamples grows with the `family` of heads that Holm's procedure will compare,
    so that `TAIL_RESAMPLES` lie beyond its tightest bound, 1 - ALPHA / family two-sided.
    Heads that change no loss have effect 0, interval [0, 0] and p = 1.

    Raises `InputError` for an array that is not (H, N) or holds a value that is not finite.
    """

    def __init__(self, difference_HN: ArrayLike, family: int | None = None, seed: int = 0) -> None:
        difference_HN = np.asarray(difference_HN, np.float64)
        if difference_HN.ndim != 2 or difference_HN.shape[1] < 2:
            raise InputError(
                f"loss differences have shape {difference_HN.shape}: "
                "give (heads, sequences), at least 2 sequences"
            )
        if not np.isfinite(difference_HN).all():
            raise InputError("loss differences hold NaN or infinity: give finite losses")
        family = len(difference_HN) if family is None else family
        resamples = max(RESAMPLES, int(np.ceil(2 * family * TAIL_RESAMPLES / ALPHA)) - 1)

        self.effect_H = difference_HN.mean(axis=1)
        self.deviation_H = difference_HN.std(axis=1)
        # Resampling leaves the values in place, so these bound whatever it can say.
        self.least_H = np.minimum(difference_HN.min(axis=1), 0.0)
        self.most_H = np.maximum(difference_HN.max(axis=1), 0.0)
        scale_H = np.where(self.deviation_H > 0, self.deviation_H, 1.0)
        z_HN = (difference_HN - self.effect_H[:, None]) / scale_H[:, None]
        heads = len(z_HN)
        moments_RH = resampled_means(np.concatenate([z_HN, z_HN**2]), resamples, seed)
        mean_RH, square_RH = moments_RH[:, :heads], moments_RH[:, heads:]
        spread_RH = np.sqrt(np.maximum(square_RH - mean_RH**2, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            t_RH = np.where(mean_RH == 0, 0.0, mean_RH / spread_RH)
        self.t_RH = np.sort(t_RH, axis=0)
        self.p_H = self._p()

    def _p(self) -> Floats:
        """Twice the smaller share of resamples whose t reaches the observed mean / deviation."""
        resamples = len(self.t_RH)
        with np.errstate(divide="ignore", invalid="ignore"):
            observed_H = np.where(self.effect_H == 0, 0.0, self.effect_H / self.deviation_H)
        above_H = np.count_nonzero(self.t_RH >= observed_H, axis=0)
        below_H = np.count_nonzero(self.t_RH <= observed_H, axis=0)
        p_H = 2 * (1 + np.minimum(above_H, below_H)) / (resamples + 1)
        return np.where((self.effect_H == 0) & (self.deviation_H == 0), 1.0, np.minimum(p_H, 1.0))

    def interval(self, level: ArrayLike = LEVEL) -> Estimate:
        """The estimate at one level, or at one per head.

        A bound the resamples cannot place is put at the end of the observed differences.
        Raises `InputError` for levels outside (0, 1).
        """
        heads, resamples = len(self.effect_H), len(self.t_RH)
        tail_H = (1 - _levels(level, heads)) / 2
        # The k-th value from either end is passed exactly where p <= 1 - level; the small number
        # keeps products such as 0.025 * 10,000 from falling just short of a whole one.
        k_H = np.floor(tail_H * (resamples + 1) + 1e-9).astype(np.int64)
        columns = np.arange(heads)
        placed_H = k_H > 0
        upper_t_H = np.where(placed_H, self.t_RH[-np.maximum(k_H, 1), columns], np.inf)
        lower_t_H = np.where(placed_H, self.t_RH[np.maximum(k_H, 1) - 1, columns], -np.inf)
        with np.errstate(invalid="ignore"):
            low_H = self.effect_H - upper_t_H * self.deviation_H
            high_H = self.effect_H - lower_t_H * self.deviation_H
        constant_H = self.deviation_H == 0
        low_H = np.where(constant_H, self.effect_H, np.maximum(low_H, self.least_H))
        high_H = np.where(constant_H, self.effect_H, np.minimum(high_H, self.most_H))
        return Estimate(self.effect_H, low_H, high_H, self.p_H)


def resampled_means(values_HN: ArrayLike, resamples: int, seed: int = 0) -> NDArray[np.float32]:
    """Means (R, H) of each row of `values_HN` over sequences drawn with replacement.

    The same draws serve all rows, so the whole is one product with the matrix of counts.
    """
    values_NH = np.ascontiguousarray(np.asarray(values_HN, np.float32).T)
    sequences, heads = values_NH.shape
    means_RH = np.empty((resamples, heads), np.float32)
    start = 0
    for counts_RN in _resampling_counts(sequences, resamples, np.random.default_rng(seed)):
        stop = start + len(counts_RN)
        means_RH[start:stop] = counts_RN @ values_NH
        start = stop
    return means_RH / np.float32(sequences)


def _resampling_counts(
    sequences: int, resamples: int, generator: np.random.Generator
) -> Iterator[NDArray[np.float32]]:
    """How often each resample draws each sequence, a chunk of resamples at a time."""
    chunk = max(1, CHUNK // sequences)
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        drawn_RN = generator.integers(0, sequences, size=(rows, sequences))
        drawn_RN += sequences * np.arange(rows)[:, None]
        counts = np.bincount(drawn_RN.ravel(), minlength=rows * sequences)
        yield counts.reshape(rows, sequences).astype(np.float32)


def holm(p_H: ArrayLike, alpha: float = ALPHA) -> tuple[Bools, Floats]:
    """Holm's step-down test of H hypotheses, and the interval level it gives each.

    In order of p, the j-th smallest (from 1) is rejected while p <= alpha / (H - j + 1). A rejected
    head's interval has level 1 - alpha / (H - j + 1), that of its own step; all others have the
    level of the step at which the procedure stopped. Since intervals are dual to p-values, one
    excludes 0 exactly where the head is rejected: the chance that any head without effect is shown
    away from 0 is at most alpha. The other end of a rejected head's interval carries no joint
    guarantee.

    Source: Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    p_H = np.asarray(p_H, np.float64)
    heads = len(p_H)
    order = np.argsort(p_H, kind="stable")
    share_J = alpha / (heads - np.arange(heads))
    passed_J = p_H[order] <= share_J
    stop = heads if passed_J.all() else int(np.argmin(passed_J))
    rejected_H = np.zeros(heads, np.bool_)
    rejected_H[order[:stop]] = True
    level_H = np.empty(heads)
    level_H[order[:stop]] = 1 - share_J[:stop]
    if stop < heads:
        level_H[order[stop:]] = 1 - share_J[stop]
    return rejected_H, level_H


def _answers(intact_N: ArrayLike, ablated_HN: ArrayLike) -> tuple[Bools, Floats]:
    intact, ablated = np.asarray(intact_N, np.bool_), np.asarray(ablated_HN, np.float64)
    if (
        intact.ndim != 1
        or ablated.ndim != 2
        or ablated.shape[1:] != intact.shape
        or not len(intact)
    ):
        raise InputError(
            f"answers have shapes {intact.shape} (intact) and {ablated.shape} (ablated): "
            "give (sequences,) and (heads, sequences)"
        )
    return intact, ablated


def _levels(level: ArrayLike, heads: int) -> Floats:
    level_H = np.broadcast_to(np.asarray(level, np.float64), (heads,))
    if not ((level_H > 0) & (level_H < 1)).all():
        raise InputError(f"interval level {level!r} is outside (0, 1): give e.g. {LEVEL}")
    return level_H
