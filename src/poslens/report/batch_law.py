"""The batch law: how the mean seed of a batch falls with its size, for every head of a scheme."""

import math

import matplotlib.axes
import polars as pl

from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.seed_axes import decades
from poslens.report.style import SOFT, number, ordered, short_title
from poslens.results import KEY, Tables

X_TITLE = "Batch (sequences)"
Y_TITLE = "Mean size of its seed (in σ)"
PALE = "#c3c9d0"


def law_frame(tables: Tables, task: str) -> pl.DataFrame:
    """One row per scheme, head and batch size, untrained, of the lowest seed that has seeds.

    Columns: scheme, seed, layer, head, batch, and in units of the head's sigma mean_abs, low, high,
    predicted; ratio (mu / sigma), star (B*), and leads: whether |ratio| is the scheme's largest.
    """
    rows = tables.seed_batches.filter(task=task, step=0)
    own = tables.seeds.filter(task=task, step=0, initialisation=0)
    joined = rows.join(
        own.select(*KEY, "layer", "head", "sigma", "ratio"), on=[*KEY, "layer", "head"]
    )
    joined = joined.filter(
        pl.col("seed") == pl.col("seed").min().over("scheme"), pl.col("sigma") > 0
    )
    in_sigma = [pl.col(it) / pl.col("sigma") for it in ("mean_abs", "low", "high", "predicted")]
    size = pl.col("ratio").abs()
    frame = joined.with_columns(
        *in_sigma, star=1 / size**2, leads=size == size.max().over("scheme")
    )
    columns = ("scheme", "seed", "layer", "head", "batch", "mean_abs", "low", "high", "predicted")
    return ordered(frame, "layer", "head", "batch").select(*columns, "ratio", "star", "leads")


def limits(frame: pl.DataFrame) -> tuple[float, float]:
    """The vertical axis of all schemes of a task, in powers of ten."""
    low = frame["mean_abs"].to_numpy().min()
    return math.log10(max(low, 1e-6)) - 0.1, math.log10(frame["mean_abs"].to_numpy().max()) + 0.25


def law_panel(frame: pl.DataFrame, scheme: str, colour: str, task: str) -> Panel:
    """A pale line a head; the head of the largest |mu| / sigma with intervals, law and B*."""
    rows = frame.filter(scheme=scheme)
    figure = empty_figure(232, (58, 10, 8, 44))
    pale_x: list[float | None] = []
    pale_y: list[float | None] = []
    for _, head in rows.filter(~pl.col("leads")).group_by("layer", "head", maintain_order=True):
        pale_x += [*head["batch"].to_list(), None]
        pale_y += [*head["mean_abs"].to_list(), None]
    figure.add_scatter(
        x=pale_x, y=pale_y, mode="lines", line={"color": PALE, "width": 1}, hoverinfo="skip"
    )
    top = rows.filter("leads")
    size, law = top["batch"].to_list(), top["predicted"].to_list()
    figure.add_scatter(
        **{"x": size, "y": law, "mode": "lines", "hoverinfo": "skip"},
        line={"color": colour, "width": 1.6, "dash": "5px,3px"},
    )
    mean = top["mean_abs"]
    who = f"layer {top['layer'][0]}, head {top['head'][0]}"
    figure.add_scatter(
        x=size,
        y=mean.to_list(),
        mode="markers",
        marker={"color": colour, "size": 6},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": (top["high"] - mean).fill_nan(0).to_list(),
            "arrayminus": (mean - top["low"]).fill_nan(0).to_list(),
            "thickness": 1.2,
            "width": 0,
        },
        customdata=[
            f"<b>{who}</b>, batches of {row['batch']:,}<br>{number(row['mean_abs'], 3)} "
            f"({number(row['low'], 3)} to {number(row['high'], 3)}) σ, law "
            f"{number(row['predicted'], 3)}"
            for row in top.iter_rows(named=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
    star = float(top["star"][0])
    if size[0] <= star <= size[-1]:
        figure.add_vline(star, line={"color": colour, "width": 1, "dash": "1px,3px"})
    figure.add_annotation(
        text=star_words(star, size[-1]),
        **{"x": 1, "xref": "paper", "xanchor": "right", "y": 1, "yref": "paper", "yanchor": "top"},
        showarrow=False,
        font={"size": 12, "color": SOFT},
    )
    places = batch_ticks(size)
    figure.update_xaxes(
        axis(
            X_TITLE,
            type="log",
            range=(math.log10(size[0]) - 0.12, math.log10(size[-1]) + 0.12),
            tickvals=places,
            ticktext=[f"{it:,}" for it in places],
        )
    )
    ticks, texts = decades(*limits(frame))
    figure.update_yaxes(
        axis(Y_TITLE, type="log", range=limits(frame), tickvals=ticks, ticktext=texts)
    )
    name = short_title(scheme)
    alt = (
        f"{name}: mean size of a batch's seed by batch size for each head; of {who} it falls "
        f"from {number(mean[0], 3)} to {number(mean[-1], 3)} sigma."
    )
    return Panel(f"law-{task}-{scheme}", name, alt, figure)


def batch_ticks(sizes: list[int]) -> list[int]:
    """Sizes that are written at the axis: every second one where there are many."""
    return sizes[::2] if len(sizes) > 5 else sizes


def star_words(star: float, largest: int) -> str:
    """B* as text; of one far beyond the batches only that it is."""
    if star > 16 * largest:
        return f"B* above {16 * largest:,}"
    return f"B* = {star:,.0f}"


def draw_law(axes: matplotlib.axes.Axes, frame: pl.DataFrame, scheme: str, colour: str) -> None:
    """The same panel for print."""
    rows = frame.filter(scheme=scheme)
    for _, head in rows.filter(~pl.col("leads")).group_by("layer", "head", maintain_order=True):
        axes.plot(head["batch"], head["mean_abs"], color=PALE, linewidth=0.7)
    top = rows.filter("leads")
    axes.plot(top["batch"], top["predicted"], color=colour, linewidth=1.3, linestyle=(0, (4, 2)))
    bars = [
        (top["mean_abs"] - top["low"]).fill_nan(0).to_list(),
        (top["high"] - top["mean_abs"]).fill_nan(0).to_list(),
    ]
    size, mean = top["batch"].to_list(), top["mean_abs"].to_list()
    axes.errorbar(size, mean, bars, fmt="o", color=colour, markersize=3, elinewidth=0.9)
    star = float(top["star"][0])
    if size[0] <= star <= size[-1]:
        axes.axvline(star, color=colour, linewidth=0.9, linestyle=(0, (1, 2)))
    words = axes.text(0.97, 0.95, star_words(star, size[-1]), transform=axes.transAxes)
    words.set(ha="right", va="top", color=SOFT, fontsize=8)
    low, high = limits(frame)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(size[0] / 1.3, size[-1] * 1.3)
    axes.set_ylim(10**low, 10**high)
    axes.set_xticks(batch_ticks(size), [f"{it:,}" for it in batch_ticks(size)])
    axes.set_yticks(*decades(low, high))
    axes.minorticks_off()
    axes.set_title(short_title(scheme), pad=6)
