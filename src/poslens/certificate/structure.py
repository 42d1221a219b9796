"""Is it a rotation at all: linear, by position alone, two channels at a time, each turned rigidly.

Shapes: N contents, P positions, D head width, F channel pairs. Every function here answers with a
finding, and the checks that build on it stop at a wrong one.
"""

import numpy as np
import torch

from poslens.certificate.evidence import Evidence
from poslens.certificate.finding import Finding
from poslens.certificate.layout import Layout, describe
from poslens.certificate.probe import (
    FAR,
    SINGLE,
    SMALL,
    Factors,
    Pairs,
    Probe,
    factors_of,
    find_pairs,
)
from poslens.certificate.recovery import in_words, rounding, stored_precision
from poslens.errors import InputError

_HALVES = (torch.float16, torch.bfloat16)


def examine(probe: Probe, last: int, end: str) -> tuple[list[Finding], Evidence | None]:
    """Pairs and blocks of a target, or the finding that there are none to speak of.

    `last` and `end` are what `last_position` found. Raises InputError where not even the first
    positions can be asked for.
    """
    small = [position for position in SMALL if position <= last]
    if len(small) < 5:
        raise InputError(
            f"{probe.rotary.name} can be asked for positions up to {last} only ({end}); "
            "at least 0 to 5 are needed to judge it"
        )
    by_value = _by_value(probe)
    if by_value.verdict == "wrong":
        return [by_value], None
    q_PDD, k_PDD = probe.matrices(small)
    linear = _linear(probe, small, q_PDD, k_PDD)
    findings = [by_value, linear, *_heads(probe, small)]
    if linear.verdict != "right":
        return findings, None

    far = [position for position in FAR if position <= last]
    far_q, far_k = probe.matrices([0, *far]) if far else (q_PDD[:1], k_PDD[:1])
    sides = []
    for near_PDD, far_PDD, side in ((q_PDD, far_q, "queries"), (k_PDD, far_k, "keys")):
        seen = np.concatenate([near_PDD, np.nan_to_num(far_PDD)])
        pairs = find_pairs(seen, SINGLE)
        if isinstance(pairs, str):
            return [*findings, _mixing(side, pairs)], None
        sides.append(pairs)
    differ = _sides_differ(sides[0], sides[1], probe.rotary.head_dim)
    if differ is not None:
        moves = max(float(np.abs(R_PDD - R_PDD[0]).max()) for R_PDD in (q_PDD, k_PDD))
        scales = differ.verdict != "wrong" and moves > SINGLE + rounding(probe.dtype)
        return [*findings, _scaling() if scales else differ], None
    q_pairs, k_pairs = sides
    q, k = (
        factors_of(pairs, _columns(pairs, R_PDD))
        for pairs, R_PDD in ((q_pairs, q_PDD), (k_pairs, k_PDD))
    )
    layout = describe(q_pairs, probe.rotary.head_dim)
    evidence = Evidence(probe, small, q_pairs, k_pairs, q, k, layout, last, end)
    stored = stored_precision(np.stack([q_PDD, k_PDD]))
    evidence.low = rounding(stored if probe.dtype == torch.float32 else probe.dtype)
    return findings, evidence


def _columns(pairs: Pairs, R_PDD: np.ndarray) -> np.ndarray:
    """The matrices applied to the two contents of `Probe.factors`: (2, P, D)."""
    ones = np.concatenate([pairs.first_F, pairs.rest_R])
    return np.stack([R_PDD[:, :, ones].sum(2), R_PDD[:, :, pairs.second_F].sum(2)])


