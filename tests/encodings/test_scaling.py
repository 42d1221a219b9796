"""Scalings against the functions of `transformers`, fixed NTK against its formula."""

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from poslens.encodings import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    NTKScaling,
    RoPE,
    RoPESettings,
    Scaling,
    Shape,
    YaRNScaling,
    yarn_magnitude,
)
from poslens.errors import InputError

bases = st.sampled_from([100.0, 10_000.0, 500_000.0, 1e7])
widths = st.integers(2, 64).map(lambda half: 2 * half)
factors = st.floats(1.0, 64.0)
lengths = st.integers(2, 200_000)
many = settings(deadline=None, max_examples=100)


def config(base: float, width: int, parameters: dict[str, Any], longest: int) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=4 * width,
        num_attention_heads=4,
        head_dim=width,
        max_position_embeddings=longest,
        rope_parameters={"rope_theta": base, **parameters},
    )


def assert_same(
    scaling: Scaling,
    base: float,
    width: int,
    length: int,
    kind: str,
    parameters: dict[str, Any],
    longest: int = 1_000_000,
    rtol: float = 1e-5,
) -> None:
    theirs_F, their_factor = ROPE_INIT_FUNCTIONS[kind](
        config(base, width, {"rope_type": kind, **parameters}, longest),
        torch.device("cpu"),
        seq_len=length,
    )
    theta_F, attention_factor = scaling.frequencies(base, width, torch.tensor(length))
    assert theta_F.dtype == torch.float64
    torch.testing.assert_close(theta_F.float(), theirs_F, rtol=rtol, atol=0)
    assert attention_factor == pytest.approx(their_factor, rel=1e-5)


def rounding_of_the_ramp(scaling: YaRNScaling, base: float, width: int) -> float:
    """Relative error of their float32 ramp, eps index / (high - low), times the mixing's factor.

    At least 1e-5; more only where the ramp is narrow, beta_fast hardly above beta_slow.
    """
    ramp = width * math.log(scaling.beta_fast / scaling.beta_slow) / (2 * math.log(base))
    ramp = max(ramp, 1.0 if scaling.truncate else 1e-3)
    return max(1e-5, 2**-23 * (width / 2) * scaling.factor / ramp)


@many
@given(bases, widths, lengths)
def test_no_scaling(base: float, width: int, length: int) -> None:
    theirs_F, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(
        config(base, width, {"rope_type": "default"}, 2048)
    )
    theta_F, attention_factor = Scaling().frequencies(base, width, torch.tensor(length))
    torch.testing.assert_close(theta_F.float(), theirs_F, rtol=1e-5, atol=0)
    assert attention_factor == factor == 1.0


@many
@given(bases, widths, lengths, factors)
def test_linear(base: float, width: int, length: int, factor: float) -> None:
    assert_same(LinearScaling(factor), base, width, length, "linear", {"factor": factor})


