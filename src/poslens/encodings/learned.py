"""A learned table of absolute positions (Gehring et al. 2017, section 3.1).

Shapes: B batch, L positions, P rows of the table, E model width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from poslens.encodings.base import Encoding, Shape
from poslens.errors import InputError


@dataclass(frozen=True)
class LearnedSettings:
    """The standard deviation of the table before training; 0 starts it at zero."""

    std: float = 0.02


class Learned(Encoding):
    """Adds row p of a learned table of `max_length` rows to the token embedding at position p.

    Raises InputError for a position the table has no row for.
    """

    kind = "additive"
    Settings = LearnedSettings

    def __init__(self, shape: Shape, settings: LearnedSettings | None = None) -> None:
        super().__init__(shape, settings)
        self.table_PE = nn.Parameter(self.settings.std * torch.randn(shape.max_length, shape.width))

    def embed(self, x_BLE: Tensor, positions: Tensor) -> Tensor:
        rows = self.table_PE.shape[0]
        outside = positions[(positions < 0) | (positions >= rows)]
        if outside.numel():
            raise InputError(
                f"position {outside[0].item()} is not in the learned table, which has {rows} rows"
                f" (positions 0 to {rows - 1})"
            )
        return x_BLE + F.embedding(positions, self.table_PE)
