"""Sums over a head's entries from which every summary follows.

Two ways to the same sums. Where all entries count they follow from the factors: with keys centred,
the product of two terms summed over all entries is the sum of (Q^T Q') o (K^T K'), which costs
L W^2 instead of L^2 W, and sums over diagonals are correlations of queries with keys. Under a mask
the terms are made block by block.

Shapes: K terms, P products of parts, B batch, L query positions, M key positions, O offsets, W
columns of all parts.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from poslens.toeplitz.operators import diagonal_sums
from poslens.toeplitz.shares import RowFit
from poslens.toeplitz.terms import Columns, Head


@dataclass(frozen=True)
class Moments:
    """Sums over the entries that count; terms as in `Head.made`; float64, but for `delta_LM`.

    `within_BKK`: products of two terms, each about the mean of its row; `means_BLK`: those means;
    `diagonals_BO`: the logits summed over diagonals. Of Delta, the logits less those without
    position and less the mean of each row: `delta_LM` is its sum over sequences, `delta_square`
    the sum of its squares; None where position enters through no door.
    """

    within_BKK: Tensor
    means_BLK: Tensor
    diagonals_BO: Tensor
    delta_LM: Tensor | None
    delta_square: float


class Mask:
    """The entries that count, and what follows from them alone."""

    def __init__(self, head: Head) -> None:
        sequences, queries, keys = self.shape = head.shape
        self.entries_BLM = head.entries_BLM
        self.dtype, self.device = head.queries_BLW.dtype, head.queries_BLW.device
        one = torch.ones(1, queries, keys, dtype=torch.bool, device=self.device)
        self.mask_BLM = one if head.entries_BLM is None else head.entries_BLM
        self.counts_BL = self.mask_BLM.sum(-1).expand(sequences, queries)
        self.counts_BO = diagonal_sums(self.mask_BLM.float()).expand(sequences, -1)
        sequences_LM = self.mask_BLM.expand(head.shape).sum(0)
        self.per_sequence_LM = 1 / sequences_LM.clamp_min(1).to(self.dtype)
        self.means = int((sequences_LM > 0).sum())  # over sequences, one for each place that counts
        self._weight_BLM = self.mask_BLM.to(self.dtype)
        self.entries = int(self.counts_BL.sum())

    def serves(self, head: Head) -> bool:
        return head.entries_BLM is self.entries_BLM and head.shape == self.shape

    @cached_property
    def each(self) -> RowFit:
        return RowFit(self.mask_BLM[0] if len(self.mask_BLM) == 1 else self.mask_BLM)

    @cached_property
    def pooled(self) -> RowFit:
        return self.each if len(self.mask_BLM) == 1 else RowFit(self.mask_BLM, pool=-3)

    def weight(self, place: tuple[slice, slice]) -> Tensor:
        """1 where an entry of the block counts, else 0."""
        return self._weight_BLM[place[0] if len(self._weight_BLM) > 1 else slice(None), place[1]]

    def centre(self, matrices_NRM: Tensor, place: tuple[slice, slice]) -> Tensor:
        """Takes the mean of each row away, in place, leaving 0 where nothing counts; the means."""
        weight_NRM = self.weight(place)
        matrices_NRM *= weight_NRM
        means_NR = matrices_NRM.sum(-1) / self.counts_BL[place].clamp_min(1)
        matrices_NRM -= means_NR[..., None]
        matrices_NRM *= weight_NRM
        return means_NR


def moments(head: Head, mask: Mask) -> Moments:
    """The moments of a head whose mask this is."""
    shared = head.bias_BLM is None or len(head.bias_BLM) == 1
    return _from_factors(head) if mask.entries_BLM is None and shared else _by_blocks(head, mask)


def within_rows(queries_BLW: Tensor, keys_BMW: Tensor, head: Head) -> float:
    """Sum of squares about the mean of each row of q k^T, over a head's entries that count."""
    if head.entries_BLM is None:
        return float(_square(queries_BLW, keys_BMW, None))
    matrices_BLM, mask = queries_BLW @ keys_BMW.mT, Mask(head)
    mask.centre(matrices_BLM, (slice(None), slice(None)))
    return float(matrices_BLM.double().square().sum())


