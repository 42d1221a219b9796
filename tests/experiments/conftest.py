"""A profile so small that its whole grid takes a second, and a runner without worker processes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from poslens.experiments.profiles import Profile, profile_named
from poslens.model import ModelSettings
from poslens.training import TrainingSettings


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
def identity() -> Callable[[Path], tuple[int, int]]:
    """What changes when a file is written again."""
    return lambda path: (path.stat().st_ino, path.stat().st_mtime_ns)
