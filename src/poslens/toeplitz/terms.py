"""The terms of one head, held as factors, and the check that they add up to its logits.

Shapes: N sequences of a block, R rows of a block, K terms, B batch, L query positions, M key
positions, H heads, D head width, W columns of all parts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from poslens.errors import InputError
from poslens.toeplitz.rotary import Pairs

BIAS = "bias"
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
# Entries of a matrix made at once: few enough on a CPU for what is made to stay in its cache.
_BLOCK = {"cpu": 2**17}
_LARGE_BLOCK = 2**24
# Rows of which the size of the terms is taken: a lower bound of that over all, at a fraction.
_EVERY = 16


class NotExact(ArithmeticError):
    """The terms of a head do not add up to its logits: the decomposition is not one of this model.

    Not a user's mistake: the attention module, its encoding and their images disagree.
    """


@dataclass(frozen=True)
class Logits:
    """The model's own logits as factors: queries (B, L, D), scale included, keys (B, M, D), bias.

    The bias is (B, L, M), (1, L, M) where it is the same for all sequences, or None.
    """

    queries_BLD: Tensor
    keys_BMD: Tensor
    bias_BLM: Tensor | None

    def matrix(self) -> Tensor:
        """(B, L, M)."""
        logits_BLM = self.queries_BLD @ self.keys_BMD.mT
        return logits_BLM if self.bias_BLM is None else logits_BLM + self.bias_BLM


class Product(NamedTuple):
    """A part of the queries times a part of the keys, in one channel; all counted from 0."""

    channel: int
    query: int
    key: int


@dataclass(frozen=True)
class Columns:
    """Where a channel's parts stand in the factors: `parts` of `width` columns each."""

    start: int
    parts: int
    width: int

    def of(self, part: int) -> slice:
        first = self.start + part * self.width
        return slice(first, first + self.width)


