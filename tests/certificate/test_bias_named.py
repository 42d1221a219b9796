"""Biases that are named without being right or wrong, expectations, forms and bad input."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from poslens.certificate.bias import judge_bias
from poslens.certificate.bias_expected import expected_bias
from poslens.certificate.finding import SEVERITY, Finding
from poslens.encodings import FIRE, Shape
from poslens.encodings.alibi import alibi_slopes as slopes
from poslens.encodings.t5 import t5_buckets
from poslens.errors import InputError

Bias = Callable[[int, int], Tensor]


def offsets(queries: int, keys: int) -> Tensor:
    """Query less key position, queries standing at the last keys."""
    return torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)


def alibi(slopes_H: Tensor) -> Bias:
    return lambda L, M: -slopes_H[:, None, None] * offsets(L, M).abs()


def bloom(slopes_H: Tensor) -> Bias:
    return lambda L, M: slopes_H[:, None, None] * torch.arange(M)


def t5(buckets: int, max_distance: int, causal: bool, heads: int) -> Bias:
    table_KH = torch.randn(buckets, heads, generator=torch.Generator().manual_seed(0))
    return lambda L, M: table_KH[t5_buckets(offsets(L, M), buckets, max_distance, causal)].movedim(
        -1, 0
    )


def verdict(findings: list[Finding]) -> str:
    return max((it.verdict for it in findings), key=SEVERITY.index)


def texts(findings: list[Finding], what: str) -> str:
    return "; ".join(it.what for it in findings if it.verdict == what)


def test_fire_is_named() -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        shape = Shape(width=16, heads=4, head_width=4, max_length=512, causal=True)
        encoding = FIRE(shape)

        def bias(queries: int, keys: int, encoding: Any = encoding) -> Tensor:
            return encoding.bias(torch.arange(keys - queries, keys), torch.arange(keys))

        findings, _, _ = judge_bias(bias)
        assert verdict(findings) == "unusual", findings
        assert "FIRE" in texts(findings, "unusual") or "differ by" in texts(findings, "unusual")


def test_the_position_from_which_fire_divides_is_found() -> None:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 3))

    def bias(queries: int, keys: int) -> Tensor:
        distance_LM = offsets(queries, keys).abs().float()
        query_L1 = torch.arange(keys - queries, keys)[:, None].clamp(min=40).float()
        ratio_LM = torch.log1p(0.2 * distance_LM) / torch.log1p(0.2 * query_L1)
        return inner(ratio_LM[..., None]).movedim(-1, 0)

    findings, _, _ = judge_bias(bias)
    assert "from query 40 on" in texts(findings, "unusual")


UNUSUAL: dict[str, tuple[Callable[[], Bias], str]] = {
    "not interleaved": (
        lambda: alibi(2.0 ** (-8 * torch.arange(1, 13) / 12)),
        "the formula for powers of two taken for 12 heads",
    ),
    "exp(-h/H)": (lambda: alibi(torch.exp(-torch.arange(8) / 8)), "slopes exp(-h/8)"),
    "other order": (lambda: alibi(slopes(8).flip(0)), "in another order of the heads"),
    "times log2 e": (lambda: alibi(slopes(8) / math.log(2)), "all times 1.4427"),
    "geometric": (lambda: alibi(0.9 * 0.8 ** torch.arange(6)), "geometric slopes"),
    "learned slopes": (lambda: alibi(torch.tensor([0.3, 0.11, 0.5, 0.02])), "whose slopes are not"),
    "some heads": (
        lambda: alibi(torch.cat([slopes(4), torch.zeros(4)])),
        "4 heads have no bias",
    ),
    "depends on the length": (
        lambda: lambda L, M: alibi(slopes(4))(L, M) * math.log(M),
        "depends on the current length",
    ),
    "a value for each offset": (
        lambda: _per_offset(torch.randn(3, 10_000, generator=torch.Generator().manual_seed(0))),
        "none of ALiBi, T5 and KERPLE",
    ),
    "other buckets": (
        lambda: _per_offset(torch.randn(3, 100)[:, torch.arange(-5000, 5000).abs() // 100]),
        "not those of T5: it changes at distance 100, 200",
    ),
    "starts at the first key": (
        lambda: lambda L, M: alibi(slopes(4))(max(L, M), max(L, M))[:, :L, :M],
        "the queries stand at the first keys",
    ),
    "no cache": (lambda: _square_only(alibi(slopes(4))), "fewer queries than keys"),
    "garbage after the query": (
        lambda: (
            lambda L, M: torch.where(
                offsets(L, M) < 0, torch.arange(M) ** 1.5, alibi(slopes(4))(L, M)
            )
        ),
        "over the keys before the query",
    ),
}


def _per_offset(values_HO: Tensor) -> Bias:
    return lambda L, M: values_HO[:, offsets(L, M) + 5000]


def _square_only(bias: Bias) -> Bias:
    def only(queries: int, keys: int) -> Tensor:
        if queries != keys:
            raise ValueError("lengths differ")
        return bias(queries, keys)

    return only


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_named(name: str) -> None:
    make, words = UNUSUAL[name]
    findings, _, _ = judge_bias(make())
    assert verdict(findings) == "unusual", findings
    assert words in texts(findings, "unusual")


def test_slopes_rounded_to_bfloat16_are_told() -> None:
    findings, recovered, _ = judge_bias(alibi(slopes(12).bfloat16().float()))
    assert verdict(findings) == "right"
    assert recovered["variant"] == "alibi, slopes in bfloat16"


def test_buckets_beyond_the_rows_seen_are_looked_for() -> None:
    bias = t5(64, 800, False, 2)
    findings, recovered, _ = judge_bias(_square_only(bias))
    assert verdict(findings) == "unusual"  # for its cache only
    assert recovered["buckets"] == 64
    assert recovered["max_distance_range"][0] <= 800 <= recovered["max_distance_range"][1]


def test_a_bias_before_training_cannot_be_judged() -> None:
    findings, _, _ = judge_bias(lambda L, M: torch.zeros(2, L, M))
    assert verdict(findings) == "undecidable"


def test_a_padding_mask_in_the_bias_hides_it() -> None:
    def bias(queries: int, keys: int) -> Tensor:
        padding_LM = (torch.arange(keys) < 4) & (offsets(queries, keys) > 0)
        return alibi(slopes(2))(queries, keys).masked_fill(padding_LM, -math.inf)

    findings, _, _ = judge_bias(bias)
    assert verdict(findings) == "undecidable"


# Expectations


def test_causal_buckets_in_a_bidirectional_model_are_wrong() -> None:
    findings, _, _ = judge_bias(t5(32, 128, True, 4), causal=False)
    assert "keys after the query all have the same bias" in texts(findings, "wrong")


@pytest.mark.parametrize(
    ("bias", "config", "words"),
    [
        (
            t5(32, 128, False, 4),
            {"num_heads": 4, "relative_attention_num_buckets": 32},
            "",
        ),
        (
            t5(32, 128, False, 4),
            {"num_heads": 4, "relative_attention_num_buckets": 64},
            "buckets is 32; the configuration says 64",
        ),
        (
            t5(32, 200, False, 4),
            {"num_heads": 4, "relative_attention_num_buckets": 32},
            "the configuration says 128",
        ),
        (bloom(slopes(12)), {"model_type": "bloom", "n_head": 12}, ""),
        (bloom(slopes(6)), {"model_type": "bloom", "n_head": 12}, "6 heads; 12 expected"),
        (
            alibi(slopes(16)[:8]),
            {"model_type": "falcon", "alibi": True, "num_attention_heads": 8},
            "slope of head 7",
        ),
        (t5(32, 128, True, 8), {"alibi": True, "n_head": 8}, "scheme is t5"),
    ],
)
def test_a_configuration_is_compared_constant_by_constant(
    bias: Bias, config: dict[str, Any], words: str
) -> None:
    findings, _, _ = judge_bias(bias, expected=expected_bias(config))
    wrong = texts(findings, "wrong")
    assert words in wrong
    assert bool(wrong) == bool(words)


def test_a_configuration_without_a_bias_expects_none() -> None:
    assert expected_bias({"model_type": "llama", "num_attention_heads": 8}) == {}


# Forms and bad input


@pytest.mark.parametrize(
    "form", [lambda b: b.numpy(), lambda b: b[None], lambda b: b.double().numpy()]
)
def test_arrays_and_a_batch_of_one_are_taken(form: Callable[[Tensor], Any]) -> None:
    bias = alibi(slopes(3))
    findings, recovered, _ = judge_bias(lambda L, M: form(bias(L, M)))
    assert verdict(findings) == "right"
    assert recovered["heads"] == 3


def test_one_matrix_is_one_head() -> None:
    findings, recovered, _ = judge_bias(lambda L, M: alibi(slopes(1))(L, M)[0], heads=4)
    assert recovered["heads"] == 1
    assert "one bias for all 4 heads" in texts(findings, "unusual")


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        (lambda L, M: torch.zeros(3, M, L + 1), "expected (heads, 300, 300) or (heads, 1, 300)"),
        (lambda L, M: torch.zeros(2, 3, L, M), "returned shape (2, 3, 300, 300)"),
        (lambda L, M: torch.zeros(2, L, M).long(), "expected floating-point logits"),
        (lambda L, M: "bias", "returned str"),
        (lambda L, M: torch.randn(2, L, M), "another each time it is called"),
        (lambda L, M: torch.full((2, L, M), math.nan), "NaN or +infinity"),
        (lambda L, M: [][0], "raised IndexError: list index out of range"),
        (lambda L: torch.zeros(2, L, L), "raised TypeError"),
    ],
)
def test_bad_input_is_one_clear_line(bias: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        judge_bias(bias)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
