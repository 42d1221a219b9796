"""Runs so small that a whole training takes a fraction of a second."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from poslens.model import ModelSettings
from poslens.training import RunSettings, TrainingSettings

MakeRun = Callable[..., RunSettings]
# Everything a run leaves behind that must be equal for equal runs.
RESULTS = (
    *("config.json", "metrics.jsonl", "model.safetensors"),
    *("summary.parquet", "curve.parquet", "labels.parquet"),
)


@pytest.fixture
def tiny() -> MakeRun:
    """Settings of a run of 12 steps with 4 evaluations; keywords change how it is trained."""

    def make(
        scheme: str = "rope", task: str = "distance", seed: int = 0, **training: Any
    ) -> RunSettings:
        tasks = {
            "distance": {"between": 4, "aside": 2, "words": 12},
            "count": {"length": 5, "most": 4, "triggers": 3, "words": 12},
        }
        return RunSettings(
            scheme,
            task,
            seed,
            tasks[task],
            model=ModelSettings(layers=1, heads=2, width=8, feedforward=8),
            training=replace(
                TrainingSettings(
                    sequences=12 * 16,
                    batch=16,
                    learning_rate=1e-2,
                    evaluations=4,
                    validation=32,
                    evaluation=64,
                ),
                **training,
            ),
        )

    return make


@pytest.fixture
def same_results() -> Callable[[Path, Path], None]:
    """Asserts that two run folders hold the same results, byte by byte."""

    def check(first: Path, second: Path) -> None:
        for name in RESULTS:
            assert (first / name).read_bytes() == (second / name).read_bytes(), name

    return check
