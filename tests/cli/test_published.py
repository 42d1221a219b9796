"""`--published`: the preset of a scheme, with file and options before it and the profile after."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poslens.cli import reproduce as grid_command
from poslens.cli import train as command
from poslens.errors import InputError
from poslens.experiments.profiles import profile_named
from poslens.experiments.rates import Rates
from poslens.training import RunFolder

SMOKE = profile_named("smoke")


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch, poslens: Callable) -> Callable[..., Any]:
    """The run that a command line asks for, and its folder, without training it."""
    asked: list[Any] = []

    def fake(run: Any, path: Path, device: str, report: object) -> RunFolder:
        asked.append((run, path))
        return RunFolder(path)

    monkeypatch.setattr(command, "train", fake)
    monkeypatch.setattr(command, "show", lambda folder, as_json: None)

    def run(*arguments: str) -> Any:
        done = poslens("train", *arguments, "--profile", "smoke")
        assert done.code == 0, done.err
        return asked[-1]

    return run


def test_a_run_has_the_preset_of_its_scheme(resolved: Callable) -> None:
    run, path = resolved("rope", "--published")
    assert path == Path("runs/published/rope-distance-seed0")
    model = run.model
    assert (model.memory_from_embeddings, model.extra_table) == (True, "sinusoidal")
    assert (model.mask_padding, model.final_norm, model.dropout) == (False, False, 0.1)
    assert (model.layers, model.width) == (SMOKE.model.layers, SMOKE.model.width)
    assert run.task_settings == SMOKE.tasks["distance"] | {"fillers": "published"}
    assert (run.training.betas, run.training.weight_decay) == ((0.98, 0.9), 1e-5)
    assert run.training.learning_rate == SMOKE.training["distance"].learning_rate
    run, _ = resolved("--task", "count", "mla", "--published")
    assert run.model.extra_table == "learned"
    assert run.parts == {"mla": {"shared_rotary_query": True}, "rope": {"step": "published"}}
    run, path = resolved("rope")
    assert (run.model, path) == (SMOKE.model, Path("runs/rope-distance-seed0"))


def test_file_and_options_come_before_the_preset(resolved: Callable) -> None:
    run, _ = resolved(
        *("rope", "--published", "--mask-padding", "--extra-table", "none", "--dropout", "0"),
        *("--no-final-norm", "--set", "fillers=clean", "rope.base=50", "--weight-decay", "0.5"),
    )
    model = run.model
    assert (model.memory_from_embeddings, model.extra_table) == (True, "none")
    assert (model.mask_padding, model.final_norm, model.dropout) == (True, False, 0.0)
    assert run.task_settings["fillers"] == "clean"
    assert run.parts == {"rope": {"base": 50}}
    assert run.training.weight_decay == 0.5
    Path("run.toml").write_text(
        """
        scheme = "alibi"
        [task_settings]
        fillers = "clean"
        [parts.alibi]
        slopes = "press"
        [model]
        final_norm = true
        [training]
        betas = [0.5, 0.6]
        """
    )
    run, _ = resolved("--published", "--config", "run.toml")
    assert (run.scheme, run.model.final_norm, run.model.mask_padding) == ("alibi", True, False)
    assert (run.parts, run.training.betas) == ({"alibi": {"slopes": "press"}}, (0.5, 0.6))
    assert run.task_settings["fillers"] == "clean"


def test_single_switches(resolved: Callable) -> None:
    run, _ = resolved("t5", "--bias-per-layer", "--no-mask-padding", "--set", "t5.exact=true")
    assert (run.model.bias_per_layer, run.model.mask_padding) == (True, False)
    assert (run.model.final_norm, run.parts) == (True, {"t5": {"exact": True}})


def test_schemes_that_were_not_published_are_named(poslens: Callable) -> None:
    for line in (
        poslens("train", "kerple", "--published").line,
        poslens("reproduce", "--published", "--schemes", "rope", "kerple").line,
    ):
        assert line.startswith("the study's code has no 'kerple', so there is no preset; it has: ")


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch, poslens: Callable) -> Callable[..., Any]:
    """The profile and folder that a command line of `reproduce` asks for, without running it."""
    asked: list[Any] = []

    def fake(profile: Any, folder: Path, **rest: object) -> None:
        asked.append((profile, folder))
        raise InputError("enough")

    monkeypatch.setattr(grid_command, "reproduce", fake)

    def run(*arguments: str) -> Any:
        assert poslens("reproduce", *arguments, "--profile", "smoke").line == "enough"
        return asked[-1]

    return run


def test_a_grid_has_the_preset_of_every_scheme(grid: Callable, resolved: Callable) -> None:
    profile, folder = grid("--published", "--seeds", "3")
    assert (profile.name, folder) == ("smoke-published", Path("runs/smoke-published"))
    cells = profile.cells(Rates())
    assert [cell.scheme for cell in cells] == 2 * list(SMOKE.schemes)
    for cell in cells:
        run, _ = resolved(cell.scheme, "--published", "--task", cell.task, "--seed", "3")
        assert cell == run


def test_a_file_comes_before_the_presets_of_a_grid(grid: Callable) -> None:
    Path("study.toml").write_text(
        "[tasks.count]\nmost = 5\n[tasks.distance]\nfillers = 'clean'\n"
        "[model]\nfinal_norm = true\n[training]\nweight_decay = 0.5"
    )
    profile, _ = grid("--published", "--config", "study.toml", "--schemes", "rope", "mla")
    for cell in profile.cells(Rates()):
        assert cell.model.final_norm
        assert cell.model.mask_padding == (cell.scheme == "mla")
        assert (cell.training.betas, cell.training.weight_decay) == ((0.98, 0.9), 0.5)
        assert cell.task_settings["fillers"] == (
            "clean" if cell.task == "distance" else "published"
        )


def test_a_published_grid_runs_and_is_kept_apart(poslens: Callable, in_process: list[str]) -> None:
    Path("study.toml").write_text(
        "schemes = ['rope', 'mla']\n[tasks.distance]\n[model]\nlayers = 1\nheads = 2\nwidth = 8\n"
        "[training]\nsequences = 128\nbatch = 16"
    )
    arguments = ("reproduce", "--profile", "smoke", "--config", "study.toml", "--out", "there")
    assert poslens(*arguments, "--published").code == 0
    assert in_process == ["rope-distance-seed0", "mla-distance-seed0"]
    config = json.loads(Path("there/rope-distance-seed0/config.json").read_text())
    assert config["model"]["extra_table"] == "sinusoidal"
    assert poslens(*arguments, "--published").code == 0
    assert len(in_process) == 2
    assert "there holds another experiment (profile is" in poslens(*arguments).line
