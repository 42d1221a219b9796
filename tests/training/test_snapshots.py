"""Weights kept along the way: which, of what, and none the worse for a kill."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from poslens.errors import InputError
from poslens.training import (
    RunFolder,
    RunSettings,
    TrainingSettings,
    checkpoints,
    initial_model,
    load_model,
    load_snapshot,
    loop,
    train,
)
from poslens.training.folder import snapshot_name, to_json

MakeRun = Callable[..., RunSettings]


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def test_they_are_the_weights_at_their_steps(tmp_path: Path, tiny: MakeRun) -> None:
    """Step 0 is the initialisation, the last the trained model, one between that of a stop."""
    run = tiny(snapshots=3)
    assert run.training.snapshot_steps == (0, 2, 5, 12)
    folder = train(run, tmp_path / "a")
    assert checkpoints(folder.path) == [0, 2, 5, 12]
    found = {step: weights(load_snapshot(folder.path, step)[0]) for step in (0, 2, 5, 12)}
    assert torch.equal(found[0], weights(initial_model(run, loop.task_of(run))))
    assert torch.equal(found[12], weights(load_model(folder.path)[0]))
    trainer = loop.Trainer(run, torch.device("cpu"))
    stream = loop.Stream(trainer.task, run.training.batch, run.seed)
    for step in range(5):
        trainer.train_step(stream.batch(step))
    assert torch.equal(found[5], weights(trainer.model))
    assert not load_snapshot(folder.path, 2)[0].training


def test_without_them_the_first_and_the_last_step_are_there(tmp_path: Path, tiny: MakeRun) -> None:
    run = tiny()
    folder = train(run, tmp_path / "a")
    assert not (folder.path / "snapshots").exists()
    assert checkpoints(folder.path) == [0, 12]
    first, last = (weights(load_snapshot(folder.path, step)[0]) for step in (0, 12))
    assert torch.equal(first, weights(initial_model(run, loop.task_of(run))))
    assert torch.equal(last, weights(load_model(folder.path)[0]))
    with pytest.raises(InputError, match=r"no weights of step 7; it has those of 0, 12 \(a"):
        load_snapshot(folder.path, 7)
    with pytest.raises(InputError, match="no weights of step -1"):
        load_snapshot(folder.path, -1)


def test_a_run_that_ends_early_has_those_up_to_its_end(tmp_path: Path, tiny: MakeRun) -> None:
    folder = train(tiny(snapshots=3, solved=1e-9), tmp_path / "a")
    assert checkpoints(folder.path) == [0, 2, 5, 9]


@pytest.mark.parametrize("every", [0.0, 1e9])
@pytest.mark.parametrize("last", [1, 2, 5, 12])
def test_killed_and_continued_they_are_the_same(
    tmp_path: Path, tiny: MakeRun, monkeypatch: pytest.MonkeyPatch, last: int, every: float
) -> None:
    """With a checkpoint after every step, and with none."""
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", every)

    def report(progress: loop.Progress) -> None:
        if progress.step == last:
            raise Killed

    run = tiny("alibi", snapshots=3)
    with pytest.raises(Killed):
        train(run, tmp_path / "a", report=report)
    train(run, tmp_path / "a")
    train(run, tmp_path / "b")
    for step in run.training.snapshot_steps:
        first, second = (tmp_path / it / snapshot_name(step) for it in ("a", "b"))
        assert first.read_bytes() == second.read_bytes(), step
    model = "model.safetensors"
    assert (tmp_path / "a" / model).read_bytes() == (tmp_path / "b" / model).read_bytes()


def test_they_change_nothing_of_what_is_trained(
    tmp_path: Path, tiny: MakeRun, same_results: Callable[[Path, Path], None]
) -> None:
    train(tiny(snapshots=4), tmp_path / "a")
    train(tiny(), tmp_path / "b")
    (tmp_path / "a" / "config.json").write_bytes((tmp_path / "b" / "config.json").read_bytes())
    same_results(tmp_path / "a", tmp_path / "b")


def test_a_config_from_before_them_means_none(tmp_path: Path, tiny: MakeRun) -> None:
    values = to_json(tiny())
    del values["training"]["snapshots"]
    assert RunSettings.from_json(values, Path("config.json")).training == TrainingSettings(
        **{**values["training"], "betas": tuple(values["training"]["betas"])}
    )
    assert RunSettings.from_json(values, Path("config.json")).training.snapshots == 0


def test_a_damaged_one_is_named(tmp_path: Path, tiny: MakeRun) -> None:
    folder = train(tiny(snapshots=3), tmp_path / "a")
    path = folder.path / snapshot_name(2)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"step-2\.safetensors is damaged"):
        load_snapshot(folder.path, 2)
    assert RunFolder(folder.path).finished
