"""Mechanism beside behaviour: what each head costs, and where attention goes without it."""

import html
from dataclasses import dataclass

import polars as pl

from poslens.claims.words import title
from poslens.report.listings import Listing
from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.style import colours, number, ordered, points, short_title, task_title
from poslens.results import KEY, Tables

LOST = {"head": "A head is silenced", "position": "A head loses its position"}
MASS = {"head": "above_mass", "position": "own_mass"}
MASS_TITLE = {
    "head": "Attention mass above, change (points)",
    "position": "The head's own attention mass, change (points)",
}
LISTED = 5  # heads of each run, those that cost most
PLACE = [*KEY, "layer", "head", "target"]


@dataclass(frozen=True)
class MechanismPart:
    """What the page says of a task: dots for each target, and the heads that cost most."""

    task: str
    legend: list[tuple[str, str]]
    panels: list[Panel]
    listing: Listing


def mechanism_part(tables: Tables, task: str) -> MechanismPart:
    """Dots and listing of a task with the tables MECHANISM and FALLS."""
    frame, palette = mechanism_frame(tables, task), colours(tables.summary["scheme"])
    schemes = frame["scheme"].unique(maintain_order=True)
    return MechanismPart(
        task_title(task),
        [(palette[scheme], short_title(scheme)) for scheme in schemes],
        [
            _dots(frame.filter(target=target), target, task, palette)
            for target in LOST
            if target in frame["target"]
        ],
        _listing(frame, palette),
    )


def mechanism_frame(tables: Tables, task: str) -> pl.DataFrame:
    """One row per run, head and target, in the study's order of schemes.

    Columns: scheme, task, seed, layer, head, target, cost (fall in accuracy), mass (the one that
    is compared: own or above, intact), gone (the same with the head, or its position, taken away),
    verdict (what falls first).
    """
    rows = tables.mechanism.filter(task=task)
    mass = pl.when(pl.col("target") == "head").then("above_mass").otherwise("own_mass")
    ends = [
        rows.filter(gain=gain).select(*PLACE, "accuracy", mass.alias("mass")) for gain in (1.0, 0.0)
    ]
    joined = ends[0].join(ends[1], on=PLACE, suffix="_gone", maintain_order="left")
    joined = joined.join(tables.falls.select(*PLACE, "verdict"), on=PLACE, maintain_order="left")
    found = joined.with_columns(
        cost=pl.col("accuracy") - pl.col("accuracy_gone"), gone=pl.col("mass_gone")
    )
    return ordered(found, "seed", "target", "layer", "head").select(
        *PLACE, "cost", "mass", "gone", "verdict"
    )


def _dots(rows: pl.DataFrame, target: str, task: str, palette: dict[str, str]) -> Panel:
    """A dot a head: the change of attention mass against what the head costs."""
    rows = rows.filter(pl.col("gone").is_not_nan())
    figure = empty_figure(300, (58, 12, 10, 48))
    figure.add_scatter(
        x=(100 * rows["cost"]).to_list(),
        y=(100 * (rows["gone"] - rows["mass"])).to_list(),
        mode="markers",
        marker={
            "size": 7,
            "opacity": 0.7,
            "color": [palette[scheme] for scheme in rows["scheme"]],
            "line": {"color": "#ffffff", "width": 0.5},
        },
        customdata=[
            f"<b>{html.escape(short_title(row['scheme']))}</b>, seed {row['seed']}, layer "
            f"{row['layer']} head {row['head']}<br>accuracy lost: {points(row['cost'])}<br>mass "
            f"{number(row['mass'])} to {number(row['gone'])}<br>falls first: {row['verdict']}"
            for row in rows.iter_rows(named=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
        cliponaxis=False,
    )
    figure.update_xaxes(axis("Accuracy lost (points)", nticks=7))
    figure.update_yaxes(axis(MASS_TITLE[target], nticks=7, zeroline=True))
    alt = f"{LOST[target]}: change of attention mass against accuracy lost, {rows.height} heads."
    return Panel(f"mechanism-{target}-{task}", LOST[target], alt, figure)


def _listing(frame: pl.DataFrame, palette: dict[str, str]) -> Listing:
    """Of each run and target the heads that cost most."""
    several = frame["seed"].n_unique() > 1
    columns = ["Scheme", *(["Seed"] if several else []), "Taken away", "Layer", "Head"]
    columns += ["Accuracy lost", "Mass", "Mass without", "Falls first"]
    lines = []
    for _, rows in frame.group_by(*KEY, "target", maintain_order=True):
        top = rows.sort("cost", descending=True, maintain_order=True).head(LISTED)
        for row in top.iter_rows(named=True):
            which = MASS[row["target"]].replace("_mass", "")
            masses = [f"{number(row[it])} ({which})" for it in ("mass", "gone")]
            lines.append(
                (
                    palette[row["scheme"]],
                    [
                        title(row["scheme"]),
                        *([str(row["seed"])] if several else []),
                        "output" if row["target"] == "head" else "position",
                        str(row["layer"]),
                        str(row["head"]),
                        points(row["cost"]),
                        *masses,
                        row["verdict"],
                    ],
                )
            )
    return Listing(columns, lines, joined=2 if not several else 3)
