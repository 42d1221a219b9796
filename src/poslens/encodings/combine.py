"""Encodings made of encodings: one on the first heads only, and two at once.

Shapes: B batch, L query positions, M key positions, H heads, D head width, E model width,
F rotary frequencies, O offsets.
"""

import torch
from torch import Tensor

from poslens.encodings.base import Encoding, Shape
from poslens.errors import InputError


class FirstHeads(Encoding):
    """`encoding` on heads 0 .. count - 1, NoPE on the others.

    `encoding` is that of the whole model: a head that keeps it is as it would be without this.
    Keys shared by several heads are copied for each, since some heads rotate them and some do not.

    Raises InputError for a count outside 1 .. heads, and for an encoding that adds to the token
    embeddings, which have no heads.
    """

    def __init__(self, shape: Shape, encoding: Encoding, count: int) -> None:
        super().__init__(shape)
        name = type(encoding).__name__
        if not 1 <= count <= shape.heads:
            raise InputError(f"{name} can be on 1 to {shape.heads} of the heads, not on {count}")
        if type(encoding).embed is not Encoding.embed:
            raise InputError(
                f"{name} adds to the token embeddings, which have no heads; use it on all heads"
            )
        self.count = count
        self.encoding = encoding
        self.kind = encoding.kind

    def rotate(
        self, q_BHLD: Tensor, k_BHMD: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        if type(self.encoding).rotate is Encoding.rotate:
            return q_BHLD, k_BHMD
        q, k = self.encoding.rotate(q_BHLD, k_BHMD, query_positions, key_positions)
        sharing = self.shape.heads // k.shape[1]
        if sharing > 1:
            k, k_BHMD = (keys.repeat_interleave(sharing, dim=1) for keys in (k, k_BHMD))
        return self._first(q, q_BHLD), self._first(k, k_BHMD)

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        bias = self.encoding.bias(query_positions, key_positions)
        return None if bias is None else self._first(bias, torch.zeros_like(bias), dim=-3)

    def kernel(self, offsets_O: Tensor) -> Tensor | None:
        """That of the encoding; for the other heads 1 where it multiplies, 0 where it adds."""
        kernel = self.encoding.kernel(offsets_O)
        if kernel is None:
            return None
        neutral = 1.0 if self.kind == "multiplicative" else 0.0
        return self._first(kernel, torch.full_like(kernel, neutral), dim=0)

    def _first(self, with_it: Tensor, without: Tensor, dim: int = 1) -> Tensor:
        """The first heads of one tensor and the other heads of another."""
        others = self.shape.heads - self.count
        return torch.cat(
            [with_it.narrow(dim, 0, self.count), without.narrow(dim, self.count, others)], dim
        )


class Both(Encoding):
    """Two encodings in one model: both add to the embeddings, both rotate, their biases add up."""

    def __init__(self, shape: Shape, first: Encoding, second: Encoding) -> None:
        super().__init__(shape)
        self.first = first
        self.second = second
        kinds = {first.kind, second.kind} - {"none"}
        self.kind = "hybrid" if len(kinds) > 1 else kinds.pop() if kinds else "none"

    def embed(self, x_BLE: Tensor, positions: Tensor) -> Tensor:
        return self.second.embed(self.first.embed(x_BLE, positions), positions)

    def rotate(
        self, q_BHLD: Tensor, k_BHMD: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        q_BHLD, k_BHMD = self.first.rotate(q_BHLD, k_BHMD, query_positions, key_positions)
        return self.second.rotate(q_BHLD, k_BHMD, query_positions, key_positions)

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        first = self.first.bias(query_positions, key_positions)
        second = self.second.bias(query_positions, key_positions)
        if first is None or second is None:
            return second if first is None else first
        return first + second

    def kernel(self, offsets_O: Tensor) -> Tensor | None:
        """That of the one which has a kernel; None where both have one."""
        first, second = self.first.kernel(offsets_O), self.second.kernel(offsets_O)
        if first is None:
            return second
        return first if second is None else None
