"""`poslens collect`: results of many runs as a few small files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from poslens.cli.options import parse
from poslens.results import collect


@dataclass(frozen=True)
class Collect:
    """Keep the result tables of all finished runs in a folder of a few small files.

    Without weights and learning states: made to be committed or sent. Other commands that read
    results (report, claims score) take such a folder like the runs themselves.
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """Folder that 'poslens reproduce' has made."""
    out: Path
    """Where to keep them; the same command brings it up to date."""


def run(arguments: list[str]) -> None:
    command = parse(Collect, arguments, "collect")
    collect(command.folder, command.out)
    print(command.out)
