"""Sets of heads: how many are necessary, how many suffice, and which work together.

Shapes: N sequences, K set sizes, V variants, B batch.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from poslens.errors import InputError
from poslens.heads.edits import Edit, Reference
from poslens.heads.effects import Effort, HeadAt, Walk, answers, in_batches, looks
from poslens.heads.intervals import LEVEL, resampled_means
from poslens.model import Sites
from poslens.model.sites import check_head
from poslens.tasks import Batch

# How close to the floor, as a share of what can be lost, counts as having reached it.
REACHED = 0.05
SET_RESAMPLES = 2000
FURTHER = 3  # sets within reach that a search takes, so that the interval has an upper end
SEARCHED = 1024  # sequences that a greedy search looks at, at most


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % bootstrap interval over sequences."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Necessity:
    """Which heads must lose their position (or output) before the model has lost all of it.

    `heads` in the order of a greedy search, each the one that costs most beside those before it;
    `accuracy_K` with the first 0, 1, .. K of them edited; `floor` with every head edited. `count`
    is the smallest number that brings accuracy within `REACHED` of the floor, as a share of
    intact - floor; infinite in resamples where the candidates do not get there.
    """

    heads: list[HeadAt]
    accuracy_K: list[float]
    floor: float
    count: Interval


@dataclass(frozen=True)
class Sufficiency:
    """Accuracy when only the k most effective heads of a layer stay as they are, k = 0 .. H."""

    layer: int
    heads: list[int]
    accuracy_K: list[Interval]


@dataclass(frozen=True)
class Interaction:
    """What editing two heads together costs beyond the sum of what each costs, in accuracy.

    Above 0 they stand in for each other; below 0 either alone already costs what both do.
    """

    first: HeadAt
    second: HeadAt
    together: float
    excess: Interval


@torch.no_grad()
def edited_answers(
    data: Batch,
    edit: Edit,
    reference: Reference,
    sets: list[list[HeadAt]],
    effort: Effort | None = None,
) -> NDArray[np.bool_]:
    """Whether each sequence is answered rightly with each set of heads edited, (V, N).

    Every layer sees what the edited layers below left it; an empty set is the intact model. Random
    methods use one draw. Raises InputError for a head that is not there, and for a budget too small
    for one sequence.
    """
    sites = reference.sites
    for layer, head in {head for chosen in sets for head in chosen}:
        check_head(sites, layer, head)
    # A walk keeps about a row of a forward pass for each layer.
    size = (effort or Effort()).plan(sites, data.tokens_BL.shape[1], sites.layers)[0]
    right_VN = np.zeros((len(sets), len(data)), bool)
    for look in looks(data):
        for batch, numbers in in_batches(data, look, size):
            walk = Walk(batch, edit, reference, numbers=numbers)
            scores_VBC = torch.stack([walk.scores(chosen) for chosen in sets])
            right_VN[:, numbers] = answers(scores_VBC, batch.labels_B)["accuracy"]
    return right_VN


def all_heads(sites: Sites) -> list[HeadAt]:
    return [(layer, head) for layer in range(sites.layers) for head in range(sites.heads_in(layer))]


def necessity(
    data: Batch,
    edit: Edit,
    reference: Reference,
    candidates: list[HeadAt],
    effort: Effort | None = None,
    seed: int = 0,
) -> Necessity:
    """Greedy search among `candidates` for the smallest set whose edit reaches the floor.

    The search looks at the first half of `data`, at most `SEARCHED` sequences; what it found is
    measured on the second, so that the number is not flattered by its own selection. It is at least
    that of the smallest set, which a greedy search need not find; its interval is that of other
    sequences, the path held fixed. NaN where the model has nothing to lose. Raises InputError for
    no candidates.
    """
    if not candidates:
        raise InputError("the set of candidate heads is empty; name at least one head")
    half = len(data) // 2
    search, judge = data.rows(slice(0, min(half, SEARCHED))), data.rows(slice(half, None))
    everything = all_heads(reference.sites)
    intact, floor = edited_answers(search, edit, reference, [[], everything], effort).mean(1)
    taken: list[HeadAt] = []
    left = list(candidates)
    further = FURTHER
    while left and further:
        sets = [[*taken, head] for head in left]
        tried = edited_answers(search, edit, reference, sets, effort)
        best = int(tried.mean(1).argmin())
        taken.append(left.pop(best))
        accuracy = tried.mean(1)[best]
        further -= accuracy <= floor + REACHED * (intact - floor)
    paths = [taken[:size] for size in range(len(taken) + 1)]
    right_VN = edited_answers(judge, edit, reference, [*paths, everything], effort)
    means_RV = resampled_means(right_VN, SET_RESAMPLES, seed)
    counts_R = np.array([_reached(means_V) for means_V in means_RV])
    return Necessity(
        taken,
        right_VN[:-1].mean(1).tolist(),
        float(right_VN[-1].mean()),
        Interval(_reached(right_VN.mean(1)), *_quantiles(counts_R)),
    )


def _reached(accuracy_V: NDArray[np.floating]) -> float:
    """The first set size within reach of the floor, which stands last; infinity if none is."""
    *path, floor = accuracy_V
    if floor >= path[0]:
        return float("nan")
    limit = floor + REACHED * (path[0] - floor)
    return next((float(size) for size, value in enumerate(path) if value <= limit), float("inf"))


def sufficiency(
    data: Batch,
    edit: Edit,
    reference: Reference,
    layer: int,
    order: list[int],
    effort: Effort | None = None,
    seed: int = 0,
) -> Sufficiency:
    """Leave the first k heads of `order` in a layer as they are and edit its others, k = 0 .. H.

    `order` names every head of the layer once, most effective first, as measured on other data.
    """
    sets = [[(layer, head) for head in order[size:]] for size in range(len(order) + 1)]
    right_VN = edited_answers(data, edit, reference, sets, effort)
    means_RV = resampled_means(right_VN, SET_RESAMPLES, seed)
    accuracy = [
        Interval(float(right_N.mean()), *_quantiles(means_R))
        for right_N, means_R in zip(right_VN, means_RV.T, strict=True)
    ]
    return Sufficiency(layer, order, accuracy)


def interactions(
    data: Batch,
    edit: Edit,
    reference: Reference,
    heads: list[HeadAt],
    effort: Effort | None = None,
    seed: int = 0,
) -> list[Interaction]:
    """All pairs of `heads`, most excess first."""
    pairs = [(a, b) for index, a in enumerate(heads) for b in heads[index + 1 :]]
    sets: list[list[HeadAt]] = [[], *([head] for head in heads), *([a, b] for a, b in pairs)]
    right_VN = edited_answers(data, edit, reference, sets, effort).astype(np.float64)
    fall_VN = right_VN[0] - right_VN[1:]
    single = {head: fall_VN[index] for index, head in enumerate(heads)}
    together_PN = fall_VN[len(heads) :]
    excess_PN = np.stack(
        [both_N - single[a] - single[b] for (a, b), both_N in zip(pairs, together_PN, strict=True)]
    )
    means_RP = resampled_means(excess_PN, SET_RESAMPLES, seed)
    found = [
        Interaction(
            a,
            b,
            float(together_PN[index].mean()),
            Interval(float(excess_PN[index].mean()), *_quantiles(means_RP[:, index])),
        )
        for index, (a, b) in enumerate(pairs)
    ]
    return sorted(found, key=lambda pair: -abs(pair.excess.value))


def _quantiles(values_R: NDArray[np.floating]) -> tuple[float, float]:
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    # `lower` keeps whole numbers whole and infinities from turning into NaN.
    low, high = np.quantile(values_R, tails, method="lower")
    return float(low), float(high)
