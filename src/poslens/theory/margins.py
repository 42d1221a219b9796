"""Margins: how far a layer's leading seed is ahead of the next, and how that changes with depth.

The margin of a layer is its largest less its second |mu|. Picking the largest of several measured
numbers makes it look larger than it is, so heads, and the sign of their mean, are picked on the
first half of the examples and measured on the second:

    margin = s_1 mu_1 - s_2 mu_2        mu on the second half, s and the two heads from the first

which has mean 0 where no head has a seed (docs/theory.md on what is between). The lead is the
margin over the layer's sum of |mu| on the second half: raw gradients may grow towards the input for
reasons that have nothing to do with a leader. gamma_l = margin_l / margin_(l+1).

Shapes: N examples, A layers, H heads, R resamples.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poslens.errors import InputError
from poslens.heads.intervals import LEVEL, resampled_means

Floats = NDArray[np.float64]
MARGIN_RESAMPLES = 1000


@dataclass(frozen=True)
class Margin:
    """One layer's margin (nats per unit of gain), with percentile intervals at `LEVEL`.

    `gamma` is over the margin of the layer above, NaN in the last. `reason` says why a number is
    undefined, and is empty where all there can be are defined. `leader` is the head that leads on
    the first half, -1 where fewer than two heads have seeds.
    """

    layer: int
    leader: int
    margin: float
    low: float
    high: float
    lead: float
    lead_low: float
    lead_high: float
    gamma: float
    gamma_low: float
    gamma_high: float
    reason: str


def margins(seeds_NAH: NDArray[np.floating], seed: int = 0) -> list[Margin]:
    """Of every layer, from seeds in the order in which examples were drawn.

    The bootstrap draws examples with replacement within each half, and picks heads anew in each
    draw. A draw whose margin is not positive stands at the end of gamma's interval that it speaks
    for: 0 where the layer's own is, infinity where that of the layer above is, both where both are.
    Raises InputError for fewer than 4 examples.
    """
    examples, layers, heads = seeds_NAH.shape
    if examples < 4:
        raise InputError(f"margins need both halves of the examples; got {examples}, give 4")
    first_RAH, second_RAH = (
        means_of(half.reshape(len(half), -1), seed + k).reshape(-1, layers, heads)
        for k, half in enumerate(np.split(seeds_NAH, [examples // 2]))
    )
    drawn = [layer_margins(first_RAH[:, a], second_RAH[:, a]) for a in range(layers)]
    found = []
    for layer, (margin_R, lead_R, leader) in enumerate(drawn):
        reason = "" if leader >= 0 else "fewer than two heads of the layer have a seed"
        gamma, gamma_low, gamma_high = (float("nan"),) * 3
        if layer + 1 < layers and not reason:
            gamma, gamma_low, gamma_high, reason = ratio(margin_R, drawn[layer + 1][0], layer)
        lead, (low, high), (lead_low, lead_high) = float(lead_R[0]), ends(margin_R), ends(lead_R)
        found.append(
            Margin(
                layer=layer,
                leader=leader,
                margin=float(margin_R[0]),
                low=low,
                high=high,
                lead=lead,
                lead_low=lead_low,
                lead_high=lead_high,
                gamma=gamma,
                gamma_low=gamma_low,
                gamma_high=gamma_high,
                reason=reason,
            )
        )
    return found


def means_of(seeds_NK: NDArray[np.floating], seed: int) -> Floats:
    """Means (R, K) of the data itself, first, and of resamples of its examples."""
    whole_K = np.asarray(seeds_NK, np.float64).mean(0)
    deviation_K = np.asarray(seeds_NK, np.float64).std(0)
    scale_K = np.where(deviation_K > 0, deviation_K, 1.0)
    z_NK = np.nan_to_num((seeds_NK - whole_K) / scale_K)  # float32 sums lose little of these
    drawn_RK = resampled_means(z_NK.T, MARGIN_RESAMPLES, seed).astype(np.float64)
    return np.concatenate([whole_K[None], whole_K + scale_K * drawn_RK])


def layer_margins(first_RH: Floats, second_RH: Floats) -> tuple[Floats, Floats, int]:
    """Margins and leads (R) of one layer, heads picked on the first half in each row, and who
    leads in the first row; NaN and -1 where fewer than two heads have seeds."""
    having_H = np.isfinite(first_RH[0])
    if having_H.sum() < 2:
        nothing_R = np.full(len(first_RH), np.nan)
        return nothing_R, nothing_R, -1
    numbers = np.flatnonzero(having_H)
    first_RH, second_RH = first_RH[:, having_H], second_RH[:, having_H]
    order_RH = np.argsort(-np.abs(first_RH), axis=1, kind="stable")[:, :2]
    signed = np.take_along_axis(np.sign(first_RH) * second_RH, order_RH, 1)
    margin_R = signed[:, 0] - signed[:, 1]
    return margin_R, margin_R / np.abs(second_RH).sum(1), int(numbers[order_RH[0, 0]])


def ratio(margin_R: Floats, above_R: Floats, layer: int) -> tuple[float, float, float, str]:
    """gamma with its interval, and why it is undefined, or an empty reason."""
    undefined = (float("nan"),) * 3
    if not np.isfinite(above_R[0]):
        return *undefined, f"layer {layer + 1} has no margin"
    for number, one_R in ((layer, margin_R), (layer + 1, above_R)):
        if one_R[0] <= 0:
            return *undefined, f"no head leads in layer {number}: its margin is not above 0"
    with np.errstate(divide="ignore", invalid="ignore"):
        log_R = np.log(np.maximum(margin_R, 0.0)) - np.log(np.maximum(above_R, 0.0))
    neither_R = np.isnan(log_R)
    low, _ = ends(np.where(neither_R, -np.inf, log_R))
    _, high = ends(np.where(neither_R, np.inf, log_R))
    return float(np.exp(log_R[0])), float(np.exp(low)), float(np.exp(high)), ""


def ends(drawn_R: Floats) -> tuple[float, float]:
    """The percentile interval at `LEVEL`, of whole draws, so that infinite ones do no harm."""
    low, high = np.quantile(drawn_R[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    return float(low), float(high)
