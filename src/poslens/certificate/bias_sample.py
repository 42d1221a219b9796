"""Calling a bias function, and reading what it returns by offset.

Shapes: H heads, L query positions, M key positions, O = L + M - 1 offsets. Offset = query position
- key position.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from poslens.certificate.calls import CallError, guarded, needs_gpu
from poslens.errors import InputError
from poslens.toeplitz import toeplitz

BiasFunction = Callable[[int, int], Any]

# Biases this low are masks: no logit can make up for them in any floating-point format. So is the
# one value that older models mask with.
_MASKED = torch.finfo(torch.float16).min
_OLD_MASK = -10_000.0
# A correct bias is off by at most this many units of rounding of its largest value: one rounding
# each of slope, product and sum, and the difference of two such values.
ROUNDINGS = 4


@dataclass(frozen=True)
class BiasSample:
    """One answer of a bias function.

    `values_HLM` is float64, with 0 where `counts_HLM` is False: the entries that are masked. `raw`
    is what was returned, (H, L, M) or (H, 1, M); the latter has one row for all queries.
    """

    values_HLM: Tensor
    counts_HLM: Tensor
    raw: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.raw.dtype

    @property
    def key_only(self) -> bool:
        return self.raw.shape[-2] == 1 < self.values_HLM.shape[-2]

    @cached_property
    def scale_H(self) -> Tensor:
        """The largest size of a bias, for each head."""
        return self.values_HLM.abs().amax((-2, -1))

    @cached_property
    def last_row(self) -> Tensor:
        """The last query's bias by distance, (H, M), less that of its own key; NaN where masked.

        The last query stands at the last key. The same bias in the row is the same number here.
        """
        row_HM = torch.where(self.counts_HLM[:, -1], self.values_HLM[:, -1], torch.nan).flip(-1)
        return row_HM - row_HM[:, :1]

    @cached_property
    def first_row(self) -> Tensor:
        """The first query's bias by distance to the keys after it, (H, M), as `last_row`."""
        row_HM = torch.where(self.counts_HLM[:, 0], self.values_HLM[:, 0], torch.nan)
        return row_HM - row_HM[:, :1]

    @cached_property
    def departure_H(self) -> Tensor:
        """How far a square bias is from the Toeplitz matrix that its two outer rows make.

        The outer rows hold every offset. Each row is taken relative to the query's own key.
        """
        own_HL1 = self.values_HLM.diagonal(dim1=-2, dim2=-1)[..., None]
        kernel_HO = torch.cat([self.first_row[:, 1:].flip(-1), self.last_row], -1)
        misses_HLM = self.values_HLM - own_HL1 - toeplitz(kernel_HO, self.values_HLM.shape[-1])
        return misses_HLM.abs_().masked_fill_(~self.counts_HLM, 0.0).amax((-2, -1))

    def on_grid(self, dtype: torch.dtype) -> bool:
        """Whether every value is one that `dtype` can hold."""
        values = self.values_HLM[self.counts_HLM]
        return bool((values.to(dtype).double() == values).all())


def call_bias(bias: BiasFunction, queries: int, keys: int) -> BiasSample:
    """The bias for that many queries and keys, (H, L, M).

    Takes tensors and arrays shaped (H, L, M), (H, 1, M), (1, H, L, M) or (L, M). Raises InputError
    for any other shape, for values that are no finite floats (minus infinity is a mask), and where
    the function itself raises.
    """
    call = f"the bias called with ({queries}, {keys})"
    try:
        answer = guarded(bias, queries, keys)
    except CallError as error:
        hint = "; run this where there is a GPU" if needs_gpu(str(error)) else ""
        raise InputError(f"{call} raised {error}{hint}") from error
    if isinstance(answer, Tensor):
        raw = answer.detach().cpu()
    else:
        array = np.asarray(answer)
        if array.dtype.kind not in "fiu":
            raise InputError(f"{call} returned {type(answer).__name__}; expected a tensor or array")
        raw = torch.from_numpy(array.copy())
    if not raw.is_floating_point():
        raise InputError(f"{call} returned {raw.dtype}; expected floating-point logits")
    shape = tuple(raw.shape)
    if raw.ndim == 4 and shape[0] == 1:
        raw = raw[0]
    elif raw.ndim == 2:
        raw = raw[None]
    if raw.ndim != 3 or raw.shape[0] == 0 or raw.shape[1] not in (1, queries) or shape[-1] != keys:
        raise InputError(
            f"{call} returned shape {shape}; expected (heads, {queries}, {keys}) or "
            f"(heads, 1, {keys})"
        )
    masked_HLM = (raw <= _MASKED) | (raw == torch.tensor(_OLD_MASK).to(raw.dtype))
    if not (raw.isfinite() | masked_HLM).all():
        raise InputError(
            f"{call} returned NaN or +infinity; look for a logarithm or division at distance 0, or "
            "an overflow in half precision"
        )
    values_HLM = raw.double().masked_fill(masked_HLM, 0.0)
    return BiasSample(values_HLM.expand(-1, queries, -1), ~masked_HLM.expand(-1, queries, -1), raw)


def past_only(bias: BiasFunction) -> BiasFunction:
    """The bias with keys after the query masked, the last query standing at the last key."""

    def masked(queries: int, keys: int) -> Tensor:
        raw = call_bias(bias, queries, keys).raw.expand(-1, queries, -1)
        after_LM = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
        return raw.masked_fill(after_LM, -torch.inf)

    return masked


def tolerance(scale_H: Tensor, precision: torch.dtype) -> Tensor:
    """How far a correct bias whose largest values are `scale_H` may be off in that precision."""
    return ROUNDINGS * torch.finfo(precision).eps * scale_H
