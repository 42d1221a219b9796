"""The figures for papers and slides, PNG and SVG, drawn from the same frames as the page's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from poslens.report.accuracy import draw_accuracy
from poslens.report.by_label import FILE_NAMES, draw_labels
from poslens.report.curves import draw_curves
from poslens.report.effects import MAIN, absent, all_limits, effect_frame, sizes
from poslens.report.heads import draw_heads, head_ticks
from poslens.report.lengths import draw_lengths
from poslens.report.probing import ANGLE, NAMED, READ, Measure, draw_probing, measure_frame
from poslens.report.seed_static import law_figure, margin_figure
from poslens.report.style import INK, RULE, SOFT, short_title, task_rank, task_title, tasks_of
from poslens.results import Tables

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 42,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "ytick.labelcolor": INK,
    "svg.hashsalt": "poslens",  # element ids, and so files, the same every time
    "savefig.dpi": 200,
}


def draw_all(tables: Tables, folder: Path) -> list[Path]:
    """Write every figure that has data as PNG and SVG into `folder`; returns the PNG files."""
    folder.mkdir(exist_ok=True)
    with rc_context(STYLE):
        return [save(draw(), folder, name) for name, draw in drawings(tables).items()]


def drawings(tables: Tables) -> dict[str, Callable[[], Figure]]:
    """What draws each figure that has data, by its name; call it within `rc_context(STYLE)`."""
    found: dict[str, Callable[[], Figure]] = {"accuracy": partial(_accuracy, tables)}
    if not tables.curve.is_empty():
        found["curves"] = partial(_curves, tables)
    for task in tasks_of(tables.labels):
        name = FILE_NAMES.get(task, f"by_label_{task}")
        found[name] = partial(_labels, tables, task)
    if not effect_frame(tables).is_empty():
        found["heads"] = partial(_heads, tables)
    for task in tasks_of(effect_frame(tables, "position")):
        found[f"heads_and_positions_{task}"] = partial(_positions, tables, task)
    if not tables.lengths.is_empty():
        found["lengths"] = partial(_lengths, tables)
    if not tables.probes.is_empty():
        found["probe_by_layer"] = partial(_probing, tables, [READ, NAMED])
    if any(not measure_frame(tables, it, ANGLE).is_empty() for it in tasks_of(tables.subspaces)):
        found["principal_angles"] = partial(_probing, tables, [ANGLE])
    for task in tasks_of(tables.seed_batches):
        found[f"seed_against_batch_{task}"] = partial(law_figure, tables, task)
    for task in tasks_of(tables.margins.filter(pl.col("margin").is_not_nan())):
        found[f"margins_by_layer_{task}"] = partial(margin_figure, tables, task)
    return found


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write a figure as PNG and SVG, the same bytes each time; returns the PNG file."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # placed once, for both files
    for suffix, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        unfinished = folder / f"{name}.{suffix}.tmp"
        figure.savefig(unfinished, format=suffix, metadata=metadata)
        unfinished.replace(folder / f"{name}.{suffix}")
    return folder / f"{name}.png"


def _accuracy(tables: Tables) -> Figure:
    tasks = tasks_of(tables.summary)
    rows = max(tables.summary.group_by("task").agg(pl.col("scheme").n_unique())["scheme"])
    figure = Figure(figsize=(5.6 * len(tasks), 1.7 + 0.31 * rows), layout="constrained")
    figure.get_layout_engine().set(wspace=0.06)  # type: ignore[union-attr, call-arg]
    for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        draw_accuracy(axes, tables.summary, task)
    return figure


def _curves(tables: Tables) -> Figure:
    return _by_task(tables, tasks_of(tables.curve), draw_curves)


def _lengths(tables: Tables) -> Figure:
    return _by_task(tables, tasks_of(tables.lengths), draw_lengths)


def _by_task(tables: Tables, tasks: list[str], draw: Callable[[Axes, Tables, str], None]) -> Figure:
    """Panels of lines, tasks side by side."""
    figure = Figure(figsize=(5.6 * len(tasks), 4.3), layout="constrained")
    for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        draw(axes, tables, task)
        axes.set_title(task_title(task), pad=8)
    return figure


def _probing(tables: Tables, measures: list[Measure]) -> Figure:
    """Rows are measures, columns the tasks that have them."""
    tasks = [
        it
        for it in tasks_of(tables.probes)
        if not measure_frame(tables, it, measures[0]).is_empty()
    ]
    figure = Figure(figsize=(5.6 * len(tasks), 0.4 + 3.9 * len(measures)), layout="constrained")
    grid = figure.subplots(len(measures), len(tasks), squeeze=False)
    for row, measure in zip(grid, measures, strict=True):
        for axes, task in zip(row, tasks, strict=True):
            draw_probing(axes, tables, task, measure)
    for axes, task in zip(grid[0], tasks, strict=True):
        axes.set_title(task_title(task), pad=8)
    return figure


def _labels(tables: Tables, task: str) -> Figure:
    rows = tables.labels.filter(pl.col("task") == task)["scheme"].n_unique()
    figure = Figure(figsize=(8.4, 1.2 + 0.3 * rows), layout="constrained")
    axes = figure.subplots()
    image = draw_labels(axes, tables, task)
    axes.set_title(task_title(task), pad=8)
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02)
    bar.set_label("Accuracy (%)")
    bar.outline.set_visible(False)
    return figure


def _heads(tables: Tables) -> Figure:
    """Rows are schemes, columns are tasks and seeds; one scale for all."""
    frame = effect_frame(tables)
    several = frame["seed"].n_unique() > 1
    columns = [
        Column(
            task_title(task) + (f", seed {seed}" if several else ""),
            frame.filter(task=task, seed=seed),
        )
        for task, seed in sorted(
            frame.select("task", "seed").unique().iter_rows(),
            key=lambda c: (task_rank(c[0]), c[1]),
        )
    ]
    return _maps(frame, columns, all_limits(tables), "Fall in accuracy when the head is zeroed")


def _positions(tables: Tables, task: str) -> Figure:
    """Rows are schemes; for each seed the head's effect, and beside it that of its position."""
    heads, positions = (effect_frame(tables, target).filter(task=task) for target in MAIN)
    seeds = positions["seed"].unique().sort().to_list()
    reason = absent(tables)
    columns = [
        Column(
            name + (f"\nseed {seed}" if len(seeds) > 1 else ""),
            frame.filter(seed=seed),
            {scheme: reason((scheme, task, seed)) for scheme in schemes},
        )
        for seed in seeds
        for name, frame, schemes in (
            ("Output zeroed", heads, []),
            ("Position taken", positions, heads["scheme"].unique(maintain_order=True)),
        )
    ]
    return _maps(heads, columns, all_limits(tables), "Fall in accuracy")


