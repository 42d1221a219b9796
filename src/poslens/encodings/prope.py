"""p-RoPE, rotary position embedding without its lowest frequencies (Barbero et al. 2024).

arXiv 2410.06205, section 6. Shapes: F rotary frequencies.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from poslens.encodings.base import Shape
from poslens.encodings.rope import RoPE, RoPESettings
from poslens.errors import InputError


@dataclass(frozen=True)
class PRoPESettings(RoPESettings):
    """`turned` is p, the share of the frequencies that are kept, the highest: 1 is RoPE, 0 NoPE."""

    turned: float = 0.75


class PRoPE(RoPE):
    """RoPE with the lowest frequencies off: their channel pairs carry content alone.

    Of the F = width/2 pairs the first floor(p F) turn as in RoPE, the others have frequency 0.
    Raises InputError for p outside 0..1, and as RoPE does.
    """

    Settings = PRoPESettings

    def __init__(self, shape: Shape, settings: PRoPESettings | None = None) -> None:
        super().__init__(shape, settings)
        if not 0 <= self.settings.turned <= 1:
            raise InputError(
                f"the share of frequencies kept must be from 0 to 1, got {self.settings.turned}"
            )

    def frequencies(self, length: Tensor) -> tuple[Tensor, float]:
        theta_F, attention_factor = super().frequencies(length)
        index_F = torch.arange(len(theta_F), device=theta_F.device)
        kept = int(self.settings.turned * len(theta_F))
        return torch.where(index_F < kept, theta_F, 0.0), attention_factor
