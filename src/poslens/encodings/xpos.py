"""xPos, rotary position embedding that decays with the offset (Sun et al. 2022).

arXiv 2212.10554, section 2.2. Shapes: B batch, L query positions, M key positions, H heads,
D head width, F rotary frequencies, O offsets.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from poslens.encodings.base import Shape
from poslens.encodings.rope import RoPE, RoPESettings
from poslens.errors import InputError


@dataclass(frozen=True)
class XPosSettings(RoPESettings):
    """How fast it decays: see `XPos`. Larger `gamma` and longer `span` (positions): slower."""

    gamma: float = 0.4
    span: float = 512.0


class XPos(RoPE):
    """RoPE whose frequency f also shrinks with the offset o, by zeta_f^(o/span).

    zeta_f = (f/F + gamma) / (1 + gamma), so that high frequencies fade first. Queries are scaled by
    zeta_f^(p/span) at position p and keys by its inverse, p counted from the middle of the keys to
    keep both small. Made for causal models: towards later keys the factor grows instead.
    Raises InputError for a gamma or span that is not above 0, and as RoPE does.
    """

    Settings = XPosSettings

    def __init__(self, shape: Shape, settings: XPosSettings | None = None) -> None:
        super().__init__(shape, settings)
        for name in ("gamma", "span"):
            if getattr(self.settings, name) <= 0:
                value = getattr(self.settings, name)
                raise InputError(f"xPos needs a {name} above 0, got {value}")

    def decay(self, device: torch.device) -> Tensor:
        """ln(zeta_f) / span, (F,): what one position adds to the logarithm of the factor."""
        settings, count = self.settings, self.width // 2
        level_F = torch.arange(count, dtype=torch.float64, device=device) / count
        return ((level_F + settings.gamma) / (1 + settings.gamma)).log() / settings.span

    def rotate(
        self, q_BHLD: Tensor, k_BHMD: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        ends = key_positions.aminmax(dim=-1, keepdim=True)
        middle = (ends.min + ends.max) // 2
        q_BHLD, k_BHMD = super().rotate(q_BHLD, k_BHMD, query_positions, key_positions)

        def scaled(x_BHLD: Tensor, places: Tensor) -> Tensor:
            growth_L1F = places[..., :, None, None] * self.decay(x_BHLD.device)
            return self._multiply(x_BHLD, growth_L1F.exp())

        return scaled(q_BHLD, query_positions - middle), scaled(k_BHMD, middle - key_positions)

    def kernel(self, offsets_O: Tensor) -> Tensor | None:
        """a^2 zeta_f^(o/span) exp(i o theta_f), complex (H, F, O); see `RoPE.kernel`."""
        decay_FO = (self.decay(offsets_O.device)[:, None] * offsets_O).exp()
        kernel = super().kernel(offsets_O)
        return None if kernel is None else kernel * decay_FO