def _by_value(probe: Probe) -> Finding:
    """Positions 5, 6, 7 asked for alone, against the same within 0 .. 7."""
    content = torch.linspace(0.5, 1.5, probe.rotary.head_dim)[None]
    whole = torch.stack(probe.along(content, content, list(range(8))))[:, :, 5:]
    alone = torch.stack(probe.along(content, content, [5, 6, 7]))
    off = float((whole - alone).abs().max())
    size = float(whole.abs().max())
    if off <= (SINGLE + rounding(probe.dtype)) * size:
        return Finding(
            "use", "offsets", "right",
            "a token is turned by its position, wherever it stands in the call",
            numbers={"difference": off},
        )  # fmt: skip
    again = torch.stack(probe.along(content, content, [0, 1, 2]))
    ignored = float((again - alone).abs().max()) <= (SINGLE + rounding(probe.dtype)) * size
    what = (
        "the positions given are ignored: the first token of a call is always turned as position 0"
        if ignored
        else "a token's turn depends on the other positions of the call"
    )
    return Finding(
        "use", "offsets", "wrong", what,
        "Decoding with a cache, where each call brings one new token, gives other logits than the "
        "whole sequence at once.",
        "Read cosines and sines at the positions that are passed in.", {"difference": off},
    )  # fmt: skip


def _linear(probe: Probe, small: list[int], q_PDD: np.ndarray, k_PDD: np.ndarray) -> Finding:
    """Random content against the matrices: the turn must not depend on the content."""
    generator = torch.Generator().manual_seed(2)
    q, k = (torch.randn(2, probe.rotary.head_dim, generator=generator) for _ in range(2))
    turned = probe.along(q, k, small)
    worst = 0.0
    for x, y, R_PDD in ((q, turned[0], q_PDD), (k, turned[1], k_PDD)):
        given = x.to(probe.dtype).double().numpy()
        expected = np.einsum("pde,ne->npd", R_PDD, given)
        scale = max(float(np.abs(expected).max()), 1e-30)
        worst = max(worst, float(np.abs(y.numpy() - expected).max()) / scale)
    # Products of content and rounded cosines are rounded once more.
    if worst <= 2 * SINGLE + 2 * rounding(probe.dtype):
        return Finding(
            "rotary", "linear", "right", "the turn does not depend on the content",
            numbers={"difference": worst},
        )  # fmt: skip
    return Finding(
        "rotary", "linear", "undecidable",
        f"what is done to the content is not linear in it (off by {worst:.2g} of its size)",
        "It may normalise queries and keys as well, or act on several heads at once; frequencies "
        "cannot be read through that.",
        "Hand over the rotary step alone.", {"difference": worst},
    )  # fmt: skip


def _heads(probe: Probe, small: list[int]) -> list[Finding]:
    """Whether all heads turn as the first does, which is the one that is read."""
    if probe.rotary.heads == 1:
        return []
    generator = torch.Generator().manual_seed(7)
    token = torch.randn(probe.rotary.head_dim, generator=generator)
    shape = (1, probe.rotary.heads, len(small), probe.rotary.head_dim)
    x = token.expand(shape).to(probe.rotary.device, probe.dtype).contiguous()
    q, k = probe.rotary(x, x.clone(), torch.tensor(small, device=probe.rotary.device))
    other = [h for h in range(q.shape[1]) if not all(torch.equal(y[:, h], y[:, 0]) for y in (q, k))]
    if not other:
        return [Finding("rotary", "all heads", "right", "all heads turn alike")]
    names = ", ".join(str(head) for head in other[:8])
    return [
        Finding(
            "rotary", "all heads", "unusual", f"heads {names} are not turned as head 0 is",
            "Only head 0 is judged here; some models rotate part of their heads only.",
            numbers={"heads": other},
        )
    ]  # fmt: skip


def _scaling() -> Finding:
    return Finding(
        "rotary", "pairs", "wrong", "channels are scaled by position, none is turned",
        "Logits depend on each position, not on their difference.",
        "Turn pairs of channels by an angle that grows with the position.",
    )  # fmt: skip


