"""`reproduce`: the grid of a profile, from nothing to a report, doing only what is missing."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from poslens import results
from poslens.errors import InputError
from poslens.experiments.local import Cell, News, run_cells
from poslens.experiments.profiles import Profile
from poslens.experiments.rates import Rates
from poslens.model import ModelSettings
from poslens.settings import make_settings
from poslens.training import RunFolder, RunSettings, TrainingSettings, task_of
from poslens.training.folder import (
    first_difference,
    holds_files,
    make_folder,
    pick_device,
    read_json,
    to_json,
    write_text,
)
from poslens.training.loop import initial_model

EXPERIMENT = "experiment.json"
# Completes cells: so many at once, on a device, telling its news.
Runner = Callable[[list[Cell], int, str, Callable[[News], None] | None], None]


def reproduce(
    profile: Profile,
    folder: Path,
    jobs: int,
    device: str = "cpu",
    rates: Rates | None = None,
    watch: "Watch | None" = None,
    runner: Runner | None = None,
    kept: Path | None = None,
) -> list[Cell]:
    """Complete every run of the profile below `folder`; the cells, finished ones included.

    `runner` does it where it is given, worker processes of this machine where not. Runs that
    `kept`, a folder of collected results, has are left out.
    The same call continues where an earlier one stopped. Raises InputError for settings that fit no
    model, a folder that holds another experiment, a missing device, a damaged run.
    """
    known = [] if kept is None else kept_runs(kept)
    runs = [run for run in profile.cells(rates or Rates()) if to_json(run) not in known]
    cells = [Cell(run, folder / run.name) for run in runs]
    if cells:
        complete(cells, profile, folder, jobs, device, watch, runner)
    return cells


def kept_runs(folder: Path) -> list[dict[str, Any]]:
    """The settings, as JSON, of all runs in a folder of collected results.

    Raises InputError where it holds none, and for settings that this version does not have.
    """
    path = folder / results.RUNS
    if not path.exists():
        raise InputError(f"{folder} holds no collected results; make them with `poslens collect`")
    return [
        to_json(RunSettings.from_json(it["config"], path)) for it in results.described_runs(folder)
    ]


def complete(
    cells: list[Cell],
    profile: Profile,
    folder: Path,
    jobs: int,
    device: str,
    watch: "Watch | None",
    runner: Runner | None = None,
) -> None:
    """Do what is missing of `cells`, all below `folder`, which `profile` describes."""
    check(cells, jobs, device if runner is None else None)
    claim(folder, profile, cells)
    work(cells, jobs, device, watch, runner)


def reproduce_together(
    experiments: Mapping[str, Profile],
    folder: Path,
    jobs: int,
    device: str = "cpu",
    rates: Rates | None = None,
    watch: "Watch | None" = None,
    runner: Runner | None = None,
) -> None:
    """`reproduce` for experiments below one folder, by name, all their runs in one queue.

    So no worker waits for the last run of each. Raises as `reproduce` does, before any run begins.
    """
    cells = {
        name: [
            Cell(run, folder / name / run.name, experiment=name)
            for run in profile.cells(rates or Rates())
        ]
        for name, profile in experiments.items()
    }
    for own in cells.values():
        check(own, jobs, device if runner is None else None)
    for name, own in cells.items():
        claim(folder / name, experiments[name], own)
    work([cell for own in cells.values() for cell in own], jobs, device, watch, runner)


def work(
    cells: list[Cell], jobs: int, device: str, watch: "Watch | None", runner: Runner | None
) -> None:
    """Complete what is missing of cells that have been checked and claimed."""
    missing = [cell for cell in cells if not cell.finished]
    if watch is not None:
        watch.start(cells, missing)
    run = run_cells if runner is None else runner
    run(missing, jobs, device, watch.news if watch is not None else None)


class Watch:
    """What wants to see a grid's progress overrides these."""

    def start(self, cells: list[Cell], missing: list[Cell]) -> None: ...

    def news(self, news: News) -> None: ...


def check(cells: list[Cell], jobs: int, device: str | None) -> None:
    """Build every model once, so that bad settings are named before anything is written.

    `device` is None where it is another machine's.
    """
    if jobs < 1:
        raise InputError(f"jobs is {jobs}; use 1 or more")
    if device is not None:
        pick_device(device)
    for cell in cells:
        initial_model(cell.run, task_of(cell.run))


def claim(folder: Path, profile: Profile, cells: list[Cell]) -> None:
    """Write experiment.json, or add this call's schemes, tasks and seeds to the one that is there.

    Raises InputError where the folder holds an experiment with other settings, or other things.
    """
    path = folder / EXPERIMENT
    asked: dict[str, Any] = json.loads(json.dumps(asdict(profile)))
    asked = {"profile": asked.pop("name")} | asked
    if path.exists():
        found = read_json(path)
        if lacking := [key for key in asked if key not in found]:
            raise InputError(f"{path} is damaged (no {lacking[0]!r}); choose another folder")
        # What is there may be older than a setting, which then has its default.
        found["model"] = _resolved(ModelSettings, found["model"], f"{path}: model")
        found["training"] = {
            task: _resolved(TrainingSettings, own, f"{path}: training.{task}")
            for task, own in found["training"].items()
        }
        for key in ("profile", "model", "tuned"):
            refuse(folder, first_difference(found[key], asked[key], key))
        for key in ("tasks", "training"):
            for task in profile.tasks:
                if task in found[key]:
                    refuse(
                        folder,
                        first_difference(found[key][task], asked[key][task], f"{key}.{task}"),
                    )
            asked[key] = found[key] | asked[key]
        for key in ("schemes", "seeds"):
            asked[key] = found[key] + [item for item in asked[key] if item not in found[key]]
    elif holds_files(folder):
        raise InputError(f"{folder} is not empty and holds no experiment; choose another folder")
    for cell in cells:
        RunFolder(cell.path).check(cell.run)
    make_folder(folder)
    write_text(path, json.dumps(asked, indent=2) + "\n")


def _resolved(kind: type[Any], values: dict[str, Any], where: str) -> dict[str, Any]:
    resolved: dict[str, Any] = json.loads(json.dumps(asdict(make_settings(kind, values, where))))
    return resolved


def refuse(folder: Path, difference: str | None) -> None:
    if difference:
        raise InputError(
            f"{folder} holds another experiment ({difference}); choose another folder with --out"
        )
