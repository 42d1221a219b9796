"""Effects as the page and the figures use them: one row per run, layer and head."""

from collections.abc import Callable

import polars as pl

from poslens.report.style import number, ordered, points
from poslens.results import KEY, Tables

WHOLE = -1  # as head: the whole layer; as layer: the whole model
LEAST_SPAN = 10.0  # points of accuracy
# What is done to a head, by target and method. Of each target the first is the main one, in maps.
EDITS = {
    ("head", "zero"): "output set to zero",
    ("head", "mean"): "output at its mean",
    ("head", "resample"): "output of another sequence",
    ("position", "none"): "position taken away",
    ("position", "mean"): "kernel at its mean",
    ("position", "resample"): "positions permuted",
    ("table", "none"): "only the table's position taken away",
    ("rotation", "none"): "only the rotation taken away",
    ("bias", "none"): "only the bias taken away",
}
MAIN = {"head": "zero", "position": "none"}
# What is shown beside the main edit, by the column it has in the frame.
BESIDE = {
    "head": {"mean": ("head", "mean"), "resample": ("head", "resample")},
    "position": {
        "mean": ("position", "mean"),
        "resample": ("position", "resample"),
        **{door: (door, "none") for door in ("table", "rotation", "bias")},
    },
}
PLACE = [*KEY, "layer", "head"]
Run = tuple[str, str, int]


def absent(tables: Tables) -> Callable[[Run], str]:
    """Why a run has no position effects: "undefined" for its model, or "not measured"."""
    rows = tables.concentration.filter(target="position", verdict="undefined")
    undefined = set(rows.select(*KEY).iter_rows())
    return lambda run: "undefined" if run in undefined else "not measured"


def edit_words(target: str, method: str) -> str:
    """An edit as text names it."""
    return EDITS.get((target, method), f"{target}, {method}")


def edits_of(table: pl.DataFrame) -> list[tuple[str, str]]:
    """The edits (target, method) that a table of sets has: position before output, main first."""
    order = list(EDITS)
    found = set(table.select("target", "method").unique().iter_rows())
    known = [edit for edit in order if edit in found]
    known.sort(key=lambda edit: (edit[0] != "position", order.index(edit)))
    return known + sorted(found - set(known))


def effect_frame(tables: Tables, target: str = "head", method: str = "") -> pl.DataFrame:
    """One row per run, layer and head: effects of an edit, the target's main one unless named.

    Columns: scheme, task, seed, layer, head (-1: the whole layer), effect, low, high (accuracy, 0
    to 1), certain (Holm's interval excludes 0), then loss and margin (nats) and the edits of
    `BESIDE` (accuracy), each with `_low` and `_high`, null where they were not measured. Ordered by
    the study's order of schemes, then seed, layer, head.
    """
    rows = tables.effects.filter(pl.col("layer") != WHOLE)
    main = rows.filter(target=target, method=method or MAIN[target])
    frame = main.filter(metric="accuracy").select(
        *PLACE,
        *("effect", "low", "high"),
        ((pl.col("holm_low") > 0) | (pl.col("holm_high") < 0)).alias("certain"),
    )
    beside = {name: main.filter(metric=name) for name in ("loss", "margin")}
    for name, edit in BESIDE[target].items():
        beside[name] = rows.filter(target=edit[0], method=edit[1], metric="accuracy")
    for name, others in beside.items():
        values = others.select(
            *PLACE,
            pl.col("effect").alias(name),
            pl.col("low").alias(f"{name}_low"),
            pl.col("high").alias(f"{name}_high"),
        )
        frame = frame.join(values, on=PLACE, how="left")
    return ordered(frame, "seed", "layer", "head")


def effect_limits(*frames: pl.DataFrame) -> tuple[float, float]:
    """The one range of the colour scale for all runs, in points of accuracy, around 0.

    It spans `LEAST_SPAN` at least, so that noise stays pale.
    """
    effects = [100 * effect for frame in frames for effect in frame["effect"]]
    return min([0.0, *effects]), max([LEAST_SPAN, *effects])


def all_limits(tables: Tables) -> tuple[float, float]:
    """The range that maps of both targets share."""
    return effect_limits(*(effect_frame(tables, target) for target in MAIN))


def both_frame(tables: Tables, task: str) -> pl.DataFrame:
    """Single heads of a task with both effects on accuracy.

    Columns: scheme, task, seed, layer, head, effect, low, high (output set to zero) and the same
    with `_position` (position taken away).
    """
    single = pl.col("head") != WHOLE
    columns = [*PLACE, "effect", "low", "high"]
    head, position = (
        effect_frame(tables, target).filter(single, task=task).select(columns) for target in MAIN
    )
    return head.join(position, on=PLACE, suffix="_position", maintain_order="left")


def every_head(tables: Tables, target: str) -> dict[Run, tuple[str, str]]:
    """What a model loses with every head edited at once, by run: in points, and in words."""
    rows = tables.effects.filter(
        layer=WHOLE, head=WHOLE, target=target, method=MAIN[target], metric="accuracy"
    )
    what = edit_words(target, MAIN[target])
    return {
        (row["scheme"], row["task"], row["seed"]): (
            number(100 * row["effect"], 1),
            f"{what} in every head of the model, accuracy falls by {points(row['effect'])} "
            f"({number(100 * row['low'], 1)} to {number(100 * row['high'], 1)})",
        )
        for row in rows.iter_rows(named=True)
    }


def sizes(rows: pl.DataFrame) -> tuple[int, int]:
    """Layers and heads."""
    return max(rows["layer"].to_list()) + 1, max(rows["head"].to_list()) + 1
