"""Toeplitz shares, plain and row-aware, against brute force and known answers.

Shapes: L query positions, M key positions.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from poslens.errors import InputError
from poslens.toeplitz import REASONS, RowFit, Share, row_aware_share, share, symbol
from poslens.toeplitz.shares import Effects

modest = settings(deadline=None, max_examples=40)
sides = st.integers(2, 6)
seeds = st.integers(0, 2**31)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mask(queries: int, keys: int, seed: int, share: float = 0.7) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.rand(queries, keys, generator=generator) < share


def causal(length: int) -> Tensor:
    return torch.ones(length, length).tril().bool()


def grid(length: int) -> tuple[Tensor, Tensor]:
    i = torch.arange(length, dtype=torch.float64)
    return i[:, None], i[None, :]


def indicator(levels: np.ndarray) -> np.ndarray:
    return np.equal.outer(levels, np.unique(levels)).astype(float)


def residual(design: np.ndarray, entries: np.ndarray) -> tuple[float, int]:
    """Squared distance to the design's column space, and its rank."""
    found, _, rank, _ = np.linalg.lstsq(design, entries, rcond=None)
    return float(np.sum((entries - design @ found) ** 2)), int(rank)


def brute(stack: Tensor, masks: Tensor, effects: Effects | None) -> tuple[float, float]:
    """Share and expected share of a stack (B, L, M) by explicit designs; `effects` None for tau."""
    b, i, j = np.nonzero(masks.numpy())
    entries = stack.numpy()[b, i, j]
    null = np.ones((len(b), 1)) if effects is None else indicator(b * 1000 + i)
    blocks = [null]
    if effects != "key":
        blocks.append(indicator(i - j))
    if effects in ("key", "both"):
        blocks.append(indicator(j))
    left, rank = residual(np.concatenate(blocks, 1), entries)
    total, null_rank = residual(null, entries)
    return 1 - left / total, (rank - null_rank) / (len(b) - null_rank)


def measured(S: Tensor, mask_LM: Tensor | None, effects: Effects | None, pool: int | None) -> Share:
    if effects is None:
        return share(S, mask_LM, pool)
    return row_aware_share(S, mask_LM, effects, pool)


EVERY: list[Effects | None] = [None, "offset", "key", "both"]


@modest
@given(sides, sides, seeds, st.sampled_from(EVERY))
def test_shares_equal_brute_force_under_any_mask(
    queries: int, keys: int, seed: int, effects: Effects | None
) -> None:
    S, mask_LM = drawn(queries, keys, seed=seed), mask(queries, keys, seed)
    found = measured(S, mask_LM, effects, None)
    if int(found.reason):  # too few entries: covered by the tests of undefined shares
        assert REASONS[int(found.reason)]
        return
    value, expected = brute(S[None], mask_LM[None], effects)
    assert float(found.value) == pytest.approx(value, abs=1e-9)
    assert float(found.expected) == pytest.approx(expected, abs=1e-12)
    assert float(found.adjusted) == pytest.approx((value - expected) / (1 - expected), abs=1e-7)


