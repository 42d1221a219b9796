"""RoPE against independent implementations, and what it refuses."""

import math
from typing import Literal

import pytest
import torch
from torch import Tensor
from transformers import DeepseekV2Config, GPTNeoXConfig, LlamaConfig
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as deepseek_v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek_v3
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.llama import modeling_llama as llama

from poslens.encodings import LinearScaling, LongRoPEScaling, RoPE, RoPESettings, Shape, YaRNScaling
from poslens.errors import InputError

B, H, L, D = 3, 4, 24, 16
SHAPE = Shape(width=H * D, heads=H, head_width=D, max_length=64)


def queries_and_keys(heads_of_keys: int = H) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(B, H, L, D, generator=generator),
        torch.randn(B, heads_of_keys, L, D, generator=generator),
    )


def positions(case: str) -> Tensor:
    """(L,) or (B, L) positions: from 0, shifted, negative, with gaps, per row."""
    return {
        "plain": torch.arange(L),
        "shifted": torch.arange(L) + 9,
        "negative": torch.arange(L) - 30,
        "gaps": torch.arange(L) * 2 - 7,
        "rows": torch.stack([torch.arange(L) + start for start in (0, -5, 11)]),
    }[case]


CASES = ["plain", "shifted", "negative", "gaps", "rows"]


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_half_layout_is_llama(case: str, base: float) -> None:
    config = LlamaConfig(
        hidden_size=H * D,
        num_attention_heads=H,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    q, k = queries_and_keys()
    ids = positions(case).expand(B, L)
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, ids)
    theirs = llama.apply_rotary_pos_emb(q, k, cos, sin)
    rope = RoPE(SHAPE, RoPESettings(base=base, layout="half"))
    for mine, other in zip(
        rope.rotate(q, k, positions(case), positions(case)), theirs, strict=True
    ):
        close(mine, other)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [4, 8, 12])
def test_partial_width_is_gpt_neox(case: str, width: int) -> None:
    config = GPTNeoXConfig(
        hidden_size=H * D,
        num_attention_heads=H,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": width / D,
        },
    )
    q, k = queries_and_keys()
    ids = positions(case).expand(B, L)
    cos, sin = gpt_neox.GPTNeoXRotaryEmbedding(config)(q, ids)
    assert cos.shape[-1] == width
    theirs = gpt_neox.apply_rotary_pos_emb(q, k, cos, sin)
    rope = RoPE(SHAPE, RoPESettings(width=width, layout="half"))
    for mine, other in zip(
        rope.rotate(q, k, positions(case), positions(case)), theirs, strict=True
    ):
        close(mine, other)


YARN = YaRNScaling(4.0, 16, mscale=0.7, mscale_all_dim=0.3)
YARN_PARAMETERS = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "mscale": 0.7,
    "mscale_all_dim": 0.3,
}


def deepseek_config(yarn: bool) -> DeepseekV2Config:
    default = {"rope_type": "default", "rope_theta": 10_000.0}
    return DeepseekV2Config(
        hidden_size=H * D,
        num_attention_heads=H,
        qk_rope_head_dim=D,
        head_dim=D,
        max_position_embeddings=64,
        rope_parameters=YARN_PARAMETERS if yarn else default,
    )


