"""What was found against what a configuration asks for, constant by constant.

Shapes: F channel pairs.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from poslens.certificate.configs import Expected
from poslens.certificate.finding import Finding
from poslens.certificate.lines import number, relative_error
from poslens.certificate.probe import SINGLE
from poslens.encodings.scaling import (
    LinearScaling,
    LongRoPEScaling,
    NTKScaling,
    Scaling,
    YaRNScaling,
)

_SHORT = 64  # the length of calls that frequencies were read in, unless they depend on it
_MEANING = "Weights trained under this configuration meet another encoding."


def compare(recovered: dict[str, Any], expected: Expected) -> list[Finding]:
    """Findings of the family `expected`; `recovered` is what `judge_rotary` returned."""
    if "frequencies" not in recovered:
        return []
    last, low = recovered["last"], recovered["table_error"]
    findings = [_width(recovered, expected, last)]
    if findings[0].verdict == "right":
        findings.append(_frequencies(recovered, expected))
    findings.append(_attention_factor(recovered, expected, low))
    findings += [_direction(recovered), *_layout(recovered, expected)]
    findings += _by_length(recovered, expected, last)
    return findings


def settle(findings: list[Finding], compared: list[Finding]) -> list[Finding]:
    """What is unusual by itself, but as the configuration asks for it, is right."""
    confirmed = {finding.name for finding in compared if finding.verdict == "right"}
    return [
        dataclasses.replace(finding, verdict="right", meaning="")
        if (finding.test, finding.verdict) == ("rotary", "unusual")
        and finding.name in ("frequencies", "attention factor")
        and finding.name in confirmed
        else finding
        for finding in findings
    ]


def _right(name: str, what: str) -> Finding:
    return Finding("expected", name, "right", what)


def _wrong(name: str, what: str, mend: str, **numbers: Any) -> Finding:
    return Finding("expected", name, "wrong", what, _MEANING, mend, numbers)


def _width(recovered: dict[str, Any], expected: Expected, last: int) -> Finding:
    """Pairs that turn; those too slow to be seen turning by the last position do not count."""
    theta_F, _ = expected.frequencies(_SHORT)
    visible = int((theta_F * last > 10 * SINGLE).sum())
    found = recovered["rotated_width"]
    if 2 * visible <= found <= 2 * expected.count:
        return _right("rotated width", f"{found} channels turn, as configured")
    return _wrong(
        "rotated width",
        f"{found} channels turn; the configuration asks for {2 * expected.count} of "
        f"{expected.head_dim}",
        "Check partial_rotary_factor (rotary_pct, rotary_dim) and head_dim.",
        found=found, expected=2 * expected.count,
    )  # fmt: skip


def _same(found_F: np.ndarray, expected_F: np.ndarray, resolution: float) -> bool:
    count = min(len(found_F), len(expected_F))
    off_F = np.abs(found_F[:count] / expected_F[:count] - 1)
    return bool((off_F <= 2 * relative_error(expected_F[:count], resolution)).all())


def _frequencies(recovered: dict[str, Any], expected: Expected) -> Finding:
    found_F = np.array(recovered["frequencies"])
    resolution = recovered["resolution"]
    expected_F, _ = expected.frequencies(_SHORT)
    if _same(found_F, expected_F, resolution):
        return _right(
            "frequencies",
            f"all {len(found_F)} frequencies are the configuration's: {expected.words}",
        )
    for what, mend, other_F in _suspicions(recovered, expected):
        if _same(found_F, other_F, resolution):
            return _wrong("frequencies", what, mend, expected=expected.words)
    naming = recovered["scaling"]["kind"], recovered["base"]
    off_F = np.abs(found_F / expected_F[: len(found_F)] - 1)
    pair = int((off_F > 2 * relative_error(expected_F[: len(found_F)], resolution)).argmax())
    return _wrong(
        "frequencies",
        f"frequencies differ from pair {pair} on: {found_F[pair]:.6g} found, "
        f"{expected_F[pair]:.6g} expected ({naming[0]}, base {number(naming[1])} found; "
        f"{expected.words} expected)",
        "Compare rope_theta, the rotated width and every constant of the scaling.",
        pair=pair, found=float(found_F[pair]), expected=float(expected_F[pair]),
    )  # fmt: skip


def _suspicions(
    recovered: dict[str, Any], expected: Expected
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Mistakes one constant away from the configuration, with the frequencies each would give."""

    def with_(
        scaling: Scaling | None = None, base: float | None = None, width: int | None = None
    ) -> np.ndarray:
        changed = dataclasses.replace(
            expected,
            scaling=scaling or expected.scaling,
            base=base or expected.base,
            width=width or expected.width,
        )
        return changed.frequencies(_SHORT)[0]

    scaling, found = expected.scaling, recovered["scaling"]
    factor = getattr(scaling, "factor", None)
    base = recovered["base"]
    if expected.kind != "default":
        yield (
            f"the scaling ({expected.kind}) is not applied: frequencies are those of base "
            f"{number(expected.base)} alone",
            "Apply rope_scaling.", with_(scaling=Scaling()),
        )  # fmt: skip
    if expected.width != expected.head_dim:
        yield (
            f"frequencies come from the head width {expected.head_dim} instead of the rotated "
            f"width {expected.width}",
            f"Divide 2f by {expected.width} in the exponents.", with_(width=expected.head_dim),
        )  # fmt: skip
    elif expected.count < expected.head_dim // 2:
        yield (
            f"frequencies come from the rotated width {2 * expected.count} instead of the head "
            f"width {expected.head_dim}",
            f"Divide 2f by {expected.head_dim} in the exponents.", with_(width=2 * expected.count),
        )  # fmt: skip
    if factor and expected.width > 2 and isinstance(scaling, YaRNScaling):
        stretched = expected.base * factor ** (expected.width / (expected.width - 2))
        yield (
            f"YaRN is built on the NTK-changed base {number(stretched)}",
            f"Give YaRN rope_theta itself, {number(expected.base)}; it replaces NTK-aware scaling.",
            with_(base=stretched),
        )  # fmt: skip
        exchanged = dataclasses.replace(
            scaling, beta_fast=scaling.beta_slow, beta_slow=scaling.beta_fast
        )
        yield (
            "YaRN's bounds are exchanged: fast pairs are stretched, slow ones are not",
            "beta_fast (32) gives the low end of the ramp, beta_slow (1) the high end.",
            with_(scaling=exchanged),
        )  # fmt: skip
        yield (
            f"the ends of YaRN's ramp are {'not ' if scaling.truncate else ''}rounded to whole "
            "pairs",
            f"Set truncate to {scaling.truncate}.",
            with_(scaling=dataclasses.replace(scaling, truncate=not scaling.truncate)),
        )  # fmt: skip
    if base and base > 1 and not isinstance(scaling, LongRoPEScaling):
        yield (
            f"base (rope_theta) is {number(base)}; the configuration says {number(expected.base)}",
            "Pass rope_theta on.", with_(base=base),
        )  # fmt: skip
    if factor and not isinstance(scaling, LinearScaling):
        yield (
            f"all frequencies are divided by {number(factor)} (linear), as if positions were "
            f"scaled; the configuration says {expected.kind}",
            f"Apply {expected.kind} to frequencies; leave positions alone.",
            with_(scaling=LinearScaling(factor)),
        )  # fmt: skip
        if expected.width > 2:
            yield (
                f"NTK-aware scaling by {number(factor)} instead of {expected.kind}",
                f"Apply {expected.kind}.", with_(scaling=NTKScaling(factor)),
            )  # fmt: skip
    if "factor" in found and factor and found["factor"] > 0:
        yield (
            f"the factor is {number(found['factor'])}; the configuration says {number(factor)}",
            "Pass the factor on.",
            with_(scaling=dataclasses.replace(scaling, factor=found["factor"])),  # type: ignore[call-arg]
        )  # fmt: skip
    if expected.length and hasattr(scaling, "original_length"):
        yield (
            f"the ramp is computed for max_position_embeddings, {expected.length:,}, instead of "
            f"the original length {scaling.original_length:,}",
            "Use original_max_position_embeddings.",
            with_(scaling=dataclasses.replace(scaling, original_length=expected.length)),  # type: ignore[call-arg]
        )  # fmt: skip
    if isinstance(scaling, LongRoPEScaling):
        swapped = dataclasses.replace(
            scaling, short_factors=scaling.long_factors, long_factors=scaling.short_factors
        )
        yield (
            "short calls use the long factors", "Use short_factor up to the original length.",
            with_(scaling=swapped),
        )  # fmt: skip
    exact = with_()
    yield (
        "every frequency is twice what it should be: rotation is applied twice",
        "Rotate queries and keys once.", 2 * exact,
    )  # fmt: skip
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        yield (
            f"frequencies are rounded to {name}",
            "Keep the frequencies (inv_freq) in float32.",
            torch.from_numpy(exact).to(dtype).double().numpy(),
        )  # fmt: skip


