"""Diagonals, projection, symbol and the FFT product.

Shapes: L query positions, M key positions, O offsets.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from poslens.errors import InputError
from poslens.toeplitz import (
    diagonal_sums,
    offsets,
    project,
    symbol,
    toeplitz,
    toeplitz_matvec,
)

modest = settings(deadline=None, max_examples=40)
sides = st.integers(1, 7)
seeds = st.integers(0, 2**31)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mask(queries: int, keys: int, seed: int, share: float = 0.6) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.rand(queries, keys, generator=generator) < share


def brute_projection(S: Tensor, mask_LM: Tensor) -> Tensor:
    """Least squares on one indicator column per offset, over the unmasked entries."""
    rows, columns = np.nonzero(mask_LM.numpy())
    design = np.equal.outer(rows - columns, offsets(*S.shape).numpy()).astype(float)
    found = np.linalg.lstsq(design, S.numpy()[rows, columns], rcond=None)[0]
    result = torch.zeros_like(S)
    result[rows, columns] = torch.from_numpy(design @ found)
    return result


@modest
@given(sides, sides, seeds)
def test_projection_is_the_least_squares_fit(queries: int, keys: int, seed: int) -> None:
    S, mask_LM = drawn(queries, keys, seed=seed), mask(queries, keys, seed)
    torch.testing.assert_close(project(S, mask_LM), brute_projection(S, mask_LM))


@modest
@given(sides, sides, seeds)
def test_projection_is_idempotent_and_self_adjoint(queries: int, keys: int, seed: int) -> None:
    S, T = drawn(2, queries, keys, seed=seed)
    mask_LM = mask(queries, keys, seed)
    projected = project(S, mask_LM)
    torch.testing.assert_close(project(projected, mask_LM), projected)
    torch.testing.assert_close((projected * T).sum(), (S * project(T, mask_LM)).sum())


def test_what_a_masked_entry_holds_does_not_matter() -> None:
    S, mask_LM = drawn(3, 5, 4), mask(5, 4, 0)
    hidden = S.masked_fill(~mask_LM, -math.inf)
    hidden[0] = S[0].masked_fill(~mask_LM, math.nan)
    torch.testing.assert_close(project(hidden, mask_LM), project(S, mask_LM))
    torch.testing.assert_close(
        symbol(hidden, mask_LM).values, symbol(S, mask_LM).values, equal_nan=True
    )


def test_offsets_are_query_minus_key() -> None:
    position_L, position_M = torch.arange(4.0), torch.arange(3.0)
    S = position_L[:, None] - position_M
    found = symbol(S)
    assert offsets(4, 3).tolist() == [-2, -1, 0, 1, 2, 3]
    assert found.values.tolist() == [-2, -1, 0, 1, 2, 3]
    assert found.counts.tolist() == [1, 2, 3, 3, 2, 1]
    assert torch.equal(toeplitz(found.values, 3), S)


def test_symbol_under_a_causal_mask_has_no_negative_offsets() -> None:
    found = symbol(drawn(2, 4, 4), torch.ones(4, 4).tril().bool())
    assert found.counts.tolist() == [[0, 0, 0, 4, 3, 2, 1]] * 2
    assert found.values[:, :3].isnan().all()
    assert found.values[:, 3:].isfinite().all()


def test_pooled_symbol_weighs_entries_not_sequences() -> None:
    S = drawn(3, 2, 5, 5)
    lengths = torch.tensor([5, 3, 2])
    real_BL = torch.arange(5) < lengths[:, None]
    mask_B1LM = (real_BL[:, :, None] & real_BL[:, None, :])[:, None]
    found = symbol(S, mask_B1LM, pool=-4)
    at_zero = torch.cat([S[b].diagonal(dim1=-2, dim2=-1)[:, :n] for b, n in enumerate(lengths)], -1)
    assert found.values.shape == (2, 9)
    assert found.counts[:, 4].tolist() == [10, 10]
    torch.testing.assert_close(found.values[:, 4], at_zero.mean(-1))


def test_float32_sums_lose_nothing_on_long_diagonals() -> None:
    slope = torch.full((2000, 2000), 0.1)
    torch.testing.assert_close(symbol(slope).values, torch.full((3999,), 0.1), rtol=3e-7, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised(dtype: torch.dtype) -> None:
    S = drawn(6, 6).to(dtype)
    assert project(S).dtype == torch.float32
    torch.testing.assert_close(project(S), project(S.float()))


@modest
@given(sides, sides, seeds, st.sampled_from([torch.float32, torch.float64]))
def test_fft_product_equals_dense(queries: int, keys: int, seed: int, dtype: torch.dtype) -> None:
    symbol_O = drawn(2, 1, queries + keys - 1, seed=seed).to(dtype)
    x_M = drawn(3, keys, seed=seed + 1).to(dtype)
    dense = (toeplitz(symbol_O, keys) @ x_M[..., None]).squeeze(-1)
    product = toeplitz_matvec(symbol_O, x_M)
    assert product.shape == (2, 3, queries)
    assert product.dtype == dtype
    torch.testing.assert_close(
        product, dense, atol=2e-5 if dtype == torch.float32 else 1e-12, rtol=0
    )


def test_fft_product_at_length_1000() -> None:
    symbol_O, x_M = drawn(1700), drawn(1000)
    torch.testing.assert_close(
        toeplitz_matvec(symbol_O, x_M), toeplitz(symbol_O, 1000) @ x_M, atol=1e-10, rtol=0
    )


def test_gradients() -> None:
    mask_LM = mask(4, 3, 5)
    S = drawn(2, 4, 3).requires_grad_()
    finite = symbol(S, mask_LM).counts > 0
    assert torch.autograd.gradcheck(diagonal_sums, S)
    assert torch.autograd.gradgradcheck(lambda S: diagonal_sums(S).square(), S)
    assert torch.autograd.gradcheck(lambda S: project(S, mask_LM), S)
    assert torch.autograd.gradcheck(lambda S: symbol(S, mask_LM).values[finite], S)
    product = (drawn(2, 6).requires_grad_(), drawn(2, 3).requires_grad_())
    assert torch.autograd.gradcheck(toeplitz_matvec, product)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: project(torch.ones(3)), "expected a matrix"),
        (lambda: project(torch.ones(3, 0)), "expected a matrix"),
        (lambda: project(torch.ones(3, 3, dtype=torch.int64)), "floating-point"),
        (lambda: project(torch.ones(3, 3), torch.ones(3, 3)), "boolean mask"),
        (lambda: project(torch.ones(3, 3), torch.ones(3, 4).bool()), "does not broadcast"),
        (lambda: project(torch.ones(3, 3), torch.ones(2, 3, 3).bool()), "does not broadcast"),
        (lambda: symbol(torch.ones(2, 3, 3), pool=-2), "no batch dimension"),
        (lambda: symbol(torch.ones(2, 3, 3), pool=-4), "no batch dimension"),
        (lambda: symbol(torch.ones(2, 3, 3), pool=0), "no batch dimension"),
        (lambda: toeplitz(torch.ones(3), 4), "cannot fill 4 keys"),
        (lambda: toeplitz_matvec(torch.ones(3), torch.ones(4)), "cannot act on 4 keys"),
        (lambda: toeplitz_matvec(torch.ones(3) * 1j, torch.ones(2)), "real floats"),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        call()  # type: ignore[operator]
    assert "\n" not in str(raised.value)
