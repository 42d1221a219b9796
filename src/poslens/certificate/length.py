"""Frequencies that depend on the length of the call, and what that does to cached keys.

Shapes: P positions, F channel pairs. The length is the largest position plus one. Dynamic NTK
(Peng et al. 2023, 3.3) stretches the base beyond a trained length N by factor L / N - (factor - 1),
which is linear in L: two lengths give factor and N. LongRoPE (Ding et al. 2024) has two sets of
frequencies and changes between them at N, which is found by halving.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from poslens.certificate.evidence import Evidence
from poslens.certificate.finding import Finding
from poslens.certificate.lines import number
from poslens.certificate.probe import SINGLE
from poslens.certificate.recovery import LADDER, Frequencies, climb


@dataclass(frozen=True)
class Regime:
    """Frequencies and attention factor in calls of one length."""

    length: int
    frequencies: Frequencies
    magnitude: float


def depends_on_length(evidence: Evidence) -> bool:
    """Whether small positions turn otherwise when a far one is in the call; sets `switch`.

    `switch` becomes the last length, to within what can be seen, at which frequencies are those of
    short calls, plus one.
    """
    if evidence.fading or evidence.last <= evidence.positions[-1]:
        return False
    last = evidence.last
    if not _changed(evidence, last):
        return False
    low, high = evidence.positions[-1], last
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _changed(evidence, middle) else (middle, high)
    evidence.switch = high  # the first position whose presence changes frequencies
    return True


def _blocks(evidence: Evidence, positions: list[int]) -> np.ndarray:
    """alpha of queries, after a short call: some targets keep what a longer one left behind."""
    evidence.probe.factors(evidence.q_pairs, evidence.k_pairs, [0, 1])
    q, _ = evidence.probe.factors(evidence.q_pairs, evidence.k_pairs, positions)
    return q.alpha_PF


def _changed(evidence: Evidence, farthest: int) -> bool:
    small = evidence.positions
    found = _blocks(evidence, [*small, farthest])[: len(small)]
    allowed = 2 * (SINGLE + evidence.low) * evidence.magnitude
    return not bool(np.abs(found - evidence.q.alpha_PF).max() <= allowed)


def regime(evidence: Evidence, length: int) -> Regime:
    """What holds in calls whose largest position is length - 1."""
    ladder = [position for position in LADDER if position < length - 1]
    alpha = _blocks(evidence, [0, *ladder, length - 1])[:-1]
    turned = np.exp(1j * np.angle(alpha[1:] * alpha[0].conj()))
    size = float(np.median(np.abs(alpha)))
    return Regime(length, climb(turned, SINGLE + evidence.low), size)


def by_length(evidence: Evidence, width: int) -> tuple[list[Finding], dict[str, Any]]:
    """Names the dependence, with its constants, and says what becomes of cached keys."""
    assert evidence.switch is not None
    switch, last = evidence.switch, evidence.last
    longer = [regime(evidence, length) for length in (max(last // 2, switch + 1), last + 1)]
    short_F, long_F = np.abs(evidence.theta_F), np.abs(longer[-1].frequencies.theta_F)
    sizes = sorted({round(evidence.magnitude, 6), *(round(r.magnitude, 6) for r in longer)})
    recovered: dict[str, Any] = {
        "switch": switch,
        "long_frequencies": long_F.tolist(),
        "long_length": longer[-1].length,
    }
    halves = np.abs(longer[0].frequencies.theta_F)
    precise = sum(r.frequencies.resolution for r in longer) + 2e-6 * long_F
    if (np.abs(short_F - long_F) <= precise).all():
        kind, words = (
            "attention factor",
            f"calls beyond {switch:,} positions turn by the same angles",
        )
    elif (np.abs(halves - long_F) <= precise).all():
        kind = "longrope"
        factors = short_F / long_F
        words = (
            f"calls beyond {switch:,} positions use other frequencies, divided by "
            f"{number(float(factors.min()))} to {number(float(factors.max()))} (longrope)"
        )
        recovered["factors"] = factors.tolist()
    else:
        stretch = _dynamic(short_F, longer, width)
        kind = "dynamic" if stretch else "by length"
        words = f"frequencies change with every length beyond about {switch:,} positions"
        if stretch:
            recovered |= {"factor": stretch[0], "original_length": stretch[1]}
            words = (
                f"frequencies follow the length beyond {stretch[1]:,.1f} positions: dynamic NTK, "
                f"factor {number(stretch[0])}"
            )
    recovered["kind"] = kind
    if len(sizes) > 1 and sizes[-1] - sizes[0] > 2 * (SINGLE + evidence.low):
        words += f"; the attention factor goes from {evidence.magnitude:.6g} to {sizes[-1]:.6g}"
        recovered["long_attention_factor"] = longer[-1].magnitude
    findings = [
        Finding(
            "rotary", "length", "unusual", words,
            "The same token is turned differently in longer calls.", numbers=recovered,
        ),
        _cached(short_F, long_F, switch),
    ][: 1 if kind == "attention factor" else 2]  # fmt: skip
    if _remembers(evidence, switch, last):
        findings.append(
            Finding(
                "use", "memory", "unusual",
                "it keeps the frequencies of the longest call so far",
                "Answers to the same prompt depend on what was asked before.",
                "Start a new sequence with a short call, or recompute frequencies in every call.",
            )
        )  # fmt: skip
    return findings, recovered


def _dynamic(short_F: np.ndarray, longer: list[Regime], width: int) -> tuple[float, float] | None:
    """Factor and trained length of dynamic NTK, if it explains the frequencies at both lengths."""
    if width <= 2 or len(short_F) < 2:
        return None
    x_F = 2 * np.arange(len(short_F)) / (width - 2)
    stretches = []
    for at in longer:
        logs = np.log(short_F / np.abs(at.frequencies.theta_F))
        slope = float((x_F * logs).sum() / (x_F**2).sum())
        if np.abs(logs - slope * x_F).max() > 1e-4 * max(slope, 1):
            return None
        stretches.append(float(np.exp(slope)))
    per_length = (stretches[1] - stretches[0]) / (longer[1].length - longer[0].length)
    factor = 1 - (stretches[0] - per_length * longer[0].length)
    return (factor, factor / per_length) if per_length > 0 and factor > 0 else None


def _cached(short_F: np.ndarray, long_F: np.ndarray, switch: int) -> Finding:
    """How far a key cached before the change is from where a later query takes it to be."""
    angle = np.abs(short_F - long_F) * (switch - 1)
    return Finding(
        "use", "cached keys", "unusual",
        f"keys cached in calls up to {switch:,} positions do not match queries of longer ones: "
        f"at the last of them angles differ by up to {angle.max():.3g} radians",
        "Generation that crosses this length sees its own past displaced.",
        "Cache keys before rotation, or recompute the cache when the length is crossed.",
        {"angle": float(angle.max())},
    )  # fmt: skip


def _remembers(evidence: Evidence, switch: int, last: int) -> bool:
    """Whether a call just beyond the switch is answered otherwise after a longer one."""
    middle = [*evidence.positions, min(2 * switch, (switch + last) // 2)]
    fresh = _blocks(evidence, middle)
    _blocks(evidence, [0, last])
    after, _ = evidence.probe.factors(evidence.q_pairs, evidence.k_pairs, middle)
    moved = np.abs(after.alpha_PF - fresh)[:-1].max()
    return bool(moved > 2 * (SINGLE + evidence.low) * evidence.magnitude)
