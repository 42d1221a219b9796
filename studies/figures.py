"""The figures of README.md and results/: the report's own drawings of the committed tables."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from facts import corrections, sizes, standard
from poslens.report.corrections_static import draw_matrix
from poslens.report.static import STYLE, drawings
from poslens.results import Tables
from theory_facts import theory

DOTS_PER_INCH = 130
# Of the theory's folders: drawings, and what is put to their names.
THEORY = {
    "distance": (("seed_against_batch_distance", "margins_by_layer_distance"), ""),
    "count": (("seed_against_batch_count",), ""),
    "depth": (("probe_by_layer", "principal_angles"), ""),
    "depth_causal": (("probe_by_layer", "principal_angles"), "_causal"),
}


def draw(folder: Path) -> list[Path]:
    """Draw every figure as PNG into `folder`."""
    with rc_context(STYLE):
        return [_save(figure(), folder / f"{name}.png") for name, figure in _figures().items()]


def _figures() -> dict[str, Callable[[], Figure]]:
    found = drawings(standard)
    kept = ("accuracy", "curves", "lengths", "heads", "heads_and_positions_distance")
    figures = {name: found[name] for name in kept}
    first = min(standard.summary["seed"])
    figures["heads_and_positions"] = drawings(_of_seed(standard, first))[kept[-1]]
    for part, (names, ending) in THEORY.items():
        if part in theory:
            found = drawings(theory[part])
            figures |= {f"{name}{ending}": found[name] for name in names}
    for name, tables in sizes.items():
        figures[f"published_size_{name}"] = drawings(tables)[kept[-1]]
    if corrections:
        figures["corrections"] = partial(draw_matrix, corrections)
    return figures


def _of_seed(tables: Tables, seed: int) -> Tables:
    """The tables of the runs of one seed."""
    kept = {it.name: getattr(tables, it.name).filter(seed=seed) for it in fields(Tables)}
    return replace(tables, **kept)


def _save(figure: Figure, path: Path) -> Path:
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
    return path
