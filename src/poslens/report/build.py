"""Result files in, one self-contained page and static figures out."""

import os
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from poslens.claims import ledger
from poslens.errors import InputError
from poslens.report.accuracy import accuracy_panel
from poslens.report.by_label import label_panel
from poslens.report.cards import cards, tally
from poslens.report.curves import curve_panel
from poslens.report.heads import effect_frame, effect_limits, head_panels
from poslens.report.listings import concentration_listing, layer_listing, run_listing
from poslens.report.markdown import summary_page
from poslens.report.provenance import facts, missing, profile, read_provenance
from poslens.report.static import draw_all
from poslens.report.style import ACCURACY, Scale, around_zero, evenly, number, task_title, tasks_of
from poslens.report.words import findings
from poslens.results import Tables, read


def build(folder: Path) -> Path:
    """Write `report.html`, `summary.md` and `figures/` into `folder`, from its result files alone.

    `folder` holds runs, or is one run. The page needs no network; the same tables give the same
    bytes. Unfinished folders show what is there and say what is missing. Raises InputError where
    there is no finished run, or no permission to write.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; give the folder that `poslens reproduce` wrote")
    tables = read(folder)
    if tables.summary.is_empty():
        raise InputError(f"{folder} holds no finished run; train one first (`poslens reproduce`)")
    if not os.access(folder, os.W_OK):
        raise InputError(f"no permission to write to {folder}; copy it to a folder of yours")
    figures = draw_all(tables, folder / "figures")
    _write(folder / "summary.md", summary_page(tables, ledger(tables)))
    page = folder / "report.html"
    _write(page, render(tables, folder, [path.name for path in figures]))
    return page


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(path)


def render(tables: Tables, folder: Path, figures: list[str]) -> str:
    """The page as text. `figures` are the names of the static figures beside it."""
    loader = PackageLoader("poslens.report", ".")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.lstrip_blocks = True
    found = read_provenance(folder)
    verdicts = ledger(tables)
    limits = effect_limits(effect_frame(tables))
    summary = tables.summary
    here = files("poslens.report")
    return environment.get_template("template.html.j2").render(
        style=(here / "report.css").read_text("utf-8"),
        script=(here / "report.js").read_text("utf-8"),
        plotly=get_plotlyjs(),
        profile=profile(found),
        facts=facts(tables, found),
        missing=missing(tables, found),
        findings=findings(tables, found),
        tally=tally(verdicts),
        cards=cards(verdicts),
        accuracy=[accuracy_panel(summary, task) for task in tasks_of(summary)],
        curves=[curve_panel(tables, task) for task in tasks_of(tables.curve)],
        labels=[label_panel(tables, task) for task in tasks_of(tables.labels)],
        heads=[(task_title(task), head_panels(tables, task)) for task in tasks_of(tables.effects)],
        accuracy_scale=gradient(evenly(ACCURACY)),
        effect_scale=gradient(around_zero(*limits)),
        effect_limits=[number(limit, 0) for limit in limits],
        effect_zero=f"{100 * -limits[0] / (limits[1] - limits[0]):.2f}",
        concentration=[
            (task_title(task), concentration_listing(tables, task), layer_listing(tables, task))
            for task in tasks_of(tables.concentration)
        ],
        runs=[(task_title(task), run_listing(tables, found, task)) for task in tasks_of(summary)],
        even=summary.n_unique(["task", "budget"]) == summary.n_unique("task"),
        several=summary.n_unique(["scheme", "task"]) < summary.height,
        figures=figures,
    )


def gradient(scale: Scale) -> str:
    """A colour scale as a CSS gradient, so that legends cannot differ from figures."""
    return ", ".join(f"{colour} {100 * where:.2f}%" for where, colour in scale)