@dataclass(frozen=True)
class Column:
    """One column of maps: effects of one run of each scheme, and a word where there are none."""

    title: str
    frame: pl.DataFrame
    absent: dict[str, str] = field(default_factory=dict)


def _maps(
    frame: pl.DataFrame,
    columns: list[Column],
    limits: tuple[float, float],
    label: str,
) -> Figure:
    """A map for each scheme and column; `frame` names the schemes, `label` what colours mean."""
    schemes = frame["scheme"].unique(maintain_order=True).to_list()
    layers, heads = sizes(frame)
    figure = Figure(
        figsize=(
            2.2 + (0.3 * (heads + 2)) * len(columns),
            1 + (0.16 + 0.26 * layers) * len(schemes),
        ),
        layout="constrained",
    )
    figure.get_layout_engine().set(hspace=0.02, wspace=0.05)  # type: ignore[union-attr, call-arg]
    grid = figure.subplots(len(schemes), len(columns), squeeze=False, sharex=True, sharey=True)
    ticks, names = head_ticks(heads)
    grid[0][0].set_xticks(ticks, names)  # all share these
    grid[0][0].set_yticks(range(layers))
    image = None
    for i, scheme in enumerate(schemes):
        grid[i][0].set_ylabel(short_title(scheme), rotation=0, ha="right", va="center", labelpad=16)
        for j, column in enumerate(columns):
            axes, rows = grid[i][j], column.frame.filter(scheme=scheme)
            if i == 0:
                axes.set_title(column.title, pad=6)
            if rows.is_empty():
                axes.set_axis_off()
                word = axes.text(0.5, 0.5, column.absent.get(scheme, ""), transform=axes.transAxes)
                word.set(ha="center", va="center", color=SOFT)
            else:
                image = draw_heads(axes, rows, limits)
    figure.supxlabel("Head (index; all: the whole layer)", fontsize=9)
    figure.supylabel("Scheme and layer (index, 0 nearest to the input)", fontsize=9)
    bar = figure.colorbar(image, ax=grid, fraction=0.015, aspect=50, pad=0.01)  # type: ignore[arg-type]
    bar.set_label(f"{label} (points)")
    bar.outline.set_visible(False)
    return figure
