"""Dropout: random in training, the same whenever the run is the same, continued or not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from poslens.model import ModelSettings
from poslens.training import Progress, RunSettings, loop, train

MakeRun = Callable[..., RunSettings]
SameResults = Callable[[Path, Path], None]


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def dropping(run: RunSettings, share: float = 0.3) -> RunSettings:
    return replace(run, model=ModelSettings(1, 2, 8, 8, dropout=share))


@pytest.mark.parametrize("scheme", ["rope", "mla"])
def test_killed_and_continued_equals_uninterrupted(
    scheme: str,
    tmp_path: Path,
    tiny: MakeRun,
    same_results: SameResults,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    run = dropping(tiny(scheme))

    def kill(progress: Progress) -> None:
        torch.rand(3)  # what else draws from the global generator does not matter
        if progress.step == 7:
            raise Killed

    with pytest.raises(Killed):
        train(run, tmp_path / "a", report=kill)
    torch.manual_seed(99)
    train(run, tmp_path / "a")
    train(run, tmp_path / "b")
    same_results(tmp_path / "a", tmp_path / "b")


def test_it_changes_training_and_leaves_the_global_generator(tmp_path: Path, tiny: MakeRun) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train(dropping(tiny()), tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), before)
    train(tiny(), tmp_path / "b")
    first, second = ((tmp_path / name / "metrics.jsonl").read_text() for name in "ab")
    assert first != second


def test_every_step_drops_others(tiny: MakeRun) -> None:
    """The same batch twice at a learning rate of nearly nothing: only what is dropped differs."""
    run = dropping(tiny(learning_rate=1e-30))
    trainer = loop.Trainer(run, torch.device("cpu"))
    batch = trainer.task.sample(16, torch.Generator().manual_seed(0))
    losses = [trainer.train_step(batch) for _ in range(3)]
    assert len(set(losses)) == 3
    again = loop.Trainer(run, torch.device("cpu"))
    assert [again.train_step(batch) for _ in range(3)] == losses
