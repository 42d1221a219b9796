"""Frequencies stretched by parts: YaRN, llama3, and YaRN with its bounds exchanged.

Shapes: F channel pairs; x and y as in `lines`. Fast pairs stay on the line through the origin,
slow ones lie on one shifted by ln factor, and a ramp leads from one to the other. It is linear in
f for YaRN, and linear in the unscaled frequency for llama3; both are checked with the scalings of
`poslens.encodings.scaling`, to the precision of the frequencies.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from poslens.certificate.lines import Naming, exponents, fit_line, is_round, number, scaled
from poslens.encodings.scaling import Llama3Scaling, YaRNScaling
from poslens.errors import InputError

_Guess = Callable[[np.ndarray, np.ndarray, float, int], tuple[float, float] | None]
_Model = Callable[..., np.ndarray]  # of the constants, the count of pairs and the width
_Name = Callable[[np.ndarray, int], Naming]

# Any length describes a ramp as long as the turns are counted in it.
_LENGTH = 8192


def name_parts(
    theta_F: np.ndarray, width: int, tau_F: np.ndarray, attention_factor: float
) -> Naming | None:
    """The scaling by parts that gives these frequencies to within tau, or None."""
    if len(theta_F) < 4:
        return None
    y_F, x_F = -np.log(theta_F), exponents(len(theta_F), width)
    start = _run(x_F, y_F, tau_F)
    end = _run(x_F[::-1], y_F[::-1], tau_F[::-1])
    # The longer run gives the base to more digits; a run of two may lie within the ramp.
    for _, intercept, slope in sorted((start, end), key=lambda run: -run[0]):
        if slope <= 0:
            continue
        rho_F = theta_F * np.exp(slope * x_F)  # what each pair is multiplied by
        shifted = abs(intercept) > 10 * float(tau_F[-1])
        if abs(y_F[0]) <= 2 * tau_F[0]:
            factor = math.exp(intercept) if shifted else _factor_of(attention_factor)
            found = _ramp(rho_F, math.exp(slope), factor, width, theta_F, tau_F)
        else:
            found = None if shifted else _exchanged(rho_F, math.exp(slope), tau_F)
        if found is not None:
            return found
    return None


def _run(x: np.ndarray, y: np.ndarray, tau: np.ndarray) -> tuple[int, float, float]:
    """How many points from the first on lie on one line, and its intercept and slope."""
    count, line = 2, fit_line(x[:2], y[:2], tau[:2])
    while count < len(x):
        longer = fit_line(x[: count + 1], y[: count + 1], tau[: count + 1])
        if longer is None:
            break
        count, line = count + 1, longer
    assert line is not None  # two points are always on a line
    return count, *line


def _factor_of(attention_factor: float) -> float | None:
    """YaRN's factor from its attention factor 0.1 ln(factor) + 1; None where that is 1."""
    return math.exp((attention_factor - 1) / 0.1) if attention_factor > 1 + 1e-6 else None


def _ramp(
    rho_F: np.ndarray,
    base: float,
    factor: float | None,
    width: int,
    theta_F: np.ndarray,
    tau_F: np.ndarray,
) -> Naming | None:
    """The ramp from 1 to 1/factor, as whichever scaling fits all frequencies."""
    if factor is None or factor <= 1:
        return None
    slow_F = (1 - rho_F) / (1 - 1 / factor)  # 0 fast, 1 slow
    margin_F = 4 * tau_F / (1 - 1 / factor)
    inside = (slow_F > margin_F) & (slow_F < 1 - margin_F)
    if inside.sum() < 2:
        steep = (slow_F > -margin_F) & (slow_F < 1 + margin_F)
        return _step(slow_F, base, factor) if steep.all() else None
    # To start from, pairs well within: a base from the other end may be off in its last digits.
    well = (slow_F > 0.01) & (slow_F < 0.99)
    inside = well if well.sum() >= 2 else inside
    scalings: tuple[tuple[_Guess, _Model, _Name], ...] = (
        (_yarn_ends, _yarn, _as_yarn),
        (_llama3_ends, _llama3, _as_llama3),
    )
    for guess, model, name in scalings:
        ends = guess(slow_F, inside, base, width)
        if ends is None:
            continue
        start = np.array([math.log(base), math.log(factor), *ends])
        found = _polished(start, partial(model, count=len(theta_F), width=width), theta_F, tau_F)
        if found is not None:
            return name(found, width)
    return None


def _polished(
    start: np.ndarray,
    model: Callable[[np.ndarray], np.ndarray],
    theta_F: np.ndarray,
    tau_F: np.ndarray,
) -> np.ndarray | None:
    """The constants that fit all frequencies best, or None where those do not fit each to 2 tau."""

    def off(constants: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(model(constants) / theta_F) / tau_F)

    try:
        found = least_squares(off, start, x_scale=np.maximum(np.abs(start), 1e-3) * 1e-3)
    except (InputError, ValueError, OverflowError):  # it wandered to where there is no such scaling
        return None
    return found.x if np.abs(found.fun).max() <= 2 else None


def _step(slow_F: np.ndarray, base: float, factor: float) -> Naming:
    first = int((slow_F > 0.5).argmax())
    words = (
        f"pairs from {first} on divided by {number(factor)}, base {number(base)} (YaRN or llama3: "
        "the ramp is too short to tell)"
    )
    return Naming("by parts", words, base, {"factor": factor, "first_slow": first})


