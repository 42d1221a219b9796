"""What a list of frequencies is: base, scaling, and whether its numbers give a fault away.

Shapes: F channel pairs; x and y as in `lines`. The scalings of `poslens.encodings.scaling` bend
the line of unscaled frequencies in ways that can be told apart: linear shifts it, NTK turns it
about the origin, and those that go by parts (`parts`) leave its start and shift its end.
"""

import math

import numpy as np
import torch

from poslens.certificate.lines import (
    Naming,
    exponents,
    fit_line,
    is_round,
    number,
    relative_error,
    scaled,
)
from poslens.certificate.parts import name_parts
from poslens.encodings.scaling import NTKScaling, Scaling

_USUAL_BASES = (10_000.0, 500_000.0, 1_000_000.0, 5_000_000.0, 10_000_000.0, 100_000.0)


def name_frequencies(
    theta_F: np.ndarray, width: int, resolution: float, attention_factor: float = 1.0
) -> Naming:
    """Names positive frequencies in the order of their pairs; `width` is what 2f is divided by.

    `resolution` is the error each was measured with. The attention factor helps where a ramp does
    not show its end.
    """
    tau_F = relative_error(theta_F, resolution)
    return (
        _line(theta_F, width, tau_F)
        or _rounded(theta_F, width, tau_F)
        or name_parts(theta_F, width, tau_F, attention_factor)
        or _free(theta_F, width)
    )


def _line(theta_F: np.ndarray, width: int, tau_F: np.ndarray) -> Naming | None:
    """No scaling, or one that keeps the line straight."""
    if len(theta_F) == 1:
        return Naming("none", f"one frequency, {number(float(theta_F[0]))} radians a position")
    y_F, x_F = -np.log(theta_F), exponents(len(theta_F), width)
    through_origin = float((x_F * y_F / tau_F**2).sum() / (x_F**2 / tau_F**2).sum())
    if np.all(np.abs(y_F - through_origin * x_F) <= 2 * tau_F):
        return _unscaled(math.exp(through_origin), width)
    found = fit_line(x_F, y_F, tau_F)
    if found is None:
        return None
    intercept, slope = found
    base, times = math.exp(slope), math.exp(-intercept)
    if round(times) >= 2 and abs(times / round(times) - 1) <= 4 * tau_F[0]:
        return _repeated(base, round(times))
    if times > 1:
        words = f"frequencies {number(times)} times those of base {number(base)}"
    else:
        words = f"linear scaling by {number(1 / times)}, base {number(base)}"
    return Naming("linear", words, base, {"factor": 1 / times})


def _unscaled(base: float, width: int) -> Naming:
    original = _ntk(base, width)
    if original is None:
        return Naming("none", f"no scaling, base {number(base)}", base)
    words = (
        f"base {number(base)}, which is NTK-aware scaling of base {number(original[0])} "
        f"by {number(original[1])}"
    )
    return Naming("ntk", words, base, {"original_base": original[0], "factor": original[1]})


def _ntk(base: float, width: int) -> tuple[float, float] | None:
    """A usual base and a factor in halves that NTK-aware scaling makes an odd base of."""
    if width <= 2 or is_round(base):
        return None
    for original in _USUAL_BASES:
        factor = round(2 * (base / original) ** ((width - 2) / width)) / 2
        if factor <= 1:
            continue
        stretched = scaled(NTKScaling(factor), original, 2, width)[1]
        if abs(stretched / scaled(Scaling(), base, 2, width)[1] - 1) <= 1e-6:
            return original, factor
    return None


def _repeated(base: float, times: int) -> Naming:
    again = "twice" if times == 2 else f"{times} times"
    return Naming(
        "repeated", f"{times} times the frequencies of base {number(base)}", base, {"times": times},
        f"rotation is applied {again}: the fastest pair turns {times} radians a position, and no "
        "scaling makes frequencies faster",
        "Rotate queries and keys once; look for a second call, in the cache or the attention.",
    )  # fmt: skip


def _rounded(theta_F: np.ndarray, width: int, tau_F: np.ndarray) -> Naming | None:
    """Every frequency is one a half precision can hold, which no formula's are by accident."""
    theta = torch.from_numpy(theta_F)
    y_F, x_F = -np.log(theta_F), exponents(len(theta_F), width)
    for dtype in (torch.bfloat16, torch.float16):
        seen = tau_F < torch.finfo(dtype).eps / 16  # measured finely enough to tell
        off_F = np.abs(theta.to(dtype).double().numpy() / theta_F - 1)
        if seen.sum() < 3 or np.any(off_F[seen] > 2 * tau_F[seen]):
            continue
        name = str(dtype).removeprefix("torch.")
        slope = float((x_F * y_F)[seen].sum() / (x_F**2)[seen].sum())
        worst = float(np.abs(theta_F * np.exp(slope * x_F) - 1)[seen].max())
        return Naming(
            "rounded", f"every frequency is a {name} number, about base {number(math.exp(slope))}",
            math.exp(slope), {"precision": name},
            f"frequencies are rounded to {name} before they are multiplied by the position: off by "
            f"up to {worst:.1%}, so that phases are wrong by that share of the angle",
            "Keep the frequencies (inv_freq) and their product with positions in float32; cast "
            "cosines and sines instead.",
        )  # fmt: skip
    return None


def _free(theta_F: np.ndarray, width: int) -> Naming:
    x_F = exponents(len(theta_F), width)
    slope, intercept = np.polyfit(x_F, -np.log(theta_F), 1)
    off = float(np.abs(theta_F * np.exp(intercept + slope * x_F) - 1).max())
    words = (
        f"frequencies of no named scaling (up to {off:.1%} from base {number(math.exp(slope))} "
        f"divided by {number(math.exp(intercept))})"
    )
    return Naming("free", words)
