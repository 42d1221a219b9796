"""Biases that depend on the offset alone: all that such an encoding has to write is its kernel.

Shapes: B batch, L query positions, M key positions, H heads.
"""

from abc import abstractmethod

from torch import Tensor

from poslens.encodings.base import Encoding, pairwise_offsets


class RelativeBias(Encoding):
    """Opens door 3 with b_ij = kernel(i - j)."""

    kind = "additive"

    @abstractmethod
    def kernel(self, offsets: Tensor) -> Tensor:
        """The bias of every head at integer offsets of any shape: (H, *offsets.shape)."""

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return self.kernel(pairwise_offsets(query_positions, key_positions)).movedim(0, -3)
