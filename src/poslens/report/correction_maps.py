"""Scheme by correction: accuracy less the standard one's, and the largest first-layer effect."""

import html
import math
from statistics import fmean, stdev
from typing import Any

import polars as pl
from scipy.stats import t as student

from poslens.claims.accuracy import difference
from poslens.claims.corrections import STANDARD
from poslens.claims.over_seeds import over_seeds
from poslens.claims.words import title
from poslens.report.corrections import Correction
from poslens.report.listings import Listing
from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.style import (
    INK,
    Scale,
    around_zero,
    colours,
    number,
    percent,
    points,
    rank,
    short_title,
    task_title,
)
from poslens.report.words import first_layer_rows

LEAST_REACH = 10.0  # points, on either side of a scale
DEPOSIT = "●"
LEVEL = 0.975  # quantile of a two-sided 95 % interval
SCHEMA: dict[str, Any] = {
    "correction": pl.String,
    "scheme": pl.String,
    "seeds": pl.Int64,  # compared: both the correction and the standard have them
    "accuracies": pl.List(pl.Float64),  # of every seed
    "accuracy": pl.Float64,  # mean over seeds
    "ceiling": pl.Float64,
    "difference": pl.Float64,  # from the standard, paired by seed; null for the standard itself
    "error": pl.Float64,  # half-width of its 95 % interval
    "largest": pl.Float64,  # first-layer effect, mean over seeds; null where not ablated
    "verdicts": pl.String,  # of the first layer
}


def scheme_frame(corrections: list[Correction], task: str) -> pl.DataFrame:
    """One row per correction and scheme that it touches, with the columns of `SCHEMA`.

    The error of a difference is Student's over seeds; for one seed, that of finite held-out data.
    """
    by_name = {it.name: it for it in corrections}
    standard = _runs(by_name[STANDARD], task)
    rows = []
    for it in corrections:
        layers = over_seeds(first_layer_rows(it.own.concentration, task))
        effects = {row["scheme"]: row for row in layers.iter_rows(named=True)}
        largest = first_layer_rows(it.own.concentration, task)
        runs = _runs(it, task)
        for scheme in sorted(runs, key=rank):
            own, before = runs[scheme], standard.get(scheme, {})
            paired = [(own[seed], before[seed]) for seed in own if seed in before]
            value, error = paired_difference(paired) if it.name != STANDARD else (None, None)
            accuracies = [row["accuracy"] for row in own.values()]
            falls = largest.filter(scheme=scheme)["largest"].to_list()
            rows.append(
                {
                    **{"correction": it.name, "scheme": scheme, "seeds": len(paired)},
                    **{"accuracies": accuracies, "accuracy": fmean(accuracies)},
                    "ceiling": fmean(row["ceiling"] for row in own.values()),
                    **{"difference": value, "error": error},
                    "largest": fmean(falls) if falls else None,
                    "verdicts": effects[scheme]["verdicts"] if scheme in effects else "",
                }
            )
    return pl.DataFrame(rows, schema=SCHEMA)


