"""Phases against float64, far out and in low precision.

Shapes: P positions, F channel pairs.

The reference is exp(i theta p) in float64, theta being the target's own frequencies as read off at
powers of two, where theta p is exact in every format. A target that computes phases in float32 is
off by less than max(1e-6, 4 eps p theta_max), eps that of float32 whatever precision its queries
have; rounding cosines and sines to a half precision adds a constant, which a model can live with,
while rounding positions, frequencies or their product adds an error that grows with the position.
"""

from typing import Any

import numpy as np
import torch

from poslens.certificate.calls import CallError
from poslens.certificate.evidence import Evidence
from poslens.certificate.finding import Finding
from poslens.certificate.probe import Probe
from poslens.certificate.recovery import in_words, phase_error, rounding

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_HALVES = (torch.bfloat16, torch.float16)
# Three positions an octave from 64 on, none a power of two, which would hide rounding.
_BETWEEN = tuple(int(2 ** (k + part)) | 1 for k in range(6, 20) for part in (0.17, 0.5, 0.83))


def measured_positions(last: int) -> list[int]:
    """Where the error is measured: small, between the powers of two, and the far ends."""
    ends = (131_071, 131_072, 999_999, 1_000_000, last)
    small = (1, 2, 3, 7, 19, 41, 63)
    return sorted({p for p in (*small, *_BETWEEN, *ends) if p <= last})


def precision(
    evidence: Evidence, dtypes: tuple[torch.dtype, ...] = DTYPES
) -> tuple[list[Finding], dict[str, Any]]:
    """A finding for every precision and the curve of errors by position."""
    findings: list[Finding] = []
    positions = measured_positions(evidence.limit)
    where = np.array(positions, dtype=float)
    lines: dict[str, list[float]] = {}
    for dtype in dtypes:
        if dtype != torch.float32 and evidence.probe.dtype not in (torch.float32, dtype):
            continue
        name = in_words(dtype)
        try:
            turned_PF = _turned(evidence, positions, dtype)
        except CallError as error:
            findings.append(Finding("precision", name, "right", f"does not take {name} ({error})"))
            continue
        error_P = _error(evidence, turned_PF, where)
        lines[name] = error_P.tolist()
        allowed_P = phase_error(where, evidence.fastest) + _constant(evidence, dtype)
        bad = ~(error_P <= allowed_P)
        findings.append(
            _wrong(evidence, dtype, positions, turned_PF, bad, error_P)
            if bad.any()
            else _right(dtype, positions, error_P)
        )
    stored = _stored(evidence)
    # A table that ends is the same finding in every precision.
    told = list({(finding.name, finding.what): finding for finding in findings}.values())
    return told + ([stored] if stored else []), _curve(positions, lines, evidence)


def _constant(evidence: Evidence, dtype: torch.dtype) -> float:
    return max(evidence.low, rounding(dtype))


def _turned(evidence: Evidence, positions: list[int], dtype: torch.dtype) -> np.ndarray:
    """Numbers by which queries and keys are turned from position 0 on, (P, 2F), of size 1."""
    probe = Probe(evidence.probe.rotary, dtype)
    if evidence.switch is not None:  # some keep the frequencies of a longer call until a short one
        probe.factors(evidence.q_pairs, evidence.k_pairs, [0, 1])
    sides = probe.factors(evidence.q_pairs, evidence.k_pairs, positions)
    with np.errstate(invalid="ignore"):
        turned = np.concatenate([side.alpha_PF / evidence.origin_F for side in sides], 1)
        return turned / (np.abs(turned) if evidence.fading else evidence.magnitude)


