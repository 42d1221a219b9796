"""p-RoPE: RoPE with the lowest frequencies off."""

import math

import pytest
import torch

from poslens.encodings import LinearScaling, NoPE, PRoPE, PRoPESettings, RoPE, Shape
from poslens.errors import InputError

H, D = 2, 10
SHAPE = Shape(width=H * D, heads=H, head_width=D, max_length=32)


@pytest.mark.parametrize(("turned", "kept"), [(0.75, 3), (0.6, 3), (0.2, 1), (0.19, 0), (1.0, 5)])
def test_formula(turned: float, kept: int) -> None:
    """Pair f turned by p theta_f for f < floor(5 p), left alone from there on."""
    torch.manual_seed(0)
    x = torch.randn(1, H, 3, D).double()
    positions = torch.tensor([0, 7, 1234])
    found, _ = PRoPE(SHAPE, PRoPESettings(turned=turned)).rotate(x, x, positions, positions)
    for place, position in enumerate(positions.tolist()):
        for f in range(5):
            theta = 10_000.0 ** (-2 * f / D) if f < kept else 0.0
            cos, sin = math.cos(position * theta), math.sin(position * theta)
            first, second = x[0, :, place, 2 * f], x[0, :, place, 2 * f + 1]
            expected = torch.stack([cos * first - sin * second, sin * first + cos * second], -1)
            torch.testing.assert_close(found[0, :, place, 2 * f : 2 * f + 2], expected)


def test_its_ends_are_rope_and_nope() -> None:
    q, k = torch.randn(2, 2, H, 6, D)
    positions = torch.arange(6)
    for turned, encoding in ((1.0, RoPE(SHAPE)), (0.0, NoPE(SHAPE))):
        found = PRoPE(SHAPE, PRoPESettings(turned=turned)).rotate(q, k, positions, positions)
        for one, other in zip(found, encoding.rotate(q, k, positions, positions), strict=True):
            torch.testing.assert_close(one, other)


def test_the_kernel_of_what_is_off_is_1() -> None:
    kernel = PRoPE(SHAPE).kernel(torch.arange(-20, 20))
    rope = RoPE(SHAPE).kernel(torch.arange(-20, 20))
    assert torch.equal(kernel[:, :3], rope[:, :3])
    assert (kernel[:, 3:] == 1).all()


def test_frequencies_may_be_scaled_as_ropes() -> None:
    scaled = PRoPE(SHAPE, PRoPESettings(scaling=LinearScaling(4.0)))
    theta_F, _ = scaled.frequencies(torch.tensor(8))
    plain_F, _ = RoPE(SHAPE).frequencies(torch.tensor(8))
    assert theta_F.tolist() == [*(plain_F[:3] / 4).tolist(), 0.0, 0.0]


@pytest.mark.parametrize("turned", [-0.1, 1.01])
def test_a_share_outside_0_to_1_is_refused(turned: float) -> None:
    with pytest.raises(InputError, match=f"from 0 to 1, got {turned}"):
        PRoPE(SHAPE, PRoPESettings(turned=turned))