@modest
@given(sides, seeds, st.sampled_from(EVERY))
def test_pooled_shares_equal_brute_force(length: int, seed: int, effects: Effects | None) -> None:
    """One mask for all heads, another for each sequence: pooled over sequences."""
    S = drawn(3, 2, length, length, seed=seed)
    mask_B1LM = mask(3 * length, length, seed).view(3, 1, length, length)
    mask_B1LM = mask_B1LM | torch.eye(length).bool()
    found = measured(S, mask_B1LM, effects, -4)
    assert found.value.shape == (2,)
    for head in range(2):
        value, expected = brute(S[:, head], mask_B1LM[:, 0], effects)
        assert float(found.value[head]) == pytest.approx(value, abs=1e-9)
        assert float(found.expected[head]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("effects", EVERY)
def test_pooling_does_not_need_a_mask_per_sequence(effects: Effects | None) -> None:
    S = drawn(3, 2, 5, 5)
    one = measured(S, causal(5), effects, -4)
    every = measured(S, causal(5).expand(3, 1, 5, 5), effects, -4)
    torch.testing.assert_close(one.value, every.value)
    torch.testing.assert_close(one.expected, every.expected)


@pytest.mark.parametrize("effects", EVERY)
def test_a_batch_under_many_masks_is_each_matrix_under_its_own(effects: Effects | None) -> None:
    S = drawn(3, 2, 5, 5)
    masks = torch.stack([causal(5), torch.ones(5, 5).bool(), mask(5, 5, 3)])
    together = measured(S, masks[:, None], effects, None).value
    apart = [measured(S[b], masks[b], effects, None).value for b in range(3)]
    torch.testing.assert_close(together, torch.stack(apart))


@modest
@given(sides, seeds, st.floats(-100, 100), st.floats(0.1, 10))
def test_invariances(length: int, seed: int, constant: float, scale: float) -> None:
    length += 2
    S, mask_LM = drawn(length, length, seed=seed), causal(length)
    rows = 10 * drawn(length, 1, seed=seed + 1)
    tau, tau_row = share(S, mask_LM).value, row_aware_share(S, mask_LM).value
    assert 0 <= float(tau) <= 1
    assert 0 <= float(tau_row) <= 1
    torch.testing.assert_close(share(scale * S + constant, mask_LM).value, tau)
    torch.testing.assert_close(row_aware_share(scale * S + rows, mask_LM).value, tau_row)


def test_tau_sees_row_constants_where_tau_row_does_not() -> None:
    i, j = grid(16)
    S = -(i - j).abs() + 5 * drawn(16, 1)
    assert float(share(S).value) < 0.8
    assert float(row_aware_share(S).value) == pytest.approx(1)


@pytest.mark.parametrize("length", [4, 9, 16])
def test_expected_shares_of_the_two_common_masks(length: int) -> None:
    S = drawn(length, length)
    full, half = share(S), share(S, causal(length))
    assert float(full.expected) == pytest.approx(2 / (length + 1))
    assert float(half.expected) == pytest.approx(2 / (length + 2))
    for mask_LM in (None, causal(length)):
        assert float(row_aware_share(S, mask_LM).expected) == pytest.approx(2 / length)


@pytest.mark.parametrize("effects", EVERY)
@pytest.mark.parametrize("masked", [False, True])
def test_independent_entries_have_the_expected_share(effects: Effects | None, masked: bool) -> None:
    S = drawn(4000, 8, 8)
    found = measured(S, causal(8) if masked else None, effects, None)
    error = float(found.value.std()) / math.sqrt(len(S))
    assert error < 0.003
    assert abs(float(found.value.mean() - found.expected[0])) < 4 * error
    assert abs(float(found.adjusted.mean())) < 4 * error / (1 - float(found.expected[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_alibi_without_content_has_share_1_and_its_symbol(dtype: torch.dtype) -> None:
    i, j = grid(200)
    slopes_H11 = 2.0 ** -torch.arange(1.0, 9.0, dtype=torch.float64)[:, None, None]
    bias_HLM = (-slopes_H11 * (i - j).abs()).to(dtype)
    for mask_LM in (None, causal(200)):
        for found in (share(bias_HLM, mask_LM), row_aware_share(bias_HLM, mask_LM)):
            torch.testing.assert_close(found.value, torch.ones(8, dtype=dtype), atol=1e-6, rtol=0)
    distance_O = torch.arange(-199, 200, dtype=torch.float64).abs()
    expected = (-slopes_H11[:, 0] * distance_O).to(dtype)
    torch.testing.assert_close(symbol(bias_HLM).values, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("length", [2, 3, 17, 64])
def test_bias_growing_with_the_key_alone(length: int) -> None:
    """ALiBi as BLOOM writes it, m j. Its diagonal means fall as -(i - j)/2. On a full square i - j
    varies twice as much as j, so tau = 2/4; in the causal triangle just as much, so tau = 1/4; both
    for every L. Less the row constant m i it is -m (i - j), wholly Toeplitz."""
    _, j = grid(length)
    bias = 0.25 * j.expand(length, length)
    assert float(share(bias).value) == pytest.approx(0.5)
    assert float(share(bias, causal(length)).value) == pytest.approx(0.25)
    if length > 2:  # of two causal rows the first has one entry: nothing is left to explain
        assert float(row_aware_share(bias, causal(length)).value) == pytest.approx(1)
    assert float(row_aware_share(bias).value) == pytest.approx(1)
    assert float(row_aware_share(bias, effects="key").value) == pytest.approx(1)


def test_rope_with_constant_content_has_a_cosine_sum_for_symbol() -> None:
    length, width = 48, 8
    frequencies_F = 10000.0 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    query, key = drawn(2, width // 2), drawn(2, width // 2, seed=1)
    q_F, k_F = torch.complex(*query), torch.complex(*key)
    turn_LF = torch.exp(1j * torch.arange(length)[:, None] * frequencies_F)
    logits = ((q_F * turn_LF) @ (k_F * turn_LF).mH).real
    content_F = q_F * k_F.conj()
    offset_O1 = torch.arange(1 - length, length)[:, None]
    cosines = content_F.abs() * torch.cos(offset_O1 * frequencies_F + content_F.angle())
    torch.testing.assert_close(symbol(logits).values, cosines.sum(-1))
    assert float(share(logits).value) == pytest.approx(1)


@modest
@given(sides, seeds, st.sampled_from(["offset", "key", "both"]))
def test_fitted_effects_reproduce_a_matrix_made_of_them(
    length: int, seed: int, effects: Effects
) -> None:
    length += 1
    i, j = torch.arange(length)[:, None], torch.arange(length)
    S = drawn(2, length, 1, seed=seed).expand(2, length, length)
    if effects != "key":
        S = S + drawn(2 * length - 1, seed=seed + 1)[i - j + length - 1]
    if effects != "offset":
        S = S + drawn(length, seed=seed + 2)
    for mask_LM in (torch.ones(length, length).bool(), causal(length)):
        for pool in (None, -3):
            fit = RowFit(mask_LM, effects, pool)
            found = fit.fit(S)
            again = found.rows[..., None].expand(2, length, length)
            for part, place in (
                (found.offsets, i - j + length - 1),
                (found.keys, j.expand(length, length)),
            ):
                if part is not None:
                    again = again + part[..., place]
            torch.testing.assert_close(again[:, mask_LM], S[:, mask_LM])
            torch.testing.assert_close(
                fit.share(S).value, again.new_ones(2 if pool is None else ())
            )


@pytest.mark.parametrize(
    ("mask_LM", "overlap"), [(torch.ones(12, 12).bool(), 1 / 5), (causal(12), 1 / 9)]
)
def test_stated_canonical_correlations_of_offsets_and_keys(mask_LM: Tensor, overlap: float) -> None:
    i, j = np.nonzero(mask_LM.numpy())
    rows = indicator(i)

    def basis(levels: np.ndarray) -> np.ndarray:
        design = indicator(levels)
        design = design - rows @ (rows.T @ design / rows.sum(0)[:, None])
        left, values, _ = np.linalg.svd(design, full_matrices=False)
        return left[:, values > 1e-9]

    correlations = np.linalg.svd(basis(i - j).T @ basis(j), compute_uv=False)
    assert correlations[:2] ** 2 == pytest.approx([1, overlap])


def test_rows_keys_and_offsets_without_entries_have_no_effect() -> None:
    mask_LM = causal(5)
    mask_LM[2] = False
    mask_LM[:, 4] = False
    found = RowFit(mask_LM, "both").fit(drawn(5, 5))
    assert found.offsets is not None
    assert found.keys is not None
    assert found.rows.isnan().tolist() == [False, False, True, False, False]
    assert found.keys.isnan().tolist() == [False] * 4 + [True]
    assert found.offsets.isnan().tolist() == [True] * 4 + [False] * 5


@pytest.mark.parametrize("mask_LM", [torch.ones(40, 40).bool(), causal(40)])
def test_key_effects_share_the_slope_with_offsets_and_little_else(mask_LM: Tensor) -> None:
    i, j = grid(40)
    every: list[Effects] = ["offset", "key", "both"]
    slope = [float(row_aware_share(i - j, mask_LM, effects).value) for effects in every]
    assert slope == pytest.approx([1, 1, 1])
    sink = (j == 0).double().expand(40, 40)
    offset, key, both = (float(row_aware_share(sink, mask_LM, effects).value) for effects in every)
    assert offset < 0.15
    assert [key, both] == pytest.approx([1, 1])
    offset, key, both = (
        float(row_aware_share(sink, mask_LM, effects).expected) * (int(mask_LM.sum()) - 40)
        for effects in every
    )
    assert both == pytest.approx(offset + key - 1)  # degrees of freedom: one is common


def test_fully_masked_rows_and_padding_change_nothing() -> None:
    S = drawn(7, 7)
    real_L = torch.arange(7) < 5
    padding = real_L[:, None] & real_L
    for effects in EVERY:
        padded, cut = (
            measured(S, padding, effects, None),
            measured(S[:5, :5], None, effects, None),
        )
        torch.testing.assert_close(padded.value, cut.value)
        torch.testing.assert_close(padded.adjusted, cut.adjusted)


@pytest.mark.parametrize(
    ("S", "mask_LM", "effects", "reason"),
    [
        (torch.full((5, 5), 0.1), None, None, "all entries that count are equal"),
        (0.1 + 1e-7 * torch.eye(5), None, None, "all entries that count are equal"),
        (0.1 + 1e-7 * torch.eye(5), None, "offset", "equal within every row"),
        (torch.zeros(5, 5), causal(5), None, "all entries that count are equal"),
        (torch.ones(1, 1), None, None, "all entries that count are equal"),
        (torch.rand(5, 1).expand(5, 5), None, "offset", "equal within every row"),
        (torch.rand(5, 5), torch.eye(5).bool(), "both", "equal within every row"),
        (torch.ones(1, 1), None, "offset", "equal within every row"),
        (torch.rand(5, 5), torch.zeros(5, 5).bool(), None, "no entry counts"),
        (torch.rand(5, 5), torch.zeros(5, 5).bool(), "offset", "no entry counts"),
        (torch.full((5, 5), math.nan), None, None, "not finite"),
        (torch.full((5, 5), math.inf), None, "key", "not finite"),
    ],
)
def test_undefined_shares_say_why(
    S: Tensor, mask_LM: Tensor | None, effects: Effects | None, reason: str
) -> None:
    found = measured(S, mask_LM, effects, None)
    assert found.value.isnan()
    assert found.adjusted.isnan()
    assert reason in REASONS[int(found.reason)]


def test_a_fit_that_cannot_fail_has_no_adjusted_share() -> None:
    for found in (share(drawn(1, 6)), row_aware_share(drawn(1, 6))):
        assert float(found.value) == pytest.approx(1)
        assert found.adjusted.isnan()
        assert "as many parameters" in REASONS[int(found.reason)]


def test_an_undefined_matrix_leaves_the_gradients_of_the_others() -> None:
    for effects in EVERY:
        S = torch.stack([torch.ones(5, 5), torch.rand(5, 5)]).requires_grad_()
        found = measured(S, None, effects, None)
        assert found.reason.tolist()[1] == 0
        assert found.value.isnan().tolist() == [True, False]
        found.value[1].backward()
        assert S.grad is not None
        assert S.grad.isfinite().all()
        assert S.grad[1].any()


@pytest.mark.parametrize("effects", EVERY)
@pytest.mark.parametrize("pool", [None, -3])
def test_gradients(effects: Effects | None, pool: int | None) -> None:
    S, mask_LM = drawn(2, 5, 4).requires_grad_(), mask(5, 4, 8)
    assert torch.autograd.gradcheck(lambda S: measured(S, mask_LM, effects, pool).value, S)
    assert torch.autograd.gradcheck(lambda S: measured(S, mask_LM, effects, pool).adjusted, S)


def test_effects_are_differentiable() -> None:
    fit = RowFit(causal(4), "both")

    def finite_effects(S: Tensor) -> Tensor:
        found = fit.fit(S)
        assert found.offsets is not None
        assert found.keys is not None
        return torch.cat([found.rows, found.offsets[..., 3:], found.keys], -1)

    assert torch.autograd.gradcheck(finite_effects, drawn(2, 4, 4).requires_grad_())


def test_float32_agrees_with_float64_despite_large_row_constants() -> None:
    S = drawn(2, 64, 64) + 100 * drawn(64, 1, seed=1)
    for effects in ("offset", "both"):
        exact = row_aware_share(S.float().double(), causal(64), effects).value
        single = row_aware_share(S.float(), causal(64), effects).value
        torch.testing.assert_close(single.double(), exact, atol=1e-5, rtol=0)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="unknown effects 'query'"):
        RowFit(causal(3), "query")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="boolean mask"):
        RowFit(torch.ones(3, 3))
    with pytest.raises(InputError, match="does not broadcast"):
        RowFit(causal(3)).share(torch.rand(4, 4))
    with pytest.raises(InputError, match="no batch dimension"):
        RowFit(causal(3), pool=-4).share(torch.rand(2, 3, 3))
    with pytest.raises(InputError, match="expected a matrix"):
        row_aware_share(torch.rand(3))
