"""Figure 1: the accuracy of every scheme, beside what bounds it and what the study reports."""

import html
from typing import Any

import matplotlib.axes
import plotly.graph_objects as go
import polars as pl

from poslens.report.intervals import wilson
from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.style import INK, RULE, SOFT, colours, ordered, percent, short_title, task_title

# Gu et al. 2026 (arXiv 2505.13027), as quoted in its text; one run each, at published size.
PAPER = {
    ("distance", "rope"): 0.9264,
    ("distance", "mla"): 0.8834,
    ("count", "rope"): 0.6943,
    ("count", "nope"): 0.7769,
    ("count", "mla"): 0.9741,
}
REFERENCES = {"chance": "chance", "baseline": "length-only", "ceiling": "ceiling"}
X_TITLE = "Accuracy on held-out sequences (%)"
X_RANGE = (-2.0, 103.0)


def accuracy_frame(summary: pl.DataFrame, task: str) -> pl.DataFrame:
    """One row per run of the task, best scheme first.

    Columns: scheme, seed, accuracy, low, high (95 % Wilson interval over held-out sequences),
    runs and mean (of the scheme), paper (the study's number or null).
    """
    rows = [
        {**row, "low": interval[0], "high": interval[1], "paper": PAPER.get((task, row["scheme"]))}
        for row in summary.filter(task=task).iter_rows(named=True)
        for interval in [wilson(row["accuracy"], row["evaluated"])]
    ]
    frame = ordered(pl.DataFrame(rows, schema_overrides={"paper": pl.Float64}), "seed")
    cell = {"runs": pl.len(), "mean": pl.col("accuracy").mean()}
    return (
        frame.select("scheme", "seed", "accuracy", "low", "high", "paper")
        .with_columns(**{name: value.over("scheme") for name, value in cell.items()})
        .sort("mean", descending=True, maintain_order=True)
    )


def references(summary: pl.DataFrame, task: str) -> list[tuple[float, str]]:
    """Chance, length-only baseline and ceiling of a task, ascending; equal ones share a name.

    Runs with other task settings in one folder give several values of a kind.
    """
    found: dict[float, list[str]] = {}
    for column, name in REFERENCES.items():
        for value in summary.filter(task=task)[column].round(4).unique().sort():
            found.setdefault(value, []).append(name)
    return [(value, " = ".join(names)) for value, names in sorted(found.items())]


def accuracy_panel(summary: pl.DataFrame, task: str) -> Panel:
    """A dot for each run, its interval where the scheme ran once, reference lines by name."""
    frame = accuracy_frame(summary, task)
    schemes = frame["scheme"].unique(maintain_order=True).to_list()
    palette = colours(summary["scheme"])
    places = {scheme: len(schemes) - 1 - i for i, scheme in enumerate(schemes)}
    figure = empty_figure(120 + 30 * len(schemes), (112, 88, 60, 52))
    lines = references(summary, task)
    for i, (value, name) in enumerate(lines):
        figure.add_vline(100 * value, line={"color": SOFT, "width": 1, "dash": "4px,3px"})
        last = i == len(lines) - 1
        figure.add_annotation(
            text=f"{name} {percent(value)}",
            x=100 * value,
            y=1,
            yref="paper",
            xanchor="right" if value > 0.5 else "left",
            yanchor="bottom",
            yshift=1 + 15 * (len(lines) - 1 - i),
            xshift=0 if last else -3,
            showarrow=False,
            font={"size": 11, "color": SOFT},
        )
    for scheme, runs in frame.group_by("scheme", maintain_order=True):
        _draw_scheme(figure, str(scheme[0]), runs, places[str(scheme[0])], palette)
    for x, name in ((38, "here"), (82, "◇ study")):
        figure.add_annotation(
            **{**_column(x, 1), "yref": "paper", "yanchor": "bottom", "yshift": 1},
            text=name,
            font={"size": 11, "color": SOFT},
        )
    figure.update_xaxes(axis(X_TITLE, range=X_RANGE, tickvals=[0, 20, 40, 60, 80, 100]))
    figure.update_yaxes(
        axis(
            "Scheme (best first)",
            range=(-0.6, len(schemes) - 0.4),
            tickvals=list(places.values()),
            ticktext=[html.escape(short_title(scheme)) for scheme in schemes],
            showline=False,
            ticks="",
            tickfont={"size": 12, "color": INK},
        )
    )
    best = frame.row(0, named=True)
    alt = (
        f"Dot plot of accuracy by scheme on the {task} task, "
        f"from {short_title(schemes[0])} at {percent(best['mean'])} "
        f"to {short_title(schemes[-1])} at {percent(frame['mean'][-1])}."
    )
    return Panel(f"accuracy-{task}", task_title(task), alt, figure)


