"""What panels with a line for each scheme share: reference lines, lines, names at their ends."""

import html
from collections.abc import Sequence
from typing import Any

import matplotlib.axes
import plotly.graph_objects as go
import polars as pl

from poslens.report.accuracy import references
from poslens.report.style import DASHED, SOFT, percent, short_title, text_colour
from poslens.results import Tables

CLOSE = 0.06  # reference lines nearer than this leave no room for a name between them


def named_references(tables: Tables, task: str) -> list[tuple[float, str, bool]]:
    """Reference lines, and whether there is room for the name below the line."""
    lines = references(tables.summary, task)
    return [
        (value, name, not any(0 < value - other < CLOSE for other, _ in lines))
        for value, name in lines
    ]


def add_references(figure: go.Figure, lines: list[tuple[float, str, bool]]) -> None:
    """Dashed lines with their names: high ones at the left end, low ones at the right."""
    for value, name, below in lines:
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


def add_line(
    figure: go.Figure,
    scheme: str,
    x: Sequence[float],
    y: Sequence[float],
    colour: str,
    width: float,
    hover: str = "",
    opacity: float = 1.0,
) -> None:
    """A scheme's line, in percent; `hover` is what pointing at it tells, nothing where empty."""
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": colour, "width": width, "dash": "6px,3px" if scheme in DASHED else "solid"},
        opacity=opacity,
        name=html.escape(short_title(scheme)),
        hoverinfo=None if hover else "skip",
        hovertemplate=f"{hover}<extra></extra>" if hover else None,
    )


def add_name(
    figure: go.Figure,
    name: str,
    colour: str,
    ends: tuple[float, float],
    heights: tuple[float, float],
    share: float,
) -> None:
    """The name right of the plot, joined to the line's end by a thin one.

    `ends` and `heights` are x and y of the line's end and of the name; `share` is the height of
    the name as a share of the plot's.
    """
    figure.add_scatter(
        x=list(ends),
        y=list(heights),
        mode="lines+markers",
        line={"color": colour, "width": 1},
        marker={"size": [7, 0], "color": colour},
        opacity=0.75,
        hoverinfo="skip",
        cliponaxis=False,
    )
    figure.add_annotation(
        text=html.escape(name),
        x=1,
        xref="paper",
        xanchor="left",
        xshift=3,
        y=share,
        yref="paper",
        yanchor="middle",
        showarrow=False,
        font={"size": 12, "color": text_colour(colour)},
    )


def draw_references(
    axes: matplotlib.axes.Axes, lines: list[tuple[float, str, bool]], ends: tuple[float, float]
) -> None:
    """The same lines for print; `ends` are the first and the last x of the axes."""
    for value, name, below in lines:
        axes.axhline(100 * value, color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            f"{name} {percent(value)}",
            (ends[0] if value > 0.5 else ends[1], 100 * value),
            xytext=(4 if value > 0.5 else -4, -2 if below else 2),
            textcoords="offset points",
            ha="left" if value > 0.5 else "right",
            va="top" if below else "bottom",
            color=SOFT,
            fontsize=8,
        )


def draw_runs(
    axes: matplotlib.axes.Axes, scheme: str, runs: pl.DataFrame, mean: pl.DataFrame, colour: str
) -> None:
    """A scheme's line for print: of several seeds thin lines under the mean's, of one its interval.

    `runs` holds seed, x, y and, where a point has an interval, low and high; `mean` x and y.
    """
    style: dict[str, Any] = {
        "color": colour,
        "linestyle": (0, (4, 2)) if scheme in DASHED else "-",
    }
    if runs["seed"].n_unique() > 1:
        for _, seed in runs.group_by("seed", maintain_order=True):
            axes.plot(seed["x"], seed["y"], linewidth=0.7, alpha=0.4, **style)
    elif "low" in runs.columns:
        error = [(runs[it] - runs["y"]).abs().to_list() for it in ("low", "high")]
        axes.errorbar(runs["x"], runs["y"], yerr=error, linewidth=1.7, elinewidth=1, **style)
        return
    axes.plot(mean["x"], mean["y"], linewidth=1.7, **style)


def draw_name(
    axes: matplotlib.axes.Axes,
    name: str,
    colour: str,
    ends: tuple[float, float],
    heights: tuple[float, float],
) -> None:
    """The same name for print."""
    axes.plot(ends[0], heights[0], "o", markersize=4, color=colour)
    axes.plot(ends, heights, linewidth=0.7, color=colour, clip_on=False)
    axes.annotate(
        name,
        (ends[1], heights[1]),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        color=text_colour(colour),
        fontsize=9,
        annotation_clip=False,
    )
