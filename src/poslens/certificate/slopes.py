"""Naming the slopes of a linear bias: Press et al. 2022, known variants, known mistakes.

Shapes: H heads. Slopes are in logits per position; positive ones favour near keys.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from poslens.certificate.finding import Verdict
from poslens.encodings.alibi import alibi_slopes


@dataclass(frozen=True)
class SlopeName:
    """What a set of slopes is called, how it is judged, and what follows."""

    name: str
    verdict: Verdict
    what: str
    meaning: str = ""
    mend: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


MEND = (
    "Slopes are 2^(-8(h+1)/H) for heads h = 0..H-1 where H is a power of two; otherwise those of "
    "the largest power of two P below H, then every second slope of 2P (Press et al. 2022)."
)


def name_slopes(slopes_H: Tensor, error_H: Tensor) -> SlopeName:
    """Names slopes (H,), float64, each known up to `error_H`. Their sign is judged elsewhere."""
    heads = len(slopes_H)
    sizes_H = slopes_H.abs()
    # A slope is a power whose exponent (up to 8 octaves) has been rounded: 16 roundings in all.
    error_H = error_H + 16 * torch.finfo(torch.float32).eps * sizes_H
    press_H = alibi_slopes(heads).double()
    off = float((sizes_H / press_H - 1).abs().max())
    numbers = {"largest_relative_difference_from_press": off}

    def same(other_H: Tensor) -> bool:
        return bool(((sizes_H - other_H).abs() <= error_H).all())

    if same(press_H):
        return SlopeName(
            "alibi",
            "right",
            f"ALiBi with the slopes of Press et al. for {_heads(heads)}",
            numbers=numbers,
        )
    if same(alibi_slopes(heads).bfloat16().double()):
        return SlopeName(
            "alibi, slopes in bfloat16",
            "right",
            f"ALiBi with the slopes of Press et al. for {_heads(heads)}, rounded to bfloat16",
            f"Each slope is off by up to {off:.1%}; a model trained so needs them so.",
            numbers=numbers,
        )
    steps = _exponent_steps(sizes_H, error_H)
    if steps is not None:
        first = "2^0 = 1" if sizes_H[0] > press_H[0] else "the second slope"
        moved = sum(step != 0 for step in steps)
        return SlopeName(
            "alibi, exponent off by one",
            "wrong",
            f"slopes of {moved} of {heads} heads are one step of the exponent from those of Press "
            f"et al. (head 0 has {sizes_H[0]:.6g}, it should have {press_H[0]:.6g})",
            f"The exponents start one step away, so that head 0 begins at {first}: every such head "
            f"forgets at another rate than the one it was trained with.",
            MEND,
            numbers,
        )
    for name, other_H, what in _variants(heads):
        if same(other_H):
            return SlopeName(
                name,
                "unusual",
                f"ALiBi with {what}",
                "Right for a model trained with these slopes; not interchangeable with others.",
                numbers=numbers,
            )
    if same(sizes_H[0] / press_H[0] * press_H):
        factor = float(sizes_H[0] / press_H[0])
        return SlopeName(
            "alibi, scaled",
            "unusual",
            f"ALiBi with the slopes of Press et al., all times {factor:.6g}",
            "Right only if the logits are scaled likewise (1.4427 = log2(e) where the softmax is "
            "taken with powers of two).",
            numbers={**numbers, "factor": factor},
        )
    order_H = sizes_H.argsort(descending=True)
    if bool(
        ((sizes_H[order_H] - press_H.sort(descending=True).values).abs() <= error_H[order_H]).all()
    ):
        return SlopeName(
            "alibi, other order",
            "unusual",
            "ALiBi with the slopes of Press et al. in another order of the heads",
            "Right for a model trained so; with weights trained in the usual order, heads get one "
            "another's slopes.",
            MEND,
            numbers,
        )
    ratios = sizes_H[1:] / sizes_H[:-1]
    if heads > 2 and bool(((ratios - ratios.mean()).abs() <= 4 * (error_H / sizes_H).max()).all()):
        numbers = {**numbers, "ratio": float(ratios.mean())}
        return SlopeName(
            "linear, geometric slopes",
            "unusual",
            f"linear biases with geometric slopes, from {sizes_H[0]:.4g} times "
            f"{ratios.mean():.6g} a head; they differ from those of Press et al. by up to "
            f"{off:.0%}",
            "Right for a model trained so.",
            MEND,
            numbers,
        )
    return SlopeName(
        "linear, free slopes",
        "unusual",
        f"linear biases whose slopes are not those of Press et al.: they differ by up to {off:.0%}",
        "Right if the slopes are learned, or set by another rule that the model was trained with.",
        MEND,
        numbers,
    )


def _heads(count: int) -> str:
    return f"{count} head{'' if count == 1 else 's'}"


def _exponent_steps(sizes_H: Tensor, error_H: Tensor) -> list[float] | None:
    """By how many steps each head's exponent is off, if all by 0 or one step and some by one.

    The slopes of the largest power of two P in H step by 8/P octaves; those put between them, of
    every second head of 2P, may have been shifted by half of that, one step of their own sequence.
    """
    heads = len(sizes_H)
    power = 2 ** (heads.bit_length() - 1)
    press_H = alibi_slopes(heads).double()
    for direction in (1, -1):
        steps = []
        for head in range(heads):
            for step in (0.0, 1.0) if head < power else (0.0, 0.5, 1.0):
                shifted = press_H[head] * 2.0 ** (direction * step * 8 / power)
                if (sizes_H[head] - shifted).abs() <= error_H[head]:
                    steps.append(step)
                    break
        if len(steps) == heads and any(steps):
            return steps
    return None


def _variants(heads: int) -> list[tuple[str, Tensor, str]]:
    """Slopes that models have been trained with, besides those of Press et al.: name, values."""
    index = torch.arange(heads, dtype=torch.float64)
    return [
        (
            "alibi, not interleaved",
            2.0 ** (-8 * (index + 1) / heads),
            f"slopes 2^(-8(h+1)/{heads}), the formula for powers of two taken for {heads} heads",
        ),
        (
            "alibi, exp(-h/H)",
            torch.exp(-index / heads),
            f"slopes exp(-h/{heads}), as in the code released with Gu et al. 2026",
        ),
    ]