def _mixing(side: str, reason: str) -> Finding:
    return Finding(
        "rotary", "pairs", "wrong", f"{reason} ({side})",
        "Norms and logits change with position in ways that no relative encoding has.",
        "Pair each channel with one other, and give both the same angle.",
        {"mixing": "mix with" in reason},
    )  # fmt: skip


def _sides_differ(q: Pairs, k: Pairs, head_dim: int) -> Finding | None:
    """Queries and keys must turn the same channels, and put them in the same places."""
    if q.same(k):
        if len(q):
            return None
        return Finding(
            "rotary", "pairs", "unusual", "position changes neither queries nor keys (NoPE)",
            "Attention sees no order through this function.",
        )  # fmt: skip
    meaning = "Logits then depend on absolute positions, not on their difference."
    for turned, still, idle in (("queries", "keys", len(k)), ("keys", "queries", len(q))):
        if idle == 0:
            return Finding(
                "rotary", "pairs", "wrong", f"only {turned} are turned, {still} are not", meaning,
                f"Turn the {still} by their own positions as well.",
            )  # fmt: skip
    layouts: list[Layout] = [describe(pairs, head_dim) for pairs in (q, k)]
    if layouts[0].words != layouts[1].words:
        what = f"queries and keys differ in layout: {layouts[0].words}; keys: {layouts[1].words}"
    else:
        what = "queries and keys come out with their channels in different orders"
    return Finding(
        "rotary", "pairs", "wrong", what, meaning, "Use one layout for both.",
    )  # fmt: skip


def rigid(evidence: Evidence) -> list[Finding]:
    """Whether every pair is turned without being bent; sets `low` and `magnitude`.

    R = m Pi R' with one m for all pairs, positions and both sides; the rest of the channels may be
    multiplied by m or by 1. Tables rounded to a half precision bend pairs by that much.
    """
    q, k = evidence.q, evidence.k
    xpos = _xpos(evidence)
    if xpos is not None:
        return xpos
    sizes = [float(np.median(np.abs(side.alpha_PF))) for side in (q, k)]
    bend = max(_bend(side, size) for side, size in zip((q, k), sizes, strict=True))
    for low in (evidence.low, *(rounding(dtype) for dtype in _HALVES)):
        if bend <= SINGLE + low:
            evidence.low = low
            break
    else:
        return [_bent(evidence, bend)]
    evidence.magnitude = sizes[0]
    if abs(sizes[0] / sizes[1] - 1) > SINGLE + evidence.low:
        return [
            Finding(
                "rotary", "magnitude", "wrong",
                f"queries are multiplied by {sizes[0]:.6g} and keys by {sizes[1]:.6g}",
                "Logits are scaled by the product instead of the square of the attention factor.",
                "Multiply both sides by the attention factor, or neither and the scale by its "
                "square.",
                {"queries": sizes[0], "keys": sizes[1]},
            )
        ]  # fmt: skip
    rest = np.concatenate([q.rest_PR, k.rest_PR])
    near = [np.abs(rest - size).max(initial=0) for size in (1.0, sizes[0])]
    if min(near) > SINGLE + evidence.low:
        return [
            Finding(
                "rotary", "rest", "wrong",
                f"channels that do not turn are multiplied by {rest.min():.4g} to {rest.max():.4g}",
                "They should carry content past the rotation unchanged.",
                "Pass them through.",
            )
        ]  # fmt: skip
    scaled = f" and scaled by {sizes[0]:.6g}"
    if abs(sizes[0] - 1) <= SINGLE + evidence.low:
        scaled = ""
    return [
        Finding(
            "rotary", "isometry", "right",
            "every pair is turned rigidly" + scaled,
            numbers={"bend": bend, "magnitude": sizes[0]},
        )
    ]  # fmt: skip


def _bend(side: Factors, size: float) -> float:
    """How far blocks are from turning and scaling by one size, relative to it."""
    return float(max(np.abs(side.beta_PF).max(), np.abs(np.abs(side.alpha_PF) - size).max()) / size)


