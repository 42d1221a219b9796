"""Figure 2: learning curves, held-out accuracy against training sequences seen."""

import matplotlib.axes
import plotly.graph_objects as go
import polars as pl

from poslens.report.improving import RISING, rising_schemes
from poslens.report.lines import (
    add_line,
    add_name,
    add_references,
    draw_name,
    draw_references,
    draw_runs,
    named_references,
)
from poslens.report.panels import Panel, axis, empty_figure, spread
from poslens.report.style import (
    colours,
    number,
    ordered,
    short_title,
    task_title,
)
from poslens.results import Tables

X_TITLE = "Training sequences seen (thousands)"
Y_TITLE = "Accuracy on held-out sequences (%)"
Y_RANGE = (-5.0, 104.0)


def curve_frame(curve: pl.DataFrame, task: str) -> pl.DataFrame:
    """One row per evaluation: scheme, seed, thousands (of sequences seen), accuracy.

    Ordered by scheme (the study's order), seed, sequences.
    """
    frame = ordered(curve.filter(task=task), "seed", "sequences")
    return frame.select(
        "scheme", "seed", (pl.col("sequences") / 1000).alias("thousands"), "accuracy"
    )


def mean_frame(runs: pl.DataFrame) -> pl.DataFrame:
    """The mean over the seeds of one scheme; a seed that stopped early keeps its last accuracy."""
    wide = runs.pivot("seed", index="thousands", values="accuracy").sort("thousands")
    seeds = pl.exclude("thousands").forward_fill()
    return wide.with_columns(seeds).select(
        "thousands", accuracy=pl.mean_horizontal(pl.exclude("thousands"))
    )


def ends_frame(frame: pl.DataFrame, gap: float) -> pl.DataFrame:
    """Where each scheme's curve ends and where its name goes, `gap` points apart at least.

    Columns: scheme, thousands, accuracy (in %, mean over seeds of the last evaluation), place.
    """
    last = frame.group_by("scheme", "seed", maintain_order=True).last()
    ends = last.group_by("scheme", maintain_order=True).agg(
        pl.col("thousands").max(), pl.col("accuracy").mean() * 100
    )
    places = spread(ends["accuracy"].to_list(), gap, Y_RANGE[0] + gap / 2, Y_RANGE[1])
    return ends.with_columns(place=pl.Series(places))


def end_names(tables: Tables, task: str) -> dict[str, str]:
    """How each scheme is named at its curve's end; marked where a seed was still improving."""
    rising = rising_schemes(tables, task)
    schemes = tables.curve.filter(task=task)["scheme"].unique()
    return {it: short_title(it) + (f" {RISING}" if it in rising else "") for it in schemes}


def curve_panel(tables: Tables, task: str) -> Panel:
    """A line for each scheme, named at its end; thin lines are seeds, where there are several."""
    frame = curve_frame(tables.curve, task)
    palette, names = colours(tables.summary["scheme"]), end_names(tables, task)
    figure = empty_figure(420, (58, 112, 14, 52))
    longest = max(frame["thousands"].to_list())
    add_references(figure, named_references(tables, task))
    for key, runs in frame.group_by("scheme", maintain_order=True):
        scheme = str(key[0])
        if runs["seed"].n_unique() > 1:
            for _, seed in runs.group_by("seed", maintain_order=True):
                _line(figure, scheme, seed, palette[scheme], width=1, opacity=0.4, hover=True)
            _line(figure, scheme, mean_frame(runs), palette[scheme], width=2.4, hover=False)
        else:
            _line(figure, scheme, runs, palette[scheme], width=2.4, hover=True)
    low, high = Y_RANGE
    for scheme, end, height, place in ends_frame(frame, 4.5).iter_rows():
        share = (place - low) / (high - low)
        ends, heights = (end, longest * 1.02), (height, place)
        add_name(figure, names[scheme], palette[scheme], ends, heights, share)
    figure.update_xaxes(axis(X_TITLE, range=(0, longest * 1.02), nticks=6))
    figure.update_yaxes(axis(Y_TITLE, range=Y_RANGE, tickvals=[0, 20, 40, 60, 80, 100]))
    alt = (
        f"Learning curves on the {task} task: accuracy of {frame['scheme'].n_unique()} schemes "
        f"over up to {number(longest, 0)} thousand training sequences."
    )
    return Panel(f"curves-{task}", task_title(task), alt, figure)


def _line(
    figure: go.Figure,
    scheme: str,
    rows: pl.DataFrame,
    colour: str,
    width: float,
    hover: bool,
    opacity: float = 1.0,
) -> None:
    told = "<b>%{fullData.name}</b>: %{y:.1f} % after %{x:.3~f} thousand" if hover else ""
    x, y = rows["thousands"].to_list(), (100 * rows["accuracy"]).to_list()
    add_line(figure, scheme, x, y, colour, width, told, opacity)


def draw_curves(axes: matplotlib.axes.Axes, tables: Tables, task: str) -> None:
    """The same panel for print."""
    frame = curve_frame(tables.curve, task)
    palette, names = colours(tables.summary["scheme"]), end_names(tables, task)
    longest = max(frame["thousands"].to_list())
    draw_references(axes, named_references(tables, task), (0, longest * 1.02))
    for key, runs in frame.group_by("scheme", maintain_order=True):
        scheme = str(key[0])
        columns = (pl.col("thousands").alias("x"), (100 * pl.col("accuracy")).alias("y"))
        mean = mean_frame(runs) if runs["seed"].n_unique() > 1 else runs
        seeds = runs.select("seed", *columns)
        draw_runs(axes, scheme, seeds, mean.select(columns), palette[scheme])
    for scheme, end, height, place in ends_frame(frame, 4.6).iter_rows():
        ends, heights = (end, longest * 1.02), (height, place)
        draw_name(axes, names[scheme], palette[scheme], ends, heights)
    axes.set(title=task_title(task), xlabel=X_TITLE, ylabel=Y_TITLE)
    axes.set(xlim=(0, longest * 1.02), ylim=Y_RANGE)
