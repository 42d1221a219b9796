"""`poslens report`: rebuild the report from result files alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from poslens.cli.options import parse, print_json
from poslens.report import build


@dataclass(frozen=True)
class Report:
    """Write DIR/report.html and DIR/figures from the result files in DIR; trains nothing.

    For a folder of corrections DIR/corrections.html, and the report of each part for a part.
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """Folder that 'poslens reproduce', 'corrections' or 'collect' has made."""
    json: bool = False
    """Print the report's path as JSON."""


def run(arguments: list[str]) -> None:
    command = parse(Report, arguments, "report")
    path = build(command.folder)
    if command.json:
        print_json({"report": str(path)})
    else:
        print(path)
