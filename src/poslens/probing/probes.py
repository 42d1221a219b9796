"""Where position can be read: linear probes of a token's position from the residual stream.

Fitted on the first half of the sequences and scored on the second. All sequences are equally long
and hold no content, so that a sequence's score is one draw of the same quantity for all of them:
scores are means over sequences, and their intervals are those of such means. Tokens of one
sequence are never treated as independent.

Shapes: B batch, L positions, E model width, N scored sequences, T fitted tokens.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from poslens.tasks.data import generator_for

LEVEL = 0.95  # of intervals
# Ridge penalties to choose from, each times the number of fitted tokens: from none to a fit that
# is constant.
PENALTIES = np.logspace(-6, 3, 10)

Floats = NDArray[np.floating]
Target = Literal["true", "shuffled"]


@dataclass(frozen=True)
class Score:
    """A probe's score on sequences it was not fitted on, with its interval.

    `score` is "r2" or "error" (mean absolute, in words) of the probe "ridge", or "accuracy" of the
    probe "classes"; `chance` is what the best constant answer has.
    """

    probe: str
    target: Target
    score: str
    value: float
    low: float
    high: float
    chance: float


def probe(x_BLE: Tensor, shuffle: int = 0) -> Iterator[Score]:
    """How well position 0..L-1 is read from one state of the stream, and from shuffled positions.

    Ridge regression of the position on standardised channels (`RidgeCV`: the penalty is chosen by
    leave-one-out on the fitted half), and a linear discriminant of the L positions (Ledoit and
    Wolf's shrinkage, from the fitted half). *Shuffled* is the control: the same tokens with
    positions permuted within each sequence, fitted and scored alike. `shuffle` tells permutations
    apart.
    """
    sequences, length, _ = x_BLE.shape
    cut = sequences // 2
    x = x_BLE.detach().cpu().double().numpy()
    fitted, scored = x[:cut].reshape(cut * length, -1), x[cut:].reshape(-1, x.shape[-1])
    for target, labels_BL in (
        ("true", np.tile(np.arange(length), (sequences, 1))),
        ("shuffled", shuffled(sequences, length, shuffle)),
    ):
        known_T, sought_NL = labels_BL[:cut].ravel(), labels_BL[cut:]
        ridge = make_pipeline(StandardScaler(), RidgeCV(alphas=len(known_T) * PENALTIES))
        read_NL = ridge.fit(fitted, known_T).predict(scored).reshape(sought_NL.shape)
        classes = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        named_NL = classes.fit(fitted, known_T).predict(scored).reshape(sought_NL.shape)
        off_NL = read_NL - sought_NL
        by_sequence: dict[tuple[str, str], tuple[Floats, float]] = {
            # The variance of 0..L-1 is that of every sequence, so R^2 too is a mean over them.
            ("ridge", "r2"): (1 - (off_NL**2).mean(1) / ((length**2 - 1) / 12), 0.0),
            ("ridge", "error"): (abs(off_NL).mean(1), (length**2 // 4) / length),
            ("classes", "accuracy"): ((named_NL == sought_NL).mean(1), 1 / length),
        }
        for (name, score), (values_N, chance) in by_sequence.items():
            yield Score(name, target, score, *mean_and_interval(values_N), chance)  # type: ignore[arg-type]


def shuffled(sequences: int, length: int, shuffle: int) -> NDArray[np.integer]:
    """The positions 0..L-1 in a random order of their own for each sequence, (B, L)."""
    generator = generator_for(0, "probe-shuffle", shuffle)
    keys_BL = torch.rand(sequences, length, generator=generator, dtype=torch.float64)
    order_BL: NDArray[np.integer] = keys_BL.argsort(1).numpy()
    return order_BL


def mean_and_interval(values_N: Floats) -> tuple[float, float, float]:
    """Mean over sequences and its 95 % interval by Student's t."""
    mean, size = float(values_N.mean()), len(values_N)
    half = float(student.ppf((1 + LEVEL) / 2, size - 1) * values_N.std(ddof=1)) / math.sqrt(size)
    return mean, mean - half, mean + half
