"""Figure 2: learning curves, held-out accuracy against training sequences seen."""

import html
from typing import Any

import matplotlib.axes
import plotly.graph_objects as go
import polars as pl

from poslens.report.accuracy import references
from poslens.report.panels import Panel, axis, empty_figure, spread
from poslens.report.style import (
    DASHED,
    SOFT,
    colours,
    number,
    ordered,
    percent,
    short_title,
    task_title,
    text_colour,
)
from poslens.results import Tables

X_TITLE = "Training sequences seen (thousands)"
Y_TITLE = "Accuracy on held-out sequences (%)"
Y_RANGE = (-5.0, 104.0)
CLOSE = 0.06  # reference lines nearer than this leave no room for a name between them


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


def named_references(tables: Tables, task: str) -> list[tuple[float, str, bool]]:
    """Reference lines, and whether there is room for the name below the line."""
    lines = references(tables.summary, task)
    return [
        (value, name, not any(0 < value - other < CLOSE for other, _ in lines))
        for value, name in lines
    ]


def curve_panel(tables: Tables, task: str) -> Panel:
    """A line for each scheme, named at its end; thin lines are seeds, where there are several."""
    frame = curve_frame(tables.curve, task)
    palette = colours(tables.summary["scheme"])
    figure = empty_figure(420, (58, 104, 14, 52))
    longest = max(frame["thousands"].to_list())
    for value, name, below in named_references(tables, task):
        figure.add_hline(100 * value, line={"color": SOFT, "width": 1, "dash": "4px,3px"})
        figure.add_annotation(
            text=f"{name} {percent(value)}",
            x=0 if value > 0.5 else 1,
            xref="paper",
            xanchor="left" if value > 0.5 else "right",
            xshift=4 if value > 0.5 else -4,
            y=100 * value,
            yanchor="top" if below else "bottom",
            yshift=-2 if below else 2,
            showarrow=False,
            font={"size": 11, "color": SOFT},
        )
    for key, runs in frame.group_by("scheme", maintain_order=True):
        scheme = str(key[0])
        if runs["seed"].n_unique() > 1:
            for _, seed in runs.group_by("seed", maintain_order=True):
                _line(figure, scheme, seed, palette[scheme], width=1, opacity=0.4, hover=True)
            _line(figure, scheme, mean_frame(runs), palette[scheme], width=2.4, hover=False)
        else:
            _line(figure, scheme, runs, palette[scheme], width=2.4, hover=True)
    for scheme, end, height, place in ends_frame(frame, 4.5).iter_rows():
        figure.add_scatter(
            x=[end, longest * 1.02],
            y=[height, place],
            mode="lines+markers",
            line={"color": palette[scheme], "width": 1},
            marker={"size": [7, 0], "color": palette[scheme]},
            opacity=0.75,
            hoverinfo="skip",
            cliponaxis=False,
        )
        figure.add_annotation(
            text=html.escape(short_title(scheme)),
            x=1,
            xref="paper",
            xanchor="left",
            xshift=3,
            y=(place - Y_RANGE[0]) / (Y_RANGE[1] - Y_RANGE[0]),
            yref="paper",
            yanchor="middle",
            showarrow=False,
            font={"size": 12, "color": text_colour(palette[scheme])},
        )
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
    figure.add_scatter(
        x=rows["thousands"].to_list(),
        y=(100 * rows["accuracy"]).to_list(),
        mode="lines",
        line={"color": colour, "width": width, "dash": "6px,3px" if scheme in DASHED else "solid"},
        opacity=opacity,
        name=html.escape(short_title(scheme)),
        hoverinfo=None if hover else "skip",
        hovertemplate="<b>%{fullData.name}</b>: %{y:.1f} % after %{x:.3~f} thousand<extra></extra>"
        if hover
        else None,
    )


def draw_curves(axes: matplotlib.axes.Axes, tables: Tables, task: str) -> None:
    """The same panel for print."""
    frame = curve_frame(tables.curve, task)
    palette = colours(tables.summary["scheme"])
    longest = max(frame["thousands"].to_list())
    for value, name, below in named_references(tables, task):
        axes.axhline(100 * value, color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            f"{name} {percent(value)}",
            (0 if value > 0.5 else longest * 1.02, 100 * value),
            xytext=(4 if value > 0.5 else -4, -2 if below else 2),
            textcoords="offset points",
            ha="left" if value > 0.5 else "right",
            va="top" if below else "bottom",
            color=SOFT,
            fontsize=8,
        )
    for key, runs in frame.group_by("scheme", maintain_order=True):
        scheme = str(key[0])
        style: dict[str, Any] = {
            "color": palette[scheme],
            "linestyle": (0, (4, 2)) if scheme in DASHED else "-",
        }
        if runs["seed"].n_unique() > 1:
            for _, seed in runs.group_by("seed", maintain_order=True):
                axes.plot(
                    seed["thousands"], 100 * seed["accuracy"], linewidth=0.7, alpha=0.4, **style
                )
            runs = mean_frame(runs)
        axes.plot(runs["thousands"], 100 * runs["accuracy"], linewidth=1.7, **style)
    for scheme, end, height, place in ends_frame(frame, 4.6).iter_rows():
        colour = palette[scheme]
        axes.plot([end], [height], "o", markersize=4, color=colour)
        axes.plot(
            [end, longest * 1.02], [height, place], linewidth=0.7, color=colour, clip_on=False
        )
        axes.annotate(
            short_title(scheme),
            (longest * 1.02, place),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            color=text_colour(colour),
            fontsize=9,
            annotation_clip=False,
        )
    axes.set(title=task_title(task), xlabel=X_TITLE, ylabel=Y_TITLE)
    axes.set(xlim=(0, longest * 1.02), ylim=Y_RANGE)