def _xpos(evidence: Evidence) -> list[Finding] | None:
    """Sizes that grow on one side as they shrink on the other: exp(g_f offset) in the logits."""
    positions = np.array(evidence.positions, dtype=float)
    sizes = [np.abs(side.alpha_PF) for side in (evidence.q, evidence.k)]
    if min(size.min() for size in sizes) <= 0 or np.abs(evidence.q.beta_PF).max() > SINGLE * 10:
        return None
    logs = [np.log(size) for size in sizes]
    allowed = 10 * SINGLE + evidence.low
    if all(np.ptp(log, axis=0).max() <= allowed for log in logs):
        return None
    rates = [np.polyfit(positions, log, 1) for log in logs]  # (2, F): rate, start
    straight = max(
        float(np.abs(log - (positions[:, None] * rate[0] + rate[1])).max())
        for log, rate in zip(logs, rates, strict=True)
    )
    opposite = float(np.abs(rates[0][0] + rates[1][0]).max() * positions[-1])
    grows = float(np.abs(rates[0][0]).max() * positions[-1])
    if grows <= 10 * allowed or straight > allowed or opposite > allowed:
        return None
    for side, log in zip((evidence.q, evidence.k), logs, strict=True):
        side.alpha_PF[:] = side.alpha_PF / np.exp(log)
    evidence.fading = True
    # Beyond exp(10) on either side float16 overflows, in the target's own arithmetic.
    evidence.last = min(evidence.last, int(10 * positions[-1] / grows))
    return [
        Finding(
            "rotary", "isometry", "unusual",
            "xPos: queries are scaled by exp(r p) and keys by exp(-r p), r from "
            f"{rates[0][0].min():.3g} to {rates[0][0].max():.3g}",
            "Logits depend on the offset alone, but fade with it; keys cached under another centre "
            "of the scale do not match.",
            numbers={"rates": rates[0][0].tolist()},
        )
    ]  # fmt: skip


def _bent(evidence: Evidence, bend: float) -> Finding:
    """Names the commonest reason for which a pair is bent: its two rows read two frequencies."""
    numbers = {"bend": bend}
    meaning = (
        "The two channels of a pair are turned by different angles: norms change with position "
        "and logits do not depend on the offset alone. Short prompts may still look fine."
    )
    # cos of channel c, from the diagonal: alpha and beta give both rows of a block.
    alpha, beta = evidence.q.alpha_PF, evidence.q.beta_PF
    cos = np.zeros((len(alpha), evidence.probe.rotary.head_dim))
    cos[:, evidence.q_pairs.first_F] = (alpha + beta).real
    cos[:, evidence.q_pairs.second_F] = (alpha - beta).real
    start, width = evidence.layout.start, 2 * len(evidence.q_pairs)
    turned = cos[:, start : start + width]
    allowed = 10 * SINGLE + rounding(torch.bfloat16)
    table = None
    if np.abs(turned[:, 0::2] - turned[:, 1::2]).max() <= allowed:
        table = "interleaved"
    elif np.abs(turned[:, : width // 2] - turned[:, width // 2 :]).max() <= allowed:
        table = "half-split"
    if table not in (None, evidence.layout.name) and evidence.layout.name != "irregular":
        rotation = evidence.layout.name
        build = {
            "half-split": "cat((freqs, freqs), -1)",
            "interleaved": "repeat_interleave(freqs, 2, -1)",
        }
        return Finding(
            "rotary", "isometry", "wrong", f"{rotation} rotation reads a table that is {table}",
            meaning, f"Build cosines and sines with {build[rotation]}.", numbers,
        )  # fmt: skip
    where = in_words(evidence.probe.dtype)
    return Finding(
        "rotary", "isometry", "wrong",
        f"pairs are bent or scaled unevenly, by up to {bend:.2g} of their size (in {where})",
        meaning, "Give both channels of a pair the same cosine and sine, of one size.", numbers,
    )  # fmt: skip
