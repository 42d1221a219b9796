"""What the page says of gradient seeds, and whether they tell who will carry position."""

from dataclasses import dataclass, replace

import polars as pl

from poslens.claims.foresight import LAST, WHOLE_MODEL, foresight_over_seeds
from poslens.report.batch_law import law_frame, law_panel
from poslens.report.kept import layer_colours
from poslens.report.listings import Listing
from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.seed_axes import Steps
from poslens.report.seed_margins import X_TITLE, layers_of, margin_frame, margin_panel
from poslens.report.seed_ratios import ratio_frame, ratio_panel
from poslens.report.style import INK, SOFT, colours, number, ordered, short_title, task_title
from poslens.results import Tables

SURE = 0.05  # p below which a dot is filled


@dataclass(frozen=True)
class SeedPart:
    """One task's panels, a list each with a panel a scheme, and the table; empty or None where
    nothing was recorded."""

    task: str
    examples: str
    laws: list[Panel]
    ratios: list[Panel]
    layers: list[tuple[str, str]]
    margins: list[Panel]
    leads: list[Panel]
    foresight: list[Panel]
    listing: Listing | None


def seed_part(tables: Tables, task: str) -> SeedPart:
    """Panels of a task with the table SEEDS."""
    palette = colours(tables.summary["scheme"])
    law, ratio, margin = (make(tables, task) for make in (law_frame, ratio_frame, margin_frame))
    told = foresight_frame(tables, task)
    layers = layers_of(tables.seeds.filter(task=task))
    examples = tables.seeds.filter(task=task, step=0, initialisation=0)["examples"].to_list()
    return SeedPart(
        task=task_title(task),
        examples=number(min(examples), 0) if examples else "no",
        laws=[law_panel(law, scheme, palette[scheme], task) for scheme in schemes_of(law)],
        ratios=[ratio_panel(ratio, scheme, task) for scheme in schemes_of(ratio)],
        layers=[(colour, f"layer {n}") for n, colour in enumerate(layer_colours(layers))],
        margins=[margin_panel(margin, it, "margin", task) for it in schemes_of(margin)],
        leads=[margin_panel(margin, it, "lead", task) for it in schemes_of(margin)],
        foresight=[_foresight_panel(told, scheme, task) for scheme in schemes_of(told)],
        listing=foresight_listing(told, palette) if not told.is_empty() else None,
    )


def schemes_of(frame: pl.DataFrame) -> list[str]:
    return frame["scheme"].unique(maintain_order=True).to_list()


def foresight_frame(tables: Tables, task: str) -> pl.DataFrame:
    """Foresight by |mu| of final position effects on loss, of a task, seeds joined."""
    own = replace(tables, seeds=tables.seeds.filter(task=task))
    frame = foresight_over_seeds(own, measures=("|mu|",), metrics=("loss",))
    return ordered(frame, "layer", "step")


def _foresight_panel(frame: pl.DataFrame, scheme: str, task: str) -> Panel:
    """A line a layer and one for the model; dots are filled where p is below `SURE`."""
    rows = frame.filter(pl.col("step") != LAST, scheme=scheme)
    steps, figure = Steps(rows["step"].to_list()), empty_figure(222, (58, 10, 8, 44))
    palette = layer_colours(max(layers_of(frame), 1))
    figure.add_hline(0, line={"color": SOFT, "width": 1})
    for (layer,), own in rows.group_by("layer", maintain_order=True):
        whole = layer == WHOLE_MODEL
        colour = INK if whole else palette[int(str(layer))]
        place = "all layers" if whole else f"layer {layer}"
        defined = own.filter(pl.col("agreement").is_not_nan())
        sure = defined["p"] < SURE
        figure.add_scatter(
            x=[steps.place(step) for step in defined["step"]],
            y=defined["agreement"].to_list(),
            mode="lines+markers",
            line={"color": colour, "width": 2.2 if whole else 1.3},
            marker={
                "size": 7,
                "color": [colour if it else "#ffffff" for it in sure],
                "line": {"color": colour, "width": 1.3},
            },
            customdata=[
                f"<b>{place}</b>, step {row['step']:,}<br>agreement {number(row['agreement'])}, "
                f"p {number(row['p'], 3)}<br>{row['hits']} of {row['runs']} hits "
                f"({number(row['expected'], 1)} by chance)"
                for row in defined.iter_rows(named=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    places, texts = steps.ticks
    figure.update_xaxes(axis(X_TITLE, range=steps.range, tickvals=places, ticktext=texts))
    ticks = [-1, -0.5, 0, 0.5, 1]
    figure.update_yaxes(axis("Agreement (rank correlation)", range=(-1.08, 1.08), tickvals=ticks))
    name = short_title(scheme)
    alt = f"{name}: agreement of the size of seeds with final position effects over training."
    return Panel(f"foresight-{task}-{scheme}", name, alt, figure)


def foresight_listing(frame: pl.DataFrame, palette: dict[str, str]) -> Listing:
    """A line for each scheme, untrained and at the end, and for each layer and the model."""
    columns = ["Scheme", "Seeds recorded", "Heads of", "Runs", "Agreement", "p", "Hits", "p (hits)"]
    lines = []
    for step, when in ((0, "untrained"), (LAST, "at the end")):
        for row in frame.filter(step=step).iter_rows(named=True):
            where = "all layers" if row["layer"] == WHOLE_MODEL else f"layer {row['layer']}"
            hits = f"{row['hits']} ({number(row['expected'], 1)} by chance)"
            texts = [short_title(row["scheme"]), when, where, str(row["runs"])]
            texts += [number(row["agreement"]), number(row["p"], 3), hits, number(row["hit_p"], 3)]
            lines.append((palette[row["scheme"]], texts))
    return Listing(columns, lines)
