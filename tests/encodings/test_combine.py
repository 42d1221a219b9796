"""Encodings on some heads only, and two encodings at once."""

import pytest
import torch

from poslens.encodings import (
    ALiBi,
    Both,
    Encoding,
    FirstHeads,
    Learned,
    NoPE,
    RoPE,
    Shape,
    Sinusoidal,
    T5Bias,
)
from poslens.errors import InputError

B, H, L, D = 2, 4, 7, 6
SHAPE = Shape(width=H * D, heads=H, head_width=D, max_length=16)
AT = torch.arange(L)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_rope_on_the_first_heads(count: int) -> None:
    q, k = torch.randn(2, B, H, L, D)
    rope = RoPE(SHAPE)
    everywhere = rope.rotate(q, k, AT, AT)
    first = FirstHeads(SHAPE, rope, count)
    for some, every, none in zip(first.rotate(q, k, AT, AT), everywhere, (q, k), strict=True):
        assert torch.equal(some[:, :count], every[:, :count])
        assert torch.equal(some[:, count:], none[:, count:])
    assert first.bias(AT, AT) is None
    assert first.kind == "multiplicative"


@pytest.mark.parametrize("heads_of_keys", [1, 2])
def test_shared_keys_are_rotated_for_the_first_heads_only(heads_of_keys: int) -> None:
    q, k = torch.randn(B, H, L, D), torch.randn(B, heads_of_keys, L, D)
    copied = k.repeat_interleave(H // heads_of_keys, dim=1)
    first = FirstHeads(SHAPE, RoPE(SHAPE), 1)
    for shared, own in zip(
        first.rotate(q, k, AT, AT), first.rotate(q, copied, AT, AT), strict=True
    ):
        torch.testing.assert_close(shared, own)


@pytest.mark.parametrize("positions", [AT, AT + torch.arange(B)[:, None]])
def test_bias_on_the_first_heads(positions: torch.Tensor) -> None:
    alibi = ALiBi(SHAPE)
    first = FirstHeads(SHAPE, alibi, 3)
    bias, everywhere = first.bias(positions, positions), alibi.bias(positions, positions)
    assert bias is not None
    assert torch.equal(bias[..., :3, :, :], everywhere[..., :3, :, :])
    assert not bias[..., 3:, :, :].any()
    q, k = torch.randn(2, B, H, L, D)
    assert first.rotate(q, k, AT, AT) == (q, k)


@pytest.mark.parametrize("count", [-1, 0, 5])
def test_more_heads_than_there_are(count: int) -> None:
    with pytest.raises(InputError, match=f"RoPE can be on 1 to 4 of the heads, not on {count}"):
        FirstHeads(SHAPE, RoPE(SHAPE), count)


@pytest.mark.parametrize("table", [Sinusoidal, Learned])
def test_embeddings_have_no_heads(table: type[Encoding]) -> None:
    with pytest.raises(InputError, match="adds to the token embeddings, which have no heads"):
        FirstHeads(SHAPE, table(SHAPE), 1)


def test_both_doors() -> None:
    table, rope, alibi, t5 = Sinusoidal(SHAPE), RoPE(SHAPE), ALiBi(SHAPE), T5Bias(SHAPE)
    both = Both(SHAPE, table, rope)
    x_BLE = torch.randn(B, L, H * D)
    q, k = torch.randn(2, B, H, L, D)
    assert torch.equal(both.embed(x_BLE, AT), table.embed(x_BLE, AT))
    for ours, alone in zip(both.rotate(q, k, AT, AT), rope.rotate(q, k, AT, AT), strict=True):
        assert torch.equal(ours, alone)
    assert both.bias(AT, AT) is None

    summed = Both(SHAPE, alibi, t5).bias(AT, AT)
    assert summed is not None
    torch.testing.assert_close(summed, alibi.bias(AT, AT) + t5.bias(AT, AT))
    for pair in ((alibi, rope), (rope, alibi)):
        alone_bias = Both(SHAPE, *pair).bias(AT, AT)
        assert alone_bias is not None
        assert torch.equal(alone_bias, alibi.bias(AT, AT))


def test_two_of_the_same_door_are_chained() -> None:
    both = Both(SHAPE, RoPE(SHAPE), RoPE(SHAPE))
    q, k = torch.randn(2, B, H, L, D)
    for twice, once in zip(
        both.rotate(q, k, AT, AT), RoPE(SHAPE).rotate(q, k, 2 * AT, 2 * AT), strict=True
    ):
        torch.testing.assert_close(twice, once)
    x_BLE = torch.randn(B, L, H * D)
    table, learned = Sinusoidal(SHAPE), Learned(SHAPE)
    expected = learned.embed(table.embed(x_BLE, AT), AT)
    assert torch.equal(Both(SHAPE, table, learned).embed(x_BLE, AT), expected)


def test_algebra_of_both() -> None:
    nope, table, rope, alibi = NoPE(SHAPE), Sinusoidal(SHAPE), RoPE(SHAPE), ALiBi(SHAPE)
    assert Both(SHAPE, table, rope).kind == "hybrid"
    assert Both(SHAPE, table, alibi).kind == "additive"
    assert Both(SHAPE, nope, rope).kind == "multiplicative"
    assert Both(SHAPE, nope, nope).kind == "none"
    offsets = torch.arange(-3, 4)
    for pair in ((table, rope), (rope, nope)):
        kernel = Both(SHAPE, *pair).kernel(offsets)
        assert kernel is not None
        assert torch.equal(kernel, rope.kernel(offsets))
    assert Both(SHAPE, alibi, rope).kernel(offsets) is None
    assert Both(SHAPE, table, nope).kernel(offsets) is None


def test_parts_are_trained_and_stored() -> None:
    both = Both(SHAPE, Learned(SHAPE), FirstHeads(SHAPE, T5Bias(SHAPE), 2))
    assert set(both.state_dict()) == {"first.table_PE", "second.encoding.table_KH"}
