"""Summaries of heads against the matrices they summarise, and known answers.

Shapes: K terms, B batch, L query positions, M key positions, H heads, O offsets.
"""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from poslens.encodings import Encoding
from poslens.errors import InputError
from poslens.model import Transformer
from poslens.tasks import Batch
from poslens.toeplitz import (
    Head,
    HeadSummary,
    NotExact,
    Share,
    decompose,
    frequency_use,
    halves,
    row_aware_share,
    share,
    summarise,
    symbol,
    walk,
)
from poslens.toeplitz.splits import attention_input

SHARES = ("tau", "tau_each", "tau_row", "tau_row_each")


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected.to(found), rtol=1e-8, atol=1e-9, equal_nan=True)


def same_shares(found: Share, expected: Share) -> None:
    assert found.value.shape == expected.value.shape
    assert torch.equal(found.reason, expected.reason.expand(found.reason.shape))
    for field in ("value", "expected", "adjusted"):
        close(getattr(found, field), getattr(expected, field).expand(found.value.shape))


def one(head: Head) -> HeadSummary:
    (summary,) = summarise([head])
    return summary


def counted(head: Head) -> Tensor:
    everything = torch.ones(head.shape, dtype=torch.bool)
    return everything if head.entries_BLM is None else head.entries_BLM.expand(head.shape)


def masked(head: Head) -> Head:
    """The same head with its mask spelt out, so that it is summed up block by block."""
    return replace(head, entries_BLM=counted(head))


