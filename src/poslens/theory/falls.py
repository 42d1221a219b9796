"""What falls first when something is taken away by degrees: accuracy, or attention to what counts.

Shapes: G gains, N sequences, R resamples.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

GAINS = (1.0, 0.75, 0.5, 0.25, 0.0)
FALL_RESAMPLES = 1000  # bootstrap resamples of sequences
LEVEL = 0.95  # of intervals
# A fall of attention mass smaller than this is none.
LEAST_MASS = 0.01

Floats = NDArray[np.float64]
Which = Literal[
    "mass", "accuracy", "not told apart", "only mass", "only accuracy", "neither", "no mass"
]


@dataclass(frozen=True)
class First:
    """What falls first: gains at which half of a fall has happened, 1 at once, 0 at the very end.

    `difference` is the mass's gain less accuracy's, above 0 where the mass falls first; NaN, with
    its interval, where one of them does not fall.
    """

    accuracy_half: float
    mass_half: float
    difference: float
    low: float
    high: float
    verdict: Which


def first(correct_GN: NDArray[np.bool_], mass_GN: Floats, seed: int = 0) -> First:
    """Which of accuracy and mass has lost half of what it loses at the higher gain.

    Falls are from gain 1 to gain 0, halves by linear interpolation between gains, at the first
    crossing from above. Accuracy falls if the 95 % bootstrap interval of its fall (over sequences)
    lies above 0, a mass if its does and it is at least `LEAST_MASS`. *Mass* or *accuracy* if the
    interval of the difference of the two gains excludes 0, else they are *not told apart*. *No
    mass* where no sequence has one to compare, as above the last layer.
    """
    drawn_RN = np.random.default_rng(seed).multinomial(
        correct_GN.shape[1], np.full(correct_GN.shape[1], 1 / correct_GN.shape[1]), FALL_RESAMPLES
    )
    weights_RN = np.concatenate([np.ones((1, correct_GN.shape[1])), drawn_RN])
    known_N = np.isfinite(mass_GN).all(0)
    correct_RG = weights_RN @ correct_GN.T / weights_RN.sum(1, keepdims=True)
    if known_N.any():
        kept_RN = weights_RN[:, known_N]
        mass_RG = kept_RN @ mass_GN[:, known_N].T / kept_RN.sum(1, keepdims=True)
    else:
        mass_RG = np.full_like(correct_RG, np.nan)
    halves, fell = [], []
    for values_RG, least in ((correct_RG, 0.0), (mass_RG, LEAST_MASS)):
        lost_R = values_RG[:, 0] - values_RG[:, -1]
        low = np.quantile(lost_R[1:], (1 - LEVEL) / 2)
        fell.append(bool(low > 0 and lost_R[0] >= least))
        halves.append(_half_gains(values_RG))
    half = [float(it[0]) if own else float("nan") for it, own in zip(halves, fell, strict=True)]
    if not all(fell):
        nothing = float("nan")
        which: Which = "only accuracy" if fell[0] else "only mass" if fell[1] else "neither"
        which = which if known_N.any() else "no mass"
        return First(half[0], half[1], nothing, nothing, nothing, which)
    difference_R = halves[1] - halves[0]
    low, high = np.quantile(difference_R[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    which = "mass" if low > 0 else "accuracy" if high < 0 else "not told apart"
    return First(half[0], half[1], float(difference_R[0]), float(low), float(high), which)


def _half_gains(values_RG: Floats) -> Floats:
    """Where each row first falls to the middle of its ends, in gains; the highest such gain."""
    gains_G = np.array(GAINS)
    middle_R1 = values_RG[:, [0, -1]].mean(1, keepdims=True)
    below_RG = values_RG <= middle_R1
    below_RG[:, 0], below_RG[:, -1] = False, True
    at_R = below_RG.argmax(1)
    rows = np.arange(len(values_RG))
    before_R, after_R = values_RG[rows, at_R - 1], values_RG[rows, at_R]
    with np.errstate(invalid="ignore", divide="ignore"):
        share_R = (before_R - middle_R1[:, 0]) / (before_R - after_R)
    share_R = np.where(np.isfinite(share_R), share_R.clip(0, 1), 0.5)
    found: Floats = gains_G[at_R - 1] + share_R * (gains_G[at_R] - gains_G[at_R - 1])
    return found
