"""What the study's released code measures, beside the right measurement of the same weights."""

from typing import Any

import polars as pl

from poslens.claims.words import title
from poslens.report.effects import PLACE, WHOLE, all_limits, effect_frame
from poslens.report.heads import head_map, run_title
from poslens.report.listings import Listing
from poslens.report.pairs import Half, Pair
from poslens.report.set_listings import place
from poslens.report.style import colours, number, ordered
from poslens.results import Tables

# By method: the name of its column.
WAYS = {
    "published columns": "Wrong axis (columns)",
    "published loop": "Weights not restored (loop)",
    "published data": "Training data too (data)",
}
MAPPED = "published columns"


def published_frame(tables: Tables) -> pl.DataFrame:
    """One row per run, head and published way: its effect on accuracy and the right one.

    Columns: scheme, task, seed, layer, head, method, effect, right, differs (all but `method` as in
    `effect_frame`; `differs` is `effect` less `right`).
    """
    rows = tables.effects.filter(
        pl.col("method").is_in(list(WAYS)),
        pl.col("head") != WHOLE,
        target="head",
        metric="accuracy",
    )
    right = effect_frame(tables).select(*PLACE, pl.col("effect").alias("right"))
    joined = rows.select(*PLACE, "method", "effect").join(right, on=PLACE, maintain_order="left")
    return ordered(
        joined.with_columns(differs=pl.col("effect") - pl.col("right")), "seed", "layer", "head"
    )


def difference_listing(tables: Tables, task: str) -> Listing:
    """By run: the head on which each published way is furthest from the right measurement."""
    frame = published_frame(tables).filter(task=task)
    ways = [way for way in WAYS if way in set(frame["method"])]
    palette = colours(tables.summary["scheme"])
    rows = []
    for (scheme, seed), heads in frame.partition_by(
        "scheme", "seed", as_dict=True, maintain_order=True
    ).items():
        texts = [title(scheme), str(seed), *(_furthest(heads.filter(method=way)) for way in ways)]
        rows.append((palette[scheme], texts))
    columns = [WAYS[way] for way in ways]
    return Listing(["Scheme", "Seed", *columns], rows, wide=tuple(columns))


def _furthest(heads: pl.DataFrame) -> str:
    if heads.is_empty():
        return "–"
    row = heads.row(int(heads["differs"].abs().arg_max() or 0), named=True)
    return (
        f"{number(100 * abs(row['differs']), 1)} points: {place(row['layer'], row['head'])} "
        f"shown as {number(100 * row['effect'], 1)}, is {number(100 * row['right'], 1)}"
    )


def largest_listing(tables: Tables, task: str) -> Listing:
    """By run and layer: the largest effect and its head, rightly measured and in each way."""
    frame = published_frame(tables).filter(task=task)
    ways = [way for way in WAYS if way in set(frame["method"])]
    palette = colours(tables.summary["scheme"])
    rows = []
    for (scheme, seed, layer), heads in frame.partition_by(
        "scheme", "seed", "layer", as_dict=True, maintain_order=True
    ).items():
        texts = [title(scheme), str(seed), str(layer), _largest(heads, "right")]
        texts += [_largest(heads.filter(method=way), "effect") for way in ways]
        rows.append((palette[scheme], texts))
    columns = ["Scheme", "Seed", "Layer", "Right", *(WAYS[way] for way in ways)]
    return Listing(columns, rows)


def _largest(heads: pl.DataFrame, column: str) -> str:
    if heads.is_empty():
        return "–"
    row: dict[str, Any] = heads.row(int(heads[column].arg_max() or 0), named=True)
    return f"head {row['head']}: {number(100 * row[column], 1)} points"


def wrong_axis(tables: Tables, task: str) -> list[Pair]:
    """The right map of each latent-attention run beside that of zeroed columns."""
    limits = all_limits(tables)
    zeroed = effect_frame(tables)
    columns = effect_frame(tables, "head", MAPPED)
    runs = columns.filter(task=task)
    several = zeroed["seed"].n_unique() > 1
    pairs: list[Pair] = []
    for key, published in runs.group_by("scheme", "seed", maintain_order=True):
        scheme, seed = str(key[0]), int(str(key[1]))
        run = run_title(scheme, seed, several)
        halves = []
        for kind, name, rows in (
            (
                "right",
                "Right: rows of the head",
                zeroed.filter(scheme=scheme, task=task, seed=seed),
            ),
            ("columns", "As published: columns", published),
        ):
            id = f"{kind}-{task}-{len(pairs)}"
            panel = head_map(id, name, f"{run}, {name.lower()}", rows, limits)
            halves.append(Half(name, "", "", panel, ""))
        pairs.append(Pair(run, (halves[0], halves[1])))
    return pairs
