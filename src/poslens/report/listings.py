"""The page's tables as rows of text, and the one of all runs."""

from dataclasses import dataclass

from poslens.claims.words import title
from poslens.report.accuracy import accuracy_frame
from poslens.report.improving import still_rising
from poslens.report.provenance import Provenance
from poslens.report.style import colours, duration, number, percent
from poslens.results import Tables

# The column that says what heads lose, and its words by target.
TAKEN = "Taken away"
WORDS = {"head": "output", "position": "position"}


@dataclass(frozen=True)
class Listing:
    """A table: `columns` are its heads; a row has one text a column and a colour for its scheme,
    empty where it is of none.

    On a narrow screen the cells of the columns `wide` have a line of their own. No rule is
    drawn between lines whose first `joined` texts are the same.
    """

    columns: list[str]
    rows: list[tuple[str, list[str]]]
    wide: tuple[str, ...] = ()
    joined: int = 0


def run_listing(tables: Tables, found: Provenance, task: str) -> Listing:
    """Every finished run of a task, best first."""
    columns = ["Scheme", "Seed", "Accuracy", "95\u202f% interval", "Loss (nats)"]
    columns += ["Sequences seen", "Ended", "Learning rate", "Parameters", "Time"]
    palette, rising = colours(tables.summary["scheme"]), still_rising(tables)
    runs = {(r["scheme"], r["seed"]): r for r in tables.summary.filter(task=task).to_dicts()}
    rows = []
    for cell in accuracy_frame(tables.summary, task).iter_rows(named=True):
        run = runs[cell["scheme"], cell["seed"]]
        seconds = found.environments.get((cell["scheme"], task, cell["seed"]), {}).get("seconds")
        text = [
            title(cell["scheme"]),
            str(cell["seed"]),
            percent(cell["accuracy"], 2),
            f"{percent(cell['low'])} to {percent(cell['high'])}",
            number(run["loss"], 3),
            number(run["sequences"], 0),
            _ended(run["solved"], (cell["scheme"], task, cell["seed"]) in rising),
            f"{run['learning_rate']:g}",
            number(run["parameters"], 0),
            "–" if seconds is None else duration(seconds),
        ]
        rows.append((palette[cell["scheme"]], text))
    return Listing(columns, rows)


def _ended(solved: bool, rising: bool) -> str:
    if solved:
        return "solved early"
    return "at the budget, still improving" if rising else "at the budget"