@many
@given(bases, widths.filter(lambda width: width > 2), factors)
def test_fixed_ntk_is_a_larger_base(base: float, width: int, factor: float) -> None:
    theta_F, attention_factor = NTKScaling(factor).frequencies(base, width, torch.tensor(1))
    larger = base * factor ** (width / (width - 2))
    expected = [larger ** (-2 * f / width) for f in range(width // 2)]
    assert theta_F.tolist() == pytest.approx(expected, rel=1e-12)
    assert theta_F[-1].item() == pytest.approx(base ** (2 / width - 1) / factor, rel=1e-12)
    assert attention_factor == 1.0


@many
@given(bases, widths.filter(lambda width: width > 2), lengths, factors, st.integers(2, 100_000))
def test_dynamic_ntk(base: float, width: int, length: int, factor: float, original: int) -> None:
    scaling = DynamicNTKScaling(factor, original)
    parameters = {"factor": factor}
    assert_same(scaling, base, width, length, "dynamic", parameters, longest=original)


magnitudes = st.none() | st.floats(0.1, 2.0)


@many
@given(
    base=bases,
    width=widths,
    length=lengths,
    scaling=st.builds(
        YaRNScaling,
        factor=factors,
        original_length=st.integers(2, 100_000),
        beta_fast=st.floats(4.0, 64.0),
        beta_slow=st.floats(0.1, 4.0),
        attention_factor=magnitudes,
        mscale=magnitudes,
        mscale_all_dim=magnitudes,
        truncate=st.booleans(),
    ),
)
def test_yarn(base: float, width: int, length: int, scaling: YaRNScaling) -> None:
    parameters = {
        "factor": scaling.factor,
        "original_max_position_embeddings": scaling.original_length,
        "beta_fast": scaling.beta_fast,
        "beta_slow": scaling.beta_slow,
        "attention_factor": scaling.attention_factor,
        "mscale": scaling.mscale,
        "mscale_all_dim": scaling.mscale_all_dim,
        "truncate": scaling.truncate,
    }
    rtol = rounding_of_the_ramp(scaling, base, width)
    assert_same(scaling, base, width, length, "yarn", parameters, rtol=rtol)


def test_yarn_of_deepseek_v3() -> None:
    """Both magnitudes 1: nothing is left for queries and keys, all is on the logit scale."""
    scaling = YaRNScaling(40.0, 4096, mscale=1.0, mscale_all_dim=1.0)
    assert scaling.frequencies(10_000.0, 64, torch.tensor(1))[1] == 1.0
    assert yarn_magnitude(40.0, 1.0) == pytest.approx(0.1 * math.log(40) + 1)


@many
@given(st.data(), bases, widths, lengths, factors, st.integers(2, 100_000), magnitudes)
def test_longrope(
    data: st.DataObject,
    base: float,
    width: int,
    length: int,
    factor: float,
    original: int,
    attention_factor: float | None,
) -> None:
    several = st.lists(st.floats(1.0, 64.0), min_size=width // 2, max_size=width // 2)
    short, long = data.draw(several), data.draw(several)
    scaling = LongRoPEScaling(tuple(short), tuple(long), original, factor, attention_factor)
    parameters = {
        "short_factor": short,
        "long_factor": long,
        "original_max_position_embeddings": original,
        "factor": factor,
        "attention_factor": attention_factor,
    }
    assert_same(scaling, base, width, length, "longrope", parameters)


@many
@given(
    base=bases,
    width=widths,
    length=lengths,
    factor=factors,
    original=st.integers(16, 100_000),
    low=st.floats(0.5, 4.0),
    high=st.floats(1.0, 16.0),
)
def test_llama3(
    base: float, width: int, length: int, factor: float, original: int, low: float, high: float
) -> None:
    assume(high - low > 0.1)
    parameters = {
        "factor": factor,
        "original_max_position_embeddings": original,
        "low_freq_factor": low,
        "high_freq_factor": high,
    }
    scaling = Llama3Scaling(factor, original, low, high)
    # Theirs is in float32, and between the bounds a difference of near numbers.
    assert_same(scaling, base, width, length, "llama3", parameters, rtol=1e-4)


@pytest.mark.parametrize(
    ("scaling", "length", "longer"),
    [
        (DynamicNTKScaling(4.0, 32), 33, 64),
        (LongRoPEScaling((1.0,) * 4, (2.0,) * 4, 32), 32, 33),
    ],
)
def test_rope_takes_the_largest_position_plus_one_for_the_length(
    scaling: Scaling, length: int, longer: int
) -> None:
    shape = Shape(width=8, heads=1, head_width=8, max_length=64)
    rope = RoPE(shape, RoPESettings(scaling=scaling))
    x_BHLD = torch.randn(1, 1, 1, 8)
    near = torch.tensor([3])
    for last in (length, longer):
        query, _ = rope.rotate(x_BHLD, x_BHLD, near, torch.tensor([last - 1]))
        theta_F, factor = scaling.frequencies(10_000.0, 8, torch.tensor(last))
        pairs = torch.view_as_complex(x_BHLD.unflatten(-1, (-1, 2)))
        turned = torch.view_as_complex(query.unflatten(-1, (-1, 2)))
        expected = pairs * factor * (3j * theta_F).exp()
        torch.testing.assert_close(turned, expected.to(turned.dtype))
    assert not torch.equal(
        scaling.frequencies(10_000.0, 8, torch.tensor(length))[0],
        scaling.frequencies(10_000.0, 8, torch.tensor(longer))[0],
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearScaling(0.0), "LinearScaling.factor must be above 0, got 0.0"),
        (lambda: DynamicNTKScaling(2.0, -8), "original_length must be above 0, got -8"),
        (lambda: YaRNScaling(2.0, 8, beta_slow=-1.0), "beta_slow must be above 0, got -1.0"),
        (lambda: LongRoPEScaling((1.0, 0.0), (1.0, 1.0), 8), "short_factors must be above 0"),
        (lambda: Llama3Scaling(low_turns=4.0), "low_turns must be below high_turns, 4.0, got 4.0"),
        (
            lambda: LongRoPEScaling((1.0,) * 4, (1.0,) * 3, 8).frequencies(1e4, 8, torch.tensor(1)),
            "needs 4 factors for rotary width 8, got 3",
        ),
        (
            lambda: NTKScaling(2.0).frequencies(1e4, 2, torch.tensor(1)),
            "needs a rotary width above 2, got 2",
        ),
        (lambda: Scaling().frequencies(1.0, 8, torch.tensor(1)), "must be above 1, got 1.0"),
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
