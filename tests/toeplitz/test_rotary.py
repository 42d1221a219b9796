"""Which channels turn together, and spectra of models with and without their rotary kernel.

Shapes: B batch, L query positions, M key positions, H heads, K singular values.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from poslens.encodings import (
    ALiBi,
    Both,
    Encoding,
    FirstHeads,
    PRoPE,
    RoPE,
    RoPESettings,
    Shape,
    Sinusoidal,
    XPos,
)
from poslens.errors import InputError
from poslens.tasks import Batch
from poslens.toeplitz import Pairs, channel_pairs, compare_kernels, walk
from poslens.toeplitz.splits import attention_input

SHAPE = Shape(width=32, heads=4, head_width=8, max_length=16)
NEIGHBOURS = ((0, 1), (2, 3), (4, 5), (6, 7))
HALVES = ((0, 4), (1, 5), (2, 6), (3, 7))
NONE = Pairs((), tuple(range(8)))


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        (RoPE(SHAPE), [Pairs(NEIGHBOURS, ())] * 4),
        (RoPE(SHAPE, RoPESettings(layout="half")), [Pairs(HALVES, ())] * 4),
        (RoPE(SHAPE, RoPESettings(base=1e30)), [Pairs(NEIGHBOURS, ())] * 4),
        (RoPE(SHAPE, RoPESettings(width=4)), [Pairs(NEIGHBOURS[:2], (4, 5, 6, 7))] * 4),
        (PRoPE(SHAPE), [Pairs(NEIGHBOURS[:3], (6, 7))] * 4),
        (XPos(SHAPE), [Pairs(NEIGHBOURS, ())] * 4),
        (FirstHeads(SHAPE, RoPE(SHAPE), 1), [Pairs(NEIGHBOURS, ())] + [NONE] * 3),
        (Both(SHAPE, Sinusoidal(SHAPE), RoPE(SHAPE)), [Pairs(NEIGHBOURS, ())] * 4),
        (ALiBi(SHAPE), [NONE] * 4),
        (Encoding(SHAPE), [NONE] * 4),
    ],
)
def test_pairs_are_found_by_turning(encoding: Encoding, expected: list[Pairs]) -> None:
    assert channel_pairs(encoding) == expected


class Chain(Encoding):
    """Channel 0 leaks into 1, and 1 into 2: none is linked to all, and yet all belong together."""

    def rotate(
        self, q_BHLD: Tensor, k_BHMD: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        leak = torch.zeros(8, 8, dtype=q_BHLD.dtype)
        leak[0, 1] = leak[1, 2] = 0.5
        return q_BHLD + query_positions[:, None] * (q_BHLD @ leak), k_BHMD


def test_channels_linked_through_others_are_one_group() -> None:
    assert channel_pairs(Chain(SHAPE)) == [Pairs(((0, 1, 2),), (3, 4, 5, 6, 7))] * 4


@pytest.mark.parametrize(
    "name", ["rope", "rope@1", "sinusoidal+rope", "mla", "xpos", "p-rope", "alibi+rope"]
)
def test_spectra_of_every_multiplicative_scheme(name: str, small: Any, padded: Batch) -> None:
    """Singular values of the logits themselves, less bias, padding at 0."""
    model = small(name).double()
    real_BL = torch.arange(12) < padded.lengths_B[:, None]
    mask_BLM = (real_BL[:, :, None] & real_BL[:, None]).double()
    found = {(layer, head): rest for layer, head, rest in compare_kernels(model, padded)}
    rotary = 1 if name == "rope@1" else 4
    assert list(found) == [(layer, head) for layer in (0, 1) for head in range(rotary)]
    with torch.no_grad():
        for state in walk(model, padded):
            attention, x_BLE = model.blocks[state.layer].attention, attention_input(model, state)
            bias = 0 if state.context.bias is None else state.context.bias
            turned = attention.logits(x_BLE, state.context) - bias
            still = attention.logits(x_BLE, state.context, torch.zeros(8, 4).double())
            for head in range(rotary):
                effect = found[state.layer, head].sum_real
                for values, logits in ((effect.with_K, turned), (effect.without_K, still)):
                    dense = torch.linalg.svdvals(logits[:, head] * mask_BLM)
                    torch.testing.assert_close(values, dense[:, : values.shape[-1]])
                each = found[state.layer, head].each_complex
                torch.testing.assert_close(
                    each.with_K, each.without_K, rtol=1e-9 if name != "xpos" else 0.1, atol=1e-9
                )


def test_spectra_can_be_had_of_some_layers(small: Any, padded: Batch) -> None:
    places = [(layer, head) for layer, head, _ in compare_kernels(small("rope"), padded, [1])]
    assert places == [(1, head) for head in range(4)]


@pytest.mark.parametrize(
    ("name", "encoding", "message"),
    [
        ("alibi", None, "does not rotate queries and keys, so there is no kernel to compare"),
        ("rope", Chain, "mixes more than two channels of a head"),
    ],
)
def test_refusals_say_why(
    name: str, encoding: type[Encoding] | None, message: str, small: Any, padded: Batch
) -> None:
    model = small(name)
    if encoding is not None:
        model.encoding = encoding(model.encoding.shape)
    with pytest.raises(InputError, match=message) as raised:
        next(compare_kernels(model, padded))
    assert "\n" not in str(raised.value)
