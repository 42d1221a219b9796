"""Do logits depend on the offset alone: the two tests that the framework's definition asks for.

Shapes: N contents, L positions (queries and keys alike). With constant content the logits of a
relative encoding are a Toeplitz matrix; with any content they do not change when all positions
move by the same amount.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from poslens.certificate.evidence import Evidence
from poslens.certificate.finding import Finding
from poslens.certificate.probe import Probe
from poslens.certificate.recovery import EPS, rounding
from poslens.toeplitz import project, share

_LENGTH = 24
_SHIFTS = (1, 37, 1000, 50_000)


def relative(
    probe: Probe, last: int, evidence: Evidence | None, fastest: float
) -> tuple[list[Finding], dict[str, Any]]:
    """Both findings, and what was measured. Judged even where the pairs made no sense."""
    low = evidence.low if evidence else rounding(probe.dtype)
    limit = last if evidence is None or evidence.switch is None else evidence.switch - 1
    findings = [_constant(probe, min(_LENGTH, last + 1), low, fastest)]
    shifts = [shift for shift in _SHIFTS if shift + _LENGTH <= limit]
    if shifts and not (evidence and evidence.fading):
        findings.append(_shifted(probe, shifts, low, fastest))
    return findings, {"toeplitz_share": findings[0].numbers["share"]}


def _allowed(position: float, low: float, fastest: float) -> float:
    """What a logit may be off by, relative to the product of the norms: one error on each side."""
    return float(2 * (np.maximum(1e-6, 4 * EPS * position * fastest) + low))


def _logits(q_NLD: Tensor, k_NLD: Tensor) -> tuple[Tensor, float]:
    """All logits (N, L, L) without scale, and the largest product of norms."""
    size = float(q_NLD.norm(dim=-1).amax() * k_NLD.norm(dim=-1).amax())
    return q_NLD @ k_NLD.mT, size


def _constant(probe: Probe, length: int, low: float, fastest: float) -> Finding:
    generator = torch.Generator().manual_seed(3)
    q, k = (torch.randn(4, probe.rotary.head_dim, generator=generator) for _ in range(2))
    S_NLL, size = _logits(*probe.along(q, k, list(range(length))))
    off = float((S_NLL - project(S_NLL)).abs().max()) / size
    share_N = share(S_NLL).value
    tau = float(share_N.nanmean()) if not share_N.isnan().all() else float("nan")
    numbers = {"difference": off, "share": tau}
    if off <= _allowed(length, low, fastest):
        return Finding(
            "relative", "constant content", "right",
            "constant content gives logits that depend on the offset alone (Toeplitz)",
            numbers=numbers,
        )  # fmt: skip
    return Finding(
        "relative", "constant content", "wrong",
        f"constant content gives logits that are not Toeplitz: share {tau:.3f}, off by {off:.2g} "
        "of the product of norms",
        "The same two words at the same distance get different logits at different places.",
        "See what is wrong with the rotation below.", numbers,
    )  # fmt: skip


def _shifted(probe: Probe, shifts: list[int], low: float, fastest: float) -> Finding:
    """Random content, another at every position, before and after all positions move."""
    generator = torch.Generator().manual_seed(4)
    heads, width = probe.rotary.heads, probe.rotary.head_dim
    q, k = (
        torch.randn(2, heads, _LENGTH, width, generator=generator).to(
            probe.rotary.device, probe.dtype
        )
        for _ in range(2)
    )
    start = torch.arange(_LENGTH, device=probe.rotary.device)

    def logits(shift: int) -> tuple[Tensor, float]:
        turned = probe.rotary(q.clone(), k.clone(), start + shift)
        x, y = (side[:, 0].double().cpu() for side in turned)
        return _logits(x, y)

    before, size = logits(0)
    worst = {shift: float((logits(shift)[0] - before).abs().max()) / size for shift in shifts}
    numbers = {"differences": {str(shift): off for shift, off in worst.items()}}
    for shift, off in worst.items():
        if not off <= _allowed(shift + _LENGTH, low, fastest):
            return Finding(
                "relative", "shift", "wrong",
                f"logits change by {off:.2g} of the product of norms when all positions move by "
                f"{shift:,}",
                "What a model does depends on where in the sequence it does it.",
                "See below whether angles lose precision, or tables end or repeat.", numbers,
            )  # fmt: skip
    return Finding(
        "relative", "shift", "right",
        "random content keeps its logits when all positions move, by up to "
        f"{shifts[-1]:,}", numbers=numbers,
    )  # fmt: skip
