"""Recovering a sinusoidal table: which channels pair, their frequencies, base, scale and offset.

Shapes: P positions (rows), E width, F = E/2 pairs. Frequencies are in radians per position.

A pair of a sine and a cosine of one angle is told by its modulus, which is the same in every row
whatever the angles are; so layout is found first, and angles can then be judged.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Layout = Literal["interleaved", "half"]
LAYOUTS: tuple[Layout, ...] = ("interleaved", "half")
Spacing = Literal["2f/width", "f/(pairs - 1)"]

EPS = torch.finfo(torch.float32).eps
# Angles are read off rows whose positions every floating-point format holds exactly.
_ROWS = 256
# A base of so few digits, within the error of measurement, is taken to be meant.
_DIGITS = 3
# A frequency base^(-2f/E) computed in float32 by any common formula is off by less than this:
# the exponent's rounding, at most ln(base) roundings, and a few more.
FREQUENCY_ROUNDINGS = 24


@dataclass(frozen=True)
class Law:
    """scale * base^(-f / length): frequencies that a table may have been meant to have.

    `error_F` is by how much they may miss the table's: 0 where the base is a round number, which
    is taken to be meant; elsewhere that of measurement. `base_error` is relative.
    """

    base: float | None
    base_error: float
    spacing: Spacing
    scale: float
    frequencies_F: Tensor
    error_F: Tensor


@dataclass(frozen=True)
class Waves:
    """amplitude * (sin, cos)((p + offset) * frequency_f): what a table was found to be.

    `frequencies_F` as measured, each known up to `error_F`; `laws` they may follow, most likely
    first. `angles_PF` are those of the table itself, in (-pi, pi], sine and cosine put right.
    Positions p count from row `first_row` of the table; those before it are padding.
    """

    layout: Layout
    sine_first: bool
    negated: bool
    amplitude: float
    offset: float
    offset_spread: float
    frequencies_F: Tensor
    error_F: Tensor
    angles_PF: Tensor
    laws: tuple[Law, ...]
    first_row: int = 0


def recover_waves(rows_PE: Tensor, precision: torch.dtype) -> Waves | None:
    """The waves in a table (P, E), float64, whose values are rounded to `precision`; None if none.

    The width must be even, and there must be 4 rows at least.
    """
    for layout in LAYOUTS:
        first_PF, second_PF = pair_up(rows_PE, layout)
        square_PF = first_PF.square() + second_PF.square()
        power = square_PF.mean()
        # Each of the two is off by a rounding of the amplitude or so; the square by twice that.
        # What is stored in float64 has mostly been computed in float32.
        eps = max(torch.finfo(precision).eps, EPS)
        if power > 0 and (square_PF - power).abs().max() <= 8 * eps * power:
            return _waves(rows_PE, layout, math.sqrt(float(power)), precision)
    return None


def read_angles(rows_PE: Tensor, layout: Layout, sine_first: bool, negated: bool) -> Tensor:
    """The angle of every pair in every row, (P, F), in (-pi, pi]."""
    first_PF, second_PF = pair_up(rows_PE, layout)
    sine_PF, cosine_PF = (first_PF, second_PF) if sine_first else (second_PF, first_PF)
    return torch.atan2(-sine_PF if negated else sine_PF, cosine_PF)


def pair_up(rows_PE: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """The first and the second channel of each pair, (P, F) each."""
    half = rows_PE.shape[-1] // 2
    if layout == "half":
        return rows_PE[:, :half], rows_PE[:, half:]
    return rows_PE[:, 0::2], rows_PE[:, 1::2]


def _waves(rows_PE: Tensor, layout: Layout, amplitude: float, precision: torch.dtype) -> Waves:
    slopes_F, starts_F = _lines(read_angles(rows_PE, layout, sine_first=True, negated=False))
    slowest = int(slopes_F.abs().argmin())
    # At position 0 a cosine is 1: if it comes first, the angle read off starts a quarter turn on.
    sine_first = bool(wrapped(starts_F[slowest]).abs() < math.pi / 4)
    angles_PF = read_angles(rows_PE, layout, sine_first, negated=False)
    slopes_F, starts_F = _lines(angles_PF)
    negated = bool(slopes_F[slopes_F.abs().argmax()] < 0)
    if negated:
        angles_PF, slopes_F, starts_F = -angles_PF, -slopes_F, -starts_F

    rows = min(len(angles_PF), _ROWS)
    # A line through angles each off by e has a slope off by at most 3 e / rows.
    noise = torch.finfo(precision).eps + 4 * EPS
    error_F = 3 * noise / rows + FREQUENCY_ROUNDINGS * EPS * slopes_F.abs()
    offset, spread = _offset(slopes_F, starts_F)
    laws = _laws(slopes_F, error_F, rows_PE.shape[-1])
    return Waves(
        layout,
        sine_first,
        negated,
        amplitude,
        offset,
        spread,
        slopes_F,
        error_F,
        angles_PF,
        laws,
    )


def _lines(angles_PF: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and value at row 0 of the lines that angles, known up to whole turns, lie on."""
    rows = min(len(angles_PF), _ROWS)
    turns_PF = wrapped(angles_PF[:rows].diff(dim=0)).cumsum(0)
    unwrapped_PF = angles_PF[0] + torch.cat([torch.zeros_like(angles_PF[:1]), turns_PF])
    centred_P = torch.arange(rows, dtype=torch.float64) - (rows - 1) / 2
    slopes_F = centred_P @ unwrapped_PF / centred_P.square().sum()
    return slopes_F, unwrapped_PF.mean(0) - slopes_F * (rows - 1) / 2


