"""Figure 6: accuracy on sequences longer than in training."""

import html
from typing import Any, NamedTuple

import matplotlib.axes
import polars as pl

from poslens.report.curves import Y_RANGE, Y_TITLE
from poslens.report.intervals import wilson
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
    text_colour,
)
from poslens.results import Tables

X_TITLE = "Longest sequence (times that of training, words)"
Line = tuple[float, str, bool]


class End(NamedTuple):
    """A scheme that cannot read every length: the last factor it reads (0: none), and why."""

    scheme: str
    factor: int
    reason: str


def length_frame(tables: Tables, task: str) -> pl.DataFrame:
    """One row per run and length, in the study's order of schemes, then by seed and factor.

    Columns: scheme, seed, factor, longest (words), accuracy, low, high (95 % Wilson interval over
    held-out sequences), reason; accuracy and interval are null where the length cannot be read.
    """
    rows = []
    for row in ordered(tables.lengths.filter(task=task), "seed", "factor").iter_rows(named=True):
        if row["reason"]:
            rows.append({**row, "accuracy": None, "low": None, "high": None})
        else:
            low, high = wilson(row["accuracy"], row["sequences"])
            rows.append({**row, "low": low, "high": high})
    numbers = dict.fromkeys(("accuracy", "low", "high"), pl.Float64)
    frame = pl.DataFrame(rows, schema_overrides=numbers)
    return frame.select("scheme", "seed", "factor", "longest", *numbers, "reason")


def ends(frame: pl.DataFrame) -> list[End]:
    """The schemes that end before the longest sequences, at the first length no seed can read."""
    found = []
    for key, runs in frame.group_by("scheme", maintain_order=True):
        lost = runs.filter(pl.col("accuracy").is_null()).sort("factor", maintain_order=True)
        if not lost.is_empty():
            read = runs.filter(pl.col("factor") < lost["factor"][0])["factor"].to_list()
            found.append(End(str(key[0]), max(read, default=0), lost["reason"][0]))
    return found


def words_of(frame: pl.DataFrame) -> dict[int, str]:
    """By factor the longest sequence in words, for axes; empty where runs differ in it."""
    words: dict[int, str] = {}
    for (factor,), rows in frame.sort("factor").group_by("factor", maintain_order=True):
        longest = rows["longest"].unique().to_list()
        words[int(str(factor))] = number(longest[0], 0) if len(longest) == 1 else ""
    return words


def length_lines(tables: Tables, task: str) -> list[Line]:
    """The lines of answers without a model: chance and length alone, by name."""
    return [it for it in named_references(tables, task) if "ceiling" not in it[1]]


def means(runs: pl.DataFrame) -> pl.DataFrame:
    """The mean over the seeds of one scheme at each factor."""
    return runs.group_by("factor").agg(pl.col("accuracy").mean()).sort("factor")


def length_panel(tables: Tables, task: str) -> Panel:
    """A line for each scheme; a cross where it ends because longer sequences cannot be read."""
    frame = length_frame(tables, task)
    palette, words = colours(tables.summary["scheme"]), words_of(frame)
    first, last = min(words), max(words)
    right = last + 0.06 * (last - first or 1)
    figure = empty_figure(420, (58, 100, 14, 66))
    add_references(figure, length_lines(tables, task))
    told = frame.filter(pl.col("accuracy").is_not_null())
    for key, runs in told.group_by("scheme", maintain_order=True):
        scheme = str(key[0])
        several = runs["seed"].n_unique() > 1
        for _, seed in runs.group_by("seed", maintain_order=True):
            _seed(figure, scheme, seed, palette[scheme], several)
        if several:
            mean = means(runs)
            y = (100 * mean["accuracy"]).to_list()
            add_line(figure, scheme, mean["factor"].to_list(), y, palette[scheme], 2.4)
    for end in ends(frame):
        if end.factor:
            height = means(told.filter(scheme=end.scheme)).filter(factor=end.factor)["accuracy"][0]
            figure.add_scatter(
                x=[end.factor],
                y=[100 * height],
                mode="markers",
                marker={"symbol": "x", "size": 9, "color": palette[end.scheme]},
                hovertemplate=f"{html.escape(end_words(end, words))}<extra></extra>",
            )
    low, high = Y_RANGE
    for scheme, height, place in names_frame(frame).iter_rows():
        share = (place - low) / (high - low)
        name, at = short_title(scheme), (height, place)
        add_name(figure, name, palette[scheme], (last, right), at, share)
    figure.update_xaxes(
        axis(
            X_TITLE,
            range=(first - 0.06 * (last - first or 1), right),
            tickvals=list(words),
            ticktext=[f"{factor}×<br>{text}" for factor, text in words.items()],
        )
    )
    figure.update_yaxes(axis(Y_TITLE, range=Y_RANGE, tickvals=[0, 20, 40, 60, 80, 100]))
    alt = (
        f"Accuracy on the {task} task against length, {first} to {last} times the longest "
        f"sequence of training, of {frame['scheme'].n_unique()} schemes."
    )
    return Panel(f"lengths-{task}", task_title(task), alt, figure)


