"""A base for each head: every head is RoPE of its own base."""

import pytest
import torch

from poslens.encodings import LinearScaling, RoPE, RoPEBases, RoPEBasesSettings, RoPESettings, Shape
from poslens.errors import InputError

SHAPE = Shape(width=24, heads=3, head_width=8, max_length=64)
BASES = (100.0, 10_000.0, 1_000_000.0)
SCALING = LinearScaling(2.0)


@pytest.mark.parametrize("shared", [False, True])
def test_each_head_is_rope_of_its_own_base(shared: bool) -> None:
    q, k = torch.randn(2, 3, 5, 8), torch.randn(2, 1 if shared else 3, 7, 8)
    queries, keys = torch.arange(5) + 3, torch.arange(7)
    made = RoPEBases(SHAPE, RoPEBasesSettings(scaling=SCALING))
    found_q, found_k = made.rotate(q, k, queries, keys)
    kernel = made.kernel(torch.arange(-4, 9))
    for head, base in enumerate(BASES):
        alone = RoPE(SHAPE, RoPESettings(base=base, scaling=SCALING))
        expected_q, expected_k = alone.rotate(q, k, queries, keys)
        torch.testing.assert_close(found_q[:, head], expected_q[:, head])
        torch.testing.assert_close(found_k[:, head], expected_k[:, 0 if shared else head])
        torch.testing.assert_close(kernel[head], alone.kernel(torch.arange(-4, 9))[head])


def test_one_head_has_the_lowest() -> None:
    shape = Shape(width=8, heads=1, head_width=8, max_length=64)
    theta_HF, _ = RoPEBases(shape).frequencies(torch.tensor(1))
    torch.testing.assert_close(
        theta_HF[0], RoPE(shape, RoPESettings(base=100.0)).frequencies(torch.tensor(1))[0]
    )


def test_bases_are_above_one() -> None:
    for settings in (RoPEBasesSettings(base=1.0), RoPEBasesSettings(top=-2.0)):
        with pytest.raises(InputError, match="use numbers above 1"):
            RoPEBases(SHAPE, settings)
