"""The page's tables as rows of text: concentration of effects, and all runs."""

from dataclasses import dataclass
from typing import Any

from poslens.claims.words import title
from poslens.report.accuracy import accuracy_frame
from poslens.report.provenance import Provenance
from poslens.report.style import colours, duration, number, percent, rank
from poslens.report.words import first_layer_rows
from poslens.results import Tables


@dataclass(frozen=True)
class Listing:
    """A table: `columns` are its heads; a row has a colour for its scheme and one text a column."""

    columns: list[str]
    rows: list[tuple[str, list[str]]]


def concentration_listing(tables: Tables, task: str) -> Listing:
    """The first layer of each run of a task, zeroed heads, in points of accuracy."""
    columns = ["Scheme", "Seed", "Verdict", "Top head", "Largest (points)"]
    columns += ["Second (points)", "Can be lost (points)", "Top share", "Effective heads"]
    columns += ["Deposit index", "Counted", "p (null)"]
    palette = colours(tables.summary["scheme"])
    rows = sorted(
        first_layer_rows(tables.concentration, task).iter_rows(named=True),
        key=lambda row: (rank(row["scheme"]), row["seed"]),
    )
    return Listing(columns, [(palette[row["scheme"]], _shares(row)) for row in rows])


def _shares(row: dict[str, Any]) -> list[str]:
    undefined = row["counted"] == 0
    return [
        title(row["scheme"]),
        str(row["seed"]),
        row["verdict"],
        "–" if undefined else str(row["top_head"]),
        f"{number(100 * row['largest'], 1)} ({number(100 * row['largest_low'], 1)})",
        f"{number(100 * row['second'], 1)} ({number(100 * row['second_high'], 1)})",
        number(100 * row["lost"], 1),
        _ranged(row, "top_share"),
        _ranged(row, "effective_heads"),
        number(row["deposit_index"]),
        f"{row['counted']} of {row['heads']}",
        number(row["null_p"], 3),
    ]


def _ranged(row: dict[str, Any], name: str) -> str:
    """A statistic with its interval, or a dash where it is undefined."""
    value = number(row[name])
    if value == "–":
        return value
    return f"{value} ({number(row[f'{name}_low'])}–{number(row[f'{name}_high'])})"


def layer_listing(tables: Tables, task: str) -> Listing:
    """Every layer and both metrics, in few columns."""
    columns = ["Scheme", "Seed", "Layer", "Metric", "Verdict", "Top head"]
    columns += ["Largest effect", "Second", "Top share", "Effective heads"]
    palette = colours(tables.summary["scheme"])
    rows = tables.concentration.filter(task=task, target="head", method="zero")
    ordered = sorted(
        rows.iter_rows(named=True),
        key=lambda row: (rank(row["scheme"]), row["seed"], row["layer"], row["metric"]),
    )
    return Listing(columns, [(palette[row["scheme"]], _layer(row)) for row in ordered])


def _layer(row: dict[str, Any]) -> list[str]:
    unit, scale, digits = ("points", 100, 1) if row["metric"] == "accuracy" else ("nats", 1, 2)
    return [
        title(row["scheme"]),
        str(row["seed"]),
        str(row["layer"]),
        row["metric"],
        row["verdict"],
        "–" if row["counted"] == 0 else str(row["top_head"]),
        f"{number(scale * row['largest'], digits)} {unit}",
        f"{number(scale * row['second'], digits)} {unit}",
        number(row["top_share"]),
        number(row["effective_heads"]),
    ]


def run_listing(tables: Tables, found: Provenance, task: str) -> Listing:
    """Every finished run of a task, best first."""
    columns = ["Scheme", "Seed", "Accuracy", "95\u202f% interval", "Loss (nats)"]
    columns += ["Sequences seen", "Ended", "Learning rate", "Parameters", "Time"]
    palette = colours(tables.summary["scheme"])
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
            "solved early" if run["solved"] else "at the budget",
            f"{run['learning_rate']:g}",
            number(run["parameters"], 0),
            "–" if seconds is None else duration(seconds),
        ]
        rows.append((palette[cell["scheme"]], text))
    return Listing(columns, rows)
