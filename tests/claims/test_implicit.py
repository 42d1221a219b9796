"""From which state on position is read, on hand-made tables."""

from collections.abc import Sequence

import polars as pl
import pytest

from poslens.claims.implicit import APPEARS, appears
from poslens.results import KEY
from poslens.results.schemas import PROBES

Interval = tuple[float, float]


def table(true: Sequence[Interval], control: Sequence[Interval], seed: int = 0) -> pl.DataFrame:
    rows = [
        {
            **{"scheme": "nope", "task": "distance", "seed": seed, "state": state},
            **{"probe": "ridge", "target": target, "score": "r2"},
            **{"value": (low + high) / 2, "low": low, "high": high},
        }
        for target, intervals in (("true", true), ("shuffled", control))
        for state, (low, high) in enumerate(intervals)
    ]
    others = [{**row, "score": "accuracy", "low": 0.9, "high": 1.0} for row in rows]
    return pl.DataFrame(rows + others, schema={**KEY, **PROBES})


NOTHING = (-0.01, 0.01)


@pytest.mark.parametrize(
    ("true", "control", "state"),
    [
        ([NOTHING, NOTHING, NOTHING], [NOTHING] * 3, None),
        ([NOTHING, (0.1, 0.2), (0.3, 0.4)], [NOTHING] * 3, 1),
        ([(0.1, 0.2), NOTHING, NOTHING], [NOTHING] * 3, 0),
        ([NOTHING, (0.009, 0.2), (0.011, 0.2)], [NOTHING] * 3, 2),  # the control's upper bound
        ([(-0.001, 0.001)] * 3, [(-0.02, -0.01)] * 3, None),  # above a control below chance
    ],
)
def test_first_state_above_control_and_chance(
    true: list[Interval], control: list[Interval], state: int | None
) -> None:
    found = appears(table(true, control))
    assert found.schema == APPEARS
    assert found.rows() == [("nope", "distance", 0, state, 3)]


def test_every_run_has_its_row() -> None:
    both = pl.concat([table([NOTHING], [NOTHING], seed=1), table([(0.5, 0.6)], [NOTHING], seed=0)])
    assert appears(both)["appears"].to_list() == [0, None]
    assert appears(both.clear()).is_empty()
