"""Maps of layers and heads, one for each run: what zeroing a head costs, or taking its position."""

from typing import Any

import matplotlib.axes
import polars as pl
from matplotlib.colors import LinearSegmentedColormap

from poslens.report.effects import BESIDE, WHOLE, all_limits, edit_words, effect_frame, sizes
from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.style import Scale, around_zero, at, number, on_fill, short_title
from poslens.results import Tables

MOST_NUMBERED = 12  # heads in a row up to which numbers fit into the cells
DOING = {"head": "zeroing", "position": "taking position from"}


def head_panels(tables: Tables, task: str) -> list[Panel]:
    """One map for each run of the task, all on the scale that both tasks share."""
    limits = all_limits(tables)
    runs = effect_frame(tables).filter(task=task)
    several = runs["seed"].n_unique() > 1
    panels: list[Panel] = []
    for key, rows in runs.group_by("scheme", "seed", maintain_order=True):
        name = run_title(str(key[0]), int(str(key[1])), several)
        panels.append(head_map(f"heads-{task}-{len(panels)}", name, name, rows, limits))
    return panels


def run_title(scheme: str, seed: int, several: bool) -> str:
    """The scheme, and the seed where there are several."""
    return short_title(scheme) + (f", seed {seed}" if several else "")


def head_map(
    id: str,
    title: str,
    run: str,
    rows: pl.DataFrame,
    limits: tuple[float, float],
    target: str = "head",
    every: str = "",
) -> Panel:
    """The map of one run; `every` says what all heads at once cost, where that is known."""
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
            customdata=[[_hover(row, target) for row in layer.to_dicts()] for layer in cells],
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
    single = rows.filter(pl.col("head") != WHOLE)
    top = single.row(int(single["effect"].arg_max() or 0), named=True)
    alt = (
        f"{run}: effect of {DOING[target]} each of {heads} heads in {layers} layers; the largest "
        f"is {number(100 * top['effect'], 1)} points, layer {top['layer']}, head {top['head']}."
    )
    return Panel(id, title, alt + (f" With {every}." if every else ""), figure)


def _place(head: int, heads: int) -> float:
    """The column of a head; the whole layer stands half a column to the right of the last."""
    return heads + 0.5 if head == WHOLE else head


def parts(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """The single heads of one run, and the whole layers where they were ablated too."""
    whole = pl.col("head") == WHOLE
    both = [rows.filter(~whole), rows.filter(whole)]
    return [part.sort("layer", "head") for part in both if not part.is_empty()]


def _label(row: dict[str, Any], heads: int) -> str:
    """The effect in points where it is certain and the cells are wide enough for it."""
    return number(100 * row["effect"], 0) if row["certain"] and heads <= MOST_NUMBERED else ""


def head_ticks(heads: int) -> tuple[list[float], list[str]]:
    """Where heads are named on the axis (every second of many), and "all" for the whole layer."""
    shown = range(0, heads, 1 if heads <= 8 else 2 if heads <= 16 else 4)
    return [*shown, _place(WHOLE, heads)], [*map(str, shown), "all"]


def _fill(effect: float, scale: Scale, limits: tuple[float, float]) -> str:
    return at(scale, (100 * effect - limits[0]) / (limits[1] - limits[0]))


def _hover(row: dict[str, Any], target: str) -> str:
    who = "whole layer" if row["head"] == WHOLE else f"head {row['head']}"
    lines = [
        f"<b>layer {row['layer']}, {who}</b>",
        f"accuracy falls by {_ranged(row, 'effect', 'points')}",
    ]
    for name, change in (("loss", "rises"), ("margin", "falls")):
        if row[name] is not None:
            lines.append(f"{name} {change} by {_ranged(row, name, 'nats')}")
    lines += [
        f"{edit_words(*edit)}: {_ranged(row, name, 'points')}"
        for name, edit in BESIDE[target].items()
        if row[name] is not None
    ]
    return "<br>".join(lines)


def _ranged(row: dict[str, Any], name: str, unit: str) -> str:
    """A value of the row with its unit and interval."""
    low, high = ("low", "high") if name == "effect" else (f"{name}_low", f"{name}_high")
    scale, digits = (100, 1) if unit == "points" else (1, 2)
    value, *bounds = (number(scale * row[it], digits) for it in (name, low, high))
    return f"{value} {unit} ({bounds[0]} to {bounds[1]})"


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
            text.set(ha="center", va="center", color=fill, in_layout=False)
    axes.tick_params(length=0, labelsize=7)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image
