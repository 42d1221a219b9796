"""Concentration over seeds."""

import polars as pl
import pytest

from poslens.claims.over_seeds import over_seeds
from poslens.results import CONCENTRATION, KEY

NAN = float("nan")


def table(*rows: dict[str, object]) -> pl.DataFrame:
    """Rows of one layer and edit, the rest of the columns null."""
    shared = {"task": "distance", "layer": 0, "target": "head", "method": "zero"}
    return pl.DataFrame(
        [{"scheme": "rope", "metric": "accuracy", **shared, **row} for row in rows],
        schema={**KEY, **CONCENTRATION},
    )


def row(seed: int, share: float, heads: float, index: float, verdict: str) -> dict[str, object]:
    return {
        **{"seed": seed, "top_share": share, "effective_heads": heads},
        **{"deposit_index": index, "verdict": verdict},
    }


def test_mean_and_range_are_over_the_seeds_that_define_them() -> None:
    found = over_seeds(
        table(
            row(0, 0.5, 3.0, 0.4, "spread"),
            row(1, NAN, NAN, NAN, "none"),
            row(2, 0.9, 1.2, 0.8, "deposit"),
            row(3, 0.7, 1.8, 0.6, "spread"),
        )
    ).row(0, named=True)
    assert (found["seeds"], found["defined"]) == (4, 3)
    assert found["top_share"] == pytest.approx(0.7)
    assert (found["top_share_min"], found["top_share_max"]) == (0.5, 0.9)
    assert found["effective_heads"] == pytest.approx(2.0)
    assert (found["deposit_index_min"], found["deposit_index_max"]) == (0.4, 0.8)
    assert found["verdicts"] == "deposit 1, spread 2, none 1"


def test_what_no_seed_defines_is_null() -> None:
    found = over_seeds(table(row(0, NAN, NAN, NAN, "none"))).row(0, named=True)
    assert (found["seeds"], found["defined"]) == (1, 0)
    assert found["top_share"] is None
    assert found["deposit_index_max"] is None
    assert found["verdicts"] == "none 1"


def test_schemes_targets_and_metrics_are_kept_apart() -> None:
    one = row(0, 0.5, 3.0, 0.4, "spread")
    found = over_seeds(
        table(
            one,
            {**one, "target": "position", "method": "none"},
            {**one, "metric": "margin"},
            {**one, "scheme": "alibi"},
        )
    )
    assert found["scheme"].to_list() == ["rope", "rope", "rope", "alibi"]
    assert found["seeds"].to_list() == [1] * 4


def test_an_empty_table_gives_an_empty_one() -> None:
    assert over_seeds(table()).is_empty()
