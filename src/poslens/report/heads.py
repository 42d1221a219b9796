"""Figure 4: what zeroing each head costs, a small map of layers and heads for every run."""

from typing import Any

import matplotlib.axes
import polars as pl
from matplotlib.colors import LinearSegmentedColormap

from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.style import Scale, around_zero, at, number, on_fill, ordered, short_title
from poslens.results import Tables

WHOLE_LAYER = -1
LEAST_SPAN = 10.0  # points of accuracy
MOST_NUMBERED = 12  # heads in a row up to which numbers fit into the cells


def effect_frame(tables: Tables) -> pl.DataFrame:
    """One row per run, layer and head: the accuracy effect with its intervals, and the loss effect.

    Columns: scheme, task, seed, layer, head (-1: the whole layer), effect, low, high (points of
    accuracy, 0 to 1), certain (Holm's interval excludes 0), loss, loss_low, loss_high (nats).
    Ordered by the study's order of schemes, then seed, layer, head.
    """
    key = ["scheme", "task", "seed", "layer", "head"]
    zeroed = tables.effects.filter(target="head", method="zero")
    loss = zeroed.filter(metric="loss").select(
        *key,
        pl.col("effect").alias("loss"),
        pl.col("low").alias("loss_low"),
        pl.col("high").alias("loss_high"),
    )
    accuracy = zeroed.filter(metric="accuracy").select(
        *key,
        *("effect", "low", "high"),
        ((pl.col("holm_low") > 0) | (pl.col("holm_high") < 0)).alias("certain"),
    )
    return ordered(accuracy.join(loss, on=key, how="left"), "seed", "layer", "head")


def effect_limits(frame: pl.DataFrame) -> tuple[float, float]:
    """The one range of the colour scale for all runs, in points of accuracy, around 0.

    It spans `LEAST_SPAN` at least, so that noise stays pale.
    """
    effects = (100 * frame["effect"]).to_list()
    return min([0.0, *effects]), max([LEAST_SPAN, *effects])


def head_panels(tables: Tables, task: str) -> list[Panel]:
    """One map for each run of the task, all on the scale that both tasks share."""
    frame = effect_frame(tables)
    limits = effect_limits(frame)
    runs = frame.filter(task=task)
    several = runs["seed"].n_unique() > 1
    panels: list[Panel] = []
    for key, rows in runs.group_by("scheme", "seed", maintain_order=True):
        scheme, seed = str(key[0]), int(str(key[1]))
        name = short_title(scheme) + (f", seed {seed}" if several else "")
        panels.append(_panel(f"heads-{task}-{len(panels)}", name, rows, limits))
    return panels


def _panel(id: str, name: str, rows: pl.DataFrame, limits: tuple[float, float]) -> Panel:
    layers, heads = sizes(rows)
    figure = empty_figure(66 + 30 * layers, (46, 6, 6, 44))
    for part in parts(rows):
        cells = part.partition_by("layer")
        figure.add_heatmap(
            x=[_place(head, heads) for head in cells[0]["head"]],
            y=[layer["layer"][0] for layer in cells],
            z=[(100 * layer["effect"]).to_list() for layer in cells],
            zmin=limits[0],
            zmax=limits[1],
            colorscale=around_zero(*limits),
            showscale=False,
            xgap=2,
            ygap=2,
            text=[[_label(row, heads) for row in layer.to_dicts()] for layer in cells],
            texttemplate="%{text}",
            textfont={"size": 11},
            customdata=[[_hover(row) for row in layer.to_dicts()] for layer in cells],
            hovertemplate="%{customdata}<extra></extra>",
        )
    ticks, names = head_ticks(heads)
    quiet = {"showgrid": False, "showline": False, "ticks": ""}
    figure.update_xaxes(
        axis(
            "Head (index)",
            tickvals=ticks,
            ticktext=names,
            range=(-0.55, heads + 1.05),
            **quiet,
        )
    )
    figure.update_yaxes(axis("Layer (index)", tickvals=list(range(layers)), **quiet))
    single = rows.filter(pl.col("head") != WHOLE_LAYER)
    top = single.row(int(single["effect"].arg_max() or 0), named=True)
    alt = (
        f"{name}: effect of zeroing each of {heads} heads in {layers} layers; the largest is "
        f"{number(100 * top['effect'], 1)} points, layer {top['layer']}, head {top['head']}."
    )
    return Panel(id, name, alt, figure)


def sizes(rows: pl.DataFrame) -> tuple[int, int]:
    """Layers and heads."""
    return max(rows["layer"].to_list()) + 1, max(rows["head"].to_list()) + 1


def _place(head: int, heads: int) -> float:
    """The column of a head; the whole layer stands half a column to the right of the last."""
    return heads + 0.5 if head == WHOLE_LAYER else head


def parts(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """The single heads of one run, and the whole layers where they were ablated too."""
    whole = pl.col("head") == WHOLE_LAYER
    both = [rows.filter(~whole), rows.filter(whole)]
    return [part.sort("layer", "head") for part in both if not part.is_empty()]


def _label(row: dict[str, Any], heads: int) -> str:
    """The effect in points where it is certain and the cells are wide enough for it."""
    return number(100 * row["effect"], 0) if row["certain"] and heads <= MOST_NUMBERED else ""


def head_ticks(heads: int) -> tuple[list[float], list[str]]:
    """Where heads are named on the axis (every second of many), and "all" for the whole layer."""
    shown = range(0, heads, 1 if heads <= 8 else 2 if heads <= 16 else 4)
    return [*shown, _place(WHOLE_LAYER, heads)], [*map(str, shown), "all"]


def _fill(effect: float, scale: Scale, limits: tuple[float, float]) -> str:
    return at(scale, (100 * effect - limits[0]) / (limits[1] - limits[0]))


def _hover(row: dict[str, Any]) -> str:
    who = "whole layer" if row["head"] == WHOLE_LAYER else f"head {row['head']}"
    lines = [
        f"<b>layer {row['layer']}, {who}</b>",
        f"accuracy falls by {number(100 * row['effect'], 1)} points "
        f"({number(100 * row['low'], 1)} to {number(100 * row['high'], 1)})",
    ]
    if row["loss"] is not None:
        lines.append(
            f"loss rises by {number(row['loss'])} nats "
            f"({number(row['loss_low'])} to {number(row['loss_high'])})"
        )
    return "<br>".join(lines)


def draw_heads(axes: matplotlib.axes.Axes, rows: pl.DataFrame, limits: tuple[float, float]) -> Any:
    """The map of one run for print; returns the image for the colour bar."""
    layers, heads = sizes(rows)
    scale = around_zero(*limits)
    shades = LinearSegmentedColormap.from_list("effect", scale)
    for part in parts(rows):
        left = _place(part["head"][0], heads) - 0.5
        columns = part.height // layers
        image = axes.pcolormesh(
            [left + column for column in range(columns + 1)],
            [layer - 0.5 for layer in range(layers + 1)],
            (100 * part["effect"]).to_numpy().reshape(layers, columns),
            cmap=shades,
            vmin=limits[0],
            vmax=limits[1],
            edgecolors="white",
            linewidth=1.5,
        )
    for row in rows.iter_rows(named=True):
        if label := _label(row, heads):
            fill = on_fill(_fill(row["effect"], scale, limits))
            text = axes.text(_place(row["head"], heads), row["layer"], label, fontsize=7)
            text.set(ha="center", va="center", color=fill)
    ticks, names = head_ticks(heads)
    axes.set_xticks(ticks, names)
    axes.set_yticks(range(layers))
    axes.tick_params(length=0, labelsize=7)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image
