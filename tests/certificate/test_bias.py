"""Biases: known schemes recognised with their parameters, faults caught, no false alarm."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from poslens.certificate.bias import judge_bias
from poslens.certificate.finding import SEVERITY, Finding
from poslens.encodings import KERPLE, ALiBi, Shape, T5Bias, T5Settings
from poslens.encodings.alibi import alibi_slopes
from poslens.encodings.t5 import t5_buckets

Bias = Callable[[int, int], Tensor]


def offsets(queries: int, keys: int) -> Tensor:
    """Query less key position, queries standing at the last keys."""
    return torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)


def slopes(heads: int, first: int = 1, first_between: int = 1) -> Tensor:
    """Press et al.'s slopes as their own code makes them; `first` is the exponent it begins at."""
    power = 2 ** math.floor(math.log2(heads))
    own = torch.tensor(2 ** (-(2 ** -(math.log2(power) - 3)))) ** torch.arange(first, first + power)
    step = torch.tensor(2 ** (-(2 ** -(math.log2(2 * power) - 3))))
    between = step ** torch.arange(first_between, first_between + 2 * (heads - power), 2)
    return torch.cat([own, between])


def alibi(slopes_H: Tensor, sign: int = -1) -> Bias:
    return lambda L, M: sign * slopes_H[:, None, None] * offsets(L, M).abs()


def bloom(slopes_H: Tensor, dtype: torch.dtype = torch.float32) -> Bias:
    return lambda L, M: (slopes_H[:, None, None] * torch.arange(M)).to(dtype)


def t5(
    buckets: int, max_distance: int, causal: bool, heads: int, seed: int, exchanged: bool = False
) -> Bias:
    table_KH = torch.randn(buckets, heads, generator=torch.Generator().manual_seed(seed))

    def bias(queries: int, keys: int) -> Tensor:
        o_LM = offsets(queries, keys) * (-1 if exchanged else 1)
        return table_KH[t5_buckets(o_LM, buckets, max_distance, causal)].movedim(-1, 0)

    return bias


