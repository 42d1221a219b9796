import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from poslens.report.intervals import wilson


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_equals_scipy(case: tuple[int, int]) -> None:
    right, size = case
    low, high = wilson(right / size, size)
    expected = binomtest(right, size).proportion_ci(0.95, method="wilson")
    assert abs(low - expected.low) < 1e-9
    assert abs(high - expected.high) < 1e-9


@pytest.mark.parametrize("size", [1, 7, 100, 4096, 10_001])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_interval_holds_the_share_at_the_ends(share: float, size: int) -> None:
    low, high = wilson(share, size)
    assert low <= share <= high
