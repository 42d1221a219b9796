"""Frequencies and magnitude from what was measured.

Shapes: P positions, F channel pairs, K steps of the ladder.

The phase of a pair at position p is theta p only up to whole turns. At 1 it is known (a theta
beyond pi cannot be told from theta - 2 pi by anything that sees whole positions); each doubling of
the position then halves the uncertainty, as long as the phase predicted for the doubled position is
right to within half a turn. Powers of two are the positions at which theta p is exact in any
floating-point format, so what comes out are the frequencies the target itself uses.
"""

from dataclasses import dataclass

import numpy as np
import torch

from poslens.certificate.probe import SINGLE

EPS = torch.finfo(torch.float32).eps
LADDER = tuple(2**k for k in range(20))  # 1 .. 524,288


@dataclass(frozen=True)
class Frequencies:
    """`theta_F` in radians per position, signed.

    `top` is the last position of the ladder that agreed with those below it. What is read off there
    is right to `resolution`, the rounding of a cosine spread over `top` positions, besides what the
    target's own arithmetic does to a frequency.
    """

    theta_F: np.ndarray
    resolution: float
    top: int


def phase_error(positions: np.ndarray | float, fastest: float) -> np.ndarray:
    """What correct float32 arithmetic may be off by in a phase: max(1e-6, 4 eps p theta_max).

    Two roundings each of the frequency and of its product with the position, and as much again for
    the power that makes the frequency.
    """
    return np.maximum(SINGLE, 4 * EPS * np.abs(positions) * fastest)


def climb(turned_KF: np.ndarray, noise: float) -> Frequencies:
    """Frequencies from unit complex numbers at positions 1, 2, 4, ..; `noise` is that of a phase.

    Stops at the first position where a phase is not what those below predict: there the target no
    longer turns by theta p.
    """
    theta_F = np.angle(turned_KF[0])
    fastest = float(np.abs(theta_F).max(initial=0.0))
    error, top = noise + float(phase_error(1, fastest)), 1
    for step, now_F in enumerate(turned_KF[1:], start=1):
        position = 2**step
        here = noise + float(phase_error(position, fastest))
        allowed = here + 2 * error
        deviation_F = np.angle(now_F * np.exp(-1j * theta_F * position))
        if allowed > np.pi / 2 or not (np.abs(deviation_F) <= allowed).all():
            break
        theta_F = theta_F + deviation_F / position
        error, top = here, position
    return Frequencies(theta_F, noise / top, top)


def stored_precision(values: np.ndarray) -> torch.dtype:
    """The coarsest of bfloat16, float16, float32 that holds every value exactly."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(tensor.to(dtype).double(), tensor):
            return dtype
    return torch.float32


def rounding(dtype: torch.dtype) -> float:
    """What numbers about 1 are off by after a few roundings to a half precision; 0 for float32.

    Two units of its last place: four roundings (table, factor, product, sum), each half a unit.
    """
    return 0.0 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps


def in_words(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
