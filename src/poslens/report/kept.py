"""How many heads of a layer are enough: accuracy against the number that stay as they are."""

import html
from dataclasses import dataclass

import plotly.graph_objects as go
import polars as pl

from poslens.report.effects import edit_words, edits_of
from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.style import (
    LAYERS,
    SOFT,
    at,
    evenly,
    number,
    ordered,
    percent,
    rank,
    short_title,
)
from poslens.results import Tables

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
# Room above 100 % for the name of the line of the intact model.
Y_RANGE = (-4.0, 122.0)


@dataclass(frozen=True)
class Curves:
    """One edit's panels, a scheme each, with the colours of its layers."""

    edit: str
    layers: list[tuple[str, str]]
    panels: list[Panel]


def kept_frame(tables: Tables, task: str, target: str, method: str) -> pl.DataFrame:
    """Rows of the table SUFFICIENCY of one edit: by scheme, seed, layer, heads kept."""
    rows = tables.sufficiency.filter(task=task, target=target, method=method)
    return ordered(rows, "seed", "layer", "kept")


def floors(tables: Tables, task: str, target: str, method: str) -> dict[str, float]:
    """Accuracy with every head of the model edited, by scheme, mean over seeds; where known."""
    rows = tables.necessity.filter(task=task, target=target, method=method, step=0)
    means = rows.group_by("scheme").agg(pl.col("floor").mean())
    return dict(means.iter_rows())


def kept_curves(tables: Tables, task: str) -> list[Curves]:
    """The panels of each edit that was measured, position first."""
    found = []
    for i, (target, method) in enumerate(edits_of(tables.sufficiency.filter(task=task))):
        frame = kept_frame(tables, task, target, method)
        palette = layer_colours(max(frame["layer"].to_list()) + 1)
        lowest = floors(tables, task, target, method)
        panels = [
            _panel(f"kept-{task}-{i}-{j}", scheme, frame, palette, lowest.get(scheme))
            for j, scheme in enumerate(sorted(frame["scheme"].unique(), key=rank))
        ]
        legend = [(colour, f"layer {layer}") for layer, colour in enumerate(palette)]
        found.append(Curves(edit_words(target, method), legend, panels))
    return found


def layer_colours(layers: int) -> list[str]:
    """A colour a layer, darker from the input up."""
    return [at(evenly(LAYERS), layer / max(1, layers - 1)) for layer in range(layers)]


def _panel(
    id: str, scheme: str, frame: pl.DataFrame, palette: list[str], floor: float | None
) -> Panel:
    """A line a layer; of several seeds thin lines, and a thick one at their mean."""
    rows = frame.filter(scheme=scheme)
    most, several = max(rows["kept"].to_list()), rows["seed"].n_unique() > 1
    figure = empty_figure(206, (50, 8, 6, 44))
    whole = rows.filter(kept=most)["accuracy"].to_numpy().mean()
    _reference(figure, float(whole), f"intact {percent(float(whole))}", 0)
    if floor is not None:
        _reference(figure, floor, f"every head {percent(floor)}", 1)
    for (layer, _), runs in rows.partition_by("layer", "seed", as_dict=True).items():
        _line(figure, runs, palette[layer], layer, several)
    if several:
        means = rows.group_by("layer", "kept", maintain_order=True).agg(pl.col("accuracy").mean())
        for (layer,), mean in (
            means.sort("layer", "kept").partition_by("layer", as_dict=True).items()
        ):
            figure.add_scatter(
                x=mean["kept"].to_list(),
                y=(100 * mean["accuracy"]).to_list(),
                mode="lines",
                line={"color": palette[layer], "width": 2.4},
                hoverinfo="skip",
            )
    step = 1 if most <= 8 else 2 if most <= 16 else 4
    figure.update_xaxes(
        axis(
            "Heads that stay as they are (number)", range=(-0.35, most + 0.35), dtick=step, tick0=0
        )
    )
    figure.update_yaxes(axis("Accuracy (%)", range=Y_RANGE, tickvals=[0, 25, 50, 75, 100]))
    name = short_title(scheme)
    alt = (
        f"{name}: accuracy by heads kept in each of {len(palette)} layers, from "
        f"{_ends(rows, 0)} with none to {percent(float(whole))} with all."
    )
    return Panel(id, name, alt, figure)


def _ends(rows: pl.DataFrame, kept: int) -> str:
    values = rows.filter(kept=kept)["accuracy"].to_list()
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low} to {high}"


def _reference(figure: go.Figure, value: float, name: str, side: int) -> None:
    figure.add_hline(100 * value, line={"color": SOFT, "width": 1, "dash": "4px,3px"})
    figure.add_annotation(
        **{"x": side, "xref": "paper", "xanchor": "right" if side else "left"},
        **{"y": 100 * value, "yanchor": "bottom", "yshift": 1, "xshift": -3 if side else 3},
        text=name,
        showarrow=False,
        font={"size": 11, "color": SOFT},
    )


def _line(figure: go.Figure, rows: pl.DataFrame, colour: str, layer: int, several: bool) -> None:
    """One layer of one run."""
    accuracy, low, high = (100 * rows[name] for name in ("accuracy", "low", "high"))
    figure.add_scatter(
        x=rows["kept"].to_list(),
        y=accuracy.to_list(),
        mode="lines" if several else "lines+markers",
        line={"color": colour, "width": 1 if several else 1.8},
        marker={"size": 6, "symbol": SYMBOLS[layer % len(SYMBOLS)]},
        opacity=0.45 if several else 1,
        error_y={
            "type": "data",
            "symmetric": False,
            "array": (high - accuracy).to_list(),
            "arrayminus": (accuracy - low).to_list(),
            "thickness": 1.2,
            "width": 0,
            "visible": not several,
        },
        customdata=[_hover(row, several) for row in rows.iter_rows(named=True)],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _hover(row: dict[str, float], several: bool) -> str:
    seed = f"seed {row['seed']}, " if several else ""
    who = f", head {row['head']} added" if row["kept"] else ""
    return html.escape(f"{seed}layer {row['layer']}: {row['kept']} kept{who}") + (
        f"<br>accuracy {percent(row['accuracy'])} "
        f"({number(100 * row['low'], 1)} to {number(100 * row['high'], 1)})"
    )
