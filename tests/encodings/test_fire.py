"""FIRE by hand, and what makes it unlike the other biases."""

import math

import pytest
import torch

from poslens.encodings import FIRE, FIRESettings, Shape
from poslens.errors import InputError
from poslens.toeplitz import row_aware_share

SHAPE = Shape(width=8, heads=2, head_width=4, max_length=40)


@torch.no_grad()
def by_hand(fire: FIRE, head: int, i: int, j: int) -> float:
    """The formula of Li et al., one number at a time."""
    first, _, last = fire.network
    c, threshold = abs(float(fire.c)), abs(float(fire.stretch)) * fire.threshold

    def psi(x: float) -> float:
        return math.log(c * x + 1)

    share = psi(abs(i - j)) / (psi(max(i, threshold)) + 1e-6)
    hidden = [
        max(0.0, float(weight) * share + float(bias))
        for weight, bias in zip(first.weight[:, 0], first.bias, strict=True)
    ]
    weighted = sum(float(w) * h for w, h in zip(last.weight[head], hidden, strict=True))
    return weighted + float(last.bias[head])


@pytest.mark.parametrize("stretch", [1.0, -0.3])
def test_formula(stretch: float) -> None:
    torch.manual_seed(0)
    fire = FIRE(SHAPE, FIRESettings(hidden=5, c=0.7, threshold=6.0)).double()
    fire.stretch.data.fill_(stretch)
    queries, keys = torch.tensor([0, 2, 6, 7, 30]), torch.tensor([0, 5, 7, 29, 36])
    bias = fire.bias(queries, keys).detach()
    for head in range(2):
        for a, i in enumerate(queries.tolist()):
            for b, j in enumerate(keys.tolist()):
                assert float(bias[head, a, b]) == pytest.approx(by_hand(fire, head, i, j), abs=1e-9)


def test_it_depends_on_the_query_too_beyond_the_threshold() -> None:
    """The same offset, seen from farther on, is a smaller share: no kernel, not Toeplitz."""
    torch.manual_seed(0)
    fire = FIRE(SHAPE, FIRESettings(threshold=10.0)).double()
    positions = torch.arange(40)
    bias = fire.bias(positions, positions).detach()
    assert fire.kernel(torch.arange(4)) is None
    assert fire.kind == "additive"
    within = bias[:, :11, :11]
    for offset in range(-10, 11):
        diagonal = within.diagonal(-offset, dim1=-2, dim2=-1)
        torch.testing.assert_close(diagonal, diagonal[:, :1].expand_as(diagonal))
    assert (row_aware_share(within).value > 1 - 1e-9).all()
    assert (row_aware_share(bias).value < 0.99).all()
    assert float((bias[:, 39, 34] - bias[:, 10, 5]).abs().min()) > 1e-4


def test_no_distance_is_a_bias_that_is_the_same_everywhere() -> None:
    bias = FIRE(SHAPE).bias(torch.arange(40), torch.arange(40))
    torch.testing.assert_close(bias.diagonal(dim1=-2, dim2=-1), bias[:, :1, 0].expand(-1, 40))


def test_starts_as_the_authors_ratio_and_learns() -> None:
    torch.manual_seed(0)
    fire = FIRE(SHAPE)
    assert fire.threshold == 10.0
    assert FIRE(SHAPE, FIRESettings(threshold=512.0)).threshold == 512.0
    positions = torch.arange(40)
    (fire.bias(positions, positions) * torch.randn(2, 40, 40)).sum().backward()
    for parameter in fire.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0


@pytest.mark.parametrize("bad", [{"hidden": 0}, {"c": 0.0}, {"threshold": -3.0}])
def test_bad_settings(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match="hidden, c and threshold must be above 0, got"):
        FIRE(SHAPE, FIRESettings(**bad))
