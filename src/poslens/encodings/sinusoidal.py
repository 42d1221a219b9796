"""The fixed sine and cosine table (Vaswani et al. 2017, section 3.5).

Shapes: B batch, L positions, E model width, F = E/2 frequencies.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from poslens.encodings.base import Encoding, Shape
from poslens.encodings.scaling import geometric_frequencies
from poslens.errors import InputError


@dataclass(frozen=True)
class SinusoidalSettings:
    """`layout`: sines in even channels and cosines in odd ones ("interleaved", as in the paper),
    or sines in the first half of the channels and cosines in the second ("half").
    """

    base: float = 10_000.0
    layout: Literal["interleaved", "half"] = "interleaved"


class Sinusoidal(Encoding):
    """Adds sin(p theta_f) and cos(p theta_f), theta_f = base^(-2f/E), to the token embedding.

    Any position will do; nothing is learned and nothing scaled. Raises InputError for an odd
    width and for a base of 1 or less.
    """

    kind = "additive"
    Settings = SinusoidalSettings

    def __init__(self, shape: Shape, settings: SinusoidalSettings | None = None) -> None:
        super().__init__(shape, settings)
        if shape.width % 2:
            raise InputError(f"sinusoidal needs an even model width, got {shape.width}")
        geometric_frequencies(self.settings.base, shape.width, torch.device("cpu"))  # checks base

    def embed(self, x_BLE: Tensor, positions: Tensor) -> Tensor:
        theta_F = geometric_frequencies(self.settings.base, self.shape.width, x_BLE.device)
        angles_LF = positions[..., None] * theta_F
        waves = [angles_LF.sin(), angles_LF.cos()]
        if self.settings.layout == "half":
            table_LE = torch.cat(waves, dim=-1)
        else:
            table_LE = torch.stack(waves, dim=-1).flatten(-2)
        return x_BLE + table_LE.to(x_BLE.dtype)
