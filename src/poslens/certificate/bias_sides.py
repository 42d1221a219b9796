"""How a bias treats the keys before the query and those after it.

Shapes: H heads, N distances 0, 1, .. from the query; NaN where masked, 0 at distance 0.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from poslens.certificate.finding import Finding

# How a side looks in one head; the last three compare the future with the past.
Side = Literal["masked", "constant", "varies", "mirrored", "continued"]
Direction = Literal["none", "symmetric", "causal", "linear", "asymmetric", "exchanged"]


@dataclass(frozen=True)
class Sides:
    """Both sides of a kernel: as far as every head that sees that side at all sees it."""

    past_HN: Tensor
    future_HN: Tensor
    past: tuple[Side, ...]
    future: tuple[Side, ...]

    @property
    def direction(self) -> Direction:
        """One word for all heads."""
        seen = [set(pair) & {"varies", "mirrored", "continued"} for pair in self.pairs]
        if not any(seen):
            return "none"
        if "varies" not in self.past:
            return "exchanged"
        if all(future in ("masked", "constant") for future in self.future):
            return "causal"
        flat = [past == "constant" for past in self.past]
        for word, direction in (("mirrored", "symmetric"), ("continued", "linear")):
            matches = (
                future == word or (both_flat and future == "constant")
                for both_flat, future in zip(flat, self.future, strict=True)
            )
            if all(matches):
                return direction  # type: ignore[return-value]
        return "asymmetric"

    @property
    def pairs(self) -> list[tuple[Side, Side]]:
        return list(zip(self.past, self.future, strict=True))

    @property
    def visible_HN(self) -> Tensor:
        """The side that carries each head's bias: the past, or the future where only that varies.

        Trimmed to the distances that all heads see; 0 in heads without bias.
        """
        count = min(self.past_HN.shape[-1], self.future_HN.shape[-1])
        if all(past == "varies" for past in self.past):
            count = self.past_HN.shape[-1]
        rows = []
        for head, (past, future) in enumerate(self.pairs):
            if past == "varies":
                rows.append(self.past_HN[head, :count])
            elif future in ("masked", "constant"):
                rows.append(torch.zeros(count, dtype=torch.float64))
            else:
                rows.append(self.future_HN[head, :count])
        return torch.stack(rows)


def split(past_HN: Tensor, future_HN: Tensor, tolerance_H: Tensor) -> Sides:
    """Looks at both sides; two biases that differ by no more than the tolerance are the same."""
    past_HN, future_HN = _trimmed(past_HN), _trimmed(future_HN)
    pasts = tuple(_side(*it) for it in zip(past_HN, tolerance_H, strict=True))
    futures: list[Side] = []
    count = min(past_HN.shape[-1], future_HN.shape[-1])
    for past, past_N, future_N, tolerance in zip(
        pasts, past_HN[:, :count], future_HN[:, :count], tolerance_H, strict=True
    ):
        future = _side(future_N, tolerance)
        if past == future == "varies":
            if (future_N - past_N).abs().max() <= 2 * tolerance:
                future = "mirrored"
            elif (future_N + past_N).abs().max() <= 2 * tolerance:
                future = "continued"
        futures.append(future)
    return Sides(past_HN, future_HN, pasts, tuple(futures))


def _trimmed(side_HN: Tensor) -> Tensor:
    """As many distances as all heads see, heads aside that see none (or one, the query's own)."""
    seen_H = side_HN.isfinite().sum(-1)
    some_H = seen_H > 1
    return side_HN[:, : int(seen_H[some_H].min())] if some_H.any() else side_HN


def _side(side_N: Tensor, tolerance: Tensor) -> Side:
    if not side_N[1:].isfinite().all():
        return "masked"
    return "constant" if side_N.abs().max() <= tolerance else "varies"


def judge_direction(
    direction: Direction, sides: Sides, scheme: str, causal: bool | None
) -> Finding:
    """What the two sides mean for a model that masks the future (`causal`), does not, or may."""
    future = set(sides.future)
    if direction == "none":
        return _found(
            "undecidable",
            "the bias is the same for all keys",
            "Nothing tells positions apart: a table before training, perhaps.",
            "Hand over a bias with trained or random values.",
        )
    if direction == "exchanged":
        return _found(
            "wrong",
            "all keys before the query have the same bias; only keys after it are told apart",
            "Under a causal mask no position is left at all. Query and key positions are "
            "exchanged.",
            "Buckets and slopes go by query position - key position, which is positive for keys "
            "already seen; code that takes key - query must negate it first.",
        )
    if direction == "causal":
        what = (
            "keys after the query are masked within the bias"
            if future == {"masked"}
            else "keys after the query all have the same bias"
        )
        if causal is False:
            return _found(
                "wrong",
                what,
                "A bidirectional model cannot tell later keys apart, or see them.",
                "Build the bias for both directions.",
            )
        return _found("right", f"causal: {what}", "For models that mask keys after the query.")
    if direction == "linear":
        what = "linear through both sides: it goes on growing for keys after the query"
        if causal is False:
            return _found(
                "wrong",
                what,
                "Without a causal mask the last keys weigh most in every row.",
                "Use -m |query position - key position|.",
            )
        return _found(
            "right",
            what,
            "The same as -m |offset| under a causal mask. Without one, the last keys would weigh "
            "most in every row.",
        )
    if direction == "symmetric":
        return _found("right", "symmetric: the same before and after the query")
    verdict = "right" if scheme == "t5" else "unusual"
    what = "asymmetric: keys before and after the query are told apart"
    if len(set(sides.pairs)) > 1:
        what = "asymmetric, and not alike in all heads"
    return _found(
        verdict, what, "For bidirectional models; under a causal mask only the past counts."
    )


def _found(verdict: str, what: str, meaning: str = "", mend: str = "") -> Finding:
    return Finding("bias", "direction", verdict, what, meaning, mend)  # type: ignore[arg-type]
