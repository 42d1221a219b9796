"""Figure 7: where position can be read in the residual stream, and where its directions turn."""

import html
import math
from dataclasses import dataclass
from typing import Any

import matplotlib.axes
import polars as pl

from poslens.claims.displaced import DISPLACED
from poslens.claims.implicit import appears
from poslens.claims.words import title
from poslens.report.lines import add_line, add_name, draw_name, draw_runs
from poslens.report.listings import Listing
from poslens.report.panels import Panel, axis, empty_figure, spread
from poslens.report.style import (
    FAINT,
    SOFT,
    colours,
    number,
    ordered,
    percent,
    short_title,
    task_title,
)
from poslens.results import KEY, Tables

X_TITLE = "Layers passed (number, 0 is the input)"


@dataclass(frozen=True)
class Measure:
    """One quantity of every state. `unit` multiplies it: 100 where it is shown in percent.

    `room` is left below 0 for the names of lines there, as a share of the height.
    """

    id: str
    title: str
    y_title: str
    unit: int = 1
    room: float = 0.13


READ = Measure("r2", "Position read by regression", "R² of the position (1 exact)")
NAMED = Measure("accuracy", "Position named among all", "Positions named rightly (%)", 100)
HELD = Measure("share", "Variance held by the mean", "Share explained by the mean (%)", 100)
ANGLE = Measure(
    "cos2", "Directions, beside the input's", "Mean cos² of the angles (1 same)", room=0.03
)
MEASURES = (READ, NAMED, HELD, ANGLE)


@dataclass(frozen=True)
class Mark:
    """A dashed line and its words, above it or below, and the band that goes with it.

    Without a band `low` and `high` are the height of the line.
    """

    height: float
    words: str
    low: float
    high: float
    above: bool = False

    @property
    def edge(self) -> float:
        """Where the words stand."""
        return max(self.height, self.high) if self.above else min(self.height, self.low)


@dataclass(frozen=True)
class ProbingPart:
    """What the page says of a task's probes."""

    task: str
    panels: list[Panel]
    listing: Listing


def probing_part(tables: Tables, task: str) -> ProbingPart:
    """Panels and table of a task with the tables PROBES and SUBSPACES."""
    panels = [
        probing_panel(tables, task, measure)
        for measure in MEASURES
        if not measure_frame(tables, task, measure).is_empty()
    ]
    return ProbingPart(task_title(task), panels, probing_listing(tables, task))


def measure_frame(tables: Tables, task: str, measure: Measure) -> pl.DataFrame:
    """One row per run and state, in the study's order of schemes, then by seed and state.

    Columns: scheme, seed, state, value, low, high (95 % interval). Of angles the schemes with a
    table alone.
    """
    if measure in (READ, NAMED):
        rows = tables.probes.filter(task=task, target="true", score=measure.id)
    else:
        start = {HELD: "share", ANGLE: "mean_cos2"}[measure]
        names = ("share_low", "share_high") if measure is HELD else ("low", "high")
        rows = tables.subspaces.filter(pl.col(start).is_not_nan(), task=task)
        rows = rows.with_columns(value=pl.col(start), low=pl.col(names[0]), high=pl.col(names[1]))
    rows = ordered(rows, "seed", "state")
    return rows.select("scheme", "seed", "state", "value", "low", "high")


def marks(tables: Tables, task: str, measure: Measure) -> list[Mark]:
    """What a panel's lines are held against: chance with the shuffled control, and thresholds."""
    if measure in (READ, NAMED):
        control = tables.probes.filter(task=task, target="shuffled", score=measure.id)
        chance = float(control["chance"].to_numpy().mean())
        low, high = control["low"].to_numpy().min(), control["high"].to_numpy().max()
        return [Mark(chance, "chance, and positions shuffled", float(low), float(high))]
    if measure is HELD:
        return [Mark(0, "no position", 0, 0)]
    nulls = tables.subspaces.filter(pl.col("null").is_not_nan(), task=task)["null"].to_numpy()
    random = Mark(float(nulls.mean()), "random subspace", float(nulls.min()), float(nulls.max()))
    return [random, Mark(DISPLACED, f"displaced below {DISPLACED:g}", DISPLACED, DISPLACED, True)]


