"""Position subspaces: their size, what they explain, and the angles between them."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from poslens.probing import PositionParts, angles, dimensions, explained, mean_cos2
from poslens.probing.subspaces import HELD

Floats = NDArray[np.floating]


def with_spectrum(*variances: float, length: int = 9, width: int = 12) -> Floats:
    """A p_t whose principal components have these variances, along the first channels."""
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.normal(size=(length, len(variances))))
    p_LE = np.zeros((length, width))
    p_LE[:, : len(variances)] = left * np.sqrt(variances)
    return p_LE


@pytest.mark.parametrize(
    ("variances", "expected"),
    [
        ((1.0,), 1),
        ((95, 5), 1),
        ((89, 11), 2),
        ((50, 30, 15, 5), 3),
        ((1, 1, 1, 1, 1, 1, 1, 1), 8),  # 7 of 8 hold less than nine tenths
    ],
)
def test_dimensions_hold_nine_tenths_of_the_variance(
    variances: tuple[float, ...], expected: int
) -> None:
    assert HELD == 0.9
    assert dimensions(with_spectrum(*variances)) == expected


def test_a_subspace_is_no_angle_from_itself_and_a_right_one_from_an_orthogonal_one() -> None:
    p_LE = with_spectrum(5, 3, 2)
    assert mean_cos2(p_LE, p_LE, 3) == pytest.approx(1)
    assert mean_cos2(-3 * p_LE, p_LE, 3) == pytest.approx(1)
    assert mean_cos2(np.roll(p_LE, 6, axis=1), p_LE, 3) == pytest.approx(0, abs=1e-12)
    # One of the three dimensions kept, two given up.
    assert mean_cos2(np.roll(p_LE, 2, axis=1), p_LE, 3) == pytest.approx(1 / 3)


def test_a_turn_by_a_known_angle_is_found() -> None:
    turn, p_LE = 0.7, with_spectrum(5, 3)
    turned = p_LE.copy()
    turned[:, 1], turned[:, 2] = math.cos(turn) * p_LE[:, 1], math.sin(turn) * p_LE[:, 1]
    assert mean_cos2(turned, p_LE, 2) == pytest.approx((1 + math.cos(turn) ** 2) / 2)


def test_random_subspaces_are_at_the_null() -> None:
    rng = np.random.default_rng(0)
    found = [
        mean_cos2(rng.normal(size=(30, 20)), with_spectrum(3, 2, 1, length=30, width=20), 3)
        for _ in range(200)
    ]
    assert np.mean(found) == pytest.approx(3 / 20, abs=0.02)


def stream(p_LE: Floats, sequences: int = 400, noise: float = 1.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    content = torch.randn(sequences, *p_LE.shape, generator=generator, dtype=torch.float64)
    return noise * content + torch.from_numpy(p_LE)


def test_components_above_noise_are_counted(planted: Callable) -> None:
    assert PositionParts(planted(0.0)).above_noise == 0
    assert PositionParts(planted(1.0)).above_noise == 1
    p_LE = with_spectrum(5, 3, 2)
    p_LE -= p_LE.mean(0)
    assert PositionParts(stream(p_LE)).above_noise == 3


def test_the_parts_are_means_without_each_block() -> None:
    x_BLE = stream(with_spectrum(5, 3, 2), sequences=43)  # blocks of two and of three
    parts = PositionParts(x_BLE)
    whole = x_BLE.mean(0)
    np.testing.assert_allclose(parts.position_LE, whole - whole.mean(0))
    assert len(parts.left_out) == 20
    for number, block in enumerate(torch.arange(43).tensor_split(20)):
        rest = x_BLE[[i for i in range(43) if i not in block.tolist()]].mean(0)
        np.testing.assert_allclose(parts.left_out[number], rest - rest.mean(0))


def test_a_state_like_the_input_is_at_one_and_a_displaced_one_at_its_angle() -> None:
    p_LE = 5 * with_spectrum(5, 3, 2)
    start = PositionParts(stream(p_LE))
    same = angles(start, start, 3)
    assert (same.mean_cos2, same.low, same.high) == pytest.approx((1, 1, 1))
    again = angles(PositionParts(stream(p_LE, seed=1)), start, 3)
    assert again.mean_cos2 > 0.99
    away = angles(PositionParts(stream(np.roll(p_LE, 6, axis=1), seed=1)), start, 3)
    assert away.mean_cos2 < 0.01
    assert 0 <= away.low <= away.mean_cos2 <= away.high < 0.03


def test_the_interval_tells_how_far_other_sequences_lie() -> None:
    """Over many draws of the sequences the deviation is about what one draw's interval says."""
    p_LE = with_spectrum(5, 3, 2)
    found = [
        angles(
            PositionParts(stream(p_LE, 100, seed=2 * i)),
            PositionParts(stream(p_LE, 100, seed=2 * i + 1)),
            3,
        )
        for i in range(30)
    ]
    deviation = np.std([it.mean_cos2 for it in found], ddof=1)
    told = np.mean([(it.high - it.low) / 2 / 2.093 for it in found])
    assert 0.5 < told / deviation < 2


def test_a_planted_share_is_explained(planted: Callable) -> None:
    """One of sixteen channels' worth of content beside position of known variance."""
    for size in (0.5, 2.0):
        variance = size**2 * (12**2 - 1) / 12
        found = explained(planted(size))
        assert found.share == pytest.approx(variance / (variance + 16), abs=0.01)
        assert found.low < found.share < found.high


def test_noise_explains_less_than_nothing_of_other_sequences(planted: Callable) -> None:
    found = explained(planted(0.0))
    assert found.share == pytest.approx(-1 / 300, abs=1 / 900)
