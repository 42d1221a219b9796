"""Training: one run from its settings to a folder of results."""

from poslens.training.folder import RunFolder, runs_below
from poslens.training.loop import Progress, load_model, task_of, train
from poslens.training.settings import RunSettings, TrainingSettings

__all__ = [
    "Progress",
    "RunFolder",
    "RunSettings",
    "TrainingSettings",
    "load_model",
    "runs_below",
    "task_of",
    "train",
]
