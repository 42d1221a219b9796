"""FIRE, functional interpolation for relative positions (Li et al. 2023, arXiv 2310.04418, eq. 8).

Shapes: L query positions, M key positions, H heads.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from poslens.encodings.base import Encoding, Shape, pairwise_offsets
from poslens.errors import InputError

_NOT_ZERO = 1e-6  # the authors' guard of the denominator


@dataclass(frozen=True)
class FIRESettings:
    """Hidden width of the network, and where c and the threshold start.

    `threshold` (positions) None is a quarter of the greatest length: the authors' 512 of 2048.
    """

    hidden: int = 32
    c: float = 0.1
    threshold: float | None = None


class FIRE(Encoding):
    """A learned function of the offset's share of the query's own position.

    b_ij = f(psi(|i - j|) / psi(max(i, threshold))), psi(x) = ln(c x + 1), f a network with one
    hidden layer (ReLU) and an output per head. c is learned, and what the threshold is multiplied
    by, in absolute value. Queries beyond the threshold see distances relative to their own
    position, so the bias is no function of the offset and has no kernel.
    Raises InputError for a width, c or threshold that is not above 0.
    """

    kind = "additive"
    Settings = FIRESettings

    def __init__(self, shape: Shape, settings: FIRESettings | None = None) -> None:
        super().__init__(shape, settings)
        hidden, c, threshold = self.settings.hidden, self.settings.c, self.settings.threshold
        threshold = shape.max_length / 4 if threshold is None else threshold
        if min(hidden, c, threshold) <= 0:
            raise InputError(
                f"FIRE's hidden, c and threshold must be above 0, got {hidden}, {c}, {threshold}"
            )
        self.network = nn.Sequential(
            nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, shape.heads)
        )
        self.c = nn.Parameter(torch.tensor(c))
        self.stretch = nn.Parameter(torch.tensor(1.0))
        self.threshold = float(threshold)

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        precise = torch.promote_types(self.c.dtype, torch.float32)
        c, stretch = self.c.abs().to(precise), self.stretch.abs().to(precise)

        def psi(x: Tensor) -> Tensor:
            return torch.log1p(c * x)

        distances_LM = pairwise_offsets(query_positions, key_positions).abs().to(precise)
        reach_L1 = torch.maximum(query_positions.to(precise), stretch * self.threshold)[..., None]
        share_LM = psi(distances_LM) / (psi(reach_L1) + _NOT_ZERO)
        return self.network(share_LM[..., None].to(self.c.dtype)).movedim(-1, -3).contiguous()
