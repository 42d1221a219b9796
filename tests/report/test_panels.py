import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from poslens.report.panels import spread

values = st.lists(st.floats(0, 100), min_size=1, max_size=12)


@settings(deadline=None, max_examples=80)
@given(values)
def test_labels_keep_their_distance_order_and_room(places: list[float]) -> None:
    found = np.array(spread(places, 4.5, -1, 104))
    assert (np.diff(np.sort(found)) >= 4.5 - 1e-9).all()
    assert (found >= -1 - 1e-9).all()
    assert (found <= 104 + 1e-9).all()
    for first, second in zip(np.argsort(places), np.argsort(places)[1:], strict=False):
        assert places[first] == places[second] or found[first] < found[second]


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread([50.0, 10.0, 90.0], 5, 0, 100) == [50.0, 10.0, 90.0]


def test_two_labels_in_one_place_part_evenly() -> None:
    assert spread([50.0, 50.0], 4, 0, 100) == [48.0, 52.0]


def test_labels_without_enough_room_are_packed() -> None:
    assert spread([5.0, 5.0, 5.0], 10, 0, 15) == [0.0, 10.0, 20.0]