def wrapped(angle: Tensor) -> Tensor:
    """The angle less whole turns, within half a turn of 0."""
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


def _offset(slopes_F: Tensor, starts_F: Tensor) -> tuple[float, float]:
    """The position that row 0 holds, and by how much the pairs disagree on it, in radians.

    The slowest pair says it without whole turns; each faster one then says it more precisely.
    """
    order = slopes_F.abs().argsort()
    offset = 0.0
    for f in order.tolist():
        slope = float(slopes_F[f])
        if slope != 0:
            offset += float(wrapped(starts_F[f] - slope * offset)) / slope
    spread_F = wrapped(starts_F - slopes_F * offset).abs()
    return offset, float(spread_F.max())


def _laws(slopes_F: Tensor, error_F: Tensor, width: int) -> tuple[Law, ...]:
    """The geometric laws that frequencies may follow: first those with the roundest base.

    Logarithms of geometric frequencies lie on a line. Two lines are drawn: one on which each
    weighs by how well it is known, which is best where they are geometric; and one on which all
    that are known to a hundredth weigh alike, which is best where each has been rounded by itself.
    """
    pairs = len(slopes_F)
    if pairs == 1 or bool((slopes_F <= 0).any()):
        return (Law(None, math.inf, "2f/width", 1.0, slopes_F, error_F),)
    relative_F = error_F / slopes_F
    known_F = (relative_F < 0.01).double()
    weights = [relative_F.square().reciprocal()] + [known_F] * (known_F.sum() > 1)
    lengths: dict[Spacing, float] = {"2f/width": width / 2, "f/(pairs - 1)": pairs - 1}
    index_F = torch.arange(pairs, dtype=torch.float64)
    laws = []
    for weight_F in weights:
        start, step, start_error, step_error = _line(index_F, slopes_F.log(), weight_F, relative_F)
        scale = 1.0 if abs(start) <= max(start_error, EPS) else math.exp(start)
        for spacing, length in lengths.items():
            base, base_error = math.exp(-step * length), step_error * length
            round_base, digits = round_number(base, base_error)
            whole = digits <= _DIGITS
            for value in (round_base, base) if whole else (base,):
                law_F = scale * value ** (-index_F / length)
                off_F = torch.zeros_like(error_F) if whole and value == round_base else error_F
                rank = digits if value == round_base else _DIGITS + 1
                laws.append((rank, Law(value, base_error, spacing, scale, law_F, off_F)))
    return tuple(law for _, law in sorted(laws, key=lambda it: it[0]))


def _line(
    x_F: Tensor, y_F: Tensor, weight_F: Tensor, error_F: Tensor
) -> tuple[float, float, float, float]:
    """Weighted least squares: value at 0, slope, and the most each can be off by."""
    design_F2 = torch.stack([torch.ones_like(x_F), x_F], -1)
    weighted_2F = (weight_F[:, None] * design_F2).mT
    solve_2F = torch.linalg.solve(weighted_2F @ design_F2, weighted_2F)
    start, step = (solve_2F @ y_F).tolist()
    start_error, step_error = (solve_2F.abs() @ error_F).tolist()
    return start, step, start_error, step_error


def round_number(value: float, relative_error: float) -> tuple[float, int]:
    """The number of fewest digits within the error, and how many; itself and 4 for more than 3."""
    for digits in range(1, _DIGITS + 1):
        rounded = float(f"{value:.{digits}g}")
        if abs(rounded / value - 1) <= max(relative_error, EPS):
            return rounded, digits
    return value, _DIGITS + 1
