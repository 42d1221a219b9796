"""What the heads of a layer can be told of position instead of the truth.

Each edit is another `Context` for the same layer, and for tables, whose position rides in the
residual stream, a change to what queries and keys (never values) are made from.

Shapes: B batch, L query positions, M key positions, H heads, D head width, E model width,
O offsets.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from poslens.encodings.base import Door, Encoding, doors, pairwise_offsets
from poslens.errors import InputError
from poslens.model.attention import Context

Method = Literal["none", "mean", "resample"]


class MeanKernel(Encoding):
    """An encoding whose kernel is replaced by its mean over offsets: all pairs look alike.

    Rotation is linear in the query, so the mean kernel is the mean of the query turned by every
    offset against keys at position 0; a bias is averaged as it is. `weights_O` sum to 1.
    """

    def __init__(self, encoding: Encoding, offsets_O: Tensor, weights_O: Tensor) -> None:
        super().__init__(encoding.shape)
        self.encoding = encoding
        self.weighted = list(zip(offsets_O.tolist(), weights_O.tolist(), strict=True))

    def rotate(
        self, q_BHLD: Tensor, k_BHMD: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        origin = torch.zeros_like(key_positions)
        mean = torch.zeros_like(q_BHLD)
        for offset, weight in self.weighted:
            moved = torch.full_like(query_positions, offset)
            mean += weight * self.encoding.rotate(q_BHLD, k_BHMD, moved, origin)[0]
        return mean, self.encoding.rotate(q_BHLD, k_BHMD, origin, origin)[1]

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        origin = key_positions.new_zeros(1)
        mean: Tensor | None = None
        for offset, weight in self.weighted:
            bias = self.encoding.bias(origin + offset, origin)
            if bias is None:
                return None
            mean = weight * bias if mean is None else mean + weight * bias
        assert mean is not None
        return mean.expand(-1, query_positions.shape[-1], key_positions.shape[-1])


@dataclass(frozen=True)
class PositionEdit:
    """One way of taking position from the heads of a layer.

    *none*: no position (every gain 0). *mean*: the kernel's mean over offsets with `weights_O`,
    which tables do not have. *resample*: real positions permuted within each sequence, `order_BL`.
    `doors` are those by which it is taken; position that enters by others stays.
    `position_BLE` is the part of the attention's input that is position, for encodings that add
    it to the residual stream; queries and keys lose it (*none*) or get another position's
    (*resample*).
    """

    method: Method
    offsets_O: Tensor | None = None
    weights_O: Tensor | None = None
    order_BL: Tensor | None = None
    position_BLE: Tensor | None = None
    doors: tuple[Door, ...] = ("table", "rotation", "bias")

    def context(self, context: Context) -> Context:
        """The layer's context under the edit."""
        changed = self._changed(context)
        if "rotation" not in self.doors:
            changed = replace(changed, encoding=context.encoding, positions=context.positions)
        return changed if "bias" in self.doors else replace(changed, bias=context.bias)

    def _changed(self, context: Context) -> Context:
        """The context with every door of queries, keys and logits edited."""
        encoding, positions = context.encoding, context.positions
        if self.method == "none":
            return replace(context, encoding=Encoding(encoding.shape), bias=None)
        if self.method == "mean":
            assert self.offsets_O is not None and self.weights_O is not None  # noqa: PT018
            if not self._has_kernel(encoding):
                raise InputError(
                    "the encoding is no function of the offset, so it has no mean over offsets; "
                    "use method 'none' or 'resample'"
                )
            encoding = MeanKernel(encoding, self.offsets_O, self.weights_O)
        else:
            assert self.order_BL is not None
            positions = positions.expand(self.order_BL.shape).gather(1, self.order_BL)
        return replace(
            context,
            encoding=encoding,
            positions=positions,
            bias=encoding.bias(positions, positions),
        )

    def _has_kernel(self, encoding: Encoding) -> bool:
        """Whether all parts that open one of the edit's doors are functions of the offset."""
        parts = [part for part in encoding.children() if isinstance(part, Encoding)]
        if parts:
            return all(self._has_kernel(part) for part in parts)
        assert self.offsets_O is not None
        concerned = doors(encoding) & {*self.doors}
        return not concerned or encoding.kernel(self.offsets_O) is not None

    def shift(self, position_BLE: Tensor | None) -> Tensor | None:
        """What is added to the input of queries and keys, given its part that is position.

        Raises InputError for *mean*.
        """
        if position_BLE is None or "table" not in self.doors:
            return None
        if self.method == "none":
            return -position_BLE
        if self.method == "mean":
            raise InputError("a table has no kernel to average; use method 'none' or 'resample'")
        assert self.order_BL is not None
        index = self.order_BL[..., None].expand(-1, -1, position_BLE.shape[-1])
        position_BLE = position_BLE.expand(index.shape)
        return position_BLE.gather(1, index) - position_BLE


def offset_weights(lengths_B: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Offsets and how often each occurs between a real query and a key it sees, as shares of 1."""
    longest = int(lengths_B.max())
    steps = torch.arange(longest, device=lengths_B.device)
    real_BL = steps < lengths_B[:, None]
    offsets_LM = pairwise_offsets(steps, steps)
    pairs_LM = torch.einsum("bl,bm->lm", real_BL.double(), real_BL.double())
    if causal:
        pairs_LM = pairs_LM.where(offsets_LM >= 0, 0.0)
    counts_O = torch.zeros(2 * longest - 1, dtype=torch.float64, device=lengths_B.device)
    counts_O.index_add_(0, (offsets_LM + longest - 1).flatten(), pairs_LM.flatten())
    offsets_O = torch.arange(1 - longest, longest, device=lengths_B.device)
    seen_O = counts_O > 0
    return offsets_O[seen_O], (counts_O / counts_O.sum())[seen_O]


def permuted(lengths_B: Tensor, length: int, generators: Iterable[torch.Generator]) -> Tensor:
    """For each sequence a random order of its real positions, (B, L); padding stays in place.

    Each sequence has a generator of its own, so that its order depends on no other.
    """
    order_BL = torch.arange(length).repeat(len(lengths_B), 1)
    for row, (real, generator) in enumerate(zip(lengths_B.tolist(), generators, strict=True)):
        order_BL[row, :real] = torch.randperm(real, generator=generator)
    return order_BL.to(lengths_B.device)
