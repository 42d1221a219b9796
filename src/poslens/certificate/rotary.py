"""Judging a rotary encoding: the tests in order, and what they recover.

Shapes: P positions, F channel pairs. R(p) = m Pi R'(p): a factor m, a fixed order of channels Pi,
and turns R'(p) with R'(0) = 1 and R'(a) R'(b) = R'(a + b), which are what is left to check.
"""

import math
from typing import Any

import numpy as np
import torch

from poslens.certificate.calls import Rotary, trial
from poslens.certificate.evidence import Evidence, last_position
from poslens.certificate.finding import Finding
from poslens.certificate.layout import out_layout, permutation
from poslens.certificate.length import by_length, depends_on_length
from poslens.certificate.lines import Naming, number
from poslens.certificate.naming import name_frequencies
from poslens.certificate.precision import DTYPES, precision
from poslens.certificate.probe import SINGLE, Probe
from poslens.certificate.recovery import phase_error, stored_precision
from poslens.certificate.relative import relative
from poslens.certificate.structure import examine, rigid
from poslens.certificate.turning import turning
from poslens.certificate.use import use
from poslens.encodings.scaling import yarn_magnitude

# Positions over which the rounding of a table is undone.
_MANY = 200

Judgement = tuple[list[Finding], dict[str, Any], dict[str, Any]]


def judge_rotary(
    rotary: Rotary, length: int | None = None, dtypes: tuple[torch.dtype, ...] = DTYPES
) -> Judgement:
    """Findings on a rotary encoding, what it is, and curves of its kernel and its errors.

    `length` is the trained length where it is known; `dtypes` are the precisions of queries to
    measure errors in. Raises InputError where it cannot be judged: it raises, changes its input,
    returns NaN, or answers the same call differently.
    """
    trial(rotary)
    probe = Probe(rotary)
    last, end = last_position(probe)
    findings, evidence = examine(probe, last, end)
    recovered: dict[str, Any] = {"head_dim": rotary.head_dim}
    curves: dict[str, Any] = {}
    if evidence is not None:
        findings += rigid(evidence)
        recovered["layout"] = evidence.layout.name
        recovered["rotated_width"] = 2 * len(evidence.q_pairs)
        findings.append(_layout(evidence, recovered))
        if findings[-2].verdict != "wrong":
            findings += _turns(evidence, length, dtypes, recovered, curves)
    fastest = evidence.fastest if evidence and evidence.frequencies else 1.0
    if evidence is not None:
        last = evidence.last
        recovered |= {"last": last, "table_error": evidence.low}
    if findings[0].verdict == "right":  # a token is turned by its position
        more, shares = relative(probe, last, evidence, fastest)
        if all(finding.verdict == "right" for finding in more):
            findings = [_other_basis(finding) for finding in findings]
        findings, recovered = more + findings, recovered | shares
        curves |= _kernel(probe, last)
    return findings, recovered, curves


def _other_basis(finding: Finding) -> Finding:
    """Channels that mix in larger groups, and are relative all the same, turn in another basis."""
    if not finding.numbers.get("mixing"):
        return finding
    return Finding(
        "rotary", "pairs", "unusual",
        f"relative, though {finding.what}",
        "It may turn pairs in another basis than that of the channels; frequencies are not read.",
    )  # fmt: skip


def _turns(
    evidence: Evidence,
    length: int | None,
    dtypes: tuple[torch.dtype, ...],
    recovered: dict[str, Any],
    curves: dict[str, Any],
) -> list[Finding]:
    """Everything that needs pairs which turn rigidly."""
    changes = depends_on_length(evidence)
    findings = turning(evidence)
    if any(finding.verdict == "wrong" for finding in findings):
        return findings
    assert evidence.frequencies is not None
    recovered["attention_factor"] = _attention_factor(evidence)
    recovered["direction"] = int(np.sign(evidence.theta_F[0]))
    by_lengths: list[Finding] = []
    if changes:
        by_lengths, recovered["by_length"] = by_length(evidence, evidence.layout.exponent_width)
    frequencies, naming = _frequencies(evidence, recovered)
    findings += [
        frequencies,
        _magnitude(evidence, recovered["attention_factor"], naming, changes),
        *by_lengths,
    ]
    exact, errors = precision(evidence, dtypes)
    curves |= errors
    return findings + exact + use(evidence, length)


def _layout(evidence: Evidence, recovered: dict[str, Any]) -> Finding:
    layout = evidence.layout
    if not evidence.q_pairs.permuted:
        return Finding(
            "rotary", "layout", "unusual" if layout.name == "irregular" else "right", layout.words,
            "No published layout; weights need one of their own." if layout.name == "irregular"
            else "",
        )  # fmt: skip
    comes_out = out_layout(evidence.q_pairs, evidence.probe.rotary.head_dim)
    recovered["permutation"] = permutation(evidence.q_pairs)["out"]
    return Finding(
        "rotary", "layout", "unusual",
        f"{layout.words}; they come out in another order: {comes_out.words}",
        "The same for queries and keys, so logits are as without it (DeepSeek-V3 does this).",
        numbers={"order": recovered["permutation"]},
    )  # fmt: skip


def _attention_factor(evidence: Evidence) -> float:
    """The size of turned pairs. Rounded tables give it as what many rounded values agree on."""
    size = evidence.magnitude
    if evidence.low > 0:
        size = _from_rounded(evidence) or size
    return 1.0 if abs(size - 1) <= SINGLE else size


