"""What falls first, on planted curves."""

import math

import numpy as np
import pytest

from poslens.theory.falls import GAINS, First, first

N = 400


def planted(accuracy: list[float], mass: list[float], seed: int = 0) -> First:
    """Answers that are lost one after another, and masses with noise of their own."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(N) / N
    correct = np.array([order < share for share in accuracy])
    return first(correct, np.array(mass)[:, None] + rng.normal(0, 0.02, (1, N)))


EARLY, LATE, EVEN = [0.9, 0.2, 0.1, 0.1, 0.1], [0.9, 0.9, 0.9, 0.8, 0.1], [0.9, 0.7, 0.5, 0.3, 0.1]


@pytest.mark.parametrize(
    ("accuracy", "mass", "verdict"),
    [
        (LATE, EARLY, "mass"),
        (EARLY, LATE, "accuracy"),
        (EVEN, EVEN, "not told apart"),
        ([0.9] * 5, EVEN, "only mass"),
        (EVEN, [0.4] * 5, "only accuracy"),
        ([0.9] * 5, [0.4] * 5, "neither"),
        ([0.9] * 5, [0.4, 0.4, 0.4, 0.4, 0.395], "neither"),  # less than a mass that counts
    ],
)
def test_verdicts(accuracy: list[float], mass: list[float], verdict: str) -> None:
    assert planted(accuracy, mass).verdict == verdict


def test_halves_are_where_the_curve_crosses_the_middle() -> None:
    found = planted(EVEN, EARLY)
    assert found.accuracy_half == pytest.approx(0.5, abs=0.01)
    # From 0.9 to 0.1 the middle is 0.5; from 1 to 0.75 it falls by 0.7.
    assert found.mass_half == pytest.approx(1 - 0.25 * 0.4 / 0.7, abs=0.01)
    assert found.difference == pytest.approx(found.mass_half - found.accuracy_half)
    assert found.low <= found.difference <= found.high


def test_what_does_not_fall_has_no_half() -> None:
    found = planted([0.9] * 5, EVEN)
    assert math.isnan(found.accuracy_half)
    assert math.isnan(found.difference)
    assert found.mass_half == pytest.approx(0.5, abs=0.01)


def test_sequences_without_a_pair_are_left_out_of_the_mass_alone() -> None:
    mass = np.tile(np.array(EVEN)[:, None], (1, N))
    mass[:, ::2] = np.nan
    correct = np.arange(N) < N * np.array(LATE)[:, None]
    found = first(correct, mass)
    assert found.mass_half == pytest.approx(0.5)
    assert found.verdict == "mass"
    assert first(correct, np.full((len(GAINS), N), np.nan)).verdict == "no mass"
