"""The bucketed relative bias of T5 (Raffel et al. 2020, section 2.1).

Shapes: H heads, K buckets.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from poslens.encodings.base import Shape
from poslens.encodings.relative import RelativeBias
from poslens.errors import InputError


def t5_buckets(offsets: Tensor, buckets: int, max_distance: int, causal: bool) -> Tensor:
    """Which bucket each offset (query - key, integer) falls in: 0 .. buckets - 1, same shape.

    Half of the buckets hold one distance each, the others grow logarithmically up to
    `max_distance`, beyond which all distances share the last. Not causal: a second such set, for
    keys after the query. Causal: keys after the query share bucket 0.

    T5's own code takes key - query. Raises InputError where there are too few buckets, or
    `max_distance` is not beyond those of one distance.
    """
    if buckets < (2 if causal else 4) or (not causal and buckets % 2):
        need = "at least 2 buckets" if causal else "an even number of buckets, at least 4"
        raise InputError(f"T5 needs {need}, got {buckets}")
    side = buckets if causal else buckets // 2
    exact = side // 2
    if max_distance <= exact:
        raise InputError(f"T5's max_distance must be above {exact}, got {max_distance}")
    distances = offsets.clamp(min=0) if causal else offsets.abs()
    # In float32 and in this order, as T5 does it: rounding decides at the edges of buckets.
    growth = torch.log(distances.clamp(min=exact).float() / exact) / math.log(max_distance / exact)
    logarithmic = (exact + (growth * (side - exact)).long()).clamp(max=side - 1)
    return distances.where(distances < exact, logarithmic) + side * (offsets < 0) * (not causal)


@dataclass(frozen=True)
class T5Settings:
    """The number of buckets, and the distance (tokens) from which all share the last one.

    `exact`: no buckets but a bias for every offset that the model's greatest length allows, as in
    the "relative" scheme of the code released with Gu et al. 2026.
    """

    buckets: int = 32
    max_distance: int = 128
    exact: bool = False


class T5Bias(RelativeBias):
    """A learned bias per head and bucket of offsets; causal models get causal buckets.

    T5 itself does not divide its logits by the root of the head width. `table_KH` starts normal
    with standard deviation 1/sqrt(model width), as in T5. Raises InputError as `t5_buckets` does.
    """

    Settings = T5Settings

    def __init__(self, shape: Shape, settings: T5Settings | None = None) -> None:
        super().__init__(shape, settings)
        self._buckets(torch.tensor(0))  # settings that do not fit fail here
        buckets = 2 * shape.max_length - 1 if self.settings.exact else self.settings.buckets
        self.table_KH = nn.Parameter(torch.randn(buckets, shape.heads) / math.sqrt(shape.width))

    def kernel(self, offsets: Tensor) -> Tensor:
        return F.embedding(self._buckets(offsets), self.table_KH).movedim(-1, 0).contiguous()

    def _buckets(self, offsets: Tensor) -> Tensor:
        settings, most = self.settings, self.shape.max_length - 1
        if settings.exact:
            return offsets.clamp(-most, most) + most
        return t5_buckets(offsets, settings.buckets, settings.max_distance, self.shape.causal)
