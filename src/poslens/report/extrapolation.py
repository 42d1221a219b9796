"""Is concentration tied to length? Runs as dots, and the correlations with their intervals."""

import html
from dataclasses import dataclass

import polars as pl

from poslens.claims.base import EDITS
from poslens.claims.extrapolation import FIRST_LAYER, LEAST_SCHEMES, MEASURES, correlations
from poslens.report.lengths import end_notes, length_panel, words_of
from poslens.report.listings import TAKEN, WORDS, Listing
from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.style import colours, number, ordered, percent, short_title, task_title
from poslens.results import KEY, Tables

NAMES = {"deposit_index": "Deposit index", "effective_heads": "Effective heads"}
UNITS = {"deposit_index": "0 even, 1 one head", "effective_heads": "number"}
LOST = {"head": "Heads set to zero", "position": "Heads that lose their position"}


@dataclass(frozen=True)
class Scatters:
    """One edit's panels: a list for each measure, a panel for each length."""

    lost: str
    measures: list[tuple[str, list[Panel]]]


@dataclass(frozen=True)
class LengthPart:
    """What the page says of a task's longer sequences; `listing` is None without concentration."""

    task: str
    panel: Panel
    ends: list[tuple[str, str]]
    legend: list[tuple[str, str]]
    scatters: list[Scatters]
    listing: Listing | None


def length_part(tables: Tables, task: str) -> LengthPart:
    """Curves, dots and correlations of a task with the table LENGTHS."""
    frame, palette = concentration_frame(tables, task), colours(tables.summary["scheme"])
    schemes = frame["scheme"].unique(maintain_order=True)
    return LengthPart(
        task_title(task),
        length_panel(tables, task),
        end_notes(tables, task),
        [(palette[scheme], short_title(scheme)) for scheme in schemes],
        _scatters(tables, frame, task),
        None if frame.is_empty() else correlation_listing(tables, task),
    )


def concentration_frame(tables: Tables, task: str) -> pl.DataFrame:
    """One row per run, length beyond training and edit: the runs that correlations are over.

    Columns: scheme, seed, factor, longest, accuracy, target, deposit_index, effective_heads, heads.
    """
    undecided = pl.col("verdict").is_in(["undecidable", "undefined"])
    first = tables.concentration.filter(
        pl.col("method") == pl.col("target").replace(EDITS),
        pl.col("target").is_in(list(EDITS)),
        ~undecided,
        metric="accuracy",
        layer=FIRST_LAYER,
    )
    beyond = tables.lengths.filter(pl.col("factor") > 1, pl.col("accuracy").is_not_nan(), task=task)
    joined = beyond.join(first.select(*KEY, "target", *MEASURES, "heads"), on=list(KEY))
    defined = pl.all_horizontal(pl.col(name).is_not_nan() for name in MEASURES)
    columns = ("scheme", "seed", "factor", "longest", "accuracy", "target", *MEASURES, "heads")
    return ordered(joined.filter(defined), "seed", "target", "factor").select(columns)


def _scatters(tables: Tables, frame: pl.DataFrame, task: str) -> list[Scatters]:
    palette, found = colours(tables.summary["scheme"]), []
    for target, lost in LOST.items():
        runs = frame.filter(target=target)
        if runs.is_empty():
            continue
        measures = []
        for measure, name in NAMES.items():
            panels = [
                _scatter(f"{measure}-{target}-{task}-{factor}", measure, rows, text, palette)
                for factor, text in words_of(runs).items()
                for rows in [runs.filter(factor=factor)]
            ]
            measures.append((name, panels))
        found.append(Scatters(lost, measures))
    return found


def _scatter(
    id: str, measure: str, rows: pl.DataFrame, words: str, palette: dict[str, str]
) -> Panel:
    """Accuracy at one length against one measure, a dot a run."""
    factor, most = rows["factor"][0], max(rows["heads"].to_list())
    figure = empty_figure(216, (50, 8, 8, 44))
    figure.add_scatter(
        x=rows[measure].to_list(),
        y=(100 * rows["accuracy"]).to_list(),
        mode="markers",
        marker={
            "size": 8,
            "opacity": 0.75,
            "color": [palette[scheme] for scheme in rows["scheme"]],
            "line": {"color": "#ffffff", "width": 1},
        },
        customdata=[
            f"<b>{html.escape(short_title(row['scheme']))}</b>, seed {row['seed']}: "
            f"{percent(row['accuracy'])}<br>{NAMES[measure].lower()} {number(row[measure])}"
            for row in rows.iter_rows(named=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
        cliponaxis=False,
    )
    ends = (-0.03, 1.03) if measure == "deposit_index" else (0.7, most + 0.3)
    title = f"{NAMES[measure]} ({UNITS[measure]})"
    figure.update_xaxes(axis(title, range=ends, nticks=6))
    figure.update_yaxes(axis("Accuracy (%)", range=(-4, 104), tickvals=[0, 25, 50, 75, 100]))
    name = f"{factor}×" + (f", {words} words" if words else "")
    alt = f"At {name}: accuracy against {NAMES[measure].lower()} in {rows.height} runs."
    return Panel(id, name, alt, figure)


def correlation_listing(tables: Tables, task: str) -> Listing:
    """A line for each measure and length, outputs before positions."""
    rows = correlations(tables).filter(task=task)
    columns = ["Measure", TAKEN, "Length", "Runs", "Rank correlation", "95\u202f% interval"]
    lines = []
    for row in rows.iter_rows(named=True):
        told = [number(row[name]) for name in ("correlation", "low", "high")]
        few = row["schemes"] < LEAST_SCHEMES
        interval = f"fewer than {LEAST_SCHEMES} schemes" if few else f"{told[1]} to {told[2]}"
        head = [NAMES[row["measure"]], WORDS[row["target"]], f"{row['factor']}×"]
        texts = [*head, str(row["runs"]), told[0], interval if told[0] != "–" or few else "–"]
        lines.append(("", texts))
    return Listing(columns, lines)