def means(runs: pl.DataFrame) -> pl.DataFrame:
    """The mean over the seeds of one scheme in each state."""
    return runs.group_by("state").agg(pl.col("value").mean()).sort("state")


def limits(frame: pl.DataFrame, measure: Measure) -> tuple[float, float]:
    """Ends of the vertical axis: room below 0 for names, all of 0..1 but for shares of variance."""
    top = 1.0
    if measure is HELD:
        top = max(0.1, min(1.0, math.ceil(20 * max(frame["high"].to_list())) / 20))
    return -measure.room * top * measure.unit, 1.05 * top * measure.unit


def names_frame(frame: pl.DataFrame, measure: Measure) -> pl.DataFrame:
    """Scheme, state and height of the end of its line (mean over seeds), and its name's place."""
    low, high = limits(frame, measure)
    ends = [
        {"scheme": str(key[0]), **means(runs).row(-1, named=True)}
        for key, runs in frame.group_by("scheme", maintain_order=True)
    ]
    heights = [measure.unit * float(end["value"]) for end in ends]
    gap = 0.052 * (high - low)
    places = spread(heights, gap, low + gap / 2, high)
    return (
        pl.DataFrame(ends)
        .select("scheme", "state")
        .with_columns(
            height=pl.Series(heights, dtype=pl.Float64), place=pl.Series(places, dtype=pl.Float64)
        )
    )


def probing_panel(tables: Tables, task: str, measure: Measure) -> Panel:
    """A line for each scheme over the states; thin lines are seeds, where there are several."""
    frame, palette = measure_frame(tables, task, measure), colours(tables.summary["scheme"])
    low, high = limits(frame, measure)
    last = max(frame["state"].to_list())
    right = last + 0.06 * last
    figure = empty_figure(400, (58, 100, 14, 52))
    for mark in marks(tables, task, measure):
        _add_mark(figure, mark, measure)
    for key, runs in frame.group_by("scheme", maintain_order=True):
        scheme = str(key[0])
        several = runs["seed"].n_unique() > 1
        for _, seed in runs.group_by("seed", maintain_order=True):
            _add_run(figure, scheme, seed, palette[scheme], measure, several)
        if several:
            mean = means(runs)
            y = (measure.unit * mean["value"]).to_list()
            add_line(figure, scheme, mean["state"].to_list(), y, palette[scheme], 2.4)
    for scheme, state, height, place in names_frame(frame, measure).iter_rows():
        share = (place - low) / (high - low)
        name = short_title(scheme)
        add_name(figure, name, palette[scheme], (state, right), (height, place), share)
    figure.update_xaxes(axis(X_TITLE, range=(-0.06 * last, right), tickvals=[*range(last + 1)]))
    figure.update_yaxes(axis(measure.y_title, range=(low, high), nticks=6))
    alt = (
        f"{measure.title}, on the {task} task, by layers passed from 0 to {last}, of "
        f"{frame['scheme'].n_unique()} schemes."
    )
    return Panel(f"probe-{measure.id}-{task}", measure.title, alt, figure)


def _add_mark(figure: Any, mark: Mark, measure: Measure) -> None:
    unit = measure.unit
    if mark.high > mark.low:
        band = {"fillcolor": SOFT, "opacity": 0.18, "line_width": 0, "layer": "below"}
        figure.add_hrect(y0=unit * mark.low, y1=unit * mark.high, **band)
    figure.add_hline(unit * mark.height, line={"color": SOFT, "width": 1, "dash": "4px,3px"})
    figure.add_annotation(
        text=mark.words,
        x=0,
        xref="paper",
        xanchor="left",
        xshift=4,
        y=unit * mark.edge,
        yanchor="bottom" if mark.above else "top",
        yshift=2 if mark.above else -7,
        showarrow=False,
        font={"size": 11, "color": SOFT},
    )


