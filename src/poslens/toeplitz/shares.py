"""How much of a matrix depends on offset alone: the Toeplitz share and its row-aware form.

Shapes: L query positions, M key positions, O = L + M - 1 offsets, K unknowns of a fit; "..." any
batch dimensions. Offsets and masks as in `poslens.toeplitz.operators`.

P is the orthogonal projection onto Toeplitz matrices over the entries that count:

    tau     = 1 - ||S - P(S)||^2 / ||S - mean S||^2
    tau_row = 1 - min_{r,t} ||S - r_i - t_(i-j)||^2 / min_r ||S - r_i||^2

The row-aware form ignores a constant per row, as softmax does. Pooled over sequences, both become
ratios of sums with one symbol t for all sequences (and, for tau, one mean; for tau_row, a constant
for every row of every sequence).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from poslens.errors import InputError
from poslens.toeplitz.operators import diagonal_sums, full_mask, masked, pooled

Effects = Literal["offset", "key", "both"]

REASONS = (
    "",
    "no entry counts",
    "an entry that counts is not finite",
    "all entries that count are equal",
    "the entries that count are equal within every row",
    "the fit has as many parameters as there are entries to explain",
)
_DEFINED, _EMPTY, _NOT_FINITE, _CONSTANT, _ROWS_CONSTANT, _SATURATED = range(len(REASONS))

# Entries that vary by less than this many units of rounding count as equal.
_ROUNDING = 32


@dataclass(frozen=True)
class Share:
    """Shares of a batch of matrices, all fields (...).

    `value` is the share. `expected` is its mean for independent entries of equal variance: free
    parameters over degrees of freedom. `adjusted`, (value - expected) / (1 - expected), is to the
    share what adjusted R^2 is to R^2: 0 on average for such entries, 1 for an exact fit.
    `reason` (int64) indexes `REASONS`: 0 where all is defined; otherwise `value` and `adjusted`
    are NaN, except for the last reason (a fit that explains anything), where only `adjusted` is.
    """

    value: Tensor
    expected: Tensor
    adjusted: Tensor
    reason: Tensor


@dataclass(frozen=True)
class RowEffects:
    """Fitted effects of rows (..., L), offsets (..., O) and keys (..., M), NaN where none counts.

    Those not fitted are None. Only their sum is unique: r + c with t - c fits as well (and, with
    keys, further shifts and slopes); of all solutions this has the smallest offset and key effects.
    """

    rows: Tensor
    offsets: Tensor | None
    keys: Tensor | None


def share(S_LM: Tensor, mask_LM: Tensor | None = None, pool: int | None = None) -> Share:
    """Toeplitz share tau of each matrix (..., L, M), or of all along batch dimension `pool`.

    `pool` counts from the end (-4 for B in (B, H, L, M)). Expected for independent entries:
    (diagonals - 1) / (entries - 1), which is 2/(L+1) for a full square, 2/(L+2) for a causal one;
    exact for any exchangeable entries. Entries that are equal up to rounding have no share.
    """
    S_LM, mask_LM = masked(S_LM, mask_LM)
    counts_L = mask_LM.sum(-1).expand(S_LM.shape[:-1])
    entries = pooled(counts_L.sum(-1), pool, trailing=0)
    mean = pooled(S_LM.sum(-1).double().sum(-1), pool, trailing=0) / entries.clamp_min(1)
    centre = mean if pool is None else mean.unsqueeze(pool + 2)
    centred_LM, spread_L, constant_L = _centred(S_LM, mask_LM, centre[..., None], counts_L)

    sums_O = diagonal_sums(centred_LM)
    counts_O = pooled(diagonal_sums(mask_LM.float()).expand(sums_O.shape), pool, trailing=1)
    sums_O = pooled(sums_O, pool, trailing=1)
    return _share(
        explained=(sums_O.square() / counts_O.clamp_min(1)).sum(-1),
        total=pooled(spread_L.sum(-1), pool, trailing=0),
        parameters=(counts_O > 0).sum(-1) - 1,
        freedom=entries - 1,
        constant=pooled((~constant_L).sum(-1), pool, trailing=0) == 0,
        entries=entries,
        constant_reason=_CONSTANT,
        dtype=S_LM.dtype,
    )


def row_aware_share(
    S_LM: Tensor,
    mask_LM: Tensor | None = None,
    effects: Effects = "offset",
    pool: int | None = None,
) -> Share:
    """Row-aware share tau_row of each matrix (..., L, M); see `RowFit`, which serves many calls."""
    return RowFit(full_mask(S_LM, mask_LM), effects, pool).share(S_LM)


class RowFit:
    """Joint least squares of S_ij = r_i + t_(i-j) (+ u_j) under one mask or a batch of masks.

    Build it once per mask and use it for every matrix under that mask: the normal equations, after
    eliminating r, have K = O (or O + M) unknowns and are solved exactly by a pseudo-inverse, which
    costs O(K^3) here and nothing later. Give the mask size 1 (or no dimension) where it does not
    vary, heads for instance: (B, 1, L, M) costs B of them, (L, M) one.

    `effects`: "offset" fits r and t, whose share is tau_row; "key" fits r and u, a constant per
    key position (attention sinks); "both" fits r, t and u. All are shares of what is left after
    rows, so they compare; share("offset") + share("key") - share("both") is what offset and key
    explain in common. They are partly confounded, under a causal mask as on a full square. Wholly
    so for a slope: m (i - j) is -m j plus a constant per row, so the share of causal ALiBi is 1
    for either. Otherwise little: apart from the slope the squared canonical correlations between
    the two, rows removed, are at most 1/9 (causal) or 1/5 (full).

    `pool` is a batch dimension counted from the end, as in `share`: one t (and u) for all along it,
    a constant for every row of each.

    Expected shares for independent entries: rank of the fit over (entries - rows), which for
    "offset" is 2/L for a full square and for a causal one; exact for Gaussian entries.
    """

    def __init__(
        self, mask_LM: Tensor, effects: Effects = "offset", pool: int | None = None
    ) -> None:
        if effects not in ("offset", "key", "both"):
            raise InputError(f"unknown effects {effects!r}; one of 'offset', 'key', 'both'")
        if mask_LM.dtype != torch.bool or mask_LM.ndim < 2:
            raise InputError("expected a boolean mask (..., queries, keys)")
        self.mask_LM = mask_LM
        self.effects = effects
        self.pool = pool
        self._design_LK, gram_KK = _design(mask_LM.double(), effects)
        per_row_L1 = mask_LM.sum(-1, keepdim=True).clamp_min(1)
        normal_KK = gram_KK - self._design_LK.mT @ (self._design_LK / per_row_L1)
        if pool is not None and mask_LM.ndim >= -pool:
            normal_KK, gram_KK = normal_KK.mean(pool), gram_KK.mean(pool)
        self._counts_K = gram_KK.diagonal(dim1=-2, dim2=-1)

        values_K, vectors_KK = torch.linalg.eigh(normal_KK)
        rounding = values_K.shape[-1] * torch.finfo(torch.float64).eps
        kept_K = values_K > rounding * values_K[..., -1:]
        self._rank = kept_K.sum(-1)
        inverse_K = torch.where(kept_K, 1 / torch.where(kept_K, values_K, 1.0), 0.0)
        self._inverse_KK = (vectors_KK * inverse_K[..., None, :]) @ vectors_KK.mT

    def share(self, S_LM: Tensor) -> Share:
        """Row-aware share of each matrix (..., L, M), or of all along the pooled dimension."""
        S_LM, mask_LM = masked(S_LM, self.mask_LM)
        centred_LM, spread_L, constant_L, counts_L, _ = self._centred(S_LM, mask_LM)
        right_K, solution_K = self._solve(centred_LM)
        times = 1 if self.pool is None else S_LM.shape[self.pool]
        entries = pooled(counts_L.sum(-1), self.pool, trailing=0)
        return _share(
            explained=torch.linalg.vecdot(right_K, solution_K) * times,
            total=pooled(spread_L.sum(-1), self.pool, trailing=0),
            parameters=self._rank,
            freedom=entries - pooled((counts_L > 0).sum(-1), self.pool, trailing=0),
            constant=pooled((~constant_L).sum(-1), self.pool, trailing=0) == 0,
            entries=entries,
            constant_reason=_ROWS_CONSTANT,
            dtype=S_LM.dtype,
        )

    def fit(self, S_LM: Tensor) -> RowEffects:
        """The effects themselves; rows (..., L) keep the pooled dimension, the others lack it."""
        S_LM, mask_LM = masked(S_LM, self.mask_LM)
        centred_LM, _, _, counts_L, means_L = self._centred(S_LM, mask_LM)
        _, solution_K = self._solve(centred_LM)
        each_K = solution_K if self.pool is None else solution_K.unsqueeze(self.pool + 1)
        explained_L = torch.einsum("...lk,...k->...l", self._design_LK, each_K)
        rows_L = means_L - explained_L / counts_L.clamp_min(1)
        rows_L = rows_L.masked_fill(counts_L == 0, torch.nan).to(S_LM.dtype)
        found_K = solution_K.masked_fill(self._counts_K == 0, torch.nan).to(S_LM.dtype)
        keys = S_LM.shape[-1]
        if self.effects == "offset":
            return RowEffects(rows_L, found_K, None)
        if self.effects == "key":
            return RowEffects(rows_L, None, found_K)
        return RowEffects(rows_L, found_K[..., :-keys], found_K[..., -keys:])

    def _centred(
        self, S_LM: Tensor, mask_LM: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        counts_L = mask_LM.sum(-1).expand(S_LM.shape[:-1])
        means_L = S_LM.sum(-1).double() / counts_L.clamp_min(1)
        return *_centred(S_LM, mask_LM, means_L, counts_L), counts_L, means_L

    def _solve(self, centred_LM: Tensor) -> tuple[Tensor, Tensor]:
        """Right-hand side and solution of the normal equations, means over the pooled dimension."""
        parts = []
        if self.effects != "key":
            parts.append(diagonal_sums(centred_LM))
        if self.effects != "offset":
            parts.append(centred_LM.sum(-2).double())
        right_K = torch.cat(parts, -1)
        if self.pool is not None:
            right_K = pooled(right_K, self.pool, trailing=1) / centred_LM.shape[self.pool]
        # einsum folds dimensions the mask lacks into one matrix product; matmul would not.
        return right_K, torch.einsum("...k,...kl->...l", right_K, self._inverse_KK)


@dataclass(frozen=True)
class Sums:
    """What the shares of matrices (..., B, L, M) are made of, for entries that are not at hand.

    `spread_B`: sum of squares about the mean of each row; `means_BL`: those means, of `counts_BL`
    entries each; `diagonals_BO`: sums over diagonals, of `counts_BO` entries each. Masked entries
    are left out. `dtype` is the matrices'.
    """

    spread_B: Tensor
    means_BL: Tensor
    counts_BL: Tensor
    diagonals_BO: Tensor
    counts_BO: Tensor
    dtype: torch.dtype

    def share(self, pool: bool = False) -> Share:
        """Toeplitz share tau of each matrix, (..., B), or of all along B, (...)."""

        def over(x_B: Tensor) -> Tensor:
            return x_B.sum(-1) if pool else x_B

        entries = over(self.counts_BL.sum(-1))
        mean = over((self.counts_BL * self.means_BL).sum(-1)) / entries.clamp_min(1)
        centre_B1 = (mean[..., None] if pool else mean)[..., None]
        between_B = (self.counts_BL * (self.means_BL - centre_B1).square()).sum(-1)
        total = over(self.spread_B + between_B)
        sums_BO, counts_O = self.diagonals_BO - centre_B1 * self.counts_BO, self.counts_BO
        if pool:
            sums_BO, counts_O = sums_BO.sum(-2), counts_O.sum(-2)
        return _share(
            explained=(sums_BO.square() / counts_O.clamp_min(1)).sum(-1),
            total=total,
            parameters=(counts_O > 0).sum(-1) - 1,
            freedom=entries - 1,
            constant=total <= self._rounding * (entries * mean.square() + total),
            entries=entries.expand(total.shape),
            constant_reason=_CONSTANT,
            dtype=self.dtype,
        )

    def row_aware_shares(self, each: RowFit, pooled: RowFit) -> tuple[Share, Share]:
        """Row-aware share of each matrix, (..., B), and of all along B, (...).

        Fits of offsets under the matrices' mask: where it is one for all, `each` may serve as
        `pooled`; masks (B, L, M) need another built with pool=-3.
        """
        of_rows_BO = torch.einsum("...lo,...l->...o", each._design_LK, self.means_BL)
        right_BO = self.diagonals_BO - of_rows_BO
        solution_BO = torch.einsum("...k,...kl->...l", right_BO, each._inverse_KK)
        right_O = right_BO.mean(-2)
        solution_O = solution_BO.mean(-2) if pooled is each else right_O @ pooled._inverse_KK
        explained = torch.linalg.vecdot(right_O, solution_O) * right_BO.shape[-2]
        return (
            self._row_aware(torch.linalg.vecdot(right_BO, solution_BO), each._rank, pool=False),
            self._row_aware(explained, pooled._rank, pool=True),
        )

    def _row_aware(self, explained: Tensor, parameters: Tensor, pool: bool) -> Share:
        def over(x_B: Tensor) -> Tensor:
            return x_B.sum(-1) if pool else x_B

        entries = over(self.counts_BL.sum(-1))
        size_B = self.spread_B + (self.counts_BL * self.means_BL.square()).sum(-1)
        return _share(
            explained=explained,
            total=over(self.spread_B),
            parameters=parameters,
            freedom=entries - over((self.counts_BL > 0).sum(-1)),
            constant=~over(self.spread_B > self._rounding * size_B).bool(),
            entries=entries.expand(explained.shape),
            constant_reason=_ROWS_CONSTANT,
            dtype=self.dtype,
        )

    @property
    def _rounding(self) -> float:
        return (_ROUNDING * torch.finfo(self.dtype).eps) ** 2


def _design(weight_LM: Tensor, effects: Effects) -> tuple[Tensor, Tensor]:
    """Which unknowns each row meets, (..., L, K) of 0 and 1, and the unknowns' Gram matrix."""
    queries, keys = weight_LM.shape[-2:]
    device = weight_LM.device
    place_LM = torch.arange(queries, device=device)[:, None] - torch.arange(keys, device=device)
    place_LM = (place_LM + keys - 1).expand(weight_LM.shape)
    nowhere_O = weight_LM.new_zeros(*weight_LM.shape[:-2], 1, queries + keys - 1)

    by_offset_LO = nowhere_O.repeat_interleave(queries, -2).scatter(-1, place_LM, weight_LM)
    if effects == "offset":
        return by_offset_LO, torch.diag_embed(by_offset_LO.sum(-2))
    key_gram_MM = torch.diag_embed(weight_LM.sum(-2))
    if effects == "key":
        return weight_LM, key_gram_MM
    meets_MO = nowhere_O.repeat_interleave(keys, -2).scatter(-1, place_LM.mT, weight_LM.mT)
    gram = [
        torch.cat([torch.diag_embed(by_offset_LO.sum(-2)), meets_MO.mT], -1),
        torch.cat([meets_MO, key_gram_MM], -1),
    ]
    return torch.cat([by_offset_LO, weight_LM], -1), torch.cat(gram, -2)


