"""Singular values of attention logits, and what a rotary kernel does to them.

Shapes: L query positions, M key positions, F rotary frequencies, K singular values (as many as the
matrix can have, falling); "..." any batch dimensions.

Rotary logits are Re sum_f q_f k_f^H o G_f, G_f(i, j) = exp(i (i - j) theta_f), with o the Hadamard
product. The complex matrix of one frequency keeps its singular values, since the kernel only
multiplies rows and columns by numbers of modulus one. The logits are a real part and need not:
whether the kernel contracts or expands their spectrum depends on the content.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from poslens.errors import InputError
from poslens.toeplitz.operators import masked


@dataclass(frozen=True)
class Spectrum:
    """Singular values (..., K) and what they say, (...); see `spectrum`."""

    values_K: Tensor
    rank: Tensor
    effective_rank: Tensor
    condition: Tensor


@dataclass(frozen=True)
class Contraction:
    """Ratios of norms, with over without the kernel, (...): below 1 contracted, above 1 expanded.

    operator: ratio of the largest singular values. nuclear: ratio of their sums. ky_fan: the
    largest ratio of Ky Fan norms (sums of the first k values, over all k); it is at most 1 exactly
    where no unitarily invariant norm grew (Fan's dominance theorem). NaN or infinite where a norm
    without the kernel is 0.
    """

    operator: Tensor
    nuclear: Tensor
    ky_fan: Tensor


@dataclass(frozen=True)
class KernelEffect:
    """Singular values (..., K) without and with the rotary kernel."""

    without_K: Tensor
    with_K: Tensor

    @property
    def contraction(self) -> Contraction:
        return contraction(self.without_K, self.with_K)


@dataclass(frozen=True)
class RotaryComparison:
    """The kernel's effect per frequency (..., F, K) and on the sum over frequencies (..., K).

    Complex: q_f k_f^H and its sum. Real: their real parts; `sum_real` are the logits, unscaled.
    """

    each_complex: KernelEffect
    each_real: KernelEffect
    sum_complex: KernelEffect
    sum_real: KernelEffect


def spectrum(S_LM: Tensor, mask_LM: Tensor | None = None, width: int | None = None) -> Spectrum:
    """Singular values of real matrices (..., L, M), masked entries taken as 0.

    rank: how many exceed max(L, M) * eps * the largest, eps of the matrix's precision (half
    precision is raised to float32). effective_rank: exp of the entropy of the singular values
    divided by their sum (Roy and Vetterli 2007), NaN for a zero matrix. condition: the first over
    the min(L, M, width)-th; `width` is the head width D, above which logits of an unmasked head
    have no further values; infinite where that value is 0.
    Raises InputError for what is not a real matrix, a mask that does not fit or a width below 1.
    """
    if width is not None and width < 1:
        raise InputError(f"the width is a number of channels, at least 1; got {width}")
    S_LM, _ = masked(S_LM, mask_LM)
    values_K = torch.linalg.svdvals(S_LM)
    precision = torch.finfo(values_K.dtype)
    largest = values_K[..., 0]
    threshold = max(S_LM.shape[-2:]) * precision.eps * largest
    # Entropy's slope at 0 is infinite: values below the smallest number carry none.
    weights_K = (values_K / values_K.sum(-1, keepdim=True)).clamp_min(precision.tiny)
    count = values_K.shape[-1]
    last = values_K[..., (count if width is None else min(count, width)) - 1]
    return Spectrum(
        values_K=values_K,
        rank=(values_K > threshold[..., None]).sum(-1),
        effective_rank=torch.special.entr(weights_K).sum(-1).exp(),
        condition=largest / last,
    )


def contraction(without_K: Tensor, with_K: Tensor) -> Contraction:
    """Compares singular values, falling, of the same matrix without and with its kernel."""
    if without_K.shape[-1] != with_K.shape[-1]:
        raise InputError(
            f"{without_K.shape[-1]} singular values without the kernel and {with_K.shape[-1]} "
            "with it; matrices of one shape have equally many"
        )
    ratios_K = with_K.cumsum(-1) / without_K.cumsum(-1)
    return Contraction(ratios_K[..., 0], ratios_K[..., -1], ratios_K.amax(-1))


def turn(x_LF: Tensor, frequencies_F: Tensor, positions_L: Tensor | None = None) -> Tensor:
    """Complex channels (..., L, F) turned by position times frequency (radians per position).

    Positions default to 0..L-1. Turning queries and keys multiplies q_f k_f^H by G_f.
    """
    if positions_L is None:
        positions_L = torch.arange(x_LF.shape[-2], device=x_LF.device)
    angles_LF = positions_L[..., None].to(frequencies_F.dtype) * frequencies_F
    return x_LF * torch.polar(torch.ones_like(angles_LF), angles_LF)


def compare_rotary(
    q_LF: Tensor, k_MF: Tensor, turned_q_LF: Tensor, turned_k_MF: Tensor
) -> RotaryComparison:
    """Spectra of q_f k_f^H without and with the rotary kernel, per frequency and summed.

    Queries (..., L, F) and keys (..., M, F) are complex, one number per channel pair, before and
    after the rotation (`turn`, or any encoding's `rotate`: what comes out need not be of unit
    modulus nor Toeplitz). Channels that are not rotated belong in too, equal before and after.
    The matrices are never formed: with L x F factors this costs O(L F^2) a head, not O(L^3).
    Gradients flow to first order, where singular values differ. Raises InputError for real input
    or shapes that do not pair.
    """
    _check_pairs(q_LF, k_MF, turned_q_LF, turned_k_MF)

    def effect(columns: Callable[[Tensor], Tensor]) -> KernelEffect:
        return KernelEffect(
            _product_values(columns(q_LF), columns(k_MF)),
            _product_values(columns(turned_q_LF), columns(turned_k_MF)),
        )

    return RotaryComparison(
        each_complex=effect(_one_frequency),
        each_real=effect(lambda x_LF: _real_and_imaginary(_one_frequency(x_LF))),
        sum_complex=effect(lambda x_LF: x_LF),
        sum_real=effect(_real_and_imaginary),
    )


def _check_pairs(q_LF: Tensor, k_MF: Tensor, turned_q_LF: Tensor, turned_k_MF: Tensor) -> None:
    every = (q_LF, k_MF, turned_q_LF, turned_k_MF)
    if not all(x.is_complex() and x.ndim >= 2 for x in every):
        raise InputError("expected complex queries (..., L, F) and keys (..., M, F)")
    if q_LF.shape != turned_q_LF.shape or k_MF.shape != turned_k_MF.shape:
        raise InputError("queries and keys must have the same shape before and after the rotation")
    if q_LF.shape[-1] != k_MF.shape[-1]:
        raise InputError(
            f"queries have {q_LF.shape[-1]} frequencies and keys {k_MF.shape[-1]}; "
            "they are paired one to one"
        )


def _one_frequency(x_LF: Tensor) -> Tensor:
    """(..., F, L, 1): each frequency a matrix of one column."""
    return x_LF.mT[..., None]


def _real_and_imaginary(x_LF: Tensor) -> Tensor:
    """Real columns whose products are the real part: Re(q k^H) = Re q Re k^T + Im q Im k^T."""
    return torch.cat([x_LF.real, x_LF.imag], -1)


def _product_values(a_LC: Tensor, b_MC: Tensor) -> Tensor:
    """Singular values of a b^H, as many as min(L, M, C).

    The singular vectors come from the small core of two QR factorisations and are held fixed:
    sigma = u^H a b^H v has the right value and, by first-order perturbation, the right gradient,
    also where a factor lacks full rank and the QR factorisation has no derivative.
    """
    with torch.no_grad():
        basis_a, core_a = torch.linalg.qr(a_LC)
        basis_b, core_b = torch.linalg.qr(b_MC)
        left, _, right = torch.linalg.svd(core_a @ core_b.mH, full_matrices=False)
        left_LK, right_MK = basis_a @ left, basis_b @ right.mH
    values_K = ((left_LK.mH @ a_LC) * (right_MK.mH @ b_MC).conj()).sum(-1)
    return values_K.real.clamp_min(0) if values_K.is_complex() else values_K.clamp_min(0)
