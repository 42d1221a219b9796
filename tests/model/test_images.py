"""Images of parts of an attention input: linear, with the whole's statistics, and complete.

Shapes: B batch, L positions, H heads, D head width, E model width.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from poslens.model.attention import Attention

B, L, E, H = 3, 7, 32, 4


def attention(name: str, small: Any) -> Attention:
    model = small(name).double()
    torch.manual_seed(1)
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn_like(weight)  # norms and biases too
    return model.blocks[1].attention


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def summed(images: tuple[Tensor, ...]) -> Tensor:
    total = images[0]
    for image in images[1:]:
        total = total + image
    return total.expand(B, H, L, -1)


@pytest.mark.parametrize("name", ["rope", "mla"])
def test_images_of_parts_add_up_to_queries_and_keys(name: str, small: Any) -> None:
    """Whatever the parts: a constant, one per sequence, one per position, the rest."""
    module = attention(name, small)
    x_BLE, *parts = (torch.randn(*shape, E).double() for shape in [(B, L), (1, 1), (B, 1), (1, L)])
    parts.append(x_BLE - parts[0] - parts[1] - parts[2])
    queries, keys, _ = module.queries_keys_values(x_BLE, _context(small, name), positioned=False)
    channels = module.images(parts, x_BLE)
    close(torch.cat([summed(channel.queries) for channel in channels], -1), queries)
    close(torch.cat([summed(channel.keys) for channel in channels], -1), keys)


def _context(small: Any, name: str) -> Any:
    model = small(name).double()
    return model.embed(torch.ones(B, L, dtype=torch.int64), torch.full((B,), L))[1]


@pytest.mark.parametrize("name", ["rope", "mla"])
def test_images_are_linear_in_the_parts_and_biases_are_the_firsts(name: str, small: Any) -> None:
    module = attention(name, small)
    x_BLE, part_BLE = torch.randn(2, B, L, E).double()
    nothing = torch.zeros_like(part_BLE)
    for channel in module.images([nothing, part_BLE, 2 * part_BLE, nothing], x_BLE):
        for constant, once, twice, none in (channel.queries, channel.keys):
            close(2 * once, twice)
            assert not none.any()
            assert constant.abs().max() > 0.01 if name == "rope" else not constant.any()


def test_latent_norms_are_frozen_at_the_wholes_statistics(small: Any) -> None:
    """A whole twice as large divides the same part by twice as much, where a norm is in between."""
    module = attention("mla", small)
    x_BLE, part_BLE = torch.randn(2, B, L, E).double()
    unrotated, rotary = (
        (once, twice)
        for once, twice in zip(
            module.images([part_BLE], x_BLE), module.images([part_BLE], 2 * x_BLE), strict=True
        )
    )
    for once, twice in (
        (unrotated[0].queries[0], unrotated[1].queries[0]),
        (unrotated[0].keys[0], unrotated[1].keys[0]),
        (rotary[0].queries[0], rotary[1].queries[0]),
    ):
        torch.testing.assert_close(once, 2 * twice, rtol=1e-4, atol=1e-4)
    close(rotary[0].keys[0], rotary[1].keys[0])  # no norm on its way


def test_channels_say_what_turns_and_what_heads_share(small: Any) -> None:
    x_BLE = torch.randn(B, L, E)
    (channel,) = small("rope").blocks[0].attention.images([x_BLE], x_BLE)
    assert (channel.name, channel.rotated) == ("", True)
    assert channel.queries[0].shape == channel.keys[0].shape == (B, H, L, 8)
    constant = small("rope").blocks[0].attention.images([x_BLE[:1, :1]], x_BLE)[0]
    assert constant.queries[0].shape == (1, H, 1, 8)
    unrotated, rotary = small("mla").blocks[0].attention.images([x_BLE], x_BLE)
    assert (unrotated.name, unrotated.rotated) == ("unrotated", False)
    assert (rotary.name, rotary.rotated) == ("rotary", True)
    assert unrotated.keys[0].shape == (B, H, L, 8)
    assert rotary.queries[0].shape == (B, H, L, 4)
    assert rotary.keys[0].shape == (B, 1, L, 4)