def _from_factors(head: Head) -> Moments:
    member_PK = _membership(head)
    bias_LM = None if head.bias_BLM is None else head.bias_BLM[0]
    forms_BPP, means_BLP = _forms(head.queries_BLW, head.keys_BMW, head.channels, bias_LM)
    diagonals_BO = _correlations(head.logits.queries_BLD, head.logits.keys_BMD)
    if head.logits.bias_BLM is not None:
        diagonals_BO = diagonals_BO + diagonal_sums(head.logits.bias_BLM)
    delta_LM, delta_square = None, 0.0
    if head.added is not None:
        queries_BLW, keys_BMW = head.added
        keys_BMW = keys_BMW - keys_BMW.mean(1, keepdim=True)
        delta_LM = torch.einsum("blw,bmw->lm", queries_BLW, keys_BMW)
        if bias_LM is not None:
            delta_LM += len(queries_BLW) * (bias_LM - bias_LM.mean(-1, keepdim=True))
        delta_square = float(_square(*head.added, bias_LM))
    return Moments(
        within_BKK=member_PK.mT @ forms_BPP.double() @ member_PK,
        means_BLK=means_BLP.double() @ member_PK,
        diagonals_BO=diagonals_BO,
        delta_LM=delta_LM,
        delta_square=delta_square,
    )


def _membership(head: Head) -> Tensor:
    """Which products make up which term, (P, K) of 0 and 1, as `_forms` orders them."""
    sizes = [columns.parts**2 for columns in head.channels]
    biased = head.bias_BLM is not None
    member_PK = torch.zeros(sum(sizes) + biased, len(head.made), dtype=torch.float64)
    for term, products in enumerate(head.products.values()):
        for channel, query, key in products:
            place = sum(sizes[:channel]) + query * head.channels[channel].parts + key
            member_PK[place, term] = 1
    if biased:
        member_PK[-1, -1] = 1
    return member_PK.to(head.queries_BLW.device)


def _square(queries_BLW: Tensor, keys_BMW: Tensor, bias_LM: Tensor | None) -> Tensor:
    """Sum of squares of q k^T + bias, row means taken away."""
    whole = Columns(0, 1, queries_BLW.shape[-1])
    return _forms(queries_BLW, keys_BMW, (whole,), bias_LM)[0].double().sum()


def _forms(
    queries_BLW: Tensor, keys_BMW: Tensor, channels: tuple[Columns, ...], bias_LM: Tensor | None
) -> tuple[Tensor, Tensor]:
    """For P products of parts, and the bias as one more, two things with row means taken away:

    the product of any two, summed over all entries, (B, P, P); and those means, (B, L, P).
    Products are ordered by channel, query part, key part.
    """
    mean_B1W = keys_BMW.mean(1, keepdim=True)
    keys_BMW = keys_BMW - mean_B1W
    queries_BWW, keys_BWW = queries_BLW.mT @ queries_BLW, keys_BMW.mT @ keys_BMW

    def pairing(one: Columns, other: Columns) -> Tensor:
        q, k = (_parts(_parts(x, other, 2), one, 1) for x in (queries_BWW, keys_BWW))
        return torch.einsum("bxdue,bydve->bxyuv", q, k).flatten(3).flatten(1, 2)

    def mean(one: Columns) -> Tensor:
        q, k = _parts(queries_BLW, one, 2), _parts(mean_B1W[:, 0], one, 1)
        return torch.einsum("blxd,byd->blxy", q, k).flatten(2)

    rows = [torch.cat([pairing(one, other) for other in channels], -1) for one in channels]
    forms_BPP = torch.cat(rows, 1)
    means_BLP = torch.cat([mean(one) for one in channels], -1)
    if bias_LM is None:
        return forms_BPP, means_BLP

    mean_L1 = bias_LM.mean(-1, keepdim=True)
    bias_LM = bias_LM - mean_L1
    seen_BLW = bias_LM @ keys_BMW

    def with_bias(one: Columns) -> Tensor:
        q, k = _parts(queries_BLW, one, 2), _parts(seen_BLW, one, 2)
        return torch.einsum("blxd,blyd->bxy", q, k).flatten(1)

    with_bias_BP = torch.cat([with_bias(one) for one in channels], -1)
    of_bias_B1 = torch.linalg.vecdot(bias_LM.flatten(), bias_LM.flatten()).expand(len(seen_BLW), 1)
    last_BP1 = torch.cat([with_bias_BP, of_bias_B1], -1)[..., None]
    forms_BPP = torch.cat([torch.cat([forms_BPP, with_bias_BP[:, None]], 1), last_BP1], -1)
    return forms_BPP, torch.cat([means_BLP, mean_L1.expand(len(means_BLP), -1, -1)], -1)


