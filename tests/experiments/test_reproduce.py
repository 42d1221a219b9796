"""The grid: does what is missing, keeps what is finished, refuses what does not fit."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poslens import results
from poslens.errors import InputError
from poslens.experiments.local import Cell, News
from poslens.experiments.profiles import Profile
from poslens.experiments.rates import Rates
from poslens.experiments.reproduce import Watch, reproduce
from poslens.model import ModelSettings
from poslens.training import loop
from poslens.training.folder import MODEL

Identity = Callable[[Path], tuple[int, int]]
NAMES = ["rope-distance-seed0", "mla-distance-seed0", "rope-count-seed0", "mla-count-seed0"]


def refused(profile: Profile, folder: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        reproduce(profile, folder, **{"jobs": 1, **options})
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_every_cell_is_trained_and_ablated(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    cells = reproduce(tiny, tmp_path, jobs=1)
    assert in_process == NAMES
    assert all(cell.finished for cell in cells)
    asked = json.loads((tmp_path / "experiment.json").read_text())
    assert asked["profile"] == "tiny"
    assert asked["schemes"] == ["rope", "mla"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*NAMES, "experiment.json"])


def test_the_same_call_again_does_nothing(
    tmp_path: Path, tiny: Profile, in_process: list[str], identity: Identity
) -> None:
    reproduce(tiny, tmp_path, jobs=1)
    before = {path: identity(path) for path in tmp_path.glob("*/*")}
    in_process.clear()
    reproduce(tiny, tmp_path, jobs=1)
    assert in_process == []
    assert {path: identity(path) for path in tmp_path.glob("*/*")} == before


@pytest.mark.parametrize(
    "deleted", [("effects",), ("concentration",), ("effects", "concentration")]
)
def test_without_its_effects_a_run_is_ablated_again_and_not_trained(
    tmp_path: Path,
    tiny: Profile,
    in_process: list[str],
    identity: Identity,
    monkeypatch: pytest.MonkeyPatch,
    deleted: tuple[str, ...],
) -> None:
    reproduce(tiny, tmp_path, jobs=1)
    run = tmp_path / "mla-count-seed0"
    before = identity(run / MODEL)
    tables = {name: (run / f"{name}.parquet").read_bytes() for name in deleted}
    for name in deleted:
        (run / f"{name}.parquet").unlink()
    in_process.clear()

    def never(self: loop.Trainer, batch: object) -> float:
        raise AssertionError("trained again")

    monkeypatch.setattr(loop.Trainer, "train_step", never)
    reproduce(tiny, tmp_path, jobs=1)
    assert in_process == ["mla-count-seed0"]
    assert identity(run / MODEL) == before
    for name, content in tables.items():
        assert (run / f"{name}.parquet").read_bytes() == content


def test_a_run_whose_model_is_gone_is_trained_again(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    reproduce(tiny, tmp_path, jobs=1)
    model = tmp_path / "rope-distance-seed0" / MODEL
    content = model.read_bytes()
    model.unlink()
    in_process.clear()
    reproduce(tiny, tmp_path, jobs=1)
    assert in_process == ["rope-distance-seed0"]
    assert model.read_bytes() == content


def test_the_watch_hears_of_all_cells_and_those_missing(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    class Ear(Watch):
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def start(self, cells: list[Cell], missing: list[Cell]) -> None:
            self.heard.append((len(cells), len(missing)))

        def news(self, news: News) -> None:
            self.heard.append(news.name)

    reproduce(replace(tiny, schemes=("mla",)), tmp_path, jobs=1)
    ear = Ear()
    reproduce(tiny, tmp_path, jobs=1, watch=ear)
    assert ear.heard == [(4, 2), "rope-distance-seed0", "rope-count-seed0"]


def test_later_calls_add_schemes_tasks_and_seeds(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    count = {"tasks": {"count": tiny.tasks["count"]}, "training": {"count": tiny.training["count"]}}
    distance = {
        **{"tasks": {"distance": tiny.tasks["distance"]}},
        **{"training": {"distance": tiny.training["distance"]}},
    }
    reproduce(replace(tiny, schemes=("rope",), **count), tmp_path, jobs=1)
    reproduce(replace(tiny, schemes=("mla",), seeds=(3,), **distance), tmp_path, jobs=1)
    asked = json.loads((tmp_path / "experiment.json").read_text())
    assert asked["schemes"] == ["rope", "mla"]
    assert asked["seeds"] == [0, 3]
    assert list(asked["tasks"]) == list(asked["training"]) == ["count", "distance"]
    assert in_process == ["rope-count-seed0", "mla-distance-seed3"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "other"}, "profile is 'tiny' there, 'other' here"),
        ({"tuned": True}, "tuned is False there, True here"),
        (
            {"model": ModelSettings(layers=2, heads=2, width=8, feedforward=8)},
            "model.layers is 1 there, 2 here",
        ),
        ({"tasks": {"count": {"length": 9, "most": 8}}}, "tasks.count.length is 12 there, 9 here"),
    ],
)
def test_a_folder_with_another_experiment_is_refused(
    tmp_path: Path,
    tiny: Profile,
    in_process: list[str],
    change: dict[str, Any],
    words: str,
) -> None:
    reproduce(tiny, tmp_path, jobs=1)
    before = (tmp_path / "experiment.json").read_bytes()
    in_process.clear()
    message = refused(replace(tiny, **change), tmp_path)
    assert f"{tmp_path} holds another experiment ({words}); choose another folder" in message
    assert (tmp_path / "experiment.json").read_bytes() == before
    assert in_process == []


def test_another_budget_is_another_experiment(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    reproduce(tiny, tmp_path, jobs=1)
    longer = replace(tiny.training["count"], sequences=128)
    message = refused(replace(tiny, training={**tiny.training, "count": longer}), tmp_path)
    assert "(training.count.sequences is 64 there, 128 here)" in message


def test_finished_runs_with_other_rates_are_refused_and_not_passed_off(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    tuned = replace(tiny, tuned=True)
    tables = []
    for number, rate in enumerate((0.001, 0.002)):
        path = tmp_path / f"{number}.csv"
        rows = [f"{scheme},count,{rate},1,0,10,1000" for scheme in ("rope", "mla")]
        header = "scheme,task,learning_rate,accuracy,loss,sequences,seed"
        path.write_text("\n".join([header, *rows]) + "\n")
        tables.append(Rates(path))
    reproduce(tuned, tmp_path / "out", jobs=1, rates=tables[0])
    message = refused(tuned, tmp_path / "out", rates=tables[1])
    assert "rope-count-seed0 holds another run (training.learning_rate is 0.001 there" in message


def test_a_folder_with_other_files_is_refused(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for path in (tmp_path, tmp_path / "notes.txt"):
        message = refused(tiny, path)
        assert f"{path} is not empty and holds no experiment; choose another folder" in message
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_what_a_write_killed_at_once_left_behind_is_no_obstacle(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    (tmp_path / "experiment.json.tmp").write_text('{"pro')
    assert all(cell.finished for cell in reproduce(tiny, tmp_path, jobs=1))


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"profile": "tiny"}'])
def test_a_damaged_experiment_is_named(
    tmp_path: Path, tiny: Profile, in_process: list[str], content: str
) -> None:
    (tmp_path / "experiment.json").write_text(content)
    assert f"{tmp_path / 'experiment.json'} is damaged (" in refused(tiny, tmp_path)
    assert (tmp_path / "experiment.json").read_text() == content


@pytest.mark.parametrize(
    ("profile", "options", "words"),
    [
        ({}, {"jobs": 0}, "jobs is 0; use 1 or more"),
        ({}, {"jobs": -2}, "jobs is -2; use 1 or more"),
        ({}, {"device": "nonsense"}, "device 'nonsense' is not there"),
        ({"schemes": ("rope@9",)}, {}, "1 to 2 of the heads, not on 9"),
        ({"tasks": {"count": {"words": 3}}}, {}, "words=3 is too small"),
        ({"tasks": {"count": {"word": 3}}}, {}, "count has no setting 'word'; it has: words"),
    ],
)
def test_what_fits_no_model_is_named_before_anything_is_written(
    tmp_path: Path, tiny: Profile, profile: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    assert words in refused(replace(tiny, **profile), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_damaged_config_of_a_finished_run_is_named(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    reproduce(tiny, tmp_path, jobs=1)
    (tmp_path / "mla-count-seed0" / "config.json").write_text("{")
    message = refused(tiny, tmp_path)
    assert f"{tmp_path / 'mla-count-seed0' / 'config.json'} is damaged (" in message


def test_runs_of_collected_results_are_not_trained_again(
    tmp_path: Path, tiny: Profile, in_process: list[str]
) -> None:
    first = replace(tiny, schemes=("rope",), tasks={"distance": tiny.tasks["distance"]})
    reproduce(first, tmp_path / "runs", jobs=1)
    kept = tmp_path / "kept"
    results.collect(tmp_path / "runs", kept)
    in_process.clear()
    cells = reproduce(tiny, tmp_path / "more", jobs=1, kept=kept)
    assert in_process == [cell.run.name for cell in cells] == NAMES[1:]
    results.collect(tmp_path / "more", kept)
    assert results.read(kept).summary.height == len(NAMES)
    assert reproduce(tiny, tmp_path / "none", jobs=1, kept=kept) == []
    assert not (tmp_path / "none").exists()
    changed = replace(tiny, model=replace(tiny.model, width=2 * tiny.model.width))
    assert len(reproduce(changed, tmp_path / "wide", jobs=1, kept=kept)) == len(NAMES)
    assert "holds no collected results" in refused(tiny, tmp_path / "x", kept=tmp_path / "runs")
