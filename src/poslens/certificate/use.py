"""Rotary encodings as servers use them: padding, caches, long prompts, keys of fewer heads.

Shapes: B batch, H heads, L positions, D head width.
"""

import torch
from torch import Tensor

from poslens.certificate.calls import CallError
from poslens.certificate.evidence import FAR_POSITION, FARTHEST, Evidence
from poslens.certificate.finding import Finding
from poslens.certificate.probe import SINGLE, Probe
from poslens.certificate.recovery import EPS, rounding

_LENGTH, _PADDING = 12, 4


def use(evidence: Evidence, length: int | None) -> list[Finding]:
    """Findings of this family; `length` is the trained length, where it is known."""
    probe = evidence.probe
    findings = [
        Finding("use", "repeat", "right", "inputs stay as they are, the same call has one answer"),
        _decoding(probe, evidence),
        _padding(probe, evidence.last),
        _heads(probe),
        _values(probe),
        beyond(evidence.last, evidence.end, length),
    ]
    return [finding for finding in findings if finding is not None]


def _content(probe: Probe, batch: int, length: int, heads: int | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    shape = (batch, heads or probe.rotary.heads, length, probe.rotary.head_dim)
    return torch.randn(shape, generator=generator).to(probe.rotary.device, probe.dtype)


def _allowed(probe: Probe, x: Tensor) -> float:
    """Two answers may differ by their rounding, at positions this small."""
    return float((SINGLE + 16 * EPS + rounding(probe.dtype)) * x.abs().max())


def _decoding(probe: Probe, evidence: Evidence) -> Finding:
    """One token at a time, each at its own position, against the whole sequence at once."""
    length = min(_LENGTH, evidence.last + 1)
    x = _content(probe, 1, length)
    device = probe.rotary.device
    try:
        whole = probe.rotary(x.clone(), x.clone(), torch.arange(length, device=device))
        steps = [
            probe.rotary(
                x[:, :, t : t + 1].clone(), x[:, :, t : t + 1].clone(),
                torch.tensor([t], device=device),
            )
            for t in range(length)
        ]  # fmt: skip
    except CallError as error:
        return Finding(
            "use", "cached decoding", "wrong", f"it cannot turn one token alone ({error})",
            "Generation with a cache fails.", "Accept calls of any length, one included.",
        )  # fmt: skip
    off = max(
        float((torch.cat(parts, 2) - together).abs().max())
        for parts, together in zip(zip(*steps, strict=True), whole, strict=True)
    )
    if off <= _allowed(probe, x):
        return Finding(
            "use", "cached decoding", "right", "one token at a time agrees with the whole sequence",
            numbers={"difference": off},
        )  # fmt: skip
    if evidence.fading:
        return Finding(
            "use", "cached decoding", "unusual",
            "the scale of xPos is centred on the positions of a call, so keys turned in other "
            "calls do not match",
            "A cache of turned keys gives other logits than the whole sequence.",
            "Cache keys before rotation, or centre the scale on a fixed position.",
            {"difference": off},
        )  # fmt: skip
    return Finding(
        "use", "cached decoding", "wrong",
        f"one token at a time differs from the whole sequence, by {off:.2g}",
        "Generation with a cache gives other logits than training did.",
        "Turn each token by the position passed in.", {"difference": off},
    )  # fmt: skip


def _padding(probe: Probe, last: int) -> Finding:
    """A row padded on the left, whose tokens keep their own positions, against the same alone."""
    if not probe.rotary.rows:
        return Finding(
            "use", "left padding", "right",
            "positions are shared by all rows of a batch",
            "Rows padded on the left cannot have positions of their own: pad on the right, or mask "
            "padding and let positions start later.",
        )  # fmt: skip
    length = min(_LENGTH, last + 1)
    x = _content(probe, 2, length + _PADDING)
    own = torch.arange(length)
    padded = torch.cat([torch.zeros(_PADDING, dtype=own.dtype), own])
    other = torch.cat([own, own.new_full((_PADDING,), length - 1)])
    rows = torch.stack([padded, other]).to(probe.rotary.device)
    together = probe.rotary(x.clone(), x.clone(), rows)
    row = x[:1, :, _PADDING:].clone()
    alone = probe.rotary(row, row.clone(), own.to(probe.rotary.device))
    off = max(
        float((both[:1, :, _PADDING:] - single).abs().max())
        for both, single in zip(together, alone, strict=True)
    )
    if off <= _allowed(probe, x):
        return Finding(
            "use", "left padding", "right", "a row padded on the left is turned as it is alone",
            numbers={"difference": off},
        )  # fmt: skip
    return Finding(
        "use", "left padding", "wrong",
        f"a row padded on the left is turned otherwise than alone, by {off:.2g}",
        "Batched generation differs from one prompt at a time.",
        "Read angles at every row's own positions.", {"difference": off},
    )  # fmt: skip


def _heads(probe: Probe) -> Finding | None:
    """Keys of fewer heads than queries: grouped, and one shared by all."""
    if probe.rotary.fixed_heads:
        return None
    q, positions = _content(probe, 1, 6, 4), torch.arange(6, device=probe.rotary.device)
    taken = []
    for heads, word in ((2, "grouped keys"), (1, "one key for all heads")):
        try:
            probe.rotary(q.clone(), q[:, :heads].clone(), positions)
        except CallError:
            continue
        taken.append(word)
    what = " and ".join(taken)
    return Finding(
        "use", "heads", "right",
        f"takes {what}" if taken else "queries and keys must have the same number of heads",
    )  # fmt: skip


def _values(probe: Probe) -> Finding | None:
    """Values, where it is given them, must come back as they went in."""
    if probe.rotary.values is None:
        return None
    v, positions = _content(probe, 2, _LENGTH), torch.arange(_LENGTH, device=probe.rotary.device)
    off = float((probe.rotary.values(v.clone(), positions) - v).abs().max() / v.abs().max())
    if off <= SINGLE + rounding(probe.dtype):
        return Finding("rotary", "values", "right", "values pass through unchanged")
    return Finding(
        "rotary", "values", "wrong", f"values are changed as well, by {off:.2g} of their size",
        "What is read from a position depends on where it stands, and sums over positions cancel.",
        "Turn queries and keys only.", {"difference": off},
    )  # fmt: skip


def beyond(last: int, end: str, length: int | None) -> Finding:
    """Whether positions end, and whether that is short of the trained length."""
    if not end:
        tried = FARTHEST if last >= FARTHEST else FAR_POSITION
        return Finding(
            "use", "beyond trained length", "right",
            f"any position can be asked for, as far as tried ({min(tried, last):,})",
            numbers={"last": last},
        )  # fmt: skip
    count = last + 1
    numbers = {"positions": count}
    if length is not None and count < length:
        short = length - count
        return Finding(
            "use", "beyond trained length", "wrong",
            f"positions end at {last:,}, {short:,} short of the trained length {length:,} ({end})",
            "The last tokens of a full prompt raise an error.",
            f"Make the table {length:,} long.", numbers,
        )  # fmt: skip
    one_short = length is None and count + 1 == 1 << count.bit_length()
    return Finding(
        "use", "beyond trained length", "unusual" if one_short else "right",
        f"positions end at {last:,}, beyond which it raises ({end})"
        + (f"; one short of {count + 1:,}, a power of two" if one_short else ""),
        "Longer prompts are refused rather than answered wrongly.",
        "Say with --expect or length= how long it should be." if one_short else "", numbers,
    )  # fmt: skip
