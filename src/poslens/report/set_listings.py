"""Tables on sets of heads: how many are necessary, and which pairs work together."""

import math
from collections.abc import Callable
from typing import Any

import polars as pl

from poslens.claims.words import title
from poslens.report.effects import MAIN, edit_words, edits_of
from poslens.report.listings import TAKEN, WORDS, Listing
from poslens.report.style import colours, number, ordered, percent
from poslens.results import Tables

MOST_PAIRS = 3  # named in a cell


def necessity_listing(tables: Tables, task: str) -> Listing:
    """How many heads must lose their position (or output) until nothing is left to lose, by run."""
    columns = ["Heads needed", "Intact", "Floor", "Heads in order, with the accuracy after each"]
    table = ordered(tables.necessity.filter(task=task), "seed", "step")
    return _listing(tables, table, columns, columns[-1:], _necessity)


def _necessity(steps: pl.DataFrame) -> list[str]:
    start = steps.row(0, named=True)
    bounds = [percent(start["accuracy"]), percent(start["floor"])]
    return [needed(start, steps.height - 1), *bounds, path(steps)]


def interaction_listing(tables: Tables, task: str) -> Listing:
    """The pairs of each run, by what their heads do together."""
    columns = ["Pairs", "Stand in for each other", "Either alone costs what both do", "Add up"]
    table = ordered(tables.interactions.filter(task=task), "seed")
    return _listing(tables, table, columns, columns[1:3], _interactions)


def _interactions(pairs: pl.DataFrame) -> list[str]:
    more, less, level = by_excess(pairs)
    return [str(pairs.height), _pairs(more), _pairs(less), str(level.height or "–")]


def _listing(
    tables: Tables,
    table: pl.DataFrame,
    columns: list[str],
    wide: list[str],
    texts_of: Callable[[pl.DataFrame], list[str]],
) -> Listing:
    """A line for each run and edit; which edit is said where there are several."""
    edits = edits_of(table)
    both = len(edits) > 1
    palette = colours(tables.summary["scheme"])
    lines = []
    for run in table.partition_by("scheme", "seed", maintain_order=True):
        scheme, seed = run["scheme"][0], run["seed"][0]
        for target, method in edits:
            rows = run.filter(target=target, method=method)
            if rows.is_empty():
                continue
            taken = WORDS[target] if MAIN.get(target) == method else edit_words(target, method)
            texts = [title(scheme), str(seed), *([taken] if both else []), *texts_of(rows)]
            lines.append((palette[scheme], texts))
    head = ["Scheme", "Seed", *([TAKEN] if both else [])]
    return Listing([*head, *columns], lines, wide=tuple(wide), joined=2)


def needed(row: dict[str, Any], taken: int) -> str:
    """How many heads it takes, with the interval; of `taken` heads none more was tried."""
    if math.isnan(row["count"]):
        return "undecidable"
    value, low, high = (_count(row[name], taken) for name in ("count", "count_low", "count_high"))
    return f"{value} ({low} to {high})" if low != high else f"{value} ({low})"


def _count(value: float, taken: int) -> str:
    return f"more than {taken}" if math.isinf(value) else number(value, 0)


def path(steps: pl.DataFrame) -> str:
    """The heads in the order in which they were taken: "layer 0 head 3: 54.1 %; ..."."""
    found = steps.filter(pl.col("step") > 0)
    return "; ".join(
        f"{place(row['layer'], row['head'])}: {percent(row['accuracy'])}"
        for row in found.iter_rows(named=True)
    )


def place(layer: int, head: int) -> str:
    """A head where room is scarce."""
    return f"L{layer}\u202fH{head}"


def by_excess(pairs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Pairs that cost more together than each alone adds up to, less, and neither for sure.

    By the interval of the excess; the largest first.
    """
    ranked = pairs.sort(pl.col("excess").abs(), descending=True, maintain_order=True)
    more, less = pl.col("low") > 0, pl.col("high") < 0
    return ranked.filter(more), ranked.filter(less), ranked.filter(~more & ~less)


def _pairs(pairs: pl.DataFrame) -> str:
    """The first few pairs with their excess in points, and how many more there are."""
    if pairs.is_empty():
        return "–"
    texts = [
        f"{place(row['layer'], row['head'])} and {place(row['other_layer'], row['other_head'])}: "
        f"{_signed(row['excess'])} ({_signed(row['low'])} to {_signed(row['high'])})"
        for row in pairs.head(MOST_PAIRS).iter_rows(named=True)
    ]
    left = pairs.height - MOST_PAIRS
    return "; ".join(texts) + (f"; {left} more" if left > 0 else "")


def _signed(value: float) -> str:
    text = number(100 * value, 1)
    return text if value <= 0 else f"+{text}"
