"""`poslens data`: sequences of a task as Parquet."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from poslens.cli.options import assignments, parse, print_json
from poslens.errors import InputError
from poslens.settings import make_settings
from poslens.tasks import TASKS, generator_for, make_task, to_frame
from poslens.training.folder import make_folder


@dataclass(frozen=True)
class Data:
    """Write sequences of a task as Parquet: tokens, length, label, one row a sequence.

    For example:
      poslens data distance --size 1000 --out distance.parquet
      poslens data distance --set between=70 aside=25 cut=120 fillers=published
    """

    task: Annotated[str, tyro.conf.Positional]
    """distance or count."""
    size: int = 10_000
    """Number of sequences."""
    seed: int = 0
    """The same seed gives the same sequences."""
    set: tuple[str, ...] = ()
    """Settings of the task: between=70 fillers=published."""
    out: Path | None = None
    """File to write [default: TASK-seedN.parquet]."""
    json: bool = False
    """Print what was written as JSON."""


def run(arguments: list[str]) -> None:
    command = parse(Data, arguments, "data")
    if command.task not in TASKS:
        make_task(command.task)
    if command.size < 1:
        raise InputError(f"size is {command.size}; use 1 or more")
    if command.seed < 0:
        raise InputError(f"seed is {command.seed}; use 0 or more")
    settings = make_settings(TASKS[command.task].Settings, assignments(command.set), command.task)
    task = make_task(command.task, settings)
    path = command.out or Path(f"{command.task}-seed{command.seed}.parquet")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file with --out")
    make_folder(path.parent)
    batch = task.sample(command.size, generator_for(command.seed, "data"))
    unfinished = path.with_name(path.name + ".tmp")
    to_frame(batch, task).write_parquet(unfinished)
    unfinished.replace(path)
    facts = {
        "file": str(path),
        "sequences": command.size,
        "classes": task.classes,
        "longest": task.max_length,
        "chance": task.chance,
        "baseline": task.baseline().value,
        "ceiling": task.ceiling().value,
    }
    if command.json:
        print_json(facts)
        return
    print(
        f"{path}: {command.size:,} sequences of {task.name}, {task.classes} classes, up to "
        f"{task.max_length} words; chance {task.chance:.3f}, length only "
        f"{facts['baseline']:.3f}, ceiling {facts['ceiling']:.3f}"
    )
