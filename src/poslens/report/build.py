"""Result files in, one self-contained page and static figures out."""

from pathlib import Path

import polars as pl
from plotly.offline import get_plotlyjs

from poslens.claims import ledger
from poslens.errors import InputError
from poslens.report.accuracy import accuracy_panel
from poslens.report.by_label import label_panel
from poslens.report.cards import cards, tally
from poslens.report.concentration import (
    concentration_listing,
    layer_listing,
    metrics_of,
    seed_listings,
)
from poslens.report.corrections_page import build_corrections, holds_corrections
from poslens.report.curves import curve_panel
from poslens.report.effects import all_limits
from poslens.report.extrapolation import length_part
from poslens.report.heads import MOST_NUMBERED, head_panels
from poslens.report.improving import still_rising
from poslens.report.kept import Curves, kept_curves
from poslens.report.listings import Listing, run_listing
from poslens.report.markdown import summary_page
from poslens.report.mechanism import mechanism_part
from poslens.report.page import fill, refuse_without_permission, source, write
from poslens.report.pairs import Comparison, Pair, comparison
from poslens.report.panels import Panel
from poslens.report.probing import probing_part
from poslens.report.provenance import facts, missing, profile, read_provenance
from poslens.report.published import (
    difference_listing,
    largest_listing,
    published_frame,
    wrong_axis,
)
from poslens.report.seeds import seed_part
from poslens.report.set_listings import interaction_listing, necessity_listing
from poslens.report.static import draw_all
from poslens.report.style import (
    ACCURACY,
    around_zero,
    evenly,
    gradient,
    number,
    task_title,
    tasks_of,
)
from poslens.report.words import findings
from poslens.results import Tables, read


def build(folder: Path) -> Path:
    """Write `report.html`, `summary.md` and `figures/` into `folder`, from its result files alone.

    `folder` holds runs, or is one run. Where it holds an experiment for each correction, the page
    is `corrections.html`. It needs no network; the same tables give the same bytes. Unfinished
    folders show what is there and say what is missing. Raises InputError where there is no
    finished run, or no permission to write.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; give the folder that `poslens reproduce` wrote")
    if holds_corrections(folder):
        return build_corrections(folder)
    tables = read(folder)
    if tables.summary.is_empty():
        raise InputError(f"{folder} holds no finished run; train one first (`poslens reproduce`)")
    refuse_without_permission(folder)
    figures = draw_all(tables, folder / "figures")
    write(folder / "summary.md", summary_page(tables, ledger(tables)))
    page = folder / "report.html"
    write(page, render(tables, folder, [path.name for path in figures]))
    return page


def render(tables: Tables, folder: Path, figures: list[str]) -> str:
    """The page as text. `figures` are the names of the static figures beside it."""
    found = read_provenance(folder)
    verdicts = ledger(tables)
    limits = all_limits(tables)
    summary = tables.summary
    return fill(
        "template.html.j2",
        style=source("report.css"),
        script=source("report.js"),
        plotly=get_plotlyjs(),
        profile=profile(found),
        facts=facts(tables, found),
        missing=missing(tables, found),
        findings=findings(tables, found),
        tally=tally(verdicts),
        cards=cards(verdicts),
        accuracy=[accuracy_panel(summary, task) for task in tasks_of(summary)],
        rising=bool(still_rising(tables)),
        curves=[curve_panel(tables, task) for task in tasks_of(tables.curve)],
        labels=[label_panel(tables, task) for task in tasks_of(tables.labels)],
        heads=_heads(tables),
        positions="position" in tables.effects["target"],
        wide=max(summary["heads"].to_list()) > MOST_NUMBERED,
        accuracy_scale=gradient(evenly(ACCURACY)),
        effect_scale=gradient(around_zero(*limits)),
        effect_limits=[number(limit, 0) for limit in limits],
        effect_zero=f"{100 * -limits[0] / (limits[1] - limits[0]):.2f}",
        concentration=[
            (
                task_title(task),
                concentration_listing(tables, task),
                layer_listing(tables, task),
                seed_listings(tables, task),
            )
            for task in tasks_of(tables.concentration)
        ],
        metrics=metrics_of(tables),
        sets=_sets(tables),
        lengths=[length_part(tables, task) for task in tasks_of(tables.lengths)],
        mechanism=[mechanism_part(tables, task) for task in tasks_of(tables.mechanism)],
        probing=[probing_part(tables, task) for task in tasks_of(tables.probes)],
        seeds=[seed_part(tables, task) for task in tasks_of(tables.seeds)],
        published=_published(tables),
        runs=[(task_title(task), run_listing(tables, found, task)) for task in tasks_of(summary)],
        even=summary.n_unique(["task", "budget"]) == summary.n_unique("task"),
        several=summary.n_unique(["scheme", "task"]) < summary.height,
        figures=figures,
    )


def _heads(tables: Tables) -> list[tuple[str, list[Panel], Comparison | None]]:
    """For each task its maps, or its pairs of maps where position effects were measured too."""
    found = []
    for task in tasks_of(tables.effects):
        both = comparison(tables, task)
        found.append((task_title(task), [] if both else head_panels(tables, task), both))
    return found


def _sets(tables: Tables) -> list[tuple[str, list[Curves], Listing | None, Listing | None]]:
    """For each task what was measured of sets of heads."""
    together = (tables.sufficiency, tables.necessity, tables.interactions)
    tasks = tasks_of(pl.concat([table.select("task") for table in together]))
    return [
        (
            task_title(task),
            kept_curves(tables, task),
            necessity_listing(tables, task) if task in tables.necessity["task"] else None,
            interaction_listing(tables, task) if task in tables.interactions["task"] else None,
        )
        for task in tasks
    ]


def _published(tables: Tables) -> list[tuple[str, list[Pair], Listing, Listing]]:
    """For each task with published measurements: maps of the wrong axis, and both tables."""
    return [
        (
            task_title(task),
            wrong_axis(tables, task),
            difference_listing(tables, task),
            largest_listing(tables, task),
        )
        for task in tasks_of(published_frame(tables))
    ]
