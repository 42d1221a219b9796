"""Recovering T5's buckets (Raffel et al. 2020, section 2.1) from a bias that changes in steps.

A step is a distance at which the bias changes, whatever its values: with n buckets on one side,
T5 has n - 1 of them, 1, 2, .. up to n // 2, then logarithmically growing up to max_distance.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

_EPS = torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class Buckets:
    """`side` buckets on one side; every max_distance from `lowest` to `highest` has these steps.

    `highest` is None where there is no upper limit. Not `complete`: the biases seen may not reach
    the last bucket.
    """

    side: int
    lowest: int
    highest: int | None
    complete: bool

    @property
    def max_distance(self) -> int:
        """The roundest of the possible distances: the one with most factors of two."""
        if self.highest is None:
            return self.lowest
        possible = range(self.lowest, min(self.highest, self.lowest + 4096) + 1)
        return max(possible, key=lambda distance: (distance & -distance, -distance))


def steps(values_HN: Tensor) -> list[int]:
    """The distances at which the bias of any head differs from that of the distance before."""
    changed_N = (values_HN.diff(dim=-1) != 0).any(0)
    return (changed_N.nonzero()[:, 0] + 1).tolist()


def recover_buckets(edges: list[int], seen: int) -> Buckets | None:
    """The T5 buckets that have exactly these steps among the distances 0 .. seen - 1, if any.

    Where more distances would be needed to be sure, the fewest buckets that fit.
    """
    least = len(edges) + 1
    # The exact half is read off; the sizes that share it, or lie above where edges are missing.
    for side in range(max(least, 2), 2 * least + 2):
        possible = _max_distances(edges, side, seen)
        if possible is not None:
            return Buckets(side, *possible, complete=side == least)
    return None


def _max_distances(edges: list[int], side: int, seen: int) -> tuple[int, int | None] | None:
    """The range of max_distance for which `side` buckets have these steps; None where empty.

    Bucket exact + k starts at the first distance that reaches exact (max / exact)^(k / coarse);
    each step so bounds max from both sides. T5 takes logarithms in float32, so that a distance
    which reaches a bound exactly may fall on either side of it.
    """
    exact, coarse = side // 2, side - side // 2
    if edges[:exact] != list(range(1, min(exact, len(edges)) + 1)) or len(edges) < exact:
        return None
    slack = 8 * _EPS * coarse
    low, high = math.log((exact + 0.5) / exact), math.inf
    logarithmic = edges[exact:]
    for k, edge in enumerate(logarithmic, start=1):
        low = max(low, math.log(max(edge - 1, exact) / exact) * coarse / (k + slack))
        high = min(high, math.log(edge / exact) * coarse / (k - slack))
    missing = coarse - 1 - len(logarithmic)
    if missing > 0:  # the next bucket starts beyond what was seen
        low = max(low, math.log((seen - 1) / exact) * coarse / (len(logarithmic) + 1 + slack))
    lowest = max(exact + 1, math.ceil(exact * math.exp(low) * (1 - _EPS)))
    if high == math.inf:
        return lowest, None
    highest = math.floor(exact * math.exp(high) * (1 + _EPS))
    return (lowest, highest) if lowest <= highest else None
