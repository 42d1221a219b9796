"""The learning rate: linear to the peak, then a cosine to zero."""

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from poslens.training import TrainingSettings
from poslens.training.loop import learning_rate


def make(steps: int, warmup: float, peak: float = 1.0) -> TrainingSettings:
    return TrainingSettings(sequences=steps, batch=1, warmup=warmup, learning_rate=peak)


def test_values_of_a_schedule_of_ten_steps() -> None:
    schedule = make(10, 0.4, peak=2.0)
    rates = [learning_rate(step, schedule) for step in range(11)]
    cosine = [1 + math.cos(math.pi * done / 6) for done in range(7)]
    assert rates == pytest.approx([0.5, 1.0, 1.5, 2.0, *cosine], abs=1e-15)


def test_without_warm_up_the_second_step_has_the_peak() -> None:
    assert learning_rate(0, make(10, 0.0)) == 1.0
    assert learning_rate(1, make(10, 0.0)) == 1.0


@given(steps=st.integers(2, 500), warmup=st.floats(0, 0.9), peak=st.floats(1e-6, 1))
@settings(deadline=None, max_examples=50)
def test_it_rises_to_the_peak_and_falls_to_zero(steps: int, warmup: float, peak: float) -> None:
    assume(round(warmup * steps) < steps)  # else there is no time to fall
    schedule = make(steps, warmup, peak)
    rates = [learning_rate(step, schedule) for step in range(steps + 1)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(peak)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[steps] == pytest.approx(0.0, abs=1e-12)
    assert min(rates[:steps]) > 0