def _error(evidence: Evidence, turned_PF: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The largest distance from exp(i theta p) at every position, (P,); NaN where it is that."""
    ideal_PF = np.exp(1j * positions[:, None] * evidence.theta_F)
    return np.abs(turned_PF - np.tile(ideal_PF, 2)).max(1)


def _right(dtype: torch.dtype, positions: list[int], error_P: np.ndarray) -> Finding:
    return Finding(
        "precision", in_words(dtype), "right",
        f"phases in {in_words(dtype)} are right up to position {positions[-1]:,} "
        f"(off by {error_P[-1]:.1g} there)",
        numbers={"largest_error": float(error_P.max()), "last_position": positions[-1]},
    )  # fmt: skip


def _wrong(
    evidence: Evidence,
    dtype: torch.dtype,
    positions: list[int],
    turned_PF: np.ndarray,
    bad: np.ndarray,
    error_P: np.ndarray,
) -> Finding:
    """Says from where on phases are wrong, and by which of the usual causes."""
    first = int(bad.argmax())
    name = in_words(dtype)
    numbers = {"first_wrong": positions[first], "error": float(np.nan_to_num(error_P[bad]).max())}
    at = f"from position {positions[first]:,} on (of those tried)"
    far = "Offsets far from the start of a long prompt are blurred or mistaken for others."
    if np.isnan(turned_PF[first]).any():
        return Finding(
            "precision", name, "wrong", f"NaN {at} in {name}", "The model's output is lost.",
            "Compute positions, frequencies and angles in float32.", numbers,
        )  # fmt: skip
    for half in _HALVES:
        rounded = torch.tensor(positions).to(half).double().numpy()
        held = np.isfinite(rounded)
        allowed_P = phase_error(rounded[held], evidence.fastest) + _constant(evidence, dtype)
        if (_error(evidence, turned_PF[held], rounded[held]) <= allowed_P).all():
            return Finding(
                "precision", name, "wrong",
                f"positions are rounded to {in_words(half)}: whole numbers above "
                f"{int(2 / torch.finfo(half).eps):,} are lost, phases are wrong {at}", far,
                "Keep positions in int64 or float32 until they are multiplied by frequencies in "
                "float32.", numbers,
            )  # fmt: skip
    repeated = _repeats(evidence, dtype, positions[first - 1] if first else 0, positions[first])
    if repeated is not None:
        return repeated
    return Finding(
        "precision", name, "wrong",
        f"with queries in {name}, phases are off by {error_P[first]:.2g} and more {at}", far,
        "Compute frequencies, positions and their product in float32, and cast only cosines and "
        "sines.", numbers,
    )  # fmt: skip


def _repeats(evidence: Evidence, dtype: torch.dtype, good: int, bad: int) -> Finding | None:
    """A table that is read modulo its length, or whose last row stands for all that follow."""

    def is_right(position: int) -> bool:
        error = _error(evidence, turned([position]), np.array([position]))[0]
        return bool(error <= phase_error(position, evidence.fastest) + _constant(evidence, dtype))

    def turned(positions: list[int]) -> np.ndarray:
        return _turned(evidence, positions, dtype)

    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if is_right(middle) else (good, middle)
    beyond = [position for position in (bad, bad + 1, bad + 2) if position <= evidence.limit]
    here = turned(beyond)
    allowed = 1e-6 + _constant(evidence, dtype)
    if bad <= 2 or len(beyond) < 2:
        return None
    if np.abs(here - turned([position - bad for position in beyond])).max() <= allowed:
        what = (
            f"position {bad:,} is read as position 0: a table of {bad:,} is read modulo its length"
        )
    elif np.abs(here - here[0]).max() <= allowed:
        what = f"positions from {bad:,} on are all read as one: clamped to the end of a table"
    else:
        return None
    return Finding(
        "precision", "table", "wrong", what,
        "Beyond it positions are mistaken for others, without any error.",
        "Compute angles for any position, or refuse positions beyond the table.", {"length": bad},
    )  # fmt: skip


def _stored(evidence: Evidence) -> Finding | None:
    """A note where float32 queries are turned by cosines and sines of a half precision."""
    if evidence.low == 0 or evidence.probe.dtype != torch.float32:
        return None
    half = min(_HALVES, key=lambda dtype: abs(rounding(dtype) - evidence.low))
    return Finding(
        "precision", "tables", "right",
        f"cosines and sines are stored in {in_words(half)}: an error of up to "
        f"{evidence.low / 2:.1g} at every position",
        "It does not grow with the position; models are trained and served this way.",
    )  # fmt: skip


def _curve(
    positions: list[int], lines: dict[str, list[float]], evidence: Evidence
) -> dict[str, Any]:
    where = np.array(positions, dtype=float)
    return {
        "error": {
            "title": "Error against float64 by position",
            "x_label": "Position",
            "y_label": "Largest error of a turned unit number",
            "x": positions,
            "lines": lines,
            "log_x": True,
            "log_y": True,
            "bands": {"float32 tolerance": phase_error(where, evidence.fastest).tolist()},
            "note": "Right code stays under the dashed line in float32; in half precision it is "
            "flat, at the rounding of cosines and sines, up to where the line crosses it.",
        }
    }
