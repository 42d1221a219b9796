"""The two encodings that open the first door: sinusoidal and learned."""

import math

import pytest
import torch

from poslens.encodings import Learned, LearnedSettings, Shape, Sinusoidal, SinusoidalSettings
from poslens.errors import InputError

SHAPE = Shape(width=6, heads=1, head_width=6, max_length=10)


@pytest.mark.parametrize("base", [10_000.0, 50.0])
def test_sinusoidal_by_hand(base: float) -> None:
    at = [-3, 0, 7, 2000]
    sines = [[math.sin(p * base ** (-2 * f / 6)) for f in range(3)] for p in at]
    cosines = [[math.cos(p * base ** (-2 * f / 6)) for f in range(3)] for p in at]
    half = torch.tensor(sines + cosines).reshape(2, 4, 3).permute(1, 0, 2)
    x_BLE = torch.randn(2, 4, 6)
    tables = {
        SinusoidalSettings(base, "half"): half.flatten(1),
        SinusoidalSettings(base, "interleaved"): half.mT.flatten(1),
    }
    for settings, table_LE in tables.items():
        encoding = Sinusoidal(SHAPE, settings)
        embedded = encoding.embed(x_BLE, torch.tensor(at))
        torch.testing.assert_close(embedded, x_BLE + table_LE, rtol=1e-5, atol=1e-5)


def test_sinusoidal_refuses() -> None:
    with pytest.raises(InputError, match="needs an even model width, got 7"):
        Sinusoidal(Shape(width=7, heads=1, head_width=7, max_length=10))
    with pytest.raises(InputError, match="must be above 1, got -1"):
        Sinusoidal(SHAPE, SinusoidalSettings(base=-1.0))


def test_learned_adds_its_rows() -> None:
    learned = Learned(SHAPE)
    at = torch.tensor([[0, 9, 4], [3, 3, 1]])
    x_BLE = torch.randn(2, 3, 6)
    embedded = learned.embed(x_BLE, at)
    torch.testing.assert_close(embedded, x_BLE + learned.table_PE[at])
    embedded.sum().backward()
    assert learned.table_PE.grad is not None
    assert learned.table_PE.grad[:, 0].tolist() == [1, 1, 0, 2, 1, 0, 0, 0, 0, 1]


def test_learned_starts_with_the_deviation_asked_for() -> None:
    torch.manual_seed(0)
    shape = Shape(width=100, heads=1, head_width=100, max_length=100)
    assert Learned(shape).table_PE.std().item() == pytest.approx(0.02, rel=0.05)
    assert not Learned(shape, LearnedSettings(std=0.0)).table_PE.any()


@pytest.mark.parametrize("wrong", [10, -1])
def test_learned_has_no_row_for(wrong: int) -> None:
    message = f"position {wrong} is not in the learned table, which has 10 rows"
    with pytest.raises(InputError, match=message):
        Learned(SHAPE).embed(torch.zeros(1, 2, 6), torch.tensor([0, wrong]))
