"""Rotary position embedding (Su et al. 2021, eqs. 13 to 15 and 34).

Shapes: B batch, L query positions, M key positions, H heads, D head width, F = width/2 rotary
frequencies, O offsets.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from poslens.encodings.base import Encoding, Shape
from poslens.encodings.scaling import Scaling
from poslens.errors import InputError


@dataclass(frozen=True)
class RoPESettings:
    """What RoPE rotates, and how fast.

    `width` counts the leading channels of a head that are rotated (None: all); the rest carry no
    position. `layout` says which channels make pair f: 2f and 2f+1 ("interleaved": RoFormer,
    DeepSeek) or f and f + width/2 ("half": Llama, GPT-NeoX). They differ by the order of channels
    only; interleaved is over twice as fast here. `step` is the rotation, or what the MLA of the
    code released with Gu et al. 2026 does instead ("published", see `published_factors`).
    """

    base: float = 10_000.0
    width: int | None = None
    layout: Literal["interleaved", "half"] = "interleaved"
    step: Literal["rotation", "published"] = "rotation"
    scaling: Scaling = field(default_factory=Scaling)


class RoPE(Encoding):
    """Turns channel pair f of a query or key at position p by the angle p theta_f.

    Read as a complex number the pair is multiplied by a exp(i p theta_f), a the attention factor
    of the scaling (1 as a rule), so that a logit knows positions only through their difference.
    Length-dependent scalings take the largest position plus one for the current length, padding
    and the batch's other rows included, as implementations in use do.

    Raises InputError for a rotary width that is odd, below 2 or above the head width.
    """

    kind = "multiplicative"
    Settings = RoPESettings

    def __init__(self, shape: Shape, settings: RoPESettings | None = None) -> None:
        super().__init__(shape, settings)
        self.width = shape.head_width if self.settings.width is None else self.settings.width
        if self.width % 2 or not 2 <= self.width <= shape.head_width:
            raise InputError(
                f"the rotary width must be even, from 2 to the head width {shape.head_width},"
                f" got {self.width}"
            )
        self.frequencies(torch.tensor(1))  # a scaling that does not fit the width fails here

    def frequencies(self, length: Tensor) -> tuple[Tensor, float]:
        """Frequencies in radians per position and attention factor at a sequence length.

        (F,), or (H, F) where heads differ.
        """
        return self.settings.scaling.frequencies(self.settings.base, self.width, length)

    def rotate(
        self, q_BHLD: Tensor, k_BHMD: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        length = torch.maximum(query_positions.max(), key_positions.max()) + 1
        theta_F, attention_factor = self.frequencies(length)

        def turn(x_BHLD: Tensor, positions: Tensor) -> Tensor:
            angles = positions[..., :, None, None] * theta_F  # (.., L, 1 or H, F)
            if self.settings.step == "published":
                return self._multiply(x_BHLD, attention_factor * published_factors(angles))
            factors = torch.polar(torch.full_like(angles, attention_factor), angles)
            return self._multiply(x_BHLD, factors)

        return turn(q_BHLD, query_positions), turn(k_BHMD, key_positions)

    def kernel(self, offsets_O: Tensor) -> Tensor | None:
        """a^2 exp(i offset theta_f), complex (H, F, O), without the channels never rotated.

        Length-dependent scalings: that of the sequence whose largest offset is given. The published
        step is no function of the offset.
        """
        if self.settings.step == "published":
            return None
        theta_F, attention_factor = self.frequencies(offsets_O.abs().max() + 1)
        angles = theta_F[..., None] * offsets_O
        kernel = torch.polar(torch.full_like(angles, attention_factor**2), angles)
        return kernel.expand(self.shape.heads, -1, -1)

    def _multiply(self, x_BHLD: Tensor, factors: Tensor) -> Tensor:
        """The channel pairs of x times complex factors (.., L, 1 or H, F), in float32 or finer."""
        precise = torch.promote_types(x_BHLD.dtype, torch.float32)
        x, rest = x_BHLD[..., : self.width].to(precise), x_BHLD[..., self.width :]
        factors = factors.to(torch.promote_types(precise, torch.complex64))
        # Repeated for all heads of a position, as projections lay them out in memory: the product
        # then has long runs to work on, and takes half the time.
        heads = x_BHLD.shape[1]
        factors_HLF = factors.expand(*factors.shape[:-2], heads, -1).contiguous().transpose(-3, -2)
        if self.settings.layout == "half":
            z = torch.complex(*x.chunk(2, dim=-1)) * factors_HLF
            x = torch.cat([z.real, z.imag], dim=-1)
        else:
            z = torch.view_as_complex(_pairs(x)) * factors_HLF
            x = torch.view_as_real(z).flatten(-2)
        x = x.to(x_BHLD.dtype)
        return torch.cat([x, rest], dim=-1) if rest.shape[-1] else x


def published_factors(angles: Tensor) -> Tensor:
    """What the study's MLA multiplies channel pairs by, complex, in place of exp(i angle); (.., F).

    Its table holds F sines, then F cosines, and is cut by parity where it should be halved: even
    entries are used as sines, odd ones as cosines. So two frequencies meet in one pair, the modulus
    depends on the position (0 at position 0 for the first half of the pairs), and logits are no
    function of the offset.
    """
    table = torch.cat((angles.sin(), angles.cos()), -1)
    return torch.complex(table[..., 1::2], table[..., 0::2])


def _pairs(x: Tensor) -> Tensor:
    """x (..., D) as (..., F, 2), copied only where its memory cannot be read as complex."""
    whole = x.stride(-1) == 1 and not any(n % 2 for n in (x.storage_offset(), *x.stride()[:-1]))
    return (x if whole else x.clone(memory_format=torch.contiguous_format)).unflatten(-1, (-1, 2))