def _attention_factor(recovered: dict[str, Any], expected: Expected, low: float) -> Finding:
    found, (_, implied) = recovered["attention_factor"], expected.frequencies(_SHORT)
    if abs(found / implied - 1) <= 2 * SINGLE + low:
        return _right("attention factor", f"attention factor {number(implied)}, as configured")
    if abs(found / implied**2 - 1) <= 2 * SINGLE + low:
        what = f"attention factor {found:.6g} is the square of the configured {implied:.6g}"
    elif abs(found - 1) <= 2 * SINGLE + low:
        what = f"the attention factor {implied:.6g} that the configuration implies is missing"
    else:
        what = f"attention factor {found:.6g}; the configuration implies {implied:.6g}"
    return _wrong(
        "attention factor", what,
        "Multiply cosines and sines by it once, or the scale of the logits by its square.",
        found=found, expected=implied,
    )  # fmt: skip


def _direction(recovered: dict[str, Any]) -> Finding:
    if recovered["direction"] > 0:
        return _right("direction", "pairs turn from their first channel to their second")
    return _wrong(
        "direction", "pairs turn backwards: the sine is negated, or its two terms are exchanged",
        "first' = first cos - second sin, second' = second cos + first sin.",
    )  # fmt: skip


def _layout(recovered: dict[str, Any], expected: Expected) -> list[Finding]:
    """Only where the configuration states a layout."""
    if expected.interleaved is None or recovered["rotated_width"] <= 2:
        return []
    wanted = "interleaved" if expected.interleaved else "half-split"
    if recovered["layout"] == wanted:
        return [_right("layout", f"{wanted}, as configured")]
    return [
        _wrong(
            "layout", f"channels pair up {recovered['layout']}; the configuration says {wanted}",
            "Use the other rotation, or permute the weights of queries and keys.",
        )
    ]  # fmt: skip


