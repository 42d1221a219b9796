"""The page of a folder with an experiment for each correction: which switch makes which claim."""

from pathlib import Path

from plotly.offline import get_plotlyjs

from poslens.claims import Claim
from poslens.claims.corrections import PUBLISHED, STANDARD, SWITCHES
from poslens.errors import InputError
from poslens.report.correction_maps import (
    accuracy_map,
    difference_limits,
    effect_map,
    effect_reach,
    gain_scale,
    scheme_frame,
    scheme_listing,
)
from poslens.report.corrections import (
    LOOKS,
    Correction,
    Judged,
    changes,
    claims_of,
    judged,
    label,
    read_all,
)
from poslens.report.corrections_static import save_matrix
from poslens.report.listings import Listing
from poslens.report.page import fill, refuse_without_permission, source, write
from poslens.report.provenance import facts, profile
from poslens.report.style import around_zero, gradient, number, task_title, tasks_of

PAGE = "corrections.html"
# Of the facts of the standard experiment, those that hold for all.
SHARED = ("Profile", "Seed", "Seeds", "Budget", "Held-out data", "Model", "Learning rate")


def holds_corrections(folder: Path) -> bool:
    """Whether a folder is one that `poslens corrections` wrote, or collected ones of its parts."""
    return (folder / STANDARD / "experiment.json").exists()


def build_corrections(folder: Path) -> Path:
    """Write `corrections.html` and its figure into `folder`, from result files alone.

    Raises InputError where the standard experiment has no finished run, or no permission to write.
    """
    corrections = read_all(folder)
    if corrections[0].own.summary.is_empty():
        raise InputError(
            f"{folder / STANDARD} holds no finished run; train one first (`poslens corrections`)"
        )
    refuse_without_permission(folder)
    claims = claims_of(corrections)
    rows = judged(corrections, claims)
    figure = save_matrix(rows, folder / "figures")
    page = folder / PAGE
    write(page, render(corrections, claims, rows, figure.name))
    return page


def render(
    corrections: list[Correction],
    claims: tuple[Claim, ...],
    rows: list[list[Judged]],
    figure: str,
) -> str:
    """The page as text. `figure` is the name of the static figure beside it."""
    standard = corrections[0]
    tasks = tasks_of(standard.own.summary)
    frames = {task: scheme_frame(corrections, task) for task in tasks}
    limits, reach = difference_limits([*frames.values()]), effect_reach([*frames.values()])
    maps = [(task, effect_map(frame, task, reach)) for task, frame in frames.items()]
    return fill(
        "corrections.html.j2",
        style=source("report.css", "corrections.css"),
        script=source("report.js", "corrections.js"),
        plotly=get_plotlyjs(),
        profile=profile(standard.found),
        facts=_facts(corrections),
        missing=_missing(corrections),
        changes=changes(rows, claims),
        claims=[(_heading(claim.id), claim.statement) for claim in claims],
        statements=[(claim.id, claim.statement) for claim in claims],
        rows=rows,
        legend=[(label(verdict), look) for verdict, look in LOOKS.items()],
        reasons=_reasons(rows),
        switches=[(it.name, SWITCHES[it.name]) for it in corrections if it.name in SWITCHES],
        differences=[accuracy_map(frame, task, limits) for task, frame in frames.items()],
        difference_scale=gradient(gain_scale(limits)),
        difference_limits=[number(it, 0) for it in limits],
        effects=[panel for _, panel in maps if panel],
        effect_scale=gradient(around_zero(*reach)),
        effect_limits=[number(it, 0) for it in reach],
        listings=[(task_title(task), scheme_listing(frame)) for task, frame in frames.items()],
        seeds=standard.own.summary["seed"].n_unique(),
        figure=figure,
    )


def _heading(id: str) -> str:
    """A claim's name in two short lines where it has a part: "C6", "(k = 1)"."""
    name, _, part = id.partition(" ")
    return f"{name}\n{part.replace(' ', chr(0x202F))}" if part else name


def _facts(corrections: list[Correction]) -> list[tuple[str, str]]:
    standard = corrections[0]
    switches = sum(it.name not in (STANDARD, PUBLISHED) for it in corrections)
    told = f"{switches} switch{'' if switches == 1 else 'es'}, one at a time"
    told += ", and all at once" if corrections[-1].name == PUBLISHED else ""
    done = sum(it.own.summary.height for it in corrections)
    asked = done + sum(it.missing for it in corrections)
    shared = [it for it in facts(standard.own, standard.found) if it[0] in SHARED]
    return [("Corrections", told), ("Runs finished", f"{done} of {asked}"), *shared]


def _missing(corrections: list[Correction]) -> list[str]:
    """Sentences on what is not finished; empty for a complete folder."""
    left = [f"{it.name} ({it.missing})" for it in corrections if it.missing]
    return [f"Runs not finished, by correction: {', '.join(left)}."] if left else []


def _reasons(rows: list[list[Judged]]) -> Listing:
    """Every cell of the matrix in words."""
    columns = ["Claim", "Correction", "Verdict", "Pass : fail", "Reason"]
    lines = [
        ("", [cell.claim, cell.correction, cell.label, cell.count or "–", cell.reason])
        for column in zip(*rows, strict=True)
        for cell in column
    ]
    return Listing(columns, lines, wide=("Reason",))
