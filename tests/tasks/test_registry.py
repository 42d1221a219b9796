"""Tasks by name."""

import pytest

from poslens.errors import InputError
from poslens.tasks import TASKS, make_task
from poslens.tasks.count import Count
from poslens.tasks.distance import Distance, DistanceSettings


def test_tasks_by_name():
    assert list(TASKS.items()) == [("distance", Distance), ("count", Count)]
    assert make_task("count").classes == 101
    assert make_task("distance", DistanceSettings(between=7)).classes == 7


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("distnace", "unknown task 'distnace': did you mean distance?"),
        ("counts", "unknown task 'counts': did you mean count?"),
        ("zzz", "unknown task 'zzz': there are distance, count"),
    ],
)
def test_unknown_names_get_the_close_ones(name, message):
    with pytest.raises(InputError) as error:
        make_task(name)
    assert str(error.value) == message
