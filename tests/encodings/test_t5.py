"""T5 buckets and bias against T5's own, in both directions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from poslens.encodings import Shape, T5Bias, T5Settings
from poslens.encodings.t5 import t5_buckets
from poslens.errors import InputError


@settings(deadline=None, max_examples=100)
@given(st.integers(2, 32), st.integers(1, 500), st.booleans())
def test_buckets(half: int, further: int, causal: bool) -> None:
    buckets = 2 * half
    exact = buckets // 2 if causal else buckets // 4
    offsets = torch.arange(-600, 601)
    theirs = T5Attention._relative_position_bucket(
        -offsets, bidirectional=not causal, num_buckets=buckets, max_distance=exact + further
    )
    ours = t5_buckets(offsets, buckets, exact + further, causal)
    assert torch.equal(ours, theirs)


def test_buckets_by_hand() -> None:
    """4 a side: 0 and 1 alone, then 2..3 and 4 on, the border at 2 sqrt(8/2) = 4."""
    offsets = torch.tensor([-9, -4, -3, -2, -1, 0, 1, 2, 3, 4, 9])
    expected = [7, 7, 6, 6, 5, 0, 1, 2, 2, 3, 3]
    assert t5_buckets(offsets, buckets=8, max_distance=8, causal=False).tolist() == expected
    expected = [0, 0, 0, 0, 0, 0, 1, 2, 2, 3, 3]
    assert t5_buckets(offsets, buckets=4, max_distance=8, causal=True).tolist() == expected


@pytest.mark.parametrize("causal", [False, True])
def test_bias_is_t5s(causal: bool) -> None:
    config = T5Config(
        d_model=24,
        num_heads=6,
        d_kv=4,
        relative_attention_num_buckets=12,
        relative_attention_max_distance=20,
        is_decoder=causal,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    shape = Shape(width=24, heads=6, head_width=4, max_length=40, causal=causal)
    ours = T5Bias(shape, T5Settings(buckets=12, max_distance=20))
    ours.table_KH.data.copy_(theirs.relative_attention_bias.weight)
    expected_HLM = theirs.compute_bias(33, 37)[0]
    bias_HLM = ours.bias(torch.arange(33), torch.arange(37))
    torch.testing.assert_close(bias_HLM, expected_HLM, rtol=1e-5, atol=1e-5)


def test_the_table_learns() -> None:
    ours = T5Bias(Shape(width=16, heads=2, head_width=8, max_length=8))
    ours.bias(torch.arange(8), torch.arange(8)).sum().backward()
    assert ours.table_KH.grad is not None
    seen = t5_buckets(torch.arange(8)[:, None] - torch.arange(8), 32, 128, causal=False)
    counts = torch.bincount(seen.flatten(), minlength=32).float()
    torch.testing.assert_close(ours.table_KH.grad, counts[:, None].expand(32, 2))


@pytest.mark.parametrize(
    ("values", "causal", "message"),
    [
        ((5, 128), False, "an even number of buckets, at least 4, got 5"),
        ((2, 128), False, "an even number of buckets, at least 4, got 2"),
        ((1, 128), True, "at least 2 buckets, got 1"),
        ((32, 8), False, "max_distance must be above 8, got 8"),
        ((32, 16), True, "max_distance must be above 16, got 16"),
    ],
)
def test_bad_settings(values: tuple[int, int], causal: bool, message: str) -> None:
    shape = Shape(width=16, heads=2, head_width=8, max_length=8, causal=causal)
    with pytest.raises(InputError, match=message):
        T5Bias(shape, T5Settings(*values))
