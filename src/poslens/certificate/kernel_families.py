"""Which known function of the distance a kernel is, and by how much it misses the others.

Shapes: H heads, N distances 0, 1, ..; kernels are 0 at distance 0 and fall for near keys to weigh
more. All in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import least_squares
from torch import Tensor

Values = NDArray[np.float64]

# A fit needs few distances; what it misses is measured at all of them.
_FITTED = 96


@dataclass(frozen=True)
class Fit:
    """-weight_H * shape(distance), the best there is, and how far the kernel is from it.

    `inner_H` is the parameter within: r2 of KERPLE; None for a linear kernel.
    """

    weight_H: Tensor
    inner_H: Tensor | None
    fitted_HN: Tensor
    misses_HN: Tensor


def fit_linear(kernel_HN: Tensor) -> Fit:
    """-m d (ALiBi)."""
    distances_N = torch.arange(kernel_HN.shape[-1], dtype=torch.float64)
    weight_H = -(kernel_HN @ distances_N) / distances_N.square().sum()
    fitted_HN = -weight_H[:, None] * distances_N
    return Fit(weight_H, None, fitted_HN, (kernel_HN - fitted_HN).abs())


def fit_logarithmic(kernel_HN: Tensor) -> Fit:
    """-r1 log(1 + r2 d) (KERPLE, the logarithmic variant; Chi et al. 2022, section 4)."""
    return _fit(kernel_HN, lambda d, r2: np.log1p(r2 * d), np.geomspace(1e-5, 1e4, 37))


def fit_power(kernel_HN: Tensor) -> Fit:
    """-r1 d^r2 (KERPLE, the power variant, 0 < r2 <= 2; Chi et al. 2022, section 4)."""
    return _fit(kernel_HN, lambda d, r2: d**r2, np.geomspace(0.02, 2, 21))


def _fit(
    kernel_HN: Tensor, shape: Callable[[Values, float], Values], starts: NDArray[np.float64]
) -> Fit:
    """Best weight and inner parameter for each head; the weight is linear and solved within."""
    count = kernel_HN.shape[-1]
    distances_N = np.arange(count, dtype=np.float64)
    few = np.unique(np.geomspace(1, count - 1, _FITTED).astype(int))
    weights, inners, fitted = [], [], []
    for kernel_N in kernel_HN.numpy():
        target = kernel_N[few]
        scale = max(float(np.abs(target).max()), np.finfo(np.float64).tiny)

        def weight(inner: float, target: Values = target) -> float:
            basis = shape(distances_N[few], inner)
            return float(-(target @ basis) / (basis @ basis))

        def misses(log_inner: Values, target: Values = target, scale: float = scale) -> Values:
            inner = float(np.exp(log_inner[0]))
            return (target + weight(inner, target) * shape(distances_N[few], inner)) / scale

        start = min(starts, key=lambda inner: float(np.square(misses(np.log([inner]))).sum()))
        limits = (np.log(starts[0]) - 1, np.log(starts[-1]) + 1)
        found = least_squares(
            misses, np.log([start]), bounds=limits, xtol=1e-14, ftol=1e-14, gtol=1e-14
        )
        inner = float(np.exp(found.x[0]))
        weights.append(weight(inner))
        inners.append(inner)
        fitted.append(-weights[-1] * shape(distances_N, inner))
    fitted_HN = torch.from_numpy(np.stack(fitted))
    weight_H, inner_H = (torch.tensor(it, dtype=torch.float64) for it in (weights, inners))
    return Fit(weight_H, inner_H, fitted_HN, (kernel_HN - fitted_HN).abs())