def _draw_scheme(
    figure: go.Figure, scheme: str, runs: pl.DataFrame, place: int, palette: dict[str, str]
) -> None:
    single, mean, paper = runs.height == 1, runs["mean"][0], runs["paper"][0]
    if paper is not None:
        figure.add_scatter(
            x=[100 * paper],
            y=[place],
            mode="markers",
            marker={
                "symbol": "diamond-open",
                "size": 11,
                "color": SOFT,
                "line": {"width": 1.5},
            },
            hovertemplate=f"the study: {percent(paper, 2)}<extra></extra>",
        )
        figure.add_annotation(
            **_column(82, place),
            text=f"{100 * paper:.1f}",
            font={"size": 12, "color": SOFT},
        )
    if not single:
        figure.add_shape(
            type="line",
            x0=100 * mean,
            x1=100 * mean,
            y0=place - 0.32,
            y1=place + 0.32,
            line={"color": palette[scheme], "width": 3},
        )
    interval = {
        "type": "data",
        "symmetric": False,
        "array": [100 * (high - value) for value, high in runs["accuracy", "high"].iter_rows()],
        "arrayminus": [100 * (value - low) for value, low in runs["accuracy", "low"].iter_rows()],
        "thickness": 3,
        "width": 0,
        "visible": single,
    }
    figure.add_scatter(
        x=(100 * runs["accuracy"]).to_list(),
        y=[place] * runs.height,
        mode="markers",
        error_x=interval,
        marker={
            "size": 11 if single else 9,
            "color": palette[scheme],
            "opacity": 1 if single else 0.6,
        },
        customdata=[
            [html.escape(short_title(scheme)), seed, percent(value), percent(low), percent(high)]
            for seed, value, low, high in runs["seed", "accuracy", "low", "high"].iter_rows()
        ],
        hovertemplate="<b>%{customdata[0]}</b>, seed %{customdata[1]}: %{customdata[2]}<br>"
        "95 % interval %{customdata[3]} to %{customdata[4]}<extra></extra>",
    )
    figure.add_annotation(**_column(38, place), text=f"<b>{100 * mean:.1f}</b>")


def _column(right: int, y: float) -> dict[str, object]:
    """An annotation right of the plot whose text ends `right` pixels from it."""
    return {
        "x": 1,
        "xref": "paper",
        "xanchor": "right",
        "xshift": right,
        "y": y,
        "yanchor": "middle",
        "showarrow": False,
    }


def draw_accuracy(axes: matplotlib.axes.Axes, summary: pl.DataFrame, task: str) -> None:
    """The same panel for print."""
    frame = accuracy_frame(summary, task)
    schemes = frame["scheme"].unique(maintain_order=True).to_list()
    palette = colours(summary["scheme"])
    top = len(schemes) - 0.4
    lines = references(summary, task)
    for i, (value, name) in enumerate(lines):
        axes.axvline(100 * value, color=SOFT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            f"{name} {percent(value)}",
            (100 * value, top),
            xytext=(0, 3 + 12 * (len(lines) - 1 - i)),
            textcoords="offset points",
            ha="right" if value > 0.5 else "left",
            color=SOFT,
            fontsize=8,
        )
    for i, scheme in enumerate(schemes):
        place, runs = len(schemes) - 1 - i, frame.filter(pl.col("scheme") == scheme)
        mean, paper, colour = runs["mean"][0], runs["paper"][0], palette[scheme]
        axes.axhline(place, color=RULE, linewidth=0.5, zorder=0)
        if runs.height == 1:
            ends = [[100 * (mean - runs["low"][0])], [100 * (runs["high"][0] - mean)]]
            axes.errorbar([100 * mean], [place], xerr=ends, color=colour, elinewidth=2, fmt="o")
        else:
            axes.plot(100 * runs["accuracy"], [place] * runs.height, "o", color=colour, alpha=0.6)
            axes.vlines(100 * mean, place - 0.3, place + 0.3, color=colour, linewidth=2.2)
        _write(axes, f"{100 * mean:.1f}", 34, place, fontweight="bold")
        if paper is not None:
            axes.plot(100 * paper, place, "D", markersize=7, markerfacecolor="none", color=SOFT)
            _write(axes, f"{100 * paper:.1f}", 74, place, color=SOFT)
    for x, name in ((34, "here"), (74, "◇ study")):
        _write(axes, name, x, top + 0.25, color=SOFT, fontsize=8)
    axes.set(title=task_title(task), xlabel=X_TITLE, xlim=X_RANGE, ylim=(-0.6, top))
    axes.set_yticks(range(len(schemes)), [short_title(scheme) for scheme in reversed(schemes)])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _write(axes: matplotlib.axes.Axes, text: str, right: int, y: float, **style: Any) -> None:
    """Text right of the axes that ends `right` points from them."""
    axes.annotate(
        text,
        (1, y),
        xycoords=("axes fraction", "data"),
        xytext=(right, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        annotation_clip=False,
        **{"fontsize": 9, **style},
    )