def _from_rounded(evidence: Evidence) -> float | None:
    """The middle of all sizes m for which every m cos and m sin rounds to what was seen.

    None where there is no such m, because the table was not rounded last.
    """
    dtype = stored_precision(np.concatenate([evidence.q.alpha_PF.real, evidence.q.alpha_PF.imag]))
    if dtype == torch.float32:
        return None
    positions = list(range(1, min(evidence.limit, _MANY) + 1))
    q, _ = evidence.probe.factors(evidence.q_pairs, evidence.k_pairs, positions)
    where = np.array(positions, dtype=float)[:, None]
    turned = evidence.origin_F * np.exp(1j * where * evidence.theta_F)
    seen = np.abs(np.concatenate([q.alpha_PF.real, q.alpha_PF.imag]))
    unit = np.abs(np.concatenate([turned.real, turned.imag]))
    off = np.tile(phase_error(where, evidence.fastest), (2, 1))
    # Values over half are known to half a unit of their last place, besides the phase's own error.
    large = unit > 0.5
    last_place = torch.finfo(dtype).eps * 2.0 ** np.floor(np.log2(np.maximum(seen, 1e-30)))
    half = (last_place / 2 + off * seen)[large]
    low = float(((seen[large] - half) / unit[large]).max())
    high = float(((seen[large] + half) / unit[large]).min())
    return (low + high) / 2 if low <= high else None


def _frequencies(evidence: Evidence, recovered: dict[str, Any]) -> tuple[Finding, Naming]:
    """Names the frequencies of short calls; a fault that they give away is a wrong finding."""
    assert evidence.frequencies is not None
    theta_F, layout = np.abs(evidence.theta_F), evidence.layout
    resolution = evidence.frequencies.resolution
    naming = name_frequencies(
        theta_F, layout.exponent_width, resolution, recovered["attention_factor"]
    )
    if naming.kind == "free" and recovered.get("by_length", {}).get("kind") == "longrope":
        naming = Naming("longrope", "every frequency divided by a factor of its own (longrope)")
    recovered |= {
        "frequencies": theta_F.tolist(),
        "resolution": resolution,
        "base": naming.base,
        "scaling": {"kind": naming.kind, **naming.parameters},
    }
    words = _family(evidence, naming) + naming.words
    numbers = {"base": naming.base, **naming.parameters}
    if naming.fault:
        return Finding(
            "rotary", "frequencies", "wrong", naming.fault,
            "Offsets are told apart at another rate than weights expect.", naming.mend, numbers,
        ), naming  # fmt: skip
    if naming.kind == "free" or naming.parameters.get("factor", 1) < 1:
        meaning = "Not judged without the configuration; --expect compares them one by one."
        return Finding("rotary", "frequencies", "unusual", words, meaning, "", numbers), naming
    return Finding("rotary", "frequencies", "right", words, numbers=numbers), naming


def _family(evidence: Evidence, naming: Naming) -> str:
    """The name of the family, from what turns."""
    width, head = 2 * len(evidence.q_pairs), evidence.probe.rotary.head_dim
    if evidence.layout.across:
        return f"proportional (p-RoPE), the {width // 2} fastest of {head // 2} pairs: "
    if width < head:
        return f"partial, {width} of {head} channels: "
    return ""


def _magnitude(evidence: Evidence, found: float, naming: Naming, changes: bool) -> Finding:
    """Whether the attention factor is what the scaling implies; --expect knows for certain."""
    factor = naming.parameters.get("factor")
    implied = yarn_magnitude(factor) if naming.kind in ("yarn", "by parts") and factor else 1.0
    numbers = {"attention_factor": found, "implied": implied}
    allowed = 2 * SINGLE + evidence.low + 1e-5
    if abs(found - 1) <= allowed:
        return Finding("rotary", "attention factor", "right", "attention factor 1", numbers=numbers)
    if abs(found - implied) <= allowed:
        what = f"attention factor {found:.6g} = 0.1 ln {number(factor)} + 1, as YaRN has it"
        return Finding("rotary", "attention factor", "right", what, numbers=numbers)
    if abs(found / implied**2 - 1) <= allowed:
        return Finding(
            "rotary", "attention factor", "wrong",
            f"attention factor {found:.6g} is the square of YaRN's {implied:.6g}",
            "Queries and keys each carry it, so logits are scaled by its fourth power.",
            "Multiply cosines and sines by the factor once.", numbers,
        )  # fmt: skip
    return Finding(
        "rotary", "attention factor", "right" if changes else "unusual",
        f"attention factor {found:.6g}: logits are multiplied by {found * found:.6g}",
        "" if changes else "Nothing in the frequencies implies it; --expect compares it with the "
        "configuration.",
        numbers=numbers,
    )  # fmt: skip


def _kernel(probe: Probe, last: int) -> dict[str, Any]:
    """Logits of constant content by offset, for queries at three places: one curve if relative."""
    span = min(64, last // 4)
    content = torch.ones(1, probe.rotary.head_dim) / math.sqrt(probe.rotary.head_dim)
    positions = list(range(4 * span + 1))
    q, k = probe.along(content, content, positions)
    lines = {}
    for at in (span, 2 * span, 3 * span):
        logits = (k[0, at - span : at + span + 1] @ q[0, at]).flip(0)
        lines[f"query at {at}"] = logits.tolist()
    return {
        "kernel": {
            "title": "Logits of constant content by offset",
            "x_label": "Offset (positions)",
            "y_label": "Logit (content of norm 1)",
            "x": list(range(-span, span + 1)),
            "lines": lines,
            "note": "Queries at three places: a relative encoding draws one curve, three on top of "
            "one another.",
        }
    }
