"""Figure 3: accuracy by the right answer (distance, count), one row of cells per scheme."""

import html
from typing import Any

import matplotlib.axes
import polars as pl
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator

from poslens.report.intervals import wilson
from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.style import (
    ACCURACY,
    INK,
    LABELS,
    evenly,
    ordered,
    percent,
    short_title,
    task_title,
)
from poslens.results import Tables

FILE_NAMES = {"distance": "by_distance", "count": "by_count"}


def label_frame(tables: Tables, task: str) -> pl.DataFrame:
    """One row per scheme and label, seeds pooled, best scheme first.

    Columns: scheme, label (in the task's unit), count, correct, accuracy, overall.
    """
    runs = tables.summary.filter(task=task)
    overall = runs.group_by("scheme").agg(overall=pl.col("accuracy").mean())
    cells = (
        tables.labels.filter(task=task)
        .join(runs.select("scheme", "seed", "first_label"), on=["scheme", "seed"])
        .group_by("scheme", (pl.col("label") + pl.col("first_label")).alias("label"))
        .agg(pl.col("count").sum(), pl.col("correct").sum())
        .filter(pl.col("count") > 0)
        .with_columns(accuracy=pl.col("correct") / pl.col("count"))
        .join(overall, on="scheme")
    )
    return ordered(cells, "label").sort("overall", descending=True, maintain_order=True)


def grid(frame: pl.DataFrame) -> tuple[list[str], list[int], list[list[dict[str, Any] | None]]]:
    """Schemes from the bottom row up, labels, and the cell of each pair (None: never seen)."""
    schemes = frame["scheme"].unique(maintain_order=True).to_list()[::-1]
    seen = frame["label"].to_list()
    labels = list(range(min(seen), max(seen) + 1))
    cells = {(row["scheme"], row["label"]): row for row in frame.iter_rows(named=True)}
    return schemes, labels, [[cells.get((s, label)) for label in labels] for s in schemes]


def x_title(tables: Tables, task: str) -> str:
    """What the labels count, with their unit."""
    unit = tables.summary.filter(task=task)["label_unit"][0]
    return f"{LABELS.get(task, 'Label')} ({unit})"


def label_panel(tables: Tables, task: str) -> Panel:
    """Cells shaded by accuracy, best scheme on top."""
    schemes, labels, cells = grid(label_frame(tables, task))
    figure = empty_figure(76 + 27 * len(schemes), (112, 14, 10, 52))
    figure.add_heatmap(
        x=labels,
        y=list(range(len(schemes))),
        z=[[None if cell is None else 100 * cell["accuracy"] for cell in row] for row in cells],
        zmin=0,
        zmax=100,
        colorscale=evenly(ACCURACY),
        showscale=False,
        xgap=1 if len(labels) <= 40 else 0,
        ygap=3,
        customdata=[[_hover(cell) for cell in row] for row in cells],
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=False,
    )
    figure.update_xaxes(axis(html.escape(x_title(tables, task)), showgrid=False, nticks=8))
    figure.update_yaxes(
        axis(
            "Scheme (best first)",
            tickvals=list(range(len(schemes))),
            ticktext=[html.escape(short_title(scheme)) for scheme in schemes],
            showgrid=False,
            showline=False,
            ticks="",
            tickfont={"size": 12, "color": INK},
        )
    )
    alt = (
        f"Accuracy on the {task} task by the right answer, {labels[0]} to {labels[-1]}, "
        f"one row of cells for each of {len(schemes)} schemes."
    )
    return Panel(f"by-label-{task}", task_title(task), alt, figure)


def _hover(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return ""
    low, high = wilson(cell["accuracy"], cell["count"])
    return (
        f"<b>{html.escape(short_title(cell['scheme']))}</b>, {cell['label']}: "
        f"{percent(cell['accuracy'])} ({percent(low)} to {percent(high)})<br>"
        f"{cell['correct']} of {cell['count']} sequences right"
    )


def draw_labels(axes: matplotlib.axes.Axes, tables: Tables, task: str) -> Any:
    """The same panel for print; returns the image for the colour bar."""
    schemes, labels, cells = grid(label_frame(tables, task))
    shades = LinearSegmentedColormap.from_list("accuracy", evenly(ACCURACY))
    edges = [labels[0] - 0.5, *(label + 0.5 for label in labels)]
    values = [[float("nan") if c is None else 100 * c["accuracy"] for c in row] for row in cells]
    image = axes.pcolormesh(
        edges,
        [place - 0.5 for place in range(len(schemes) + 1)],
        values,
        cmap=shades,
        vmin=0,
        vmax=100,
    )
    for place in range(1, len(schemes)):
        axes.axhline(place - 0.5, color="white", linewidth=2.5)
    axes.set(title=task_title(task), xlabel=x_title(tables, task))
    axes.set_yticks(range(len(schemes)), [short_title(scheme) for scheme in schemes])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="y", length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    return image
