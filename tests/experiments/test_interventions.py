"""Interventions: each changes what it names, of the head that the control run chose."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch

from poslens import results
from poslens.claims.interventions import (
    CONTROL,
    INTERVENTIONS,
    OUTCOMES,
    leader,
    least,
    outcomes,
    read_interventions,
)
from poslens.errors import InputError
from poslens.experiments.interventions import GAINS, intervened, run_interventions
from poslens.experiments.profiles import Profile
from poslens.experiments.rates import Rates
from poslens.training import RunFolder, load_model

SEEDS = (0, 4)


@pytest.fixture
def pair(tiny: Profile) -> Profile:
    return replace(tiny, seeds=SEEDS)


def test_every_intervention_is_trained_with_the_head_it_is_about(
    pair: Profile, tmp_path: Path, in_process: list[str]
) -> None:
    run_interventions(pair, tmp_path, jobs=1)
    assert len(set(in_process)) == len(in_process) == len(SEEDS) * len(INTERVENTIONS)
    control = results.read(tmp_path / CONTROL)
    for seed in SEEDS:
        first, last = leader(control, seed), least(control, seed)
        assert first != last
        heads = {"lower": first, "off": first, "higher": last}
        for name in INTERVENTIONS:
            scheme = "rope-bases" if name == "bases" else "rope"
            run = RunFolder(tmp_path / name / f"{scheme}-distance-seed{seed}").settings()
            head = {"head": heads[name]} if name in heads else {}
            assert run.parts == {"gain": GAINS[name] | head}
            assert run.training.solved > 1
            assert run.training.learning_rate == pair.training["distance"].learning_rate
        off, _, _ = load_model(tmp_path / "off" / f"rope-distance-seed{seed}")
        assert off.attentions[0].gain_H is not None
        assert off.attentions[0].gain_H[first] == 0
    found = outcomes(read_interventions(tmp_path))
    assert found.schema == OUTCOMES
    assert found["intervention"].unique(maintain_order=True).to_list() == [*INTERVENTIONS]
    of_off = found.filter(intervention="off")
    assert of_off["was_leader"].to_list() == [0.0, 0.0]  # has no position to lose
    in_process.clear()
    run_interventions(pair, tmp_path, jobs=1)
    assert in_process == []


def test_outcomes_say_who_leads(tmp_path: Path, pair: Profile, in_process: list[str]) -> None:
    run_interventions(replace(pair, seeds=(0,)), tmp_path, jobs=1)
    by_name = read_interventions(tmp_path)
    planted = {}
    for number, (name, tables) in enumerate(by_name.items()):
        heads = pl.when(pl.col("head") == number % 2).then(0.5).otherwise(0.2)
        planted[name] = replace(tables, effects=tables.effects.with_columns(effect=heads))
    rows = {row["intervention"]: row for row in outcomes(planted).iter_rows(named=True)}
    assert [row["leader"] for row in rows.values()] == [0, 1, 0, 1, 0, 1]
    assert [row["stays"] for row in rows.values()] == [None, False, True, False, None, False]
    assert {row["effect"] for row in rows.values()} == {0.5}
    assert [row["was_leader"] for row in rows.values()] == [0.5, 0.2, 0.5, 0.2, 0.5, 0.2]
    assert rows["lower"]["chosen"] == 0
    assert rows["higher"]["chosen"] == 1
    assert rows["tied"]["chosen"] is None


def test_rates_are_those_of_rope(tiny: Profile) -> None:
    tuned = replace(tiny, tuned=True, seeds=(0,))
    rates = Rates()
    (run,) = intervened(tuned, "bases").cells(rates)
    assert run.training.learning_rate == rates.best("rope", "distance")
    assert run.scheme == "rope-bases"


def test_a_folder_without_a_control_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no interventions"):
        read_interventions(tmp_path)


def test_the_same_start_in_all(pair: Profile, tmp_path: Path, in_process: list[str]) -> None:
    """Interventions differ from the control in gains alone, before the first step."""
    from poslens.training import task_of
    from poslens.training.loop import initial_model

    cells = {name: intervened(pair, name).cells(Rates())[0] for name in ("control", "tied")}
    one, other = (initial_model(run, task_of(run)).state_dict() for run in cells.values())
    assert all(torch.equal(one[name], other[name]) for name in one)
