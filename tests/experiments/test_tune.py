"""Tuning: every rate of the grid on a seed of its own, one table."""

import json
from pathlib import Path

import polars as pl
import pytest

from poslens.errors import InputError
from poslens.experiments.profiles import PROFILES, Profile
from poslens.experiments.rates import COLUMNS
from poslens.experiments.reproduce import reproduce
from poslens.experiments.tune import GRID, VALIDATION_SEED, tune


def test_no_profile_is_judged_on_the_data_its_rates_were_chosen_on() -> None:
    assert all(VALIDATION_SEED not in profile.seeds for profile in PROFILES.values())


def test_every_rate_is_tried_and_the_best_told(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    rates = tune(tiny, tmp_path, jobs=1)
    assert len(in_process) == 4 * len(GRID)
    table = pl.read_csv(tmp_path / "learning_rates.csv")
    assert table.columns == list(COLUMNS)
    assert set(table["seed"]) == {VALIDATION_SEED}
    tried = table.filter(scheme="rope", task="count")
    assert tried["learning_rate"].to_list() == sorted(GRID)
    best = tried.sort("accuracy", "loss", descending=[True, False]).row(0, named=True)
    assert rates.best("rope", "count") == best["learning_rate"]
    assert rates.row("rope", "count", GRID[0])["accuracy"] == tried["accuracy"][0]


def test_runs_are_kept_and_not_ablated(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    first = tune(tiny, tmp_path, jobs=1)
    in_process.clear()
    assert tune(tiny, tmp_path, jobs=1).table.equals(first.table)
    assert in_process == []
    assert not list(tmp_path.glob("*/effects.parquet"))


def test_tuning_and_reproducing_do_not_mix_in_one_folder(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    tune(tiny, tmp_path, jobs=1)
    assert json.loads((tmp_path / "experiment.json").read_text())["profile"] == "tune-tiny"
    with pytest.raises(InputError, match="holds another experiment"):
        reproduce(tiny, tmp_path, jobs=1)
