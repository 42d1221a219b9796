"""Frequencies as lines: the arithmetic that names of scalings are read off with.

Shapes: F channel pairs. x_f = 2f / width; unscaled frequencies are base^(-x_f), so that
y_f = -ln theta_f is a line through the origin with slope ln base.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from poslens.certificate.recovery import EPS
from poslens.encodings.scaling import Scaling


@dataclass(frozen=True)
class Naming:
    """`kind` is none, linear, ntk, yarn, llama3, by parts, free, rounded, repeated or exchanged.

    `words` describes it; `base` and `parameters` are what was recovered. `fault` says what is
    wrong with it, `mend` how to set it right; both are empty where it is right.
    """

    kind: str
    words: str
    base: float | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    mend: str = ""


def relative_error(theta_F: np.ndarray, resolution: float) -> np.ndarray:
    """How far each frequency may be from its formula, relatively.

    float32 rounds the exponent x ln base, which is -ln theta, to half a unit of itself, and the
    power, the quotient and each step of a scaling to a unit; twice that, and what the measurement
    adds.
    """
    return EPS * (8 + 2 * np.abs(np.log(theta_F))) + resolution / theta_F


def exponents(count: int, width: int) -> np.ndarray:
    return 2 * np.arange(count) / width


def scaled(scaling: Scaling, base: float, count: int, width: int) -> np.ndarray:
    """The first `count` frequencies of `poslens.encodings.scaling` at rotary width `width`."""
    theta_F, _ = scaling.frequencies(base, width, torch.tensor(1))
    return theta_F.numpy()[:count]


def fit_line(x: np.ndarray, y: np.ndarray, tau: np.ndarray) -> tuple[float, float] | None:
    """Intercept and slope of a line through points known to tau, or None where they are on none.

    The best line is no further from a point than twice its error if some line is within it.
    """
    design = np.stack([np.ones_like(x), x], 1) / tau[:, None]
    intercept, slope = np.linalg.lstsq(design, y / tau, rcond=None)[0]
    fits = np.abs(y - intercept - slope * x) <= 2 * tau
    return (float(intercept), float(slope)) if fits.all() else None


def is_round(value: float, tolerance: float = 1e-5) -> bool:
    """Whether a number has at most two significant digits."""
    digits = 10 ** (math.floor(math.log10(value)) - 1)
    return abs(value / digits - round(value / digits)) <= tolerance * value / digits


def number(value: float | None) -> str:
    """As people write it: 10,000 rather than 9999.99997, four to six digits otherwise."""
    if value is None:
        return "unknown"
    if value >= 1000:
        whole = round(value)
        return f"{whole:,}" if abs(value / whole - 1) < 1e-5 else f"{value:,.2f}"
    return f"{value:.4g}" if abs(value / float(f"{value:.4g}") - 1) < 1e-5 else f"{value:.6g}"
