"""`poslens train`: option before file before profile, one run folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poslens.cli import train as command
from poslens.experiments.profiles import profile_named
from poslens.experiments.rates import Rates
from poslens.training import RunFolder, loop, task_of, train

SMOKE = profile_named("smoke")


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch, poslens: Callable) -> Callable[..., Any]:
    """The run that a command line asks for, without training it."""
    asked: list[Any] = []

    def fake(run: Any, path: Path, device: str, report: object) -> RunFolder:
        asked.append((run, path, device))
        return RunFolder(path)

    monkeypatch.setattr(command, "train", fake)
    monkeypatch.setattr(command, "show", lambda folder, as_json: None)

    def run(*arguments: str) -> Any:
        done = poslens("train", *arguments)
        assert done.code == 0, done.err
        return asked[-1]

    return run


def test_sizes_come_from_the_profile(resolved: Callable) -> None:
    run, path, device = resolved("alibi", "--profile", "smoke", "--task", "count")
    assert (run.scheme, run.task, run.seed) == ("alibi", "count", 0)
    assert run.model == SMOKE.model
    assert run.training == SMOKE.training["count"]
    assert run.task_settings == SMOKE.tasks["count"]
    assert (path, device) == (Path("runs/alibi-count-seed0"), "cpu")


def test_a_file_comes_before_the_profile_and_an_option_before_both(resolved: Callable) -> None:
    Path("run.toml").write_text(
        """
        scheme = "alibi"
        task = "count"
        seed = 3
        [task_settings]
        most = 5
        [model]
        layers = 1
        width = 16
        [training]
        batch = 8
        sequences = 512
        """
    )
    run, path, _ = resolved("--profile", "smoke", "--config", "run.toml")
    assert (run.scheme, run.task, run.seed) == ("alibi", "count", 3)
    assert (run.model.layers, run.model.width) == (1, 16)
    assert run.model.heads == SMOKE.model.heads
    assert (run.training.batch, run.training.sequences) == (8, 512)
    assert run.training.learning_rate == SMOKE.training["count"].learning_rate
    assert run.task_settings == SMOKE.tasks["count"] | {"most": 5}
    assert path == Path("runs/alibi-count-seed3")

    run, path, _ = resolved(
        *("nope", "--task", "distance", "--seed", "4", "--layers", "2", "--batch", "4"),
        *("--set", "aside=2", "--profile", "smoke", "--config", "run.toml", "--out", "there"),
        *("--task", "count"),
    )
    assert (run.scheme, run.task, run.seed, path) == ("nope", "count", 4, Path("there"))
    assert (run.model.layers, run.model.width) == (2, 16)
    assert (run.training.batch, run.training.sequences) == (4, 512)
    assert run.task_settings == SMOKE.tasks["count"] | {"most": 5, "aside": 2}


def test_settings_of_parts_join_file_and_option(resolved: Callable) -> None:
    Path("run.toml").write_text("[parts.rope]\nbase = 5.0\nwidth = 4\n[parts.sinusoidal]\nbase = 7")
    run, _, _ = resolved(
        *("sinusoidal+rope", "--profile", "smoke", "--config", "run.toml"),
        *("--set", "rope.base=9", "between=3"),
    )
    assert run.parts == {"rope": {"base": 9, "width": 4}, "sinusoidal": {"base": 7}}
    assert run.task_settings == SMOKE.tasks["distance"] | {"between": 3}


def test_the_rate_of_a_tuned_profile_is_the_weakest_word(
    resolved: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("rates.csv").write_text(
        "scheme,task,learning_rate,accuracy,loss,sequences,seed\nrope,distance,0.0625,1,0,1,1\n"
    )
    monkeypatch.setattr(command, "Rates", lambda: Rates("rates.csv"))
    default = str(profile_named("quick").training["distance"].learning_rate)
    Path("run.toml").write_text(f"[training]\nlearning_rate = {default}")

    def rate(*arguments: str) -> float:
        found: float = resolved("rope", *arguments)[0].training.learning_rate
        return found

    assert rate() == 0.0625
    assert rate("--batch", "64") == 0.0625
    assert rate("--learning-rate", "0.5") == 0.5
    assert rate("--learning_rate=0.5") == 0.5
    assert rate("--learning-rate", default) == float(default)  # asked for, if only the default
    assert rate("--config", "run.toml") == float(default)
    assert rate("--profile", "smoke") == SMOKE.training["distance"].learning_rate


def test_a_run_is_trained_and_told(poslens: Callable, small: tuple[str, ...]) -> None:
    done = poslens("train", "rope@1", *small, "--json")
    assert (done.code, done.err) == (0, "")
    summary = json.loads(done.out)
    assert (summary["scheme"], summary["task"], summary["seed"]) == ("rope@1", "distance", 0)
    assert (summary["sequences"], summary["layers"], summary["width"]) == (128, 1, 8)
    folder = RunFolder(summary["folder"])
    assert folder.path == Path("runs/rope@1-distance-seed0")
    assert folder.finished
    assert folder.settings().task_settings == SMOKE.tasks["distance"] | {"words": 40}
    again = poslens("train", "rope@1", *small)
    assert f"accuracy {summary['accuracy']:.3f}" in again.out
    assert again.out.endswith("runs/rope@1-distance-seed0\n")


def test_the_command_and_python_train_the_same_run(
    poslens: Callable, small: tuple[str, ...]
) -> None:
    poslens("train", "mla", *small, "--out", "a")
    run = RunFolder("a").settings()
    train(run, "b")
    for name in ("metrics.jsonl", "model.safetensors"):
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes()
    assert task_of(run).settings.words == 40


def test_an_interrupted_run_continues_with_the_same_command(
    poslens: Callable, small: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = loop.Trainer.train_step

    def interrupted(self: loop.Trainer, batch: Any) -> float:
        if self.step == 5:
            raise KeyboardInterrupt
        return step(self, batch)

    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "train_step", interrupted)
        done = poslens("train", "rope", *small, "--out", "a")
    assert done.code == 130
    assert done.err == "poslens: interrupted; the same command continues where it stopped\n"
    assert not RunFolder("a").finished
    assert poslens("train", "rope", *small, "--out", "a").code == 0
    assert poslens("train", "rope", *small, "--out", "b").code == 0
    for name in ("metrics.jsonl", "model.safetensors"):
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes()
