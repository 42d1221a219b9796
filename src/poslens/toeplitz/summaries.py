"""What a head's terms come to: shares of variance, Toeplitz shares, symbol, algebra, frequencies.

All are over the entries that count (real queries and the keys they see) and pooled over sequences
unless said otherwise.

Shapes: K terms, B batch, L query positions, M key positions, H heads, D head width, O offsets.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor

from poslens.errors import InputError
from poslens.toeplitz.moments import Mask, Moments, moments, within_rows
from poslens.toeplitz.operators import Symbol
from poslens.toeplitz.shares import Share, Sums
from poslens.toeplitz.terms import Head

ADDITIVE, MULTIPLICATIVE = 0.9, 0.1
# Positional logits smaller than this many units of rounding of the logits count as none.
_ROUNDING = 32


@dataclass(frozen=True)
class Variances:
    """Covariances of a head's terms; those of all pairs add up to the variance of the logits.

    `covariances_KK` about the mean over all entries, `within_rows_KK` about the mean of each row,
    which is what softmax sees. Order as `names`; float64.
    """

    names: tuple[str, ...]
    covariances_KK: Tensor
    within_rows_KK: Tensor

    def shares(self, within_rows: bool = False) -> dict[str, float]:
        """Variance of each term over that of the logits.

        They need not add up to 1, nor stay below it: terms covary. NaN for constant logits.
        """
        chosen_KK = self.within_rows_KK if within_rows else self.covariances_KK
        shares_K = chosen_KK.diagonal() / chosen_KK.sum()
        return dict(zip(self.names, shares_K.tolist(), strict=True))


@dataclass(frozen=True)
class Algebra:
    """Whether position adds to content or multiplies it in a head, as measured.

    With Delta = logits - logits without position, row-centred, `explained` is the share of Delta
    that its mean over sequences explains: 1 where position acts whatever the content (a bias), 0
    where it acts through the content alone. Since the mean of n sequences explains 1/n of anything,
    the share is adjusted as R^2 is: 1 - (residual / its degrees of freedom) / (mean square).
    Additive above 0.9, multiplicative below 0.1, else mixed. Undefined (NaN) for the `reason`.
    """

    kind: Literal["additive", "multiplicative", "mixed", "undefined"]
    explained: float
    reason: str = ""


@dataclass(frozen=True)
class HeadSummary:
    """One head. `tau` and `tau_row` are pooled over sequences, () each; `*_each` are (B,).

    `error` is max |sum of terms - logits| over max sum of |terms|.
    """

    layer: int
    head: int
    error: float
    variances: Variances
    tau: Share
    tau_each: Share
    tau_row: Share
    tau_row_each: Share
    symbol: Symbol
    algebra: Algebra


def summarise(heads: Iterable[Head]) -> Iterator[HeadSummary]:
    """The summary of each head, the heads of a layer together.

    What depends on the mask alone is worked out once for heads that share one, as all heads of
    `decompose` do. Raises NotExact where terms and logits disagree.
    """
    mask: Mask | None = None
    for _, layer in groupby(heads, key=lambda head: (head.layer, head.shape, id(head.entries_BLM))):
        found: list[_Found] = []
        for head in layer:
            if mask is None or not mask.serves(head):
                mask = Mask(head)
            found.append(_find(head, mask))
        assert mask is not None
        yield from _summaries(found, mask)


def frequency_use(head: Head) -> dict[int | None, float]:
    """Variance, within rows, of what each frequency contributes to the logits, over their sum.

    Frequencies count `head.pairs.turned`; None stands for the channels that do not turn. They add
    up to 1: shares of the sum of variances, not of the logits' variance, since frequencies covary.
    Raises InputError for a head without a rotary kernel.
    """
    if not head.turning:
        raise InputError(
            f"head {head.head} of layer {head.layer} does not rotate, so it has no frequencies; "
            "take a head that does"
        )
    queries_BLD, keys_BMD = head.logits.queries_BLD, head.logits.keys_BMD
    width = queries_BLD.shape[-1]
    rotary = sum(map(len, head.pairs.turned)) + len(head.pairs.still)
    before = width - rotary  # the channels of latent attention that have no rotary kernel
    groups: dict[int | None, list[int]] = {
        frequency: [before + channel for channel in channels]
        for frequency, channels in enumerate(head.pairs.turned)
    }
    groups[None] = [*range(before), *(before + channel for channel in head.pairs.still)]
    variances = {
        frequency: within_rows(queries_BLD[..., columns], keys_BMD[..., columns], head)
        for frequency, columns in groups.items()
    }
    whole = sum(variances.values())
    return {frequency: variance / whole for frequency, variance in variances.items()}


@dataclass(frozen=True)
class _Found:
    """What is kept of a head once its factors are let go."""

    layer: int
    head: int
    error: float
    variances: Variances
    algebra: Algebra
    spread_B: Tensor
    means_BL: Tensor
    diagonals_BO: Tensor


def _find(head: Head, mask: Mask) -> _Found:
    error, found = head.check(), moments(head, mask)
    spread_B = found.within_BKK.sum((-2, -1)).clamp_min(0)
    means_BL = found.means_BLK.sum(-1)
    size = float((spread_B + (mask.counts_BL * means_BL.square()).sum(-1)).sum())
    return _Found(
        layer=head.layer,
        head=head.head,
        error=error,
        variances=_variances(head, mask, found),
        algebra=_algebra(found, mask, size),
        spread_B=spread_B,
        means_BL=means_BL,
        diagonals_BO=found.diagonals_BO,
    )


def _summaries(found: list[_Found], mask: Mask) -> Iterator[HeadSummary]:
    """The heads of a layer: shares and symbols cost less for all at once."""
    sums = Sums(
        spread_B=torch.stack([one.spread_B for one in found]),
        means_BL=torch.stack([one.means_BL for one in found]),
        counts_BL=mask.counts_BL,
        diagonals_BO=torch.stack([one.diagonals_BO for one in found]),
        counts_BO=mask.counts_BO,
        dtype=mask.dtype,
    )
    tau, tau_each = sums.share(pool=True), sums.share()
    tau_row_each, tau_row = sums.row_aware_shares(mask.each, mask.pooled)
    counts_O = mask.counts_BO.sum(0)
    symbols_HO = sums.diagonals_BO.sum(1) / counts_O.clamp_min(1)
    symbols_HO = symbols_HO.masked_fill(counts_O == 0, torch.nan).to(mask.dtype)
    for number, one in enumerate(found):
        yield HeadSummary(
            layer=one.layer,
            head=one.head,
            error=one.error,
            variances=one.variances,
            tau=_one_of(tau, number),
            tau_each=_one_of(tau_each, number),
            tau_row=_one_of(tau_row, number),
            tau_row_each=_one_of(tau_row_each, number),
            symbol=Symbol(symbols_HO[number], counts_O.long()),
            algebra=one.algebra,
        )


def _one_of(shares: Share, number: int) -> Share:
    every = (shares.value, shares.expected, shares.adjusted, shares.reason)
    return Share(*(field.expand(shares.value.shape)[number] for field in every))


def _variances(head: Head, mask: Mask, found: Moments) -> Variances:
    """From sums within rows and means of rows to covariances of all terms of the scheme."""
    within_KK = found.within_BKK.sum(0) / mask.entries
    weight_BL1 = (mask.counts_BL.double() / mask.entries)[..., None]
    apart_BLK = found.means_BLK - (weight_BL1 * found.means_BLK).sum((0, 1))
    between_KK = torch.einsum("blk,bln->kn", weight_BL1 * apart_BLK, apart_BLK)
    place = torch.tensor([head.names.index(name) for name in head.made], device=mask.device)

    def of_all(made_KK: Tensor) -> Tensor:
        full_KK = made_KK.new_zeros(len(head.names), len(head.names))
        full_KK[place[:, None], place] = made_KK
        return full_KK

    return Variances(head.names, of_all(within_KK + between_KK), of_all(within_KK))


def _algebra(found: Moments, mask: Mask, size: float) -> Algebra:
    """`size` is the sum of squares of the logits: what rounding is measured by."""
    if found.delta_LM is None:
        return _undefined("position enters through no door of this scheme")
    if found.delta_square <= (_ROUNDING * torch.finfo(mask.dtype).eps) ** 2 * size:
        return _undefined("position does not enter this head, or only as a constant per row")
    if mask.entries == mask.means:
        return _undefined("one sequence has no mean over sequences to compare with")
    by_mean = float((found.delta_LM.square() * mask.per_sequence_LM).sum())
    residual = max(0.0, found.delta_square - by_mean) / (mask.entries - mask.means)
    explained = 1 - residual / (found.delta_square / mask.entries)
    if explained > ADDITIVE:
        return Algebra("additive", explained)
    return Algebra("multiplicative" if explained < MULTIPLICATIVE else "mixed", explained)


def _undefined(reason: str) -> Algebra:
    return Algebra("undefined", float("nan"), reason)