def _runs(it: Correction, task: str) -> dict[str, dict[int, dict[str, Any]]]:
    """The rows of SUMMARY by scheme and seed."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for row in it.own.summary.filter(task=task).sort("seed").iter_rows(named=True):
        found.setdefault(row["scheme"], {})[row["seed"]] = row
    return found


def paired_difference(
    pairs: list[tuple[dict[str, Any], dict[str, Any]]],
) -> tuple[float | None, float | None]:
    """Mean difference of accuracy over seeds and the half-width of its 95 % interval."""
    if not pairs:
        return None, None
    if len(pairs) == 1:
        return difference(*pairs[0])
    values = [own["accuracy"] - before["accuracy"] for own, before in pairs]
    wide = float(student.ppf(LEVEL, len(values) - 1))
    return fmean(values), wide * stdev(values) / math.sqrt(len(values))


def difference_limits(frames: list[pl.DataFrame]) -> tuple[float, float]:
    """The ends of the scale of differences, points."""
    values = [100 * it for frame in frames for it in frame["difference"].drop_nulls()]
    return min(-LEAST_REACH, *values, 0), max(LEAST_REACH, *values, 0)


def effect_reach(frames: list[pl.DataFrame]) -> tuple[float, float]:
    """The ends of the scale of effects, points."""
    values = [100 * it for frame in frames for it in frame["largest"].drop_nulls()]
    return min(0.0, *values, 0), max(LEAST_REACH, *values, 0)


def gain_scale(limits: tuple[float, float]) -> Scale:
    """Losses red, gains blue: the scale of effects turned round."""
    low, high = limits
    return [(1 - where, colour) for where, colour in reversed(around_zero(-high, -low))]


def accuracy_map(frame: pl.DataFrame, task: str, limits: tuple[float, float]) -> Panel:
    """Differences in points; the row of the standard tells its accuracy."""
    texts, values, hovers = {}, {}, {}
    for row in frame.iter_rows(named=True):
        place, change, error = (row["correction"], row["scheme"]), row["difference"], row["error"]
        seeds = " / ".join(percent(it) for it in row["accuracies"])
        lines = [f"<b>{_who(row)}</b>: {seeds}", f"ceiling {percent(row['ceiling'])}"]
        if row["correction"] == STANDARD:
            texts[place], values[place] = number(100 * row["accuracy"], 0), 0.0
        elif change is not None:
            texts[place] = signed(change, 0) if abs(change) > error else ""
            values[place] = 100 * change
            lines.insert(1, f"{signed(change)} points, error {number(100 * error, 1)}")
        hovers[place] = "<br>".join(lines)
    alt = (
        f"Accuracy on the {task} task by scheme and correction, less that of the standard model; "
        f"{_extreme(frame)}."
    )
    figure = _map(frame, values, texts, hovers, gain_scale(limits), limits)
    return Panel(f"difference-{task}", task_title(task), alt, figure)


def effect_map(frame: pl.DataFrame, task: str, limits: tuple[float, float]) -> Panel | None:
    """The largest first-layer effect in points, marked where every seed is a deposit."""
    ablated = frame.filter(pl.col("largest").is_not_null())
    if ablated.is_empty():
        return None
    texts, values, hovers = {}, {}, {}
    for row in ablated.iter_rows(named=True):
        place = (row["correction"], row["scheme"])
        values[place] = 100 * row["largest"]
        texts[place] = number(values[place], 0) + (DEPOSIT if _deposit(row) else "")
        hovers[place] = f"<b>{_who(row)}</b>: {points(row['largest'])}<br>{row['verdicts']}"
    top = ablated.row(int(ablated["largest"].arg_max() or 0), named=True)
    alt = (
        f"Largest effect of a first-layer head on the {task} task by scheme and correction; the "
        f"largest of all is {points(top['largest'])}, {_who(top)}."
    )
    figure = _map(ablated, values, texts, hovers, around_zero(*limits), limits)
    return Panel(f"effect-{task}", task_title(task), alt, figure)


def _deposit(row: dict[str, Any]) -> bool:
    """Whether every seed has the verdict deposit."""
    return bool(row["verdicts"] == f"deposit {len(row['accuracies'])}")


def _who(row: dict[str, Any]) -> str:
    return html.escape(f"{title(row['scheme'])}, {row['correction']}")


def _extreme(frame: pl.DataFrame) -> str:
    found = frame.filter(pl.col("difference").is_not_null())
    if found.is_empty():
        return "nothing to compare yet"
    row = found.row(int(found["difference"].abs().arg_max() or 0), named=True)
    return f"the largest difference is {signed(row['difference'])} points, {_who(row)}"


def signed(value: float, digits: int = 1) -> str:
    """A difference of shares in points with its sign."""
    text = number(100 * value, digits)
    return text if text.startswith("\u2212") or float(text) == 0 else f"+{text}"


def _map(
    frame: pl.DataFrame,
    values: dict[tuple[str, str], float],
    texts: dict[tuple[str, str], str],
    hovers: dict[tuple[str, str], str],
    scale: Scale,
    limits: tuple[float, float],
) -> Any:
    """Rows are corrections, the first on top; columns schemes. What a switch leaves is blank."""
    names = frame["correction"].unique(maintain_order=True).to_list()
    schemes = sorted(frame["scheme"].unique(), key=rank)
    below = 48 + 7 * max(len(short_title(scheme)) for scheme in schemes)
    figure = empty_figure(6 + 25 * max(3, len(names)) + below, (94, 8, 6, below))
    rows = [[(name, scheme) for scheme in schemes] for name in names]
    figure.add_heatmap(
        x=list(range(len(schemes))),
        y=list(range(len(names))),
        z=[[values.get(place) for place in row] for row in rows],
        zmin=limits[0],
        zmax=limits[1],
        colorscale=scale,
        showscale=False,
        xgap=2,
        ygap=2,
        text=[[texts.get(place, "") for place in row] for row in rows],
        texttemplate="%{text}",
        textfont={"size": 11},
        customdata=[[hovers.get(place, "") for place in row] for row in rows],
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=False,
    )
    font = {"size": 12, "color": INK}
    quiet = {"showgrid": False, "showline": False, "ticks": "", "tickfont": font}
    figure.update_xaxes(
        axis(
            "Scheme",
            tickvals=list(range(len(schemes))),
            ticktext=[html.escape(short_title(scheme)) for scheme in schemes],
            tickangle=-90,
            **quiet,
        )
    )
    figure.update_yaxes(
        axis(
            "Correction",
            tickvals=list(range(len(names))),
            ticktext=[html.escape(name) for name in names],
            autorange="reversed",
            **quiet,
        )
    )
    return figure


def scheme_listing(frame: pl.DataFrame) -> Listing:
    """Every number of both maps."""
    columns = ["Scheme", "Correction", "Accuracy", "Difference (95\u202f% error)"]
    columns += ["Largest effect", "First layer"]
    palette = colours(frame["scheme"])
    lines = []
    for row in frame.iter_rows(named=True):
        change = row["difference"]
        told = "–" if change is None else f"{signed(change)} ({number(100 * row['error'], 1)})"
        texts = [
            title(row["scheme"]),
            row["correction"],
            " / ".join(percent(it) for it in row["accuracies"]),
            told,
            "–" if row["largest"] is None else points(row["largest"]),
            row["verdicts"] or "–",
        ]
        lines.append((palette[row["scheme"]], texts))
    return Listing(columns, lines)