def _centred(
    S_LM: Tensor, mask_LM: Tensor, centre_L: Tensor, counts_L: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """S less a centre per row, its sum of squares by row, and whether the row is constant."""
    centred_LM = torch.addcmul(
        S_LM, centre_L[..., None].to(S_LM.dtype), mask_LM.to(S_LM.dtype), value=-1
    )
    spread_L = torch.linalg.vecdot(centred_LM, centred_LM).double()
    rounding = (_ROUNDING * torch.finfo(S_LM.dtype).eps) ** 2
    return centred_LM, spread_L, spread_L <= rounding * (counts_L * centre_L.square() + spread_L)


def _share(
    *,
    explained: Tensor,
    total: Tensor,
    parameters: Tensor,
    freedom: Tensor,
    constant: Tensor,
    entries: Tensor,
    constant_reason: int,
    dtype: torch.dtype,
) -> Share:
    """From sums of squares and degrees of freedom to shares, NaN with a reason where undefined."""
    parameters = parameters.expand(total.shape)
    reason = torch.where(parameters >= freedom, _SATURATED, _DEFINED)
    reason = torch.where(constant, constant_reason, reason)
    reason = torch.where(total.isfinite(), reason, _NOT_FINITE)
    reason = torch.where(entries == 0, _EMPTY, reason)
    saturated = reason == _SATURATED
    undefined = (reason != _DEFINED) & ~saturated
    # A division by zero in the branch not taken would turn the whole batch's gradients to NaN.
    value = (explained / torch.where(undefined, 1.0, total)).clamp(0, 1)
    value = value.masked_fill(undefined, torch.nan)
    expected = (parameters.double() / freedom).masked_fill(freedom <= 0, torch.nan)
    adjusted = (value - expected) / torch.where(saturated, 1.0, 1 - expected)
    adjusted = adjusted.masked_fill(reason != _DEFINED, torch.nan)
    return Share(value.to(dtype), expected.to(dtype), adjusted.to(dtype), reason)