def _yarn_ends(
    slow_F: np.ndarray, inside: np.ndarray, base: float, width: int
) -> tuple[float, float] | None:
    """Where a ramp that is linear in f starts and ends."""
    slope, intercept = np.polyfit(np.arange(len(slow_F))[inside], slow_F[inside], 1)
    return (float(-intercept / slope), float((1 - intercept) / slope)) if slope > 0 else None


def _yarn(constants: np.ndarray, count: int, width: int) -> np.ndarray:
    base, factor = np.exp(constants[:2])
    fast, slow = (_LENGTH / (2 * math.pi * base ** (2 * end / width)) for end in constants[2:])
    return scaled(YaRNScaling(factor, _LENGTH, fast, slow, truncate=False), base, count, width)


def _as_yarn(constants: np.ndarray, width: int) -> Naming:
    base, factor = (float(constant) for constant in np.exp(constants[:2]))
    low, high = (float(end) for end in constants[2:])
    whole = all(abs(end - round(end)) < 1e-2 for end in (low, high))
    if whole:  # YaRN rounds them, unless it is told not to
        low, high = float(round(low)), float(round(high))
    lengths = original_lengths(low, high, base, width, whole)
    parameters: dict[str, Any] = {"factor": factor, "low": low, "high": high}
    words = f"YaRN by {number(factor)}, base {number(base)}, ramp from pair {low:g} to {high:g}"
    if lengths is not None:
        parameters["original_length"] = list(lengths)
        words += f" (what turns of 32 and 1 give for lengths {lengths[0]:,} to {lengths[1]:,})"
    return Naming("yarn", words, base, parameters, *_on_ntk_base(base, factor, width))


def original_lengths(
    low: float, high: float, base: float, width: int, whole: bool
) -> tuple[int, int] | None:
    """Trained lengths for which YaRN's usual turns, 32 and 1, give these ends of the ramp.

    It clamps the low end to 0 and the high one to width - 1; there they bound one side only.
    """

    def length(index: float, turns: float) -> float:
        return turns * 2 * math.pi * float(base ** (2 * index / width))

    slack = 1.0 if whole else 1e-3
    least = max(length(low - 1 + slack, 32) if low > 0 else 0.0, length(high - slack, 1))
    most = min(length(low + slack, 32), length(high, 1) if high < width - 1 else math.inf)
    least, most = math.ceil(least * (1 - 1e-4)), math.floor(min(most, 1e12) * (1 + 1e-4))
    return (least, most) if 1 <= least <= most < 1e12 else None


def _on_ntk_base(base: float, factor: float, width: int) -> tuple[str, str]:
    """A base that is not round, but is where NTK-aware scaling by the same factor is undone."""
    original = base / factor ** (width / (width - 2))
    if is_round(base) or not is_round(original):
        return "", ""
    return (
        f"YaRN is built on the NTK-changed base {number(base)} = {number(original)} x "
        f"{number(factor)}^({width}/{width - 2}), which stretches slow pairs twice",
        f"Give YaRN the original base, {number(original)}; it replaces NTK-aware scaling.",
    )


def _llama3_ends(
    slow_F: np.ndarray, inside: np.ndarray, base: float, width: int
) -> tuple[float, float] | None:
    """Logarithms of the wavelengths from which pairs are divided, and up to which they are kept."""
    theta_F = base ** -exponents(len(slow_F), width)
    slope, intercept = np.polyfit(theta_F[inside], 1 - slow_F[inside], 1)
    if slope <= 0 or intercept >= 0:
        return None
    return math.log(2 * math.pi * slope / -intercept), math.log(
        2 * math.pi * slope / (1 - intercept)
    )


def _llama3(constants: np.ndarray, count: int, width: int) -> np.ndarray:
    base, factor, slow, fast = np.exp(constants)
    return scaled(
        Llama3Scaling(factor, _LENGTH, _LENGTH / slow, _LENGTH / fast), base, count, width
    )


def _as_llama3(constants: np.ndarray, width: int) -> Naming:
    base, factor, slow, fast = (float(constant) for constant in np.exp(constants))
    words = (
        f"llama3 scaling by {number(factor)}, base {number(base)}: kept up to a wavelength of "
        f"{number(fast)}, divided from {number(slow)} on"
    )
    # Llama's own files count one turn for slow pairs, in which case this is the original length.
    parameters = {"factor": factor, "original_length": slow, "high_turns": slow / fast}
    return Naming("llama3", words, base, parameters)


def _exchanged(rho_F: np.ndarray, base: float, tau_F: np.ndarray) -> Naming | None:
    """Fast pairs divided and slow ones kept: YaRN with the ends of its ramp exchanged."""
    factor = 1 / float(rho_F[0])
    rising = np.diff(rho_F) >= -4 * tau_F[1:]
    if factor <= 1 or not rising.all() or abs(rho_F[-1] - 1) > 8 * tau_F[-1]:
        return None
    return Naming(
        "exchanged", f"fast pairs divided by {number(factor)}, slow ones kept, base {number(base)}",
        base, {"factor": factor},
        "YaRN with its bounds exchanged: fast pairs, which tell neighbours apart, are stretched, "
        "and slow ones, which should be, are not",
        "beta_fast (32 turns) gives the low end of the ramp, beta_slow (1 turn) the high end.",
    )  # fmt: skip
