"""The batch law: how the mean seed of a batch falls with its size, until the mean itself is left.

Seeds have mean mu and deviation sigma. The mean of B independent ones is about normal, with mean mu
and deviation s = sigma / sqrt(B), so its size is folded normal:

    E|gbar_B| = s sqrt(2 / pi) exp(-mu^2 / (2 s^2)) + |mu| (1 - 2 Phi(-|mu| / s))

which is 0 to 31 % above max(|mu|, sigma sqrt(2 / (pi B))): a slope of -1/2 in log-log up to
about B* = (sigma / mu)^2, flat beyond. So a slope of -1/2 over the sizes tried cannot tell a small
seed from none; the interval of mu / sigma (`ratios`) can say how small it must be.

Shapes: N examples, K heads, S batch sizes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import t as student

from poslens.errors import InputError
from poslens.heads.intervals import LEVEL

Floats = NDArray[np.float64]
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class BatchMeans(NamedTuple):
    """By batch size and head (S, K): mean of |gbar_B| over disjoint batches with its interval.

    `predicted` is max(|mu|, sigma sqrt(2 / (pi B))), `folded` the folded normal's mean, both with
    mu and sigma as measured. `batches_S` counts the batches.
    """

    sizes: tuple[int, ...]
    batches_S: tuple[int, ...]
    mean_SK: Floats
    low_SK: Floats
    high_SK: Floats
    predicted_SK: Floats
    folded_SK: Floats


def batch_means(seeds_NK: NDArray[np.floating], sizes: Sequence[int] = SIZES) -> BatchMeans:
    """Of seeds in the order in which examples were drawn: batches are runs of B of them.

    What does not fill a batch is left out. Intervals are Student's at `LEVEL`, over batches, NaN
    for one batch. Raises InputError as `check_sizes` does.
    """
    check_sizes(sizes, len(seeds_NK))
    seeds_NK = np.asarray(seeds_NK, np.float64)
    mu_K, sigma_K = seeds_NK.mean(0), seeds_NK.std(0, ddof=1)
    counts, means, errors = [], [], []
    for size in sizes:
        count = len(seeds_NK) // size
        folded_CK = np.abs(seeds_NK[: count * size].reshape(count, size, -1).mean(1))
        counts.append(count)
        means.append(folded_CK.mean(0))
        if count < 2:
            errors.append(np.full(seeds_NK.shape[1], np.nan))
            continue
        deviation_K = folded_CK.std(0, ddof=1)
        errors.append(student.ppf((1 + LEVEL) / 2, count - 1) * deviation_K / np.sqrt(count))
    mean_SK, error_SK = np.stack(means), np.stack(errors)
    return BatchMeans(
        tuple(sizes),
        tuple(counts),
        mean_SK,
        np.maximum(mean_SK - error_SK, 0.0),
        mean_SK + error_SK,
        np.stack([predicted(mu_K, sigma_K, size) for size in sizes]),
        np.stack([folded_normal(mu_K, sigma_K, size) for size in sizes]),
    )


def check_sizes(sizes: Sequence[int], examples: int) -> None:
    """Raises InputError where there is no size, one below 1, or one above the examples."""
    if not sizes or min(sizes) < 1:
        raise InputError(f"batches are {(*sizes,)}; give whole numbers from 1")
    if max(sizes) > examples:
        raise InputError(
            f"a batch of {max(sizes)} is larger than the {examples} examples; "
            "use smaller --batches or more --examples"
        )


def predicted(mu_K: Floats, sigma_K: Floats, size: int) -> Floats:
    """max(|mu|, sigma sqrt(2 / (pi B)))."""
    found: Floats = np.maximum(np.abs(mu_K), sigma_K * np.sqrt(2 / (np.pi * size)))
    return found


def folded_normal(mu_K: Floats, sigma_K: Floats, size: int) -> Floats:
    """E|gbar_B| where gbar_B is normal."""
    s_K, mu_K = sigma_K / np.sqrt(size), np.abs(mu_K)
    with np.errstate(divide="ignore", invalid="ignore"):
        z_K = np.where(s_K > 0, mu_K / s_K, np.inf)
    spread_K = s_K * np.sqrt(2 / np.pi) * np.exp(-(z_K**2) / 2)
    return np.asarray(spread_K + mu_K * (1 - 2 * ndtr(-z_K)), np.float64)