def kerple(heads: int, seed: int, power: bool) -> tuple[Bias, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    r1_H, r2_H = (0.05 + torch.rand(2, heads, generator=generator)).unbind()

    def bias(queries: int, keys: int) -> Tensor:
        distance_LM = offsets(queries, keys).abs().float()
        r1_H11, r2_H11 = r1_H[:, None, None], r2_H[:, None, None]
        grown_HLM = distance_LM**r2_H11 if power else torch.log1p(r2_H11 * distance_LM)
        return -r1_H11 * grown_HLM

    return bias, r1_H, r2_H


@dataclass(frozen=True)
class Sizes:
    """The random part of a configuration."""

    heads: int
    buckets: int
    max_distance: int
    seed: int


def random_sizes(seed: int) -> Sizes:
    rng = np.random.default_rng(seed)
    buckets = 2 * int(rng.integers(3, 25))
    return Sizes(
        heads=int(rng.integers(1, 8)),
        buckets=buckets,
        max_distance=int(rng.integers(2 * buckets, 200)),
        seed=seed,
    )


SEEDS = [random_sizes(seed) for seed in range(20)]


def verdict(findings: list[Finding]) -> str:
    return max((it.verdict for it in findings), key=SEVERITY.index)


def texts(findings: list[Finding], what: str) -> str:
    return "; ".join(it.what for it in findings if it.verdict == what)


def test_slopes_are_those_of_press_et_al() -> None:
    for heads in range(1, 40):
        assert slopes(heads).tolist() == pytest.approx(alibi_slopes(heads).tolist(), rel=1e-6)


# Faults


def off_by_one(sizes: Sizes) -> Bias:
    """Exponents one step away: from 0 instead of 1 or from 2, in all heads or those between."""
    exponents = {0: (0, 1), 1: (2, 1), 2: (0, 0), 3: (2, 3)}[sizes.seed % 4]
    return alibi(slopes(sizes.heads, *exponents))


def wrong_sign(sizes: Sizes) -> Bias:
    by_key = bloom(-slopes(sizes.heads))
    return by_key if sizes.seed % 2 else alibi(slopes(sizes.heads), sign=1)


def by_length(sizes: Sizes) -> Bias:
    bias = (bloom if sizes.seed % 2 else alibi)(slopes(sizes.heads))
    less = (0, 1)[sizes.seed % 3 == 0]
    return lambda L, M: bias(L, M) / (M - less)


def exchanged(sizes: Sizes) -> Bias:
    it = sizes
    return t5(it.buckets, it.max_distance, True, it.heads, it.seed, exchanged=True)


def hidden_bfloat16(sizes: Sizes) -> Bias:
    bias = bloom(slopes(sizes.heads), torch.bfloat16)
    return lambda L, M: bias(L, M).float()


def by_query(sizes: Sizes) -> Bias:
    bias = alibi(slopes(sizes.heads))
    return lambda L, M: bias(L, M) / torch.arange(M - L + 1, M + 1)[:, None]


def from_middle(sizes: Sizes) -> Bias:
    """With a cache, queries stand neither at the last keys nor at the first."""

    def bias(queries: int, keys: int) -> Tensor:
        start = (keys - queries) // 2
        o_LM = torch.arange(start, start + queries)[:, None] - torch.arange(keys)
        return -slopes(sizes.heads)[:, None, None] * o_LM.abs()

    return bias


def absolute(sizes: Sizes) -> Bias:
    table_HPP = torch.randn(sizes.heads, 1100, 1100)
    return lambda L, M: table_HPP[:, M - L : M, :M]


def first_key_masked(sizes: Sizes) -> Bias:
    bias = alibi(slopes(sizes.heads))
    return lambda L, M: bias(L, M).masked_fill(offsets(L, M) <= 0, -math.inf)


FAULTS: dict[str, tuple[Callable[[Sizes], Bias], str]] = {
    "ALiBi exponent off by one": (off_by_one, "one step of the exponent"),
    "ALiBi wrong sign": (wrong_sign, "farther keys weigh more"),
    "ALiBi divided by the length": (by_length, "divided by the current length (length"),
    "causal T5 with query and key exchanged": (exchanged, "only keys after it are told apart"),
    "computed in bfloat16": (hidden_bfloat16, "computed in bfloat16, returned as float32"),
    "divided by the query's position": (by_query, "divided by the query's position"),
    "cache aligned to the middle": (from_middle, "neither the last nor the first"),
    "a table of pairs": (absolute, "not a function of the offset"),
    "own key masked": (first_key_masked, "a query's own key is masked (query 0)"),
}


# The commonest in 20 configurations each, the others in a few.
COMMON = list(FAULTS)[:4]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught_and_named(name: str) -> None:
    make, words = FAULTS[name]
    for sizes in SEEDS if name in COMMON else SEEDS[::5]:
        findings, _, _ = judge_bias(make(sizes))
        assert words in texts(findings, "wrong"), (sizes, findings)


# No false alarm


def test_alibi_is_right_and_its_slopes_recovered() -> None:
    for sizes in SEEDS:
        findings, recovered, _ = judge_bias(alibi(slopes(sizes.heads)), causal=False)
        assert verdict(findings) == "right", findings
        assert recovered["variant"] == "alibi"
        assert recovered["direction"] == "symmetric"
        assert recovered["decoding"] == "end"
        assert recovered["slopes"] == pytest.approx(slopes(sizes.heads).tolist(), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_blooms_biases_by_key_are_right_under_a_causal_mask(dtype: torch.dtype) -> None:
    for sizes in SEEDS[:: 1 if dtype is torch.float32 else 4]:
        bias = bloom(slopes(sizes.heads), dtype)
        findings, recovered, _ = judge_bias(bias, causal=True)
        assert verdict(findings) == "right", findings
        assert (recovered["key_only"], recovered["direction"]) == (True, "linear")
        assert recovered["variant"] == "alibi"
    findings, _, _ = judge_bias(bias, causal=False)
    assert "linear through both sides" in texts(findings, "wrong")


def test_asymmetric_alibi_is_unusual_at_worst() -> None:
    for sizes in SEEDS:
        factor = 0.2 + sizes.seed / 10

        def bias(queries: int, keys: int, sizes: Sizes = sizes, factor: float = factor) -> Tensor:
            o_LM = offsets(queries, keys)
            return -slopes(sizes.heads)[:, None, None] * torch.where(o_LM < 0, -factor * o_LM, o_LM)

        findings, recovered, _ = judge_bias(bias)
        assert verdict(findings) == ("right" if factor == 1 else "unusual"), findings
        assert recovered["variant"] == "alibi"
        if factor != 1:
            wanted = (factor * slopes(sizes.heads)).tolist()
            assert recovered["future_slopes"] == pytest.approx(wanted, rel=1e-4)


def test_alibi_whose_heads_look_one_way_each_is_unusual_at_worst() -> None:
    def bias(queries: int, keys: int) -> Tensor:
        o_LM = offsets(queries, keys)
        symmetric_HLM = alibi(slopes(8))(queries, keys)
        hidden_HLM = torch.stack([o_LM < 0] * 4 + [o_LM > 0] * 4)
        return symmetric_HLM.masked_fill(hidden_HLM, -math.inf)

    findings, recovered, _ = judge_bias(bias)
    assert verdict(findings) == "unusual"
    assert (recovered["variant"], recovered["direction"]) == ("alibi", "asymmetric")


@pytest.mark.parametrize("fill", [-math.inf, torch.finfo(torch.float32).min, -10_000.0])
def test_alibi_with_a_causal_mask_in_it_is_right(fill: float) -> None:
    def bias(queries: int, keys: int) -> Tensor:
        return alibi(slopes(12))(queries, keys).masked_fill(offsets(queries, keys) < 0, fill)

    findings, recovered, _ = judge_bias(bias)
    assert verdict(findings) == "right"
    assert recovered["direction"] == "causal"


@pytest.mark.parametrize("causal", [True, False])
def test_t5_is_right_and_its_buckets_recovered(causal: bool) -> None:
    for it in SEEDS:
        buckets = it.buckets * (1 if causal else 2)
        bias = t5(buckets, it.max_distance, causal, it.heads, it.seed)
        findings, recovered, _ = judge_bias(bias, causal=causal)
        assert verdict(findings) == "right", (it, findings)
        assert recovered["scheme"] == "t5"
        assert recovered["buckets"] == buckets
        low, high = recovered["max_distance_range"]
        assert low <= it.max_distance <= high
        # Every distance that is said to be the same function is.
        every = torch.arange(-400, 400)
        ends = [t5_buckets(every, buckets, end, causal) for end in (low, high, it.max_distance)]
        assert torch.equal(ends[0], ends[2])
        assert torch.equal(ends[1], ends[2])


@pytest.mark.parametrize("power", [False, True])
def test_kerple_is_right_and_its_parameters_recovered(power: bool) -> None:
    for it in SEEDS[int(power) :: 2]:
        bias, r1_H, r2_H = kerple(it.heads, it.seed, power)
        findings, recovered, _ = judge_bias(bias)
        assert verdict(findings) == "right", findings
        assert recovered["scheme"] == "kerple"
        assert recovered["variant"] == ("power" if power else "logarithmic")
        assert recovered["r1"] == pytest.approx(r1_H.tolist(), rel=1e-4)
        assert recovered["r2"] == pytest.approx(r2_H.tolist(), rel=1e-4)


@pytest.mark.parametrize("causal", [True, False])
def test_own_encodings_pass(causal: bool) -> None:
    shape = Shape(width=24, heads=6, head_width=4, max_length=512, causal=causal)
    encodings = {
        "alibi": ALiBi(shape),
        "kerple": KERPLE(shape),
        "t5": T5Bias(shape, T5Settings(buckets=20, max_distance=64)),
    }
    for scheme, encoding in encodings.items():

        def bias(queries: int, keys: int, encoding: Any = encoding) -> Tensor:
            return encoding.bias(torch.arange(keys - queries, keys), torch.arange(keys))

        findings, recovered, _ = judge_bias(bias, heads=6, causal=causal)
        assert verdict(findings) == "right", findings
        assert recovered["scheme"] == scheme


def test_curves_can_be_drawn() -> None:
    _, _, curves = judge_bias(alibi(slopes(12)))
    kernel = curves["kernel"]
    assert all(len(line) == len(kernel["x"]) for line in kernel["lines"].values())
    assert kernel["lines"]["head 0"][kernel["x"].index(-4)] == pytest.approx(-4 * 0.5)
