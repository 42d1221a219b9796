"""Attention with linear biases (Press et al. 2022, section 3).

Shapes: H heads.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from poslens.encodings.base import Shape
from poslens.encodings.relative import RelativeBias


def alibi_slopes(heads: int) -> Tensor:
    """The slope of every head, (H,), in logits per position.

    2^(-8/H), 2^(-16/H), .. where H is a power of two; otherwise the slopes of the largest power of
    two P below H, then every second slope of 2P until there are H.
    """
    power = 2 ** (heads.bit_length() - 1)
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2 ** (-4 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return torch.tensor((slopes + between)[:heads])


@dataclass(frozen=True)
class ALiBiSettings:
    """`slopes`: those of Press et al. ("press"), or exp(-h/H) for head h of H, 1 down to 0.39 at 16
    heads, as in the code released with Gu et al. 2026 ("published").
    """

    slopes: Literal["press", "published"] = "press"


class ALiBi(RelativeBias):
    """-m_h |offset|: nearer keys weigh more, by a slope fixed for each head.

    Causal models use the same formula, since the keys after the query are masked there.
    """

    Settings = ALiBiSettings
    slopes_H: Tensor

    def __init__(self, shape: Shape, settings: ALiBiSettings | None = None) -> None:
        super().__init__(shape, settings)
        slopes_H = alibi_slopes(shape.heads)
        if self.settings.slopes == "published":
            slopes_H = (-torch.arange(shape.heads) / shape.heads).exp()
        self.register_buffer("slopes_H", slopes_H, persistent=False)

    def kernel(self, offsets: Tensor) -> Tensor:
        return -torch.tensordot(self.slopes_H, offsets.abs().to(self.slopes_H), dims=0)