def _seed(figure: Any, scheme: str, rows: pl.DataFrame, colour: str, several: bool) -> None:
    """One run's line: thin beside others, with its intervals where it is alone."""
    accuracy, low, high = (100 * rows[name] for name in ("accuracy", "low", "high"))
    who = html.escape(short_title(scheme)) + (f", seed {rows['seed'][0]}" if several else "")
    width, opacity = (1.0, 0.4) if several else (2.4, 1.0)
    hover = f"<b>{who}</b>: %{{y:.1f}} % at %{{x}}×"
    x = rows["factor"].to_list()
    add_line(figure, scheme, x, accuracy.to_list(), colour, width, hover, opacity)
    if not several:
        figure.data[-1].update(
            error_y={
                "type": "data",
                "symmetric": False,
                "array": (high - accuracy).to_list(),
                "arrayminus": (accuracy - low).to_list(),
                "thickness": 1.2,
                "width": 0,
            }
        )


def names_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Scheme, accuracy (%, mean over seeds) at the longest sequences, and where its name goes."""
    last = frame.filter(pl.col("factor") == frame["factor"].max(), pl.col("accuracy").is_not_null())
    heights = last.group_by("scheme", maintain_order=True).agg(pl.col("accuracy").mean() * 100)
    places = spread(heights["accuracy"].to_list(), 4.6, Y_RANGE[0] + 2.3, Y_RANGE[1])
    return heights.with_columns(place=pl.Series(places, dtype=pl.Float64))


def end_words(end: End, words: dict[int, str]) -> str:
    """Where a scheme ends, and why."""
    if not end.factor:
        return f"{short_title(end.scheme)} reads none of these lengths: {end.reason}"
    size = f" ({words[end.factor]} words)" if words[end.factor] else ""
    return f"{short_title(end.scheme)} ends at {end.factor}×{size}: {end.reason}"


def end_notes(tables: Tables, task: str) -> list[tuple[str, str]]:
    """For each scheme that ends early its colour, and where and why."""
    frame, palette = length_frame(tables, task), colours(tables.summary["scheme"])
    words = words_of(frame)
    return [(palette[end.scheme], end_words(end, words)) for end in ends(frame)]


def draw_lengths(axes: matplotlib.axes.Axes, tables: Tables, task: str) -> None:
    """The same panel for print."""
    frame = length_frame(tables, task)
    palette, words = colours(tables.summary["scheme"]), words_of(frame)
    first, last = min(words), max(words)
    step = 0.06 * (last - first or 1)
    draw_references(axes, length_lines(tables, task), (first - step, last + step))
    told = frame.filter(pl.col("accuracy").is_not_null())
    for key, runs in told.group_by("scheme", maintain_order=True):
        scheme = str(key[0])
        percents = [
            (100 * pl.col(it)).alias(name)
            for it, name in {"accuracy": "y", "low": "low", "high": "high"}.items()
        ]
        seeds = runs.select("seed", pl.col("factor").alias("x"), *percents)
        mean = means(runs).select(pl.col("factor").alias("x"), percents[0])
        draw_runs(axes, scheme, seeds, mean, palette[scheme])
    for end in ends(frame):
        rows = told.filter(scheme=end.scheme, factor=end.factor)
        if not rows.is_empty():
            height = 100 * float(rows["accuracy"].to_numpy().mean())
            axes.plot(end.factor, height, "X", markersize=7, color=palette[end.scheme])
            note = f"{short_title(end.scheme)} ends"
            style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "zorder": 5}
            style["fontsize"] = 8
            style["bbox"] = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1}
            style["color"] = text_colour(palette[end.scheme])
            axes.annotate(note, (end.factor, height), xytext=(9, 0), **style)
    for scheme, height, place in names_frame(frame).iter_rows():
        draw_name(axes, short_title(scheme), palette[scheme], (last, last + step), (height, place))
    axes.set(title=task_title(task), xlabel=X_TITLE, ylabel=Y_TITLE)
    axes.set(xlim=(first - step, last + step), ylim=Y_RANGE)
    axes.set_xticks(list(words), [f"{factor}×\n{text}" for factor, text in words.items()])
