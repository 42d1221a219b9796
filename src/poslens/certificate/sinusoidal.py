"""Judging a table that was recognised as sinusoidal: its phases, base, layout, scale and start.

Shapes: P positions (rows), F pairs.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from poslens.certificate.bias_curves import rounded, thinned
from poslens.certificate.finding import Finding, Verdict
from poslens.certificate.table_sample import TableSample, call_table
from poslens.certificate.waves import (
    EPS,
    Law,
    Waves,
    read_angles,
    recover_waves,
    round_number,
    wrapped,
)

# Positions far out at which phases are compared with float64, where the table goes that far.
FAR_POSITIONS = (131_071, 1_000_000)
_LOW_PRECISIONS = (torch.bfloat16, torch.float16)
_MEND = (
    "Compute positions, frequencies and phases in float32 or float64; convert the finished table."
)
# A base measured through rounded phases is known about as well; and that much of the phases must be
# explained by a mistake for it to be named.
_BASE_ERROR = 0.02
_EXPLAINED = 0.99
# How near to a whole number an offset must be to count as one.
_WHOLE = 1e-3


def allowed(positions_P: Tensor, law: Law, offset: float, stored: torch.dtype) -> Tensor:
    """How far phases may be off, (P,), radians: float32 arithmetic, one rounding of storage, and
    what the law itself may be off by.
    """
    reach_P = (positions_P + offset).abs()
    computed_P = (4 * EPS * reach_P * float(law.frequencies_F.max())).clamp_min(1e-6)
    measured_P = float(law.error_F.max()) * reach_P
    return computed_P + measured_P + 2 * torch.finfo(stored).eps


def judge_sinusoidal(
    sample: TableSample, waves: Waves, stored: torch.dtype
) -> tuple[list[Finding], dict[str, Any], dict[str, Any]]:
    """Findings on a table of waves whose values are rounded to `stored`.

    Also what was recovered of its frequencies, and its error curve.
    """
    positions_P = torch.arange(len(waves.angles_PF), dtype=torch.float64)
    fitting = (
        law
        for law in waves.laws
        if bool(
            (_off(waves, positions_P, law) <= allowed(positions_P, law, waves.offset, stored)).all()
        )
    )
    law = next(fitting, waves.laws[0])
    off_P = _off(waves, positions_P, law)
    allowed_P = allowed(positions_P, law, waves.offset, stored)
    findings = [_layout(waves), *_amplitude(waves), _start(waves)]
    recovered = {"base": law.base, "spacing": law.spacing, "position_scale": law.scale}
    curve = _curve(off_P, allowed_P)
    if bool((off_P > allowed_P).any()):
        findings.append(_mistake(waves, stored) or _phases_wrong(off_P, allowed_P))
        return findings, recovered, curve
    findings += [*_position_scale(law), _base(law)]
    worst = float(off_P.max())
    findings.append(
        Finding(
            "precision",
            "phases",
            "right",
            f"phases are within {worst:.2g} rad of float64 up to position {len(off_P) - 1} "
            f"(allowed {float(allowed_P.max()):.2g})",
            numbers={"error": worst},
        )
    )
    findings += _far(sample, waves, law, stored)
    if stored in _LOW_PRECISIONS:
        name = str(stored).removeprefix("torch.")
        findings.append(
            Finding(
                "precision",
                "storage",
                "right",
                f"stored in {name}: every value is rounded, by up to "
                f"{torch.finfo(stored).eps / 2 * waves.amplitude:.2g}",
                "The phases were computed precisely; the loss is the same at all positions.",
            )
        )
    return findings, recovered, curve


def _off(waves: Waves, positions_P: Tensor, law: Law) -> Tensor:
    """The largest difference of a phase from what it should be, (P,), radians."""
    phases_PF = (positions_P[:, None] + waves.offset) * law.frequencies_F
    return wrapped(waves.angles_PF - phases_PF).abs().amax(-1)


def _layout(waves: Waves) -> Finding:
    order = "sine first" if waves.sine_first else "cosine first"
    where = "in turn" if waves.layout == "interleaved" else "in two halves"
    what = f"sinusoidal: sines and cosines {where}, {order}"
    if waves.negated:
        return Finding(
            "table",
            "layout",
            "unusual",
            f"{what}, sines negated",
            "Positions run backwards: right for a model trained so, not for others.",
            "The sine is that of + position times frequency.",
        )
    if not waves.sine_first:
        return Finding(
            "table",
            "layout",
            "unusual",
            what,
            "Right for a model trained so; weights from the usual order (Vaswani et al. 2017, "
            "sine first) do not fit.",
        )
    return Finding("table", "layout", "right", what)


def _amplitude(waves: Waves) -> list[Finding]:
    if abs(waves.amplitude - 1) <= _WHOLE:
        return []
    width = 2 * len(waves.frequencies_F)
    named = {math.sqrt(width): "the root of the width", 1 / math.sqrt(width): "one over it"}
    near = [name for value, name in named.items() if abs(waves.amplitude / value - 1) < _WHOLE]
    what = f"amplitude {waves.amplitude:.6g}" + (f", {near[0]}" if near else "")
    why = "Position weighs more or less against content than in Vaswani et al. 2017."
    numbers = {"amplitude": waves.amplitude}
    return [Finding("table", "amplitude", "unusual", what, why, "", numbers)]


def _position_scale(law: Law) -> list[Finding]:
    if law.base is None or law.scale == 1:
        return []
    what = f"positions are multiplied by {law.scale:.6g}"
    why = "Longer sequences in the turns of shorter ones, or units other than positions."
    numbers = {"position_scale": law.scale}
    return [Finding("table", "position scale", "unusual", what, why, "", numbers)]


def _start(waves: Waves) -> Finding:
    start = waves.offset - waves.first_row
    numbers = {"offset": start, "spread": waves.offset_spread}
    whole = round(start)
    if abs(start - whole) > _WHOLE:
        return Finding(
            "table",
            "first position",
            "unusual",
            f"row 0 holds position {start:.4g}",
            "Positions are not whole numbers.",
            "",
            numbers,
        )
    if whole == 0:
        return Finding(
            "table", "first position", "right", "row 0 holds position 0", "", "", numbers
        )
    off_by_one = abs(whole) == 1
    return Finding(
        "table",
        "first position",
        "wrong" if off_by_one else "unusual",
        f"row 0 holds position {whole}",
        "Every token gets the position of a neighbour: weights trained with the right table see "
        "all positions shifted.",
        "Row p holds the sines of p times frequency, p from 0; leave out rows kept for padding "
        "when handing over the table.",
        numbers,
    )


def _base(law: Law) -> Finding:
    if law.base is None:
        return Finding(
            "table",
            "frequencies",
            "right",
            f"one frequency, {float(law.frequencies_F[0]):.6g} rad per position",
        )
    for low in _LOW_PRECISIONS:
        meant = round_number(law.base, torch.finfo(low).eps)[0]
        held = float(torch.tensor(meant).to(low))
        error = max(law.base_error, EPS)
        if abs(law.base / held - 1) <= error < abs(law.base / meant - 1):
            name = str(low).removeprefix("torch.")
            return Finding(
                "table",
                "frequencies",
                "wrong",
                f"the base is {held:.6g}: {meant:,.0f} rounded to {name}",
                "All frequencies but the first are off, the slowest most.",
                _MEND,
                {"base": law.base, "meant": meant},
            )
    numbers = {"base": law.base, "spacing": law.spacing}
    what = f"base {law.base:,.6g}, exponents {law.spacing}"
    if law.spacing == "f/(pairs - 1)":
        return Finding(
            "table",
            "frequencies",
            "unusual",
            what,
            "As in tensor2tensor and fairseq; the formula of Vaswani et al. 2017 has 2f/width.",
            "",
            numbers,
        )
    return Finding("table", "frequencies", "right", what, "", "", numbers)


def _mistake(waves: Waves, stored: torch.dtype) -> Finding | None:
    """The rounding that explains the phases, if one of the usual ones does.

    Nearly all of them: one that float32 leaves near the middle between two values of the low
    precision may have been rounded to the other.
    """
    positions_P = torch.arange(len(waves.angles_PF), dtype=torch.float64)
    positions_P1 = positions_P[:, None] + round(waves.offset)
    for law in waves.laws:
        if law.base is None:
            return None
        allowed_P1 = allowed(positions_P, replace(law, error_F=0 * law.error_F), 0.0, stored)[
            :, None
        ]
        base = round_number(law.base, _BASE_ERROR)[0]
        for low in _LOW_PRECISIONS:
            name = str(low).removeprefix("torch.")
            for what, phases_PF in _rounded_phases(positions_P1, law, base, low):
                matches_PF = wrapped(waves.angles_PF - phases_PF).abs() <= allowed_P1
                if matches_PF.double().mean() >= _EXPLAINED:
                    return Finding(
                        "precision",
                        "phases",
                        "wrong",
                        f"{what} rounded to {name} before the sine is taken",
                        "Neighbouring positions become the same, or phases drift, the more the "
                        "longer the sequence; short ones look fine.",
                        _MEND,
                        {"rounded_to": name, "base": base},
                    )
    return None


def _rounded_phases(
    positions_P1: Tensor, law: Law, base: float, low: torch.dtype
) -> Iterator[tuple[str, Tensor]]:
    """What phases become by each mistake, were `base` the one that is meant."""
    assert law.base is not None

    def held(x: Tensor) -> Tensor:
        return x.to(low).double()

    exponents_F = -torch.log(law.frequencies_F / law.scale) / math.log(law.base)
    law_F, held_P1 = base**-exponents_F, held(positions_P1)
    yield "positions are", held_P1 * law_F
    yield "frequencies are", positions_P1 * held(law_F)
    yield "the base is", positions_P1 * held(torch.tensor(base)) ** -exponents_F
    yield "phases (position times frequency) are", held(positions_P1 * law_F)
    yield "positions and frequencies are", held_P1 * held(law_F)
    yield "positions, frequencies and phases are", held(held_P1 * held(law_F))


def _phases_wrong(off_P: Tensor, allowed_P: Tensor) -> Finding:
    first = int((off_P > allowed_P).nonzero()[0])
    return Finding(
        "precision",
        "phases",
        "wrong",
        f"phases are not position times frequency: off by more than allowed from position {first} "
        f"on, by up to {float(off_P.max()):.3g} rad",
        "Positions are not told apart as they should be.",
        "Row p holds sine and cosine of p * base^(-2f/width), computed in float32 or float64.",
        {"error": float(off_P.max()), "first_position": first},
    )


def _far(sample: TableSample, waves: Waves, law: Law, stored: torch.dtype) -> list[Finding]:
    if sample.function is None:
        return []
    findings = []
    for position in FAR_POSITIONS:
        if sample.length is not None and position >= sample.length:
            break
        # Waves are read off several rows; a few before the position, then, and the position.
        rows_P = torch.arange(position - 3, position + 1)
        rows_PE = call_table(sample.function, rows_P).double()[:, : 2 * len(waves.frequencies_F)]
        there = recover_waves(rows_PE, stored)
        positions_P = rows_P.double() - waves.first_row
        limit_P = allowed(positions_P, law, waves.offset, stored)
        off_P = torch.full_like(limit_P, torch.inf)
        if there is not None and there.layout == waves.layout:
            angles_PF = read_angles(rows_PE, waves.layout, waves.sine_first, waves.negated)
            off_P = _off(replace(waves, angles_PF=angles_PF), positions_P, law)
        verdict: Verdict = "right" if bool((off_P <= limit_P).all()) else "wrong"
        findings.append(
            Finding(
                "precision",
                f"phases at {position:,}",
                verdict,
                f"phases are off by up to {float(off_P.max()):.2g} rad at position {position:,} "
                f"(allowed {float(limit_P.max()):.2g})",
                ""
                if verdict == "right"
                else "Far positions are told apart wrongly, or not at all.",
                "" if verdict == "right" else "Compute phases in float32 or float64.",
                {"error": float(off_P.max())},
            )
        )
    return findings


def _curve(off_P: Tensor, allowed_P: Tensor) -> dict[str, Any]:
    places = thinned(len(off_P))
    return {
        "title": "Phase error by position",
        "x_label": "Position",
        "y_label": "Largest error of a phase (rad)",
        "x": places,
        "lines": {"this table": rounded(off_P[places].clamp_min(1e-9))},
        "bands": {"allowed": rounded(allowed_P[places])},
        "log_x": True,
        "log_y": True,
        "note": "Against the same formula in float64.",
    }