def _add_run(
    figure: Any, scheme: str, rows: pl.DataFrame, colour: str, measure: Measure, several: bool
) -> None:
    """One run's line: thin beside others, with its intervals where it is alone."""
    value, low, high = (measure.unit * rows[name] for name in ("value", "low", "high"))
    width, opacity = (1.0, 0.4) if several else (2.4, 1.0)
    who = html.escape(short_title(scheme)) + (f", seed {rows['seed'][0]}" if several else "")
    states = rows["state"].to_list()
    add_line(figure, scheme, states, value.to_list(), colour, width, "%{customdata}", opacity)
    told = [
        f"<b>{who}</b>, {passed(state)}: {_text(measure, *numbers)}"
        for state, *numbers in rows.select("state", "value", "low", "high").iter_rows()
    ]
    figure.data[-1].update(customdata=told, mode="lines+markers", marker={"size": 5})
    if not several:
        bars = {"array": (high - value).to_list(), "arrayminus": (value - low).to_list()}
        figure.data[-1].update(
            error_y={"type": "data", "symmetric": False, "thickness": 1.2, "width": 0, **bars}
        )


def passed(state: int | None) -> str:
    """A state in words."""
    if state is None:
        return "nowhere"
    return "the input" if state == 0 else f"after {state} layer{'' if state == 1 else 's'}"


def _text(measure: Measure, value: float, low: float, high: float) -> str:
    if measure.unit == 100:
        return f"{percent(value)} ({number(100 * low, 1)} to {number(100 * high, 1)})"
    return f"{number(value, 3)} ({number(low, 3)} to {number(high, 3)})"


def probing_listing(tables: Tables, task: str) -> Listing:
    """A line for each run: from where position is read, and how well at both ends."""
    columns = ["Scheme", "Seed", "Position is read from", "R², input", "R², end"]
    columns += ["Error, end (words)", "Right, end", "Dimensions", "cos², end"]
    palette = colours(tables.summary["scheme"])
    probes, subspaces = tables.probes.filter(task=task), tables.subspaces.filter(task=task)
    rows = []
    for run in ordered(appears(probes), "seed").iter_rows(named=True):
        own = {name: run[name] for name in KEY}
        true = probes.filter(target="true", **own).sort("state")
        by_score = {score: true.filter(score=score)["value"] for score in set(true["score"])}
        lines = subspaces.filter(**own).sort("state")
        components = lines["dimensions"][-1] if lines.height else 0
        text = [
            title(run["scheme"]),
            str(run["seed"]),
            passed(run["appears"]),
            number(by_score["r2"][0], 3),
            number(by_score["r2"][-1], 3),
            number(by_score["error"][-1], 1),
            percent(by_score["accuracy"][-1]),
            str(components) if components else "no table",
            number(lines["mean_cos2"][-1], 3) if components else "–",
        ]
        rows.append((palette[run["scheme"]], text))
    return Listing(columns, rows)


def draw_probing(axes: matplotlib.axes.Axes, tables: Tables, task: str, measure: Measure) -> None:
    """The same panel for print."""
    frame, palette = measure_frame(tables, task, measure), colours(tables.summary["scheme"])
    low, high = limits(frame, measure)
    last = max(frame["state"].to_list())
    ends, unit = (-0.06 * last, last + 0.06 * last), measure.unit
    for mark in marks(tables, task, measure):
        axes.axhspan(unit * mark.low, unit * mark.high, color=FAINT, linewidth=0, zorder=0)
        axes.axhline(unit * mark.height, color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            mark.words,
            (ends[0], unit * mark.edge),
            xytext=(4, 2 if mark.above else -5),
            textcoords="offset points",
            va="bottom" if mark.above else "top",
            color=SOFT,
            fontsize=8,
        )
    for key, runs in frame.group_by("scheme", maintain_order=True):
        scheme = str(key[0])
        values = [
            (unit * pl.col(it)).alias(name)
            for it, name in {"value": "y", "low": "low", "high": "high"}.items()
        ]
        seeds = runs.select("seed", pl.col("state").alias("x"), *values)
        mean = means(runs).select(pl.col("state").alias("x"), values[0])
        draw_runs(axes, scheme, seeds, mean, palette[scheme])
    for scheme, state, height, place in names_frame(frame, measure).iter_rows():
        name = short_title(scheme)
        draw_name(axes, name, palette[scheme], (state, ends[1]), (height, place))
    axes.set(xlabel=X_TITLE, ylabel=measure.y_title, xlim=ends, ylim=(low, high))
    axes.set_xticks(range(last + 1))
