"""A profile so small that its whole grid takes a second, and a runner without worker processes."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from poslens.experiments import reproduce as module
from poslens.experiments.local import Cell, News
from poslens.experiments.profiles import Profile, profile_named
from poslens.model import ModelSettings
from poslens.training import TrainingSettings


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny() -> Profile:
    """Two schemes on two tasks from one seed, 4 steps a run."""
    training = TrainingSettings(
        sequences=64, batch=16, evaluations=2, validation=32, evaluation=64, learning_rate=1e-2
    )
    return replace(
        profile_named("smoke"),
        name="tiny",
        schemes=("rope", "mla"),
        model=ModelSettings(layers=1, heads=2, width=8, feedforward=8),
        training={"distance": training, "count": training},
    )


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cells run in this process instead of workers; the names of those that were run."""
    done: list[str] = []

    def run_cells(
        cells: list[Cell], jobs: int, device: str, watch: Callable[[News], None] | None
    ) -> None:
        for cell in cells:
            cell.complete(device)
            done.append(cell.name)
            if watch is not None:
                watch(News(cell.name))

    monkeypatch.setattr(module, "run_cells", run_cells)
    return done


@pytest.fixture
def identity() -> Callable[[Path], tuple[int, int]]:
    """What changes when a file is written again."""
    return lambda path: (path.stat().st_ino, path.stat().st_mtime_ns)
