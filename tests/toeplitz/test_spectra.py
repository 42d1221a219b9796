"""Spectra of logits, and the rotary kernel's effect on them.

Shapes: L query positions, M key positions, F frequencies.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from poslens.errors import InputError
from poslens.toeplitz import compare_rotary, contraction, spectrum, turn

modest = settings(deadline=None, max_examples=40)
sides = st.integers(1, 7)
seeds = st.integers(0, 2**31)
THETA = torch.tensor([0.3], dtype=torch.float64)
LENGTH = 64


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def drawn_complex(*shape: int, seed: int = 0) -> Tensor:
    return torch.complex(drawn(*shape, seed=seed), drawn(*shape, seed=seed + 1))


def frequencies(count: int) -> Tensor:
    return 10000.0 ** -(torch.arange(count, dtype=torch.float64) / count)


def constant(length: int, count: int = 1) -> Tensor:
    return torch.ones(length, count, dtype=torch.complex128)


@modest
@given(sides, sides, seeds)
def test_spectra_equal_numpy(queries: int, keys: int, seed: int) -> None:
    S = drawn(3, queries, keys, seed=seed)
    found = spectrum(S)
    values = np.linalg.svd(S.numpy(), compute_uv=False)
    np.testing.assert_allclose(found.values_K.numpy(), values, atol=1e-12)
    assert found.rank.tolist() == np.linalg.matrix_rank(S.numpy()).tolist()
    np.testing.assert_allclose(found.condition.numpy(), values[:, 0] / values[:, -1])


def test_condition_is_over_the_values_the_head_width_allows() -> None:
    S = drawn(20, 4) @ drawn(4, 30, seed=1)
    found = spectrum(S, width=4)
    assert int(found.rank) == 4
    assert float(found.condition) == pytest.approx(
        float(found.values_K[0] / found.values_K[3]), rel=1e-9
    )
    assert float(spectrum(S).condition) > 1e12
    torch.testing.assert_close(spectrum(S, width=50).condition, spectrum(S).condition)


def test_effective_rank_counts_equal_values_and_discounts_small_ones() -> None:
    equal = torch.diag(torch.tensor([3.0, 3, 3, 0, 0], dtype=torch.float64))
    assert float(spectrum(equal).effective_rank) == pytest.approx(3)
    weights = np.array([0.9, 0.1])
    unequal = torch.diag(torch.tensor([9.0, 1.0], dtype=torch.float64))
    assert float(spectrum(unequal).effective_rank) == pytest.approx(
        math.exp(-float(weights @ np.log(weights)))
    )


def test_masked_entries_are_zero() -> None:
    S, causal = drawn(5, 5), torch.ones(5, 5).tril().bool()
    hidden = S.masked_fill(~causal, -math.inf)
    torch.testing.assert_close(spectrum(hidden, causal).values_K, spectrum(S.tril()).values_K)


def test_zero_matrix_has_rank_0_and_no_effective_rank() -> None:
    found = spectrum(torch.zeros(3, 4))
    assert int(found.rank) == 0
    assert found.effective_rank.isnan()
    assert found.condition.isnan()


def test_spectra_are_differentiable() -> None:
    S = drawn(2, 4, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda S: spectrum(S).effective_rank, S)
    assert torch.autograd.gradcheck(lambda S: spectrum(S, width=2).condition, S)
    singular = torch.diag(torch.tensor([2.0, 1.0, 0.0])).requires_grad_()
    spectrum(singular).effective_rank.backward()
    assert singular.grad is not None
    assert singular.grad.isfinite().all()


@modest
@given(sides, sides, st.integers(1, 4), seeds)
def test_comparison_equals_dense_matrices(queries: int, keys: int, count: int, seed: int) -> None:
    q = drawn_complex(2, 3, queries, count, seed=seed)
    k = drawn_complex(2, 1, keys, count, seed=seed + 2).expand(2, 3, keys, count)
    theta = frequencies(count)
    found = compare_rotary(q, k, turn(q, theta), turn(k, theta))
    offset_LM = torch.arange(queries)[:, None] - torch.arange(keys)
    kernel_FLM = torch.exp(1j * offset_LM * theta[:, None, None])
    each = torch.einsum("...lf,...mf->...flm", q, k.conj())
    cases = [
        (found.each_complex.without_K, each),
        (found.each_complex.with_K, each * kernel_FLM),
        (found.each_real.without_K, each.real),
        (found.each_real.with_K, (each * kernel_FLM).real),
        (found.sum_complex.without_K, each.sum(-3)),
        (found.sum_complex.with_K, (each * kernel_FLM).sum(-3)),
        (found.sum_real.without_K, each.real.sum(-3)),
        (found.sum_real.with_K, (each * kernel_FLM).real.sum(-3)),
    ]
    for values, matrix in cases:
        dense = torch.linalg.svdvals(matrix)
        torch.testing.assert_close(values, dense[..., : values.shape[-1]], atol=1e-9, rtol=0)
        assert float(dense[..., values.shape[-1] :].abs().sum()) < 1e-9


@modest
@given(seeds, st.floats(-3, 3))
def test_one_complex_frequency_keeps_its_singular_values(seed: int, theta: float) -> None:
    q, k = drawn_complex(12, 1, seed=seed), drawn_complex(9, 1, seed=seed + 2)
    frequency = torch.tensor([theta], dtype=torch.float64)
    effect = compare_rotary(q, k, turn(q, frequency), turn(k, frequency)).each_complex
    torch.testing.assert_close(effect.with_K, effect.without_K)
    torch.testing.assert_close(
        effect.with_K[0], (torch.linalg.vector_norm(q) * torch.linalg.vector_norm(k))[None]
    )


def test_a_turned_shift_of_both_positions_changes_nothing() -> None:
    q, k, theta = drawn_complex(6, 3), drawn_complex(6, 3, seed=5), frequencies(3)
    late = torch.arange(100, 106)
    here = compare_rotary(q, k, turn(q, theta), turn(k, theta)).sum_real.with_K
    there = compare_rotary(q, k, turn(q, theta, late), turn(k, theta, late)).sum_real.with_K
    torch.testing.assert_close(here, there)


def test_real_part_with_constant_content_is_contracted() -> None:
    ones = constant(LENGTH)
    turned = turn(ones, THETA)
    effect = compare_rotary(ones, ones, turned, turned).sum_real
    torch.testing.assert_close(
        effect.without_K, torch.tensor([64.0, 0.0], dtype=torch.float64), atol=1e-9, rtol=0
    )
    # cos((i-j) theta) = c c^T + s s^T: eigenvalues (L +- |sin(L theta) / sin(theta)|) / 2.
    swing = abs(math.sin(LENGTH * 0.3) / math.sin(0.3))
    expected = [(LENGTH + swing) / 2, (LENGTH - swing) / 2]
    assert effect.with_K.tolist() == pytest.approx(expected)
    assert [round(value, 1) for value in expected] == [32.6, 31.4]
    assert float(effect.contraction.operator) == pytest.approx(expected[0] / 64)
    assert float(effect.contraction.nuclear) == pytest.approx(1)
    assert float(effect.contraction.ky_fan) == pytest.approx(1)


def test_counter_rotating_content_is_expanded() -> None:
    content = turn(constant(LENGTH), -THETA)
    effect = compare_rotary(content, content, turn(content, THETA), turn(content, THETA)).sum_real
    assert float(effect.without_K[0]) == pytest.approx(32.6, abs=0.05)
    assert effect.with_K.tolist() == pytest.approx([64, 0], abs=1e-9)
    assert float(effect.contraction.operator) == pytest.approx(64 / float(effect.without_K[0]))
    assert float(effect.contraction.ky_fan) > 1.9


@modest
@given(seeds, st.integers(1, 6))
def test_shared_real_content_is_contracted_in_every_norm(seed: int, count: int) -> None:
    """Schur: the mean cosine kernel is positive semidefinite with unit diagonal."""
    a, b = drawn(10, 1, seed=seed), drawn(10, 1, seed=seed + 1)
    q, k = (x.expand(10, count).to(torch.complex128) for x in (a, b))
    theta = math.pi * drawn(count, seed=seed + 2)
    effect = compare_rotary(q, k, turn(q, theta), turn(k, theta)).sum_real
    assert float(effect.contraction.ky_fan) <= 1 + 1e-9

    content, offset_LM = drawn(10, 10, seed=seed + 3), torch.arange(10)[:, None] - torch.arange(10)
    kernel = torch.cos(offset_LM * theta[:, None, None]).mean(0)
    full_rank = contraction(spectrum(content).values_K, spectrum(content * kernel).values_K)
    assert float(full_rank.ky_fan) <= 1 + 1e-9


def test_unrotated_channels_belong_to_the_sum() -> None:
    """A content channel beside a rotary one, as in latent attention."""
    q, k = drawn_complex(8, 2), drawn_complex(8, 2, seed=3)
    theta = torch.tensor([0.7, 0.0], dtype=torch.float64)
    effect = compare_rotary(q, k, turn(q, theta), turn(k, theta))
    torch.testing.assert_close(effect.each_real.with_K[1], effect.each_real.without_K[1])
    turned = turn(q, theta) @ turn(k, theta).mH
    torch.testing.assert_close(
        effect.sum_real.with_K, torch.linalg.svdvals(turned.real)[:4], atol=1e-10, rtol=0
    )


def test_comparison_is_differentiable_even_without_full_rank() -> None:
    theta = frequencies(2)

    def operator_norm(q: Tensor, k: Tensor) -> Tensor:
        effect = compare_rotary(q, k, turn(q, theta), turn(k, theta))
        return effect.sum_real.contraction.operator + effect.each_real.with_K[..., 0].sum()

    varied = drawn_complex(5, 2).requires_grad_(), drawn_complex(4, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(operator_norm, varied)
    flat = constant(5, 2).requires_grad_(), constant(4, 2).requires_grad_()
    assert torch.autograd.gradcheck(operator_norm, flat)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spectrum(torch.ones(3)), "expected a matrix"),
        (lambda: spectrum(torch.ones(3, 3), width=0), "at least 1"),
        (lambda: contraction(torch.ones(2), torch.ones(3)), "equally many"),
        (lambda: compare_rotary(*[torch.ones(3, 2)] * 4), "expected complex"),
        (
            lambda: compare_rotary(constant(3), constant(3), constant(4), constant(3)),
            "same shape before and after",
        ),
        (
            lambda: compare_rotary(*[constant(3, 2), constant(3, 1)] * 2),
            "paired one to one",
        ),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        call()  # type: ignore[operator]
    assert "\n" not in str(raised.value)
