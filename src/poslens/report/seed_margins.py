"""Margins of seeds and normalised leads, by layer and over training."""

import math
from typing import Literal

import matplotlib.axes
import polars as pl

from poslens.report.kept import layer_colours
from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.seed_axes import Steps, decades
from poslens.report.style import number, ordered, short_title
from poslens.results import Tables

What = Literal["margin", "lead"]
X_TITLE = "Training (steps)"
TITLES = {"margin": "Margin (nats a unit of gain)", "lead": "Lead (share of the sum)"}
BOUNDS = {"margin": ("low", "high"), "lead": ("lead_low", "lead_high")}


def margin_frame(tables: Tables, task: str) -> pl.DataFrame:
    """Rows of the table MARGINS, own initialisation, of layers that have one."""
    rows = tables.margins.filter(pl.col("margin").is_not_nan(), task=task, initialisation=0)
    return ordered(rows, "seed", "layer", "step")


def ends(frame: pl.DataFrame, what: What) -> tuple[float, float]:
    """The vertical axis of all schemes of a task; margins in powers of ten."""
    values = frame[what]
    if what == "lead":
        return max(-1.04, min(-0.1, 1.1 * float(frame["lead_low"].to_numpy().min()))), 1.04
    positive = values.filter(values > 0).to_numpy()
    if not len(positive):
        return -3.0, 0.0
    return math.log10(positive.min()) - 0.15, math.log10(positive.max()) + 0.15


def margin_panel(frame: pl.DataFrame, scheme: str, what: What, task: str) -> Panel:
    """A line a layer; of several seeds thin ones, each with its dots. Margins from 0 down are left
    out, since the axis is logarithmic."""
    rows = frame.filter(scheme=scheme)
    several, palette = rows["seed"].n_unique() > 1, layer_colours(layers_of(frame))
    steps, figure = Steps(rows["step"].to_list()), empty_figure(222, (62, 10, 8, 44))
    low_name, high_name = BOUNDS[what]
    for (layer, seed), run in rows.group_by("layer", "seed", maintain_order=True):
        shown = run.filter(pl.col(what) > 0) if what == "margin" else run
        value = shown[what]
        figure.add_scatter(
            x=[steps.place(step) for step in shown["step"]],
            y=value.to_list(),
            mode="lines+markers",
            line={"color": palette[int(str(layer))], "width": 1 if several else 1.8},
            marker={"size": 4 if several else 5},
            opacity=0.75 if several else 1,
            error_y={
                "type": "data",
                "symmetric": False,
                "array": (shown[high_name] - value).to_list(),
                "arrayminus": [
                    # Down to where a logarithmic axis still has room.
                    min(it - low, 0.999 * it if what == "margin" else math.inf)
                    for it, low in zip(value, shown[low_name], strict=True)
                ],
                "thickness": 1,
                "width": 0,
                "visible": not several,
            },
            customdata=[
                f"<b>layer {layer}</b>" + (f", seed {seed}" if several else "") + f", step "
                f"{row['step']:,}<br>{what} {row[what]:.2g} ({row[low_name]:.2g} to "
                f"{row[high_name]:.2g})<br>head {row['leader']} leads"
                for row in shown.iter_rows(named=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    places, texts = steps.ticks
    figure.update_xaxes(axis(X_TITLE, range=steps.range, tickvals=places, ticktext=texts))
    low, high = ends(frame, what)
    if what == "margin":
        ticks, texts = decades(low, high)
        vertical = axis(TITLES[what], type="log", range=(low, high), tickvals=ticks, ticktext=texts)
    else:
        vertical = axis(TITLES[what], range=(low, high), nticks=7)
    figure.update_yaxes(vertical)
    name = short_title(scheme)
    last = rows.filter(pl.col("step") == rows["step"].max(), layer=0)[what]
    end = number(last[0], 3)
    alt = f"{name}: {what} by layer over training; in layer 0 at the last step {end}."
    return Panel(f"{what}-{task}-{scheme}", name, alt, figure)


def layers_of(frame: pl.DataFrame) -> int:
    return max(frame["layer"].to_list()) + 1


def draw_margins(axes: matplotlib.axes.Axes, frame: pl.DataFrame, scheme: str, what: What) -> None:
    """The same panel for print."""
    rows = frame.filter(scheme=scheme)
    several, palette = rows["seed"].n_unique() > 1, layer_colours(layers_of(frame))
    steps = Steps(rows["step"].to_list())
    for (layer, _), run in rows.group_by("layer", "seed", maintain_order=True):
        shown = run.filter(pl.col(what) > 0) if what == "margin" else run
        axes.plot(
            [steps.place(step) for step in shown["step"]],
            shown[what].to_list(),
            marker="o",
            markersize=2.4,
            linewidth=0.8 if several else 1.3,
            color=palette[int(str(layer))],
            alpha=0.8 if several else 1,
        )
    low, high = ends(frame, what)
    if what == "margin":
        axes.set_yscale("log")
        axes.set_ylim(10**low, 10**high)
        axes.set_yticks(*decades(low, high))
        axes.minorticks_off()
    else:
        axes.set_ylim(low, high)
    axes.set_xlim(*steps.range)
    axes.set_xticks(*steps.ticks)
    axes.set_title(short_title(scheme), pad=6)