def _by_length(recovered: dict[str, Any], expected: Expected, last: int) -> list[Finding]:
    """Frequencies of long calls, where either side has others there."""
    found = recovered.get("by_length")
    if not expected.by_length:
        if found is None:
            return []
        return [
            _wrong(
                "length", "frequencies change with the length of the call; those configured do not",
                "Compute frequencies once.",
            )
        ]  # fmt: skip
    long = last + 1 if found is None else found["long_length"]
    expected_F, magnitude = expected.frequencies(long)
    short_F, _ = expected.frequencies(_SHORT)
    if np.allclose(expected_F, short_F, rtol=1e-6):
        return []
    if found is None:
        return [
            _wrong(
                "length",
                f"calls of {long:,} positions use the frequencies of short ones; the configuration "
                f"({expected.kind}) has others beyond {expected.original_length:,}",
                "Choose frequencies by the length of the call.",
            )
        ]  # fmt: skip
    findings = []
    off = np.abs(np.array(found["long_frequencies"]) / expected_F[: len(short_F)] - 1)
    if (off <= 1e-4).all():
        findings.append(
            _right("length", f"calls of {long:,} positions turn as {expected.kind} says")
        )
    else:
        findings.append(
            _wrong(
                "length",
                f"frequencies in calls of {long:,} positions differ from {expected.kind}'s, by up "
                f"to {off.max():.1%}",
                "Check the factor and the original length.", difference=float(off.max()),
            )
        )  # fmt: skip
    switch = expected.original_length
    if found["kind"] == "longrope" and switch is not None and found["switch"] != switch:
        findings.append(
            _wrong(
                "switch", f"frequencies change beyond {found['switch']:,} positions; the "
                f"configuration says {switch:,}", "Use original_max_position_embeddings.",
            )
        )  # fmt: skip
    long_found = found.get("long_attention_factor", recovered["attention_factor"])
    if abs(long_found / magnitude - 1) > 1e-4:
        findings.append(
            _wrong(
                "attention factor", f"in long calls the attention factor is {long_found:.6g}; the "
                f"configuration implies {magnitude:.6g}", "Use the long one there.",
            )
        )  # fmt: skip
    return findings
