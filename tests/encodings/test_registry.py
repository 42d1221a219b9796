"""What every registered encoding does, whatever it is.

Shapes: B batch, L query positions, M key positions, H heads, D head width, E model width.
"""

import dataclasses

import pytest
import torch

from poslens.encodings import ENCODINGS, Encoding, Shape, pairwise_offsets

B, H, L, M, D = 2, 4, 5, 7, 6
SHAPE = Shape(width=H * D, heads=H, head_width=D, max_length=16)
QUERIES, KEYS = torch.arange(L) + 2, torch.arange(M)


@pytest.fixture(params=ENCODINGS)
def encoding(request: pytest.FixtureRequest) -> Encoding:
    return ENCODINGS[request.param](SHAPE)


def opened(encoding: Encoding) -> set[str]:
    doors = ("embed", "rotate", "bias")
    return {door for door in doors if getattr(type(encoding), door) is not getattr(Encoding, door)}


def test_kind_is_what_the_doors_say(encoding: Encoding) -> None:
    doors = opened(encoding)
    expected = {"none" if not doors else "multiplicative" if doors == {"rotate"} else "additive"}
    assert {encoding.kind} == expected


def test_settings_are_frozen_and_have_defaults(encoding: Encoding) -> None:
    settings = encoding.settings
    assert settings == type(encoding).Settings()
    assert type(settings).__dataclass_params__.frozen
    for field in dataclasses.fields(settings):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(settings, field.name, None)


def test_doors_keep_shapes(encoding: Encoding) -> None:
    x_BLE = torch.randn(B, L, H * D)
    assert encoding.embed(x_BLE, QUERIES).shape == x_BLE.shape
    q_BHLD, k_B1MD = torch.randn(B, H, L, D), torch.randn(B, 1, M, D)
    q, k = encoding.rotate(q_BHLD, k_B1MD, QUERIES, KEYS)
    assert q.shape == q_BHLD.shape
    assert k.shape in (k_B1MD.shape, (B, H, M, D))  # heads that turn them apart have copies
    bias = encoding.bias(QUERIES, KEYS)
    assert bias is None or bias.shape == (H, L, M)


def test_every_row_may_have_its_own_positions(encoding: Encoding) -> None:
    starts = torch.tensor([[0], [3]])
    queries, keys = QUERIES + starts, KEYS + starts
    x_BLE = torch.randn(B, L, H * D)
    q_BHLD, k_BHMD = torch.randn(B, H, L, D), torch.randn(B, H, M, D)
    embedded = encoding.embed(x_BLE, queries)
    q, k = encoding.rotate(q_BHLD, k_BHMD, queries, keys)
    bias = encoding.bias(queries, keys)
    assert bias is None or bias.shape == (B, H, L, M)
    for row in range(B):
        one = slice(row, row + 1)
        alone = encoding.embed(x_BLE[one], queries[row])
        torch.testing.assert_close(embedded[one], alone)
        alone_q, alone_k = encoding.rotate(q_BHLD[one], k_BHMD[one], queries[row], keys[row])
        torch.testing.assert_close(q[one], alone_q)
        torch.testing.assert_close(k[one], alone_k)
        if bias is not None:
            torch.testing.assert_close(bias[row], encoding.bias(queries[row], keys[row]))


def test_half_precision_stays_half(encoding: Encoding) -> None:
    encoding = encoding.bfloat16()
    x = torch.randn(B, L, H * D).bfloat16()
    q, k = torch.randn(2, B, H, L, D).bfloat16()
    made = [encoding.embed(x, QUERIES), *encoding.rotate(q, k, QUERIES, QUERIES)]
    bias = encoding.bias(QUERIES, QUERIES)
    assert {tensor.dtype for tensor in [*made, *([] if bias is None else [bias])]} == {
        torch.bfloat16
    }


def test_offsets_are_query_minus_key() -> None:
    assert pairwise_offsets(torch.tensor([5]), torch.tensor([1, 9])).tolist() == [[4, -4]]
