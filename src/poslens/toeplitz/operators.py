"""Linear algebra of matrices that are constant along their diagonals.

Shapes: L query positions, M key positions, O = L + M - 1 offsets; "..." any batch dimensions.
Offset = query position - key position; element o of a tensor shaped (..., O) belongs to offset
o - (M - 1), so offsets run from -(M - 1) to L - 1. Rows and columns are taken to stand at
consecutive positions, keys and queries starting together.

A mask is boolean, broadcasts to (..., L, M) and is True where an entry counts: causal, padding or
any other. What a masked entry holds (-inf, NaN) never matters. Half precision is raised to float32
first; sums along diagonals are kept in float64. Everything is differentiable.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from poslens.errors import InputError

# Rows added in the matrix's own precision before float64 takes over.
_BLOCK = 32


@dataclass(frozen=True)
class Symbol:
    """A matrix's mean by offset.

    `values` (..., O) is NaN at offsets where no entry counts; `counts` (..., O), int64, says how
    many entries are behind each value.
    """

    values: Tensor
    counts: Tensor


def offsets(queries: int, keys: int, device: torch.device | str | None = None) -> Tensor:
    """Offsets -(keys - 1)..queries - 1 in the order of every (..., O) tensor here, int64."""
    return torch.arange(1 - keys, queries, device=device)


def toeplitz(symbol_O: Tensor, keys: int) -> Tensor:
    """The matrix (..., L, M) whose entry (i, j) is the symbol at offset i - j; M = `keys`.

    Raises InputError where the symbol is too short for that many keys.
    """
    if not 1 <= keys <= symbol_O.shape[-1]:
        raise InputError(
            f"a symbol of {symbol_O.shape[-1]} offsets cannot fill {keys} keys; "
            "it needs queries + keys - 1 offsets"
        )
    return symbol_O.unfold(-1, keys, 1).flip(-1)


def full_mask(S_LM: Tensor, mask_LM: Tensor | None) -> Tensor:
    """The mask with trailing axes (L, M) spelled out; all True where none is given.

    It keeps its own batch dimensions, so that work per mask is shared by the matrices under it.
    Raises InputError unless S is a real floating-point matrix and the mask fits it.
    """
    if S_LM.ndim < 2 or 0 in S_LM.shape[-2:]:
        raise InputError(f"expected a matrix (..., queries, keys), got shape {tuple(S_LM.shape)}")
    if not S_LM.is_floating_point():
        raise InputError(f"expected a real floating-point matrix, got {S_LM.dtype}")
    if mask_LM is None:
        return torch.ones(S_LM.shape[-2:], dtype=torch.bool, device=S_LM.device)
    if mask_LM.dtype != torch.bool:
        raise InputError(
            f"expected a boolean mask, True where an entry counts, got {mask_LM.dtype}"
        )
    try:
        fits = torch.broadcast_shapes(mask_LM.shape, S_LM.shape) == S_LM.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise InputError(
            f"a mask of shape {tuple(mask_LM.shape)} does not broadcast to {tuple(S_LM.shape)}"
        )
    return mask_LM.expand(*mask_LM.shape[:-2], *S_LM.shape[-2:])


def masked(S_LM: Tensor, mask_LM: Tensor | None) -> tuple[Tensor, Tensor]:
    """The matrix, half precision raised, with zeros where it does not count; and its full mask."""
    full_LM = full_mask(S_LM, mask_LM)
    S_LM = raised(S_LM)
    return (S_LM if mask_LM is None else torch.where(full_LM, S_LM, 0.0)), full_LM


def raised(x: Tensor) -> Tensor:
    """Half precision raised to float32, anything else as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def diagonal_sums(S_LM: Tensor) -> Tensor:
    """The sum over each diagonal, (..., O) in float64.

    Rows are added in blocks, and the blocks in float64, so that long diagonals lose nothing.
    """
    queries, keys = S_LM.shape[-2:]
    blocks = -(-queries // _BLOCK)
    rows = blocks * _BLOCK
    if rows != queries:
        S_LM = pad(S_LM, (0, 0, 0, rows - queries))
    within = _sheared_sum(S_LM.unflatten(-2, (blocks, _BLOCK)), 1)
    descending = _sheared_sum(within.double(), _BLOCK)  # element rows - 1 is offset 0
    return descending[..., rows - queries : rows + keys - 1].flip(-1)


def _sheared_sum(S_AC: Tensor, step: int) -> Tensor:
    """The sum of rows a = 0..A-1, each moved left by a * step: element C' holds C = C' + a * step.

    Rows one after the other in memory, read as rows longer by `step`, are already moved.
    """
    rows = S_AC.shape[-2]
    padded = pad(S_AC, ((rows - 1) * step, 0, 0, 1))
    width = padded.shape[-1] + step
    return padded.flatten(-2)[..., : rows * width].unflatten(-1, (rows, width)).sum(-2)


def pooled(x: Tensor, pool: int | None, trailing: int) -> Tensor:
    """Sums a tensor over batch dimension `pool`, counted as a dimension of (..., L, M).

    `trailing` is how many axes the tensor has in place of (L, M). Raises InputError where `pool`
    is not a batch dimension.
    """
    if pool is None:
        return x
    dimension = pool + 2 - trailing
    if pool > -3 or -dimension > x.ndim:
        raise InputError(
            f"pool={pool} is no batch dimension; count from the end, -3 being the last before "
            "(queries, keys)"
        )
    return x.sum(dimension)


def symbol(S_LM: Tensor, mask_LM: Tensor | None = None, pool: int | None = None) -> Symbol:
    """Mean over each diagonal, of the entries that count.

    `pool` names a batch dimension of S, counted from the end (-4 for B in (B, H, L, M)), over
    which one symbol is taken for all; the result then lacks it.
    """
    S_LM, mask_LM = masked(S_LM, mask_LM)
    sums_O = diagonal_sums(S_LM)
    counts_O = pooled(diagonal_sums(mask_LM.float()).expand(sums_O.shape), pool, trailing=1)
    values_O = pooled(sums_O, pool, trailing=1) / counts_O.clamp_min(1)
    values_O = values_O.masked_fill(counts_O == 0, torch.nan).to(S_LM.dtype)
    return Symbol(values_O, counts_O.long())


def project(S_LM: Tensor, mask_LM: Tensor | None = None) -> Tensor:
    """Orthogonal projection onto matrices constant along diagonals, over the entries that count.

    Replaces each entry by the mean of its diagonal; masked entries are 0.
    """
    S_LM, mask_LM = masked(S_LM, mask_LM)
    means_O = diagonal_sums(S_LM) / diagonal_sums(mask_LM.float()).clamp_min(1)
    return torch.where(mask_LM, toeplitz(means_O.to(S_LM.dtype), S_LM.shape[-1]), 0.0)


def toeplitz_matvec(symbol_O: Tensor, x_M: Tensor) -> Tensor:
    """The Toeplitz matrix of a symbol times a vector, (..., L), by FFT in O(O log O).

    Symbol (..., O) and vector (..., M), real, broadcast over batch dimensions; L = O - M + 1. The
    matrix is embedded in a circulant one, which the Fourier transform makes diagonal. Offsets
    without a value (NaN from `symbol` under a mask) must be filled by the caller: 0 for a causal
    product. Raises InputError for complex input and for a symbol shorter than the vector.
    """
    symbol_O, x_M = raised(symbol_O), raised(x_M)
    count, keys = symbol_O.shape[-1], x_M.shape[-1]
    if not (symbol_O.is_floating_point() and x_M.is_floating_point()):
        raise InputError(f"expected real floats, got {symbol_O.dtype} and {x_M.dtype}")
    if not 1 <= keys <= count:
        raise InputError(
            f"a symbol of {count} offsets cannot act on {keys} keys; "
            "it needs queries + keys - 1 offsets"
        )
    # The wanted part of the linear convolution, elements M - 1..O - 1, is free of wrap-around for
    # any length from O on; powers of two transform fastest.
    length = 1 << (count - 1).bit_length()
    product = torch.fft.rfft(symbol_O, length) * torch.fft.rfft(x_M, length)
    return torch.fft.irfft(product, length)[..., keys - 1 : count]