@dataclass(frozen=True)
class Head:
    """One head's terms: products of factors, a fraction of the memory of its logits.

    `names` are all terms of the scheme, of which those not listed below are 0 throughout. A term in
    `products` is the sum of these products of parts: `queries_BLW` (scale included) and `keys_BMW`
    hold the images of the input's parts, `channels` says where, rotated where the term has a rotary
    kernel (`turning`). `bias_BLM` is the term that is no product, (1, L, M) where it is the same
    for all sequences.
    `added` are factors of what position does to queries and keys: their product and the bias make
    up logits - logits without position. None where position enters through no door.
    `entries_BLM` says which entries count, real queries and keys they see, (B or 1, L, M); None:
    all. `pairs` are the channels that turn together, as columns of the rotary channel.
    """

    layer: int
    head: int
    names: tuple[str, ...]
    products: dict[str, tuple[Product, ...]]
    channels: tuple[Columns, ...]
    queries_BLW: Tensor
    keys_BMW: Tensor
    bias_BLM: Tensor | None
    turning: tuple[str, ...]
    pairs: Pairs
    logits: Logits
    added: tuple[Tensor, Tensor] | None
    entries_BLM: Tensor | None

    @property
    def made(self) -> tuple[str, ...]:
        """The terms that are not 0 throughout, in the order of `block`."""
        return (*self.products, *(() if self.bias_BLM is None else (BIAS,)))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of a term: (B, L, M)."""
        return (*self.queries_BLW.shape[:2], self.keys_BMW.shape[1])

    def images(self) -> dict[str, Tensor]:
        """Every term as matrices (B, L, M), by name. Raises NotExact as `check` does."""
        made_KBLM = self.block((slice(None), slice(None)))
        gap_BLM = made_KBLM.sum(0) - self.logits.matrix()
        self._judge(gap_BLM.abs().max(), made_KBLM.abs().sum(0).max())
        none_BLM = self.queries_BLW.new_zeros(()).expand(self.shape)
        return dict.fromkeys(self.names, none_BLM) | dict(zip(self.made, made_KBLM, strict=True))

    def check(self) -> float:
        """max |sum of terms - logits| / max sum of |terms|, without making the terms.

        The denominator is taken over every 16th row, so that the error told is no less than that.
        Raises NotExact where the true error is above 1e-5 in float32, 1e-10 in float64.
        """
        own, gaps = self.logits, []
        # A part of the queries meets the sum of its partners: one product makes the sum of terms.
        partners_BMW = torch.zeros_like(self.keys_BMW)
        for products in self.products.values():
            for channel, query, key in products:
                of = self.channels[channel].of
                partners_BMW[..., of(query)] += self.keys_BMW[..., of(key)]
        for sequences, rows in self.places():
            gap_NRM = self.queries_BLW[sequences, rows] @ partners_BMW[sequences].mT
            own_keys_NDM = own.keys_BMD[sequences].mT
            gap_NRM.baddbmm_(own.queries_BLD[sequences, rows], own_keys_NDM, alpha=-1)
            if self.bias_BLM is not None:
                gap_NRM += _part(self.bias_BLM, (sequences, rows))
            if own.bias_BLM is not None:
                gap_NRM -= _part(own.bias_BLM, (sequences, rows))
            low, high = gap_NRM.aminmax()
            gaps.append(torch.maximum(-low, high))
        gap = torch.stack(gaps).max()
        some = self.block((slice(None), slice(None, None, _EVERY))).abs_().sum(0).max()
        if gap > TOLERANCE[gap.dtype] * some:
            some = self.block((slice(None), slice(None))).abs_().sum(0).max()
        return self._judge(gap, some)

    def at_frequency(self, name: str, frequency: int | None) -> Tensor:
        """What one frequency contributes to a term, (B, L, M); None: the channels that do not turn.

        Over all frequencies and None these add up to the term. Frequencies count the pairs of
        `pairs.turned`. Raises InputError for a term without a rotary kernel.
        """
        if name not in self.turning:
            raise InputError(
                f"head {self.head} of layer {self.layer} has no frequencies in {name!r}; "
                f"it has them in: {', '.join(self.turning) or 'nothing'}"
            )
        columns = self.pairs.still if frequency is None else self.pairs.turned[frequency]
        at = list(columns)
        total_BLM = self.queries_BLW.new_zeros(self.shape)
        for channel, query, key in self.products[name]:
            of = self.channels[channel].of
            queries_BLF, keys_BMF = self.queries_BLW[..., of(query)], self.keys_BMW[..., of(key)]
            total_BLM += queries_BLF[..., at] @ keys_BMF[..., at].mT
        return total_BLM

    def block(self, place: tuple[slice, slice]) -> Tensor:
        """Some rows of some sequences of the terms in `made`, (K, N, R, M)."""
        many, rows = self.queries_BLW[place].shape[:2]
        terms_KNRM = self.queries_BLW.new_empty(len(self.made), many, rows, self.shape[2])
        queries_NRW, keys_NMW = self.queries_BLW[place], self.keys_BMW[place[0]]
        for products, term_NRM in zip(self.products.values(), terms_KNRM, strict=False):
            for number, (channel, query, key) in enumerate(products):
                of = self.channels[channel].of
                queries_NRD, keys_NDM = queries_NRW[..., of(query)], keys_NMW[..., of(key)].mT
                if number:
                    term_NRM.baddbmm_(queries_NRD, keys_NDM)
                else:
                    torch.bmm(queries_NRD, keys_NDM, out=term_NRM)
        if self.bias_BLM is not None:
            terms_KNRM[-1] = _part(self.bias_BLM, place)
        return terms_KNRM

    def places(self) -> Iterator[tuple[slice, slice]]:
        """Slices of sequences and of rows that cover the head in blocks of a size to work on."""
        sequences, rows, keys = self.shape
        block = _BLOCK.get(self.queries_BLW.device.type, _LARGE_BLOCK)
        height = min(rows, max(1, block // keys))
        many = max(1, block // (height * keys))
        for first in range(0, sequences, many):
            for row in range(0, rows, height):
                yield slice(first, first + many), slice(row, row + height)

    def _judge(self, gap: Tensor, size: Tensor) -> float:
        error = float(gap / size.clamp_min(torch.finfo(size.dtype).tiny))
        tolerance = TOLERANCE[gap.dtype]
        if not error <= tolerance:
            raise NotExact(
                f"the terms of layer {self.layer}, head {self.head} miss its logits by "
                f"{error:.1e} of their size, more than {tolerance:.0e}"
            )
        return error


def layer_images(heads: Iterable[Head]) -> dict[str, Tensor]:
    """Every term of the given heads of a layer as one tensor (B, H, L, M), by name.

    As large as the layer's logits for every term: ask for it for what is to be looked at.
    """
    images = [head.images() for head in heads]
    return {name: torch.stack([image[name] for image in images], 1) for name in images[0]}


def _part(matrix_BLM: Tensor, place: tuple[slice, slice]) -> Tensor:
    """A block of a matrix that may be the same for all sequences."""
    return matrix_BLM[place[0] if len(matrix_BLM) > 1 else slice(None), place[1]]
