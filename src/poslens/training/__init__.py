"""Training: one run from its settings to a folder of results."""

from poslens.training.folder import RunFolder, runs_below
from poslens.training.loop import (
    Progress,
    checkpoints,
    initial_model,
    load_model,
    load_snapshot,
    task_of,
    train,
    trained_steps,
)
from poslens.training.settings import RunSettings, TrainingSettings

__all__ = [
    "Progress",
    "RunFolder",
    "RunSettings",
    "TrainingSettings",
    "checkpoints",
    "initial_model",
    "load_model",
    "load_snapshot",
    "runs_below",
    "task_of",
    "train",
    "trained_steps",
]