def check(head: Head, summary: HeadSummary) -> None:
    """Against the head's whole matrices."""
    mask, logits, images = counted(head), head.logits.matrix(), head.images()
    same_shares(summary.tau, share(logits, mask, pool=-3))
    same_shares(summary.tau_each, share(logits, mask))
    same_shares(summary.tau_row, row_aware_share(logits, mask, pool=-3))
    same_shares(summary.tau_row_each, row_aware_share(logits, mask))
    close(summary.symbol.values, symbol(logits, mask, pool=-3).values)
    assert torch.equal(summary.symbol.counts, symbol(logits, mask, pool=-3).counts)
    assert summary.error == head.check() < 1e-10

    every_KBLM = torch.stack([images[name] for name in head.names])
    close(summary.variances.covariances_KK, torch.cov(every_KBLM[:, mask], correction=0))
    row_KBL1 = (every_KBLM * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp_min(1)
    apart_KX = (every_KBLM - row_KBL1)[:, mask]
    close(summary.variances.within_rows_KK, apart_KX @ apart_KX.mT / mask.sum())
    close(summary.variances.covariances_KK.sum(), logits[mask].var(correction=0))


@pytest.mark.parametrize("causal", [False, True])
def test_summaries_are_of_the_matrices(
    scheme: str, causal: bool, small: Any, padded: Batch, tokens: Any
) -> None:
    model = small(scheme, causal=causal).double()
    for batch in (padded, tokens(6)):
        for head, summary in zip(
            decompose(model, batch), summarise(decompose(model, batch)), strict=True
        ):
            assert (summary.layer, summary.head) == (head.layer, head.head)
            if head.head in (0, 3):
                check(head, summary)


def test_factors_and_blocks_say_the_same(scheme: str, small: Any, tokens: Any) -> None:
    for head in decompose(small(scheme).double(), tokens(), layers=[1]):
        from_factors, by_blocks = one(head), one(masked(head))
        assert from_factors.algebra.kind == by_blocks.algebra.kind
        assert from_factors.algebra.explained == pytest.approx(
            by_blocks.algebra.explained, abs=1e-9, nan_ok=True
        )
        for field in ("covariances_KK", "within_rows_KK"):
            close(getattr(from_factors.variances, field), getattr(by_blocks.variances, field))
        close(from_factors.symbol.values, by_blocks.symbol.values)
        for name in SHARES:
            same_shares(getattr(from_factors, name), getattr(by_blocks, name))


def test_blocks_of_any_size_say_the_same(
    small: Any, padded: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = list(decompose(small("alibi+rope", causal=True).double(), padded))
    whole = [one(head) for head in heads]
    for entries in (1, 12 * 5, 12 * 12 * 3):
        monkeypatch.setattr("poslens.toeplitz.terms._BLOCK", {"cpu": entries})
        for head, expected in zip(heads, whole, strict=True):
            found = one(head)
            close(found.variances.covariances_KK, expected.variances.covariances_KK)
            close(found.tau_row_each.value, expected.tau_row_each.value)
            assert found.algebra.explained == pytest.approx(expected.algebra.explained)
            assert found.error == pytest.approx(expected.error)


def test_variances_name_their_terms(small: Any, tokens: Any) -> None:
    head = next(decompose(small("alibi"), tokens()))
    variances = one(head).variances
    shares = variances.shares()
    assert tuple(shares) == head.names
    images, logits = head.images(), head.logits.matrix()
    for name in ("bias", "content-content"):
        expected = float(images[name].var(correction=0) / logits.var(correction=0))
        assert shares[name] == pytest.approx(expected, rel=1e-4)
    within = variances.shares(within_rows=True)
    assert within["bias"] != pytest.approx(shares["bias"], rel=1e-3)
    assert shares["constant-constant"] == pytest.approx(0, abs=1e-6)


def empty(model: Transformer) -> Transformer:
    """Queries are 0: logits are what is added to them."""
    with torch.no_grad():
        for block in model.blocks:
            block.attention.input.weight.zero_()
            block.attention.input.bias.zero_()
    return model


@pytest.mark.parametrize("causal", [False, True])
def test_alibi_without_content(causal: bool, small: Any, tokens: Any) -> None:
    distance_O = torch.arange(-11.0, 12).abs()
    for summary in summarise(decompose(empty(small("alibi", causal=causal)), tokens())):
        for name in SHARES:
            value = getattr(summary, name).value
            torch.testing.assert_close(value, torch.ones_like(value), atol=1e-5, rtol=0)
        expected_O = -(2.0 ** (-2 * (summary.head + 1))) * distance_O
        if causal:
            expected_O[:11] = math.nan
        torch.testing.assert_close(summary.symbol.values, expected_O, equal_nan=True)
        assert summary.algebra.kind == "additive"
        assert summary.algebra.explained == pytest.approx(1)


class KeySlope(Encoding):
    """m j, ALiBi as BLOOM's code writes it: the same as ALiBi to softmax under a causal mask."""

    kind = "additive"

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        bias_M = 0.25 * key_positions.float()
        return bias_M.expand(self.shape.heads, query_positions.shape[-1], -1)


@pytest.mark.parametrize(("causal", "tau"), [(False, 0.5), (True, 0.25)])
def test_a_bias_growing_with_the_key(causal: bool, tau: float, small: Any, tokens: Any) -> None:
    model = empty(small("nope", causal=causal))
    model.encoding = KeySlope(model.encoding.shape)
    for summary in summarise(decompose(model, tokens())):
        assert float(summary.tau.value) == pytest.approx(tau, abs=1e-5)
        assert float(summary.tau_row.value) == pytest.approx(1, abs=1e-5)


def test_fire_is_additive_and_not_toeplitz(small: Any, tokens: Any) -> None:
    model = empty(small("fire", parts={"fire": {"threshold": 2.0}}))
    assert model.encoding.kernel(torch.arange(3)) is None
    for summary in summarise(decompose(model, tokens())):
        assert summary.algebra.kind == "additive"
        assert float(summary.tau_row.value) < 0.99


def algebras(model: Transformer, batch: Batch, layer: int = 0) -> list[Any]:
    return [summary.algebra for summary in summarise(decompose(model, batch, layers=[layer]))]


def test_measured_algebra_of_the_pure_schemes(small: Any, tokens: Any) -> None:
    """On independent tokens without a constant part, which would add."""

    def made(scheme: str) -> Transformer:
        model = small(scheme)
        with torch.no_grad():
            for block in model.blocks:
                block.attention_norm.bias.zero_()
                if scheme != "mla":
                    block.attention.input.bias.zero_()
        return model

    expected = {
        **dict.fromkeys(("t5", "alibi", "kerple", "fire"), "additive"),
        **dict.fromkeys(("rope", "xpos", "p-rope", "mla"), "multiplicative"),
    }
    for scheme, kind in expected.items():
        model = made(scheme)
        with torch.no_grad():
            model.embedding.weight -= model.embedding.weight[1:].mean(0)
        assert {algebra.kind for algebra in algebras(model, tokens(400))} == {kind}, scheme


def test_rotation_adds_where_content_is_constant(small: Any, tokens: Any) -> None:
    model = small("rope")
    with torch.no_grad():
        model.embedding.weight[:] = model.embedding.weight[1]
    for algebra in algebras(model, tokens()):
        assert algebra.kind == "additive"
        assert algebra.explained == pytest.approx(1, abs=1e-4)


def test_the_share_of_the_mean_is_the_design_of_an_adjusted_r2(small: Any, padded: Batch) -> None:
    """Written out: Delta, centred by row; its mean over the sequences that have the entry."""
    model = small("alibi+rope", causal=True).double()
    for head in decompose(model, padded, layers=[1]):
        attention = model.blocks[1].attention
        mask, logits = counted(head), head.logits.matrix()
        half = head.queries_BLW.shape[0]
        state = next(_states(model, padded, layer=1))
        without = attention.logits(
            attention_input(model, state), state.context, torch.zeros(half, 4).double()
        )[:, head.head].detach()
        delta = (logits - without) * mask
        delta = (
            delta - delta.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp_min(1)
        ) * mask
        times_LM = mask.sum(0)
        mean_LM = delta.sum(0) / times_LM.clamp_min(1)
        left = ((delta - mean_LM) * mask).square().sum() / (mask.sum() - (times_LM > 0).sum())
        expected = 1 - left / (delta.square().sum() / mask.sum())
        assert one(head).algebra.explained == pytest.approx(float(expected), rel=1e-6)


def _states(model: Transformer, batch: Batch, layer: int) -> Any:
    return (state for state in walk(model, halves(batch)[1]) if state.layer == layer)


def test_few_sequences_do_not_make_noise_additive(small: Any, tokens: Any) -> None:
    """Without the adjustment the mean of 3 sequences would explain a third of anything."""
    model = small("rope")
    with torch.no_grad():
        model.blocks[0].attention.input.bias.zero_()
        model.blocks[0].attention_norm.bias.zero_()
        model.embedding.weight -= model.embedding.weight[1:].mean(0)
    found = [
        algebra.explained for seed in range(12) for algebra in algebras(model, tokens(6, seed=seed))
    ]
    assert abs(sum(found) / len(found)) < 0.05


@pytest.mark.parametrize(
    ("scheme", "sequences", "heads", "reason"),
    [
        ("nope", 8, range(4), "through no door of this scheme"),
        ("rope@1", 8, range(1, 4), "does not enter this head"),
        ("t5@2", 8, range(2, 4), "does not enter this head"),
        ("rope", 2, range(4), "one sequence has no mean"),
    ],
)
def test_undefined_algebra_says_why(
    scheme: str, sequences: int, heads: range, reason: str, small: Any, tokens: Any
) -> None:
    for number, algebra in enumerate(algebras(small(scheme), tokens(sequences), layer=1)):
        assert (algebra.kind == "undefined") == (number in heads)
        assert math.isnan(algebra.explained) == (number in heads)
        assert (reason in algebra.reason) == (number in heads)


@pytest.mark.parametrize("name", ["rope", "xpos", "p-rope", "rope@1", "mla"])
def test_frequency_use(name: str, small: Any, tokens: Any, padded: Batch) -> None:
    model = small(name).double()
    for batch in (tokens(), padded):
        for head in decompose(model, batch, layers=[1]):
            if name == "rope@1" and head.head:
                with pytest.raises(
                    InputError, match=f"head {head.head} of layer 1 does not rotate"
                ):
                    frequency_use(head)
                continue
            used, mask = frequency_use(head), counted(head)
            assert list(used) == [*range(len(head.pairs.turned)), None]
            assert sum(used.values()) == pytest.approx(1)
            squares = {}
            for frequency in used:
                total = sum(head.at_frequency(term, frequency) for term in head.turning)
                if frequency is None and name == "mla":
                    images = head.images()
                    total = total + sum(images[n] for n in images if "unrotated" in n)
                total = total * mask
                mean = total.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp_min(1)
                squares[frequency] = float((((total - mean) * mask) ** 2).sum())
            for frequency, square in squares.items():
                assert used[frequency] == pytest.approx(square / sum(squares.values()), abs=1e-9)
            assert (used[None] > 0) == (name in ("p-rope", "mla"))


def test_what_does_not_add_up_has_no_summary(small: Any, tokens: Any) -> None:
    head = next(decompose(small("rope"), tokens()))
    with pytest.raises(NotExact):
        one(replace(head, queries_BLW=1.01 * head.queries_BLW))


def test_constant_logits_have_shares_undefined_with_the_reason(small: Any, tokens: Any) -> None:
    summary = next(summarise(decompose(empty(small("nope")), tokens())))
    assert summary.tau.value.isnan()
    assert summary.tau_row_each.value.isnan().all()
    assert int(summary.tau.reason) > 0
    assert math.isnan(summary.variances.shares()["bias"])
