"""The subspace in which position moves the residual stream, and where it turns away.

p_t is the mean over sequences of the stream at position t, minus the grand mean. On sequences
without content it is position, up to the noise of a mean: with n sequences it carries 1/n of the
content's variance. Its principal components span the position subspace.

Shapes: B batch, L positions, E model width, K components, G blocks of sequences.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import subspace_angles
from scipy.stats import t as student
from torch import Tensor

from poslens.probing.probes import LEVEL
from poslens.tasks.data import generator_for
from poslens.toeplitz.splits import position_means, squares

HELD = 0.9  # share of p_t's variance at the input that the position subspace holds
BLOCKS = 20  # of sequences, left out one by one for intervals; no fewer sequences are enough
FLIPS = 19  # draws of noise: their largest is exceeded by a 20th in 1 of 20

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Explained:
    """Share of the stream's variance that p_t explains, fitted on one half, on the other."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Angles:
    """Mean cos^2 of the principal angles between two subspaces of K dimensions."""

    mean_cos2: float
    low: float
    high: float


class PositionParts:
    """p_t of one state, from all sequences, and with each block of them left out.

    `position_LE` is that of all; `left_out` those without one block each, for jackknife intervals.
    `above_noise` is how many principal components have more variance than noise has in its first:
    the largest of `FLIPS` draws in which half of the blocks, at random, count as negative, so that
    position cancels and the noise of a mean over all sequences is left.
    """

    def __init__(self, x_BLE: Tensor) -> None:
        x_BLE = x_BLE.detach().cpu().double()
        parts = x_BLE.tensor_split(BLOCKS)
        whole_LE = x_BLE.sum(0)
        self.position_LE = _centred(whole_LE / len(x_BLE))
        self.left_out = [
            _centred((whole_LE - part.sum(0)) / (len(x_BLE) - len(part))) for part in parts
        ]
        means_GLE = torch.stack([part.mean(0) for part in parts])
        generator = generator_for(0, "probe-noise")
        noise = []
        for _ in range(FLIPS):
            signs_G = torch.where(torch.randperm(BLOCKS, generator=generator) < BLOCKS // 2, 1, -1)
            flipped_LE = torch.einsum("g,gle->le", signs_G.double(), means_GLE) / BLOCKS
            noise.append(np.linalg.svd(_centred(flipped_LE), compute_uv=False)[0])
        own = np.linalg.svd(self.position_LE, compute_uv=False)
        self.above_noise = int((own > max(noise)).sum())


def _centred(x_LE: Tensor) -> Floats:
    centred: Floats = (x_LE - x_LE.mean(0)).numpy()
    return centred


def explained(x_BLE: Tensor) -> Explained:
    """Share of the stream's variance about its grand mean that p_t explains on other sequences.

    p_t is fitted on the first half and used on the second: 1 - sum ||x - mean - p||^2 /
    sum ||x - mean||^2. A ratio of sums over sequences: its interval is that of a mean of the
    linearised ratio. Where position is not in the stream the share is about -1/n, n the number of
    sequences fitted on.
    """
    x_BLE = x_BLE.detach().cpu().double()
    cut = len(x_BLE) // 2
    used_BLE = x_BLE[cut:]
    real_BL = torch.ones(x_BLE.shape[:2], dtype=torch.bool)
    mean_E, position_LE, _ = position_means(x_BLE[:cut], real_BL[:cut])
    left_N, whole_N = (
        it.numpy() for it in squares(used_BLE - mean_E - position_LE, position_LE, real_BL[cut:])
    )
    share = 1 - left_N.sum() / whole_N.sum()
    rest_N = (left_N - (1 - share) * whole_N) / whole_N.mean()
    half = _quantile(len(rest_N) - 1) * rest_N.std(ddof=1) / math.sqrt(len(rest_N))
    return Explained(float(share), float(share - half), float(share + half))


def dimensions(position_LE: Floats) -> int:
    """The smallest K whose first principal components hold `HELD` of the variance of p_t."""
    values = np.linalg.svd(position_LE, compute_uv=False) ** 2
    held = values.cumsum() / values.sum()
    return int((held < HELD).sum()) + 1


def basis(position_LE: Floats, components: int) -> Floats:
    """Orthonormal columns (E, K): the first principal components of p_t."""
    _, _, components_KE = np.linalg.svd(position_LE, full_matrices=False)
    first: Floats = components_KE[:components].T
    return first


def mean_cos2(position_LE: Floats, input_LE: Floats, components: int) -> float:
    """Mean cos^2 of the principal angles between two position subspaces of K dimensions.

    1 where they are the same, 0 where they are orthogonal, K/E on average where one is random.
    """
    angles_K = subspace_angles(basis(position_LE, components), basis(input_LE, components))
    return float((np.cos(angles_K) ** 2).mean())


def angles(state: PositionParts, start: PositionParts, components: int) -> Angles:
    """The same of a state and the input, with a jackknife interval over blocks of sequences.

    Leaving out each of `BLOCKS` blocks in both states: standard error sqrt((G - 1) / G *
    sum (v_g - mean v)^2), Student's t with G - 1 degrees of freedom (Efron and Tibshirani 1993,
    chapter 11), kept within 0 and 1.
    """
    value = mean_cos2(state.position_LE, start.position_LE, components)
    pairs = zip(state.left_out, start.left_out, strict=True)
    others = np.array([mean_cos2(one, other, components) for one, other in pairs])
    error = math.sqrt((BLOCKS - 1) / BLOCKS * ((others - others.mean()) ** 2).sum())
    half = _quantile(BLOCKS - 1) * error
    return Angles(value, max(0.0, value - half), min(1.0, value + half))


def _quantile(degrees: int) -> float:
    return float(student.ppf((1 + LEVEL) / 2, degrees))
