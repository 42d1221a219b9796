"""Means and deviations of seeds, and their ratio mu / sigma with intervals for all heads at once.

Shapes: N examples, K heads compared (of all layers).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from poslens.errors import InputError
from poslens.heads.intervals import ALPHA, LEVEL

Floats = NDArray[np.float64]


class Ratios(NamedTuple):
    """By head (K): mean mu and deviation sigma of its seeds, nats per unit of gain, and mu / sigma.

    `low` and `high` bound mu at `LEVEL`, each head by itself. `ratio_low` and `ratio_high` bound
    mu / sigma for all heads at once: the chance that any leaves its interval is at most `ALPHA`.
    """

    mu: Floats
    low: Floats
    high: Floats
    sigma: Floats
    ratio: Floats
    ratio_low: Floats
    ratio_high: Floats


def ratios(seeds_NK: NDArray[np.floating]) -> Ratios:
    """Of seeds of K heads on the same N examples; heads without seeds (NaN) get NaN.

    The ratio is a mean over a deviation, so its error has both in it: with skewness s and kurtosis
    k of the seeds, N var(ratio) = 1 - ratio s + ratio^2 (k - 1) / 4 (delta method; Cramer 1946,
    section 27.7). Intervals are normal, since N is large. Those of the ratio have level
    1 - ALPHA / K, K the heads that have seeds. That is the first step of Holm's procedure, which
    alone decides whether *some* head passes a threshold; and for *all* heads to lie below one it
    is more than is needed. Raises InputError for fewer than 2 examples.
    """
    if len(seeds_NK) < 2:
        raise InputError(f"seeds of {len(seeds_NK)} example have no spread; record 2 or more")
    seeds_NK = np.asarray(seeds_NK, np.float64)
    examples, family = len(seeds_NK), max(1, int(np.isfinite(seeds_NK).all(0).sum()))
    mu_K, sigma_K = seeds_NK.mean(0), seeds_NK.std(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        z_NK = (seeds_NK - mu_K) / sigma_K
        skew_K, kurtosis_K = (z_NK**3).mean(0), (z_NK**4).mean(0)
        ratio_K = mu_K / sigma_K
    variance_K = 1 - ratio_K * skew_K + ratio_K**2 * (kurtosis_K - 1) / 4
    error_K = np.sqrt(np.maximum(variance_K, 0.0) / examples)
    alone, jointly = (-float(ndtri(share / 2)) for share in (1 - LEVEL, ALPHA / family))
    wide_K = alone * sigma_K / np.sqrt(examples)
    return Ratios(
        mu_K,
        mu_K - wide_K,
        mu_K + wide_K,
        sigma_K,
        ratio_K,
        ratio_K - jointly * error_K,
        ratio_K + jointly * error_K,
    )
