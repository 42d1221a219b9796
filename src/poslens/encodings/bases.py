"""RoPE whose heads have bases of their own, spread geometrically.

Shapes: H heads, F rotary frequencies.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from poslens.encodings.base import Shape
from poslens.encodings.rope import RoPE, RoPESettings
from poslens.errors import InputError


@dataclass(frozen=True)
class RoPEBasesSettings(RoPESettings):
    """Head h of H has base (`top` / `base`)^(h / (H - 1)) times `base`: from `base` to `top`."""

    base: float = 100.0
    top: float = 1_000_000.0


class RoPEBases(RoPE):
    """RoPE (Su et al. 2021) with a base for each head; a head alone has the lowest.

    Raises InputError for bases that are not above 1, and as RoPE does.
    """

    Settings = RoPEBasesSettings

    def __init__(self, shape: Shape, settings: RoPEBasesSettings | None = None) -> None:
        settings = settings or RoPEBasesSettings()
        if not (settings.base > 1 and settings.top > 1):
            raise InputError(f"bases are {settings.base} to {settings.top}; use numbers above 1")
        super().__init__(shape, settings)

    def frequencies(self, length: Tensor) -> tuple[Tensor, float]:
        """Frequencies (H, F) in radians per position, and the attention factor."""
        heads, low, top = self.shape.heads, self.settings.base, self.settings.top
        bases = [low * (top / low) ** (head / max(1, heads - 1)) for head in range(heads)]
        found = [self.settings.scaling.frequencies(base, self.width, length) for base in bases]
        return torch.stack([theta_F for theta_F, _ in found]), found[0][1]

    def rotate(
        self, q_BHLD: Tensor, k_BHMD: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Keys shared by several heads are copied for each: no two turn them alike."""
        k_BHMD = k_BHMD.repeat_interleave(self.shape.heads // k_BHMD.shape[1], dim=1)
        return super().rotate(q_BHLD, k_BHMD, query_positions, key_positions)
