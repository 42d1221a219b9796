"""`poslens claims`: predictions of one's own, registered before a run and scored after it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from poslens import results
from poslens.claims import ledger_rows
from poslens.claims.predictions import Prediction, claim, read_predictions
from poslens.claims.registration import (
    TEMPLATE,
    beginnings,
    iso,
    minute,
    register,
    standing,
)
from poslens.claims.words import listed
from poslens.cli.options import parse, print_json, read_toml
from poslens.errors import InputError
from poslens.model import parse_scheme
from poslens.tasks import make_task
from poslens.training import runs_below
from poslens.training.folder import make_folder, write_text


@dataclass(frozen=True)
class Claims:
    """Register predictions of your own before a run, and score them like the study's claims.

    For example:
      poslens claims new mine.toml           (writes an example to change)
      poslens claims new mine.toml           (registers it as it stands)
      poslens reproduce --out runs/quick
      poslens claims score mine.toml runs/quick

    'poslens claims new --help' and 'poslens claims score --help' say more.
    """


@dataclass(frozen=True)
class New:
    """Write an example where there is no FILE; register FILE where there is.

    Registering adds the time and a digest of the predictions to FILE. Predictions that are
    registered before their runs begin count as predicted; all others are marked when scored.
    """

    file: Annotated[Path, tyro.conf.Positional]
    """TOML file of predictions."""
    json: bool = False
    """Print what was done as JSON."""


@dataclass(frozen=True)
class Score:
    """Judge the predictions of FILE on the runs of DIR, by the rules of the study's claims."""

    file: Annotated[Path, tyro.conf.Positional]
    """TOML file of predictions, as 'poslens claims new' makes and registers it."""
    folder: Annotated[Path, tyro.conf.Positional]
    """Folder of runs."""
    json: bool = False
    """Print all verdicts, numbers and rules as JSON."""


def run(arguments: list[str]) -> None:
    match arguments:
        case ["new", *rest]:
            new(parse(New, rest, "claims new"))
        case ["score", *rest]:
            score(parse(Score, rest, "claims score"))
        case ["-h" | "--help"]:
            parse(Claims, arguments, "claims")
        case _:
            given = f", not {arguments[0]!r}" if arguments else ""
            raise InputError(f"claims takes 'new FILE' or 'score FILE DIR'{given}")


def new(command: New) -> None:
    path, time = command.file, None
    if not path.exists():
        make_folder(path.parent)
        write_text(path, TEMPLATE.format(file=path))
        text = f"{path}: an example; change it, then register it with the same command"
    else:
        values, predictions = load(path)
        time = register(path, values).time
        text = f"{path}: {listed(it.id for it in predictions)} registered on {minute(time)}"
    if command.json:
        print_json({"file": str(path), "registered": time and iso(time)})
    else:
        print(text)


def score(command: Score) -> None:
    values, predictions = load(command.file)
    runs_below(command.folder)
    tables, began = results.read(command.folder), beginnings(command.folder)
    rows = []
    for prediction in predictions:
        verdict = claim(prediction).verdict(tables)
        times = [time for cell in prediction.cells for time in began.get(cell, [])]
        stands = standing(values, str(command.file), times)
        (row,) = ledger_rows([verdict])
        rows.append(row | stands.row)
        if not command.json:
            print(f"{verdict.claim:<16}{verdict.label:<36}{verdict.statement}")
            print(f"  {verdict.reason}\n  {stands.words}")
    if command.json:
        print_json(rows)


def load(path: Path) -> tuple[dict[str, Any], list[Prediction]]:
    """A file's values and predictions. Raises InputError for names that nothing has, too."""
    values = read_toml(path)
    predictions = read_predictions(values, str(path))
    for prediction in predictions:
        for cell in prediction.cells:
            try:
                parse_scheme(cell.scheme)
                make_task(cell.task)
            except InputError as error:
                raise InputError(f"{path}: prediction {prediction.id!r}: {error}") from None
    return values, predictions
