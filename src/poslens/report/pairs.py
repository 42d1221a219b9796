"""Is it the head that is needed, or its position? Both effects of every head, beside each other."""

import html
from dataclasses import dataclass

import polars as pl

from poslens.report.effects import (
    absent,
    all_limits,
    both_frame,
    edit_words,
    effect_frame,
    every_head,
)
from poslens.report.heads import head_map, run_title
from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.style import SOFT, colours, number, rank, short_title, task_title
from poslens.results import Tables

REASONS = {
    "undefined": "No position in its attention: undefined.",
    "not measured": "Not measured, or no position in its attention.",
}


@dataclass(frozen=True)
class Half:
    """One map of a pair: what is done to heads, and what that costs when done to all at once."""

    name: str
    every: str  # points, empty where it was not measured
    words: str  # the same with its interval
    panel: Panel | None
    reason: str  # why there is no map


@dataclass(frozen=True)
class Pair:
    """The two maps of one run."""

    title: str
    halves: tuple[Half, Half]


@dataclass(frozen=True)
class Comparison:
    """A task's pairs, and one panel that holds every head's effect against its position's."""

    against: Panel
    legend: list[tuple[str, str]]  # colour and name of the schemes in it
    pairs: list[Pair]


def comparison(tables: Tables, task: str) -> Comparison | None:
    """Head beside position effects of a task; None where no run has position effects."""
    both = both_frame(tables, task)
    if both.is_empty():
        return None
    palette = colours(tables.summary["scheme"])
    schemes = sorted(both["scheme"].unique(), key=rank)
    return Comparison(
        against_panel(both, task, palette),
        [(palette[scheme], short_title(scheme)) for scheme in schemes],
        _pairs(tables, task),
    )


def _pairs(tables: Tables, task: str) -> list[Pair]:
    limits = all_limits(tables)
    runs = effect_frame(tables).filter(task=task)
    positions = effect_frame(tables, "position")
    every = {target: every_head(tables, target) for target in ("head", "position")}
    several, reason = runs["seed"].n_unique() > 1, absent(tables)
    pairs: list[Pair] = []
    for key, rows in runs.group_by("scheme", "seed", maintain_order=True):
        scheme, seed = str(key[0]), int(str(key[1]))
        run = run_title(scheme, seed, several)
        halves = []
        for target, method, frame in (
            ("head", "zero", rows),
            ("position", "none", positions.filter(scheme=scheme, task=task, seed=seed)),
        ):
            name = edit_words(target, method).capitalize()
            lost, words = every[target].get((scheme, task, seed), ("", ""))
            if frame.is_empty():
                halves.append(Half(name, lost, words, None, REASONS[reason((scheme, task, seed))]))
                continue
            id = f"{target}s-{task}-{len(pairs)}"
            panel = head_map(id, name, f"{run}, {name.lower()}", frame, limits, target, words)
            halves.append(Half(name, lost, words, panel, ""))
        pairs.append(Pair(run, (halves[0], halves[1])))
    return pairs


def against_panel(both: pl.DataFrame, task: str, palette: dict[str, str]) -> Panel:
    """A dot for each head: across, what zeroing it costs; up, what taking its position costs."""
    effects = [100 * value for name in ("effect", "effect_position") for value in both[name]]
    low, high = min([0.0, *effects]), max([10.0, *effects])
    room = 0.05 * (high - low)
    ends = (low - room, high + 1.5 * room)
    figure = empty_figure(400, (58, 14, 14, 52))
    figure.add_shape(
        type="line", **{"x0": ends[0], "y0": ends[0], "x1": ends[1], "y1": ends[1]}
    ).update_shapes(line={"color": SOFT, "width": 1, "dash": "4px,3px"}, layer="below")
    for key, rows in both.group_by("scheme", maintain_order=True):
        scheme = str(key[0])
        figure.add_scatter(
            x=(100 * rows["effect"]).to_list(),
            y=(100 * rows["effect_position"]).to_list(),
            mode="markers",
            marker={
                "size": 8,
                "color": palette[scheme],
                "opacity": 0.75,
                "line": {"width": 0.5, "color": "#ffffff"},
            },
            customdata=[
                [
                    f"<b>{html.escape(run_title(scheme, row['seed'], True))}: "
                    f"layer {row['layer']}, head {row['head']}</b>",
                    *(_points(row, name) for name in ("", "_position")),
                ]
                for row in rows.iter_rows(named=True)
            ],
            hovertemplate="%{customdata[0]}<br>output set to zero: %{customdata[1]}<br>"
            "position taken away: %{customdata[2]}<extra></extra>",
        )
    for text, side in (
        ("position costs more<br>than the whole head", "left"),
        ("the head matters,<br>not its position", "right"),
    ):
        figure.add_annotation(
            **{"x": int(side == "right"), "xref": "paper", "xanchor": side},
            **{"y": int(side == "left"), "yref": "paper", "yanchor": "top"},
            xshift=6 if side == "left" else -6,
            yshift=0 if side == "left" else 66,
            text=text,
            align=side,
            showarrow=False,
            font={"size": 11, "color": SOFT},
        )
    figure.update_xaxes(axis("Fall in accuracy, output set to zero (points)", range=ends, nticks=7))
    figure.update_yaxes(
        axis("Fall in accuracy, position taken away (points)", range=ends, nticks=7)
    )
    top = both.row(int((both["effect"] - both["effect_position"]).arg_max() or 0), named=True)
    alt = (
        f"Effect of zeroing each head against the effect of taking its position away, "
        f"{both.height} heads on the {task} task. The head that matters most beyond its position: "
        f"{short_title(top['scheme'])}, layer {top['layer']}, head {top['head']}, "
        f"{number(100 * top['effect'], 1)} points against "
        f"{number(100 * top['effect_position'], 1)}."
    )
    return Panel(f"against-{task}", f"{task_title(task)}: every head", alt, figure)


def _points(row: dict[str, float], suffix: str) -> str:
    value, low, high = (
        number(100 * row[f"{name}{suffix}"], 1) for name in ("effect", "low", "high")
    )
    return f"{value} points ({low} to {high})"