def _parts(x: Tensor, columns: Columns, dim: int) -> Tensor:
    """A channel's columns along a dimension, as two dimensions: parts and their columns."""
    taken = x.narrow(dim, columns.start, columns.parts * columns.width)
    return taken.unflatten(dim, (columns.parts, columns.width))


def _correlations(queries_BLD: Tensor, keys_BMD: Tensor) -> Tensor:
    """Sums over the diagonals of q k^T, (B, O) in float64, by Fourier transform."""
    keys = keys_BMD.shape[1]
    count = queries_BLD.shape[1] + keys - 1
    length = 1 << (count - 1).bit_length()
    queries_BDF, keys_BDF = (
        torch.fft.rfft(x_BLD.mT.double().contiguous(), length) for x_BLD in (queries_BLD, keys_BMD)
    )
    sums_BO = torch.fft.irfft((queries_BDF * keys_BDF.conj()).sum(1), length)
    return sums_BO.roll(keys - 1, 1)[:, :count]  # offset 0 to its place


def _by_blocks(head: Head, mask: Mask) -> Moments:
    sequences, queries, keys = head.shape
    terms = len(head.made)

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=mask.device)

    within_BKK, means_BLK = zeros(sequences, terms, terms), zeros(sequences, queries, terms)
    diagonals_BO = zeros(sequences, queries + keys - 1)
    delta_LM = None if head.added is None else torch.zeros_like(mask.per_sequence_LM)
    delta_square = 0.0
    for place in head.places():
        numbers, rows = place
        terms_KNRM = head.block(place)
        bias_NRM = terms_KNRM[-1].clone() if head.bias_BLM is not None else 0.0
        means_BLK[place] = mask.centre(terms_KNRM, place).movedim(0, -1).double()
        flat_NKX = terms_KNRM.movedim(1, 0).flatten(2)
        within_BKK[numbers] += (flat_NKX @ flat_NKX.mT).double()

        # Diagonals of the sum: of what is left of each row, and of its mean.
        total_NRM = terms_KNRM.sum(0)
        mean_NR = means_BLK[place].sum(-1).to(mask.dtype)
        total_NRM += mean_NR[..., None] * mask.weight(place)
        covered = slice(rows.start, rows.start + total_NRM.shape[1] + keys - 1)
        diagonals_BO[numbers, covered] += diagonal_sums(total_NRM)

        if head.added is not None and delta_LM is not None:
            queries_BLW, keys_BMW = head.added
            delta_NRM = queries_BLW[place] @ keys_BMW[numbers].mT + bias_NRM
            mask.centre(delta_NRM, place)
            delta_LM[rows] += delta_NRM.sum(0)
            delta_square += float(delta_NRM.square().sum())
    return Moments(within_BKK, means_BLK, diagonals_BO, delta_LM, delta_square)
