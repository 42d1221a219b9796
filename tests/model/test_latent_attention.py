"""Latent attention against DeepSeek-V3's in `transformers`, and what it refuses.

Shapes: B batch, L positions, H heads, E model width.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close as close
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

from poslens.encodings import RoPE, RoPESettings, Shape, YaRNScaling
from poslens.encodings.scaling import Scaling
from poslens.errors import InputError
from poslens.model.attention import Context
from poslens.model.latent_attention import LatentAttention, LatentSettings

B, H, L, E = 3, 4, 12, 32
SHAPE = Shape(width=E, heads=H, head_width=8, max_length=64)
WIDTHS = LatentSettings(
    query_rank=20, key_value_rank=14, content_width=10, rotary_width=6, value_width=12
)
SCALINGS: dict[str, Scaling] = {
    "plain": Scaling(),
    "yarn": YaRNScaling(4.0, 8),
    "yarn as DeepSeek": YaRNScaling(4.0, 8, mscale=0.7, mscale_all_dim=0.3),
}


def theirs(scaling: Scaling) -> tuple[deepseek.DeepseekV3Attention, Any]:
    """Their layer and their rotary embedding."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 10_000.0}
    if isinstance(scaling, YaRNScaling):
        rope |= {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
        if scaling.mscale is not None:
            rope |= {"mscale": scaling.mscale, "mscale_all_dim": scaling.mscale_all_dim}
    config = DeepseekV3Config(
        hidden_size=E,
        num_attention_heads=H,
        num_key_value_heads=H,
        q_lora_rank=WIDTHS.query_rank,
        kv_lora_rank=WIDTHS.key_value_rank,
        qk_nope_head_dim=WIDTHS.content_width,
        qk_rope_head_dim=WIDTHS.rotary_width,
        v_head_dim=WIDTHS.value_width,
        max_position_embeddings=64,
        rope_parameters=rope,
        attn_implementation="eager",
    )
    layer = deepseek.DeepseekV3Attention(config, layer_idx=0).eval()
    for norm in (layer.q_a_layernorm, layer.kv_a_layernorm):
        torch.nn.init.uniform_(norm.weight, 0.5, 2.0)
    return layer, deepseek.DeepseekV3RotaryEmbedding(config)


def ours(layer: deepseek.DeepseekV3Attention, scaling: Scaling) -> tuple[LatentAttention, RoPE]:
    """Our layer with their weights, and its encoding."""
    encoding = RoPE(LatentAttention.encoding_shape(SHAPE, WIDTHS), RoPESettings(scaling=scaling))
    attention = LatentAttention(SHAPE, encoding, WIDTHS)
    names = {
        "query_down": "q_a_proj",
        "query_norm": "q_a_layernorm",
        "query_up": "q_b_proj",
        "latent_down": "kv_a_proj_with_mqa",
        "latent_norm": "kv_a_layernorm",
        "latent_up": "kv_b_proj",
        "output": "o_proj",
    }
    their_state = layer.state_dict()
    attention.load_state_dict(
        {f"{mine}.weight": their_state[f"{other}.weight"] for mine, other in names.items()}
    )
    return attention, encoding


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SCALINGS)
def test_it_is_deepseek_v3(
    name: str, causal: bool, per_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layer, rotary = theirs(SCALINGS[name])
    attention, encoding = ours(layer, SCALINGS[name])
    x_BLE = torch.randn(B, L, E)
    positions = torch.arange(L) + (5 * torch.arange(B)[:, None] if per_row else 0)
    visible = (torch.arange(L) < torch.tensor([12, 5, 9])[:, None])[:, None, None]
    if causal:
        visible = visible & torch.ones(L, L).tril().bool()

    seen: dict[str, Tensor] = {}
    eager = deepseek.eager_attention_forward

    def record(module: Any, query: Tensor, key: Tensor, *rest: Any, **named: Any) -> Any:
        seen["logits"] = query @ key.mT * named["scaling"]
        return eager(module, query, key, *rest, **named)

    monkeypatch.setattr(deepseek, "eager_attention_forward", record)
    mask = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)
    waves = rotary(x_BLE, positions.expand(B, L))
    expected = layer(x_BLE, position_embeddings=waves, attention_mask=mask)[0]

    context = Context(encoding, positions, visible, None)
    close(attention(x_BLE, context), expected)
    close(attention.logits(x_BLE, context), seen["logits"])


@pytest.mark.parametrize("value_width", [4, 12, 20])
def test_values_may_be_narrower_or_wider_than_keys(
    value_width: int, small: Any, padded: Any
) -> None:
    model = small("mla", parts={"mla": {"value_width": value_width}})
    batch = padded([7, 4, 9])
    x_BLE, context = model.embed(batch.tokens_BL, batch.lengths_B)
    attention = model.blocks[0].attention
    outputs_BHLD = attention.heads(x_BLE, context)
    assert outputs_BHLD.shape == (3, 4, 9, value_width)
    close(attention.heads(x_BLE, context, torch.ones(3, 4)), outputs_BHLD)


def test_without_position_the_rotary_channel_is_at_angle_0_not_gone(
    small: Any, padded: Any
) -> None:
    model, batch = small("mla"), padded([7, 4, 9])
    x_BLE, context = model.embed(batch.tokens_BL, batch.lengths_B)
    _, still = model.embed(batch.tokens_BL, batch.lengths_B, torch.zeros(9, dtype=torch.int64))
    attention = model.blocks[0].attention
    without = attention.logits(x_BLE, context, torch.zeros(3, 4))
    close(without, attention.logits(x_BLE, still))
    queries, keys, _ = attention.queries_keys_values(x_BLE, still)
    content = attention.content_width
    dropped = attention.scale * queries[..., :content] @ keys[..., :content].mT
    assert (without - dropped).abs().max() > 1e-3


def test_widths_are_derived_from_the_model() -> None:
    assert LatentSettings().resolve(SHAPE) == (16, 16, 8, 4, 8)
    assert LatentSettings(rotary_width=2, value_width=5).resolve(SHAPE) == (16, 16, 8, 2, 5)
    assert LatentAttention.encoding_shape(SHAPE).head_width == 4


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"query_rank": 0}, "a width of 0; use 1 or more"),
        ({"value_width": -3}, "a width of -3; use 1 or more"),
        ({"rotary_width": 3}, "rotary width must be even"),
        ({"rotary_widht": 4}, "mla has no setting 'rotary_widht'; it has: rotary_width"),
    ],
)
def test_widths_that_do_not_fit_are_named(part: dict[str, int], message: str, small: Any) -> None:
    with pytest.raises(InputError, match=message):
        small("mla", parts={"mla": part})
