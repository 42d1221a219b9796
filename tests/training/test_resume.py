"""Killed and continued equals uninterrupted, wherever the kill falls."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from poslens.errors import InputError
from poslens.training import Progress, RunFolder, RunSettings, loop, train
from poslens.training.folder import TRAIN_STATE, to_json

MakeRun = Callable[..., RunSettings]
SameResults = Callable[[Path, Path], None]

# Trains with a checkpoint after every step, and kills itself after the step it is told.
DRIVER = """
import json, os, signal, sys
import torch
from pathlib import Path
from poslens.training import RunSettings, loop, train

torch.set_num_threads(1)
loop.SECONDS_BETWEEN_CHECKPOINTS = 0.0
settings, folder, last = sys.argv[1:]
run = RunSettings.from_json(json.loads(settings), Path("settings"))

def report(progress):
    if progress.step == int(last):
        os.kill(os.getpid(), signal.SIGKILL)

train(run, folder, report=report)
"""


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.fixture(autouse=True)
def checkpoint_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)


def kill_after(last: int) -> Callable[[Progress], None]:
    """Dies after a step's metrics are written and before its checkpoint."""

    def report(progress: Progress) -> None:
        if progress.step == last:
            raise Killed

    return report


def test_killed_in_mid_training_and_continued(
    tmp_path: Path, tiny: MakeRun, same_results: SameResults
) -> None:
    """SIGKILL between evaluations, then between writing metrics and the checkpoint."""
    run = tiny()
    for last, checkpoint, lines in ((5, 4, 1), (6, 5, 2)):
        arguments = [sys.executable, "-c", DRIVER, json.dumps(to_json(run)), str(tmp_path / "a")]
        done = subprocess.run([*arguments, str(last)], capture_output=True, text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, done.stderr
        _, notes = RunFolder(tmp_path / "a").load_tensors(TRAIN_STATE)
        assert notes["step"] == checkpoint
        assert len((tmp_path / "a" / "metrics.jsonl").read_text().splitlines()) == lines
    train(run, tmp_path / "a")
    train(run, tmp_path / "b")
    same_results(tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "a" / TRAIN_STATE).exists()


@pytest.mark.parametrize("fixed_set", [None, 48])
@pytest.mark.parametrize("last", [1, 6, 11, 12])
def test_an_exception_at_any_step_and_continued(
    tmp_path: Path, tiny: MakeRun, same_results: SameResults, fixed_set: int | None, last: int
) -> None:
    run = tiny("mla", fixed_set=fixed_set)
    with pytest.raises(Killed):
        train(run, tmp_path / "a", report=kill_after(last))
    assert not RunFolder(tmp_path / "a").finished
    steps: list[int] = []
    train(run, tmp_path / "a", report=lambda progress: steps.append(progress.step))
    assert steps == list(range(last, 13))  # from the checkpoint, not from the start
    train(run, tmp_path / "b")
    same_results(tmp_path / "a", tmp_path / "b")


def test_interrupted_again_and_again(
    tmp_path: Path, tiny: MakeRun, same_results: SameResults
) -> None:
    for last in (2, 3, 3, 9, 12):
        with pytest.raises(Killed):
            train(tiny(), tmp_path / "a", report=kill_after(last))
    train(tiny(), tmp_path / "a")
    train(tiny(), tmp_path / "b")
    same_results(tmp_path / "a", tmp_path / "b")


def test_the_count_of_solved_evaluations_survives(
    tmp_path: Path, tiny: MakeRun, same_results: SameResults
) -> None:
    run = tiny(solved=1e-9)
    with pytest.raises(Killed):
        train(run, tmp_path / "a", report=kill_after(8))
    train(run, tmp_path / "a")
    train(run, tmp_path / "b")
    same_results(tmp_path / "a", tmp_path / "b")
    assert len((tmp_path / "a" / "metrics.jsonl").read_text().splitlines()) == 3


def test_killed_at_any_write_of_a_file(
    tmp_path: Path, tiny: MakeRun, same_results: SameResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dies between writing a file aside and putting it in its place, at each file in turn."""
    run = tiny(sequences=4 * 16, evaluations=2)
    train(run, tmp_path / "whole")
    replace = Path.replace
    deaths = 0
    while True:
        left = deaths

        def dying(self: Path, target: Path) -> Path:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return replace(self, target)

        folder = tmp_path / f"killed{deaths}"
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", dying)
            try:
                train(run, folder)
                break
            except Killed:
                deaths += 1
        train(run, folder)
        same_results(folder, tmp_path / "whole")
    # settings, 4 checkpoints, weights, two tables, the environment (begun, then whole), summary
    assert deaths == 11


@pytest.mark.parametrize("number", range(8))
def test_killed_in_the_middle_of_a_line(
    tmp_path: Path,
    tiny: MakeRun,
    same_results: SameResults,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Metrics and timings are appended line by line: half a line must leave no trace."""
    append, left = loop.append, number

    def dying(path: Path, **row: float) -> None:
        nonlocal left
        if left == 0:
            with path.open("a") as file:
                file.write('{"sequences": 4')
            raise Killed
        left -= 1
        append(path, **row)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "append", dying)
        with pytest.raises(Killed):
            train(tiny(), tmp_path / "a")
    train(tiny(), tmp_path / "a")
    train(tiny(), tmp_path / "b")
    same_results(tmp_path / "a", tmp_path / "b")


def test_killed_before_the_first_checkpoint_starts_anew(
    tmp_path: Path, tiny: MakeRun, same_results: SameResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 1e9)
    with pytest.raises(Killed):
        train(tiny(), tmp_path / "a", report=kill_after(7))
    train(tiny(), tmp_path / "a")
    train(tiny(), tmp_path / "b")
    same_results(tmp_path / "a", tmp_path / "b")
    timings = (tmp_path / "a" / "timings.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in timings] == [3, 6, 9, 12]


@pytest.fixture
def killed(tmp_path: Path, tiny: MakeRun) -> Path:
    """A run that was killed after step 7, with two evaluations."""
    with pytest.raises(Killed):
        train(tiny(), tmp_path / "run", report=kill_after(7))
    return tmp_path / "run"


@pytest.mark.parametrize("content", [b"", b'{"sequences": 48}\n', b"x" * 1000, b"\xff" * 1000])
def test_damaged_metrics_are_named_on_continuing(
    killed: Path, tiny: MakeRun, content: bytes
) -> None:
    (killed / "metrics.jsonl").write_bytes(content)
    with pytest.raises(InputError) as caught:
        train(tiny(), killed)
    message = str(caught.value)
    assert f"{killed / 'metrics.jsonl'} is damaged (" in message
    assert f"delete the folder {killed} and run again" in message


def test_missing_metrics_are_named_on_continuing(killed: Path, tiny: MakeRun) -> None:
    (killed / "metrics.jsonl").unlink()
    with pytest.raises(InputError, match=r"metrics.jsonl is damaged \(0 of \d+ bytes are left\)"):
        train(tiny(), killed)


def test_a_truncated_checkpoint_is_named_on_continuing(killed: Path, tiny: MakeRun) -> None:
    state = killed / TRAIN_STATE
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(InputError) as caught:
        train(tiny(), killed)
    assert f"{state} is damaged (" in str(caught.value)
    assert f"delete the folder {killed} and run again" in str(caught.value)


def test_the_checkpoint_of_a_model_of_another_shape_is_named(killed: Path, tiny: MakeRun) -> None:
    tensors, notes = RunFolder(killed).load_tensors(TRAIN_STATE)
    tensors["model.embedding.weight"] = tensors["model.embedding.weight"][:-1]
    RunFolder(killed).save_tensors(TRAIN_STATE, tensors, notes)
    with pytest.raises(InputError, match=r"train_state.safetensors does not fit its config.json"):
        train(tiny(), killed)
