"""The tasks: labelled sequences made from a seed, with what bounds any answer to them."""

import difflib
from typing import Any

from poslens.errors import InputError
from poslens.tasks.base import Batch, Bound, Task
from poslens.tasks.count import Count
from poslens.tasks.data import Stream, generator_for, held_out, to_frame
from poslens.tasks.distance import Distance

__all__ = [
    "TASKS",
    "Batch",
    "Bound",
    "Count",
    "Distance",
    "Stream",
    "Task",
    "generator_for",
    "held_out",
    "make_task",
    "to_frame",
]

TASKS: dict[str, type[Task]] = {task.name: task for task in (Distance, Count)}


def make_task(name: str, settings: Any = None) -> Task:
    """The task called `name`, with its default settings unless given others.

    Raises `InputError` for an unknown name, and what the task itself raises for bad settings.
    """
    if name not in TASKS:
        close = difflib.get_close_matches(name, TASKS)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(TASKS)}"
        raise InputError(f"unknown task {name!r}: {hint}")
    return TASKS[name](settings)