@pytest.mark.parametrize("heads_of_keys", [H, 1])
@pytest.mark.parametrize("yarn", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_interleaved_layout_is_deepseek_v2(case: str, yarn: bool, heads_of_keys: int) -> None:
    q, k = queries_and_keys(heads_of_keys)
    rotary = deepseek_v2.DeepseekV2RotaryEmbedding(deepseek_config(yarn))
    factors = rotary(q, positions(case).expand(B, L))
    their_q, their_k = deepseek_v2.apply_rotary_emb(q, k, factors)
    rope = RoPE(SHAPE, RoPESettings(scaling=YARN) if yarn else None)
    our_q, our_k = rope.rotate(q, k, positions(case), positions(case))
    close(our_q @ our_k.mT / math.sqrt(D), their_q @ their_k.mT / math.sqrt(D))
    close(our_q, their_q)
    assert our_k.shape == k.shape


@pytest.mark.parametrize("heads_of_keys", [H, 1])
@pytest.mark.parametrize("yarn", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_interleaved_layout_has_the_logits_of_deepseek_v3(
    case: str, yarn: bool, heads_of_keys: int
) -> None:
    q, k = queries_and_keys(heads_of_keys)
    parameters = YARN_PARAMETERS if yarn else {"rope_type": "default", "rope_theta": 10_000.0}
    config = LlamaConfig(
        hidden_size=H * D,
        num_attention_heads=H,
        max_position_embeddings=64,
        rope_parameters=dict(parameters),
    )
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, positions(case).expand(B, L))
    their_q, their_k = deepseek_v3.apply_rotary_pos_emb_interleave(q, k, cos, sin)
    rope = RoPE(SHAPE, RoPESettings(scaling=YARN) if yarn else None)
    our_q, our_k = rope.rotate(q, k, positions(case), positions(case))
    close(our_q @ our_k.mT / math.sqrt(D), their_q @ their_k.mT / math.sqrt(D))
    assert not torch.allclose(our_q, their_q)  # V3's function also permutes channels


def test_queries_may_stand_elsewhere_than_keys() -> None:
    """The last queries of a sequence against all keys, as when generating from a cache."""
    q, k = queries_and_keys()
    rope = RoPE(SHAPE)
    everywhere = torch.arange(L)
    all_q, all_k = rope.rotate(q, k, everywhere, everywhere)
    last_q, last_k = rope.rotate(q[:, :, -5:], k, everywhere[-5:], everywhere)
    close(last_q, all_q[:, :, -5:])
    close(last_k, all_k)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_bfloat16_rotates_in_float32(layout: Literal["half", "interleaved"]) -> None:
    q, k = (x.bfloat16() for x in queries_and_keys())
    rope = RoPE(SHAPE, RoPESettings(layout=layout))
    far = torch.arange(L) + 100_000
    ours, _ = rope.rotate(q, k, far, far)
    exact, _ = rope.rotate(q.double(), k.double(), far, far)
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.double(), exact, rtol=2**-8, atol=1e-6)


def test_angles_stay_exact_at_far_positions() -> None:
    q, k = queries_and_keys()
    far = torch.arange(L) + 1_000_000
    ours, _ = RoPE(SHAPE).rotate(q, k, far, far)
    theta_F = 10_000.0 ** -(torch.arange(0, D, 2).double() / D)
    turns = torch.polar(torch.ones(1, dtype=torch.float64), far[:, None] * theta_F)
    pairs = torch.view_as_complex(q.double().unflatten(-1, (-1, 2))) * turns
    close(ours, torch.view_as_real(pairs).flatten(-2).float())


@pytest.mark.parametrize("start", [0, 1, 2])
def test_any_memory_layout_will_do(start: int) -> None:
    """Slices of a wider projection are not always readable as complex numbers in place."""
    wide = torch.randn(B, L, H, 2 * D + 1)
    x = wide[..., start : start + D].transpose(1, 2)
    rope = RoPE(SHAPE)
    sliced, _ = rope.rotate(x, x, torch.arange(L), torch.arange(L))
    copied, _ = rope.rotate(x.contiguous(), x, torch.arange(L), torch.arange(L))
    close(sliced, copied)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_gradient_turns_back(layout: Literal["half", "interleaved"]) -> None:
    """The gradient of a rotation is the rotation by the opposite angle."""
    rope = RoPE(SHAPE, RoPESettings(layout=layout))
    q, k = (x.double().requires_grad_() for x in queries_and_keys())
    upstream = torch.randn_like(q)
    rotated, _ = rope.rotate(q, k, torch.arange(L), torch.arange(L))
    (gradient,) = torch.autograd.grad(rotated, q, upstream)
    back, _ = rope.rotate(upstream, k, -torch.arange(L), -torch.arange(L))
    torch.testing.assert_close(gradient, back)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (RoPESettings(width=5), "must be even, from 2 to the head width 16, got 5"),
        (RoPESettings(width=18), "must be even, from 2 to the head width 16, got 18"),
        (RoPESettings(width=0), "must be even, from 2 to the head width 16, got 0"),
        (RoPESettings(base=0.5), "must be above 1, got 0.5"),
        (
            RoPESettings(scaling=LongRoPEScaling((1.0,), (1.0,), 8)),
            "needs 8 factors for rotary width 16, got 1",
        ),
    ],
)
def test_bad_settings(settings: RoPESettings, message: str) -> None:
    with pytest.raises(InputError, match=message):
        RoPE(SHAPE, settings)


def test_odd_head_width() -> None:
    with pytest.raises(InputError, match="must be even, from 2 to the head width 7, got 7"):
        RoPE(Shape(width=14, heads=2, head_width=7, max_length=8))
    RoPE(Shape(width=14, heads=2, head_width=7, max_length=8), RoPESettings(width=6))


def test_settings_compare_by_value() -> None:
    assert RoPESettings(scaling=LinearScaling(2.0)) == RoPESettings(scaling=LinearScaling(2.0))
    assert RoPESettings(scaling=LinearScaling(2.0)) != RoPESettings()
