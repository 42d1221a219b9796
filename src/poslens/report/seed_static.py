"""Seeds for papers and slides: a panel a scheme, tasks in a figure each."""

import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from poslens.report.batch_law import X_TITLE as BATCH
from poslens.report.batch_law import Y_TITLE as SIZE
from poslens.report.batch_law import draw_law, law_frame
from poslens.report.kept import layer_colours
from poslens.report.seed_margins import TITLES, X_TITLE, draw_margins, layers_of, margin_frame
from poslens.report.style import colours
from poslens.results import Tables

COLUMNS = 4


def law_figure(tables: Tables, task: str) -> Figure:
    """Mean size of a batch's seed against the batch's size, untrained."""
    frame, palette = law_frame(tables, task), colours(tables.summary["scheme"])
    schemes = frame["scheme"].unique(maintain_order=True).to_list()
    columns = min(COLUMNS, len(schemes))
    rows = -(-len(schemes) // columns)
    figure = Figure(figsize=(0.6 + 2.3 * columns, 0.7 + 2.1 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes, scheme in zip(grid, schemes, strict=False):
        draw_law(axes, frame, scheme, palette[scheme])
    for axes in grid[len(schemes) :]:
        axes.set_axis_off()
    for axes in grid[max(0, len(schemes) - columns) : len(schemes)]:
        axes.tick_params(labelbottom=True)  # the lowest of each column
    figure.supxlabel(BATCH, fontsize=9)
    figure.supylabel(SIZE, fontsize=9)
    return figure


def margin_figure(tables: Tables, task: str) -> Figure:
    """Margins above and leads below, a column a scheme, over training.

    Schemes recorded at one step alone are left out where others were followed.
    """
    frame = margin_frame(tables, task)
    followed = frame.filter(pl.col("step").n_unique().over("scheme") > 1)
    frame = frame if followed.is_empty() else followed
    schemes = frame["scheme"].unique(maintain_order=True).to_list()
    figure = Figure(figsize=(1.0 + 1.9 * len(schemes), 4.6), layout="constrained")
    grid = figure.subplots(2, len(schemes), squeeze=False, sharey="row")
    for column, scheme in zip(grid.T, schemes, strict=True):
        draw_margins(column[0], frame, scheme, "margin")
        draw_margins(column[1], frame, scheme, "lead")
        column[1].set_title("")
    grid[0][0].set_ylabel(TITLES["margin"])
    grid[1][0].set_ylabel(TITLES["lead"])
    figure.supxlabel(X_TITLE, fontsize=9)
    lines = [Line2D([], [], color=it, linewidth=1.6) for it in layer_colours(layers_of(frame))]
    names = [f"layer {n}" for n in range(len(lines))]
    figure.legend(lines, names, loc="outside right upper", frameon=False)
    return figure
