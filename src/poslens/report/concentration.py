"""Tables on concentration: first layers, all layers, and the spread over seeds."""

from typing import Any

import polars as pl

from poslens.claims.over_seeds import over_seeds
from poslens.claims.words import listed, title
from poslens.report.effects import MAIN
from poslens.report.listings import TAKEN, WORDS, Listing
from poslens.report.style import colours, number, ordered
from poslens.results import KEY, Tables

METRICS = ("accuracy", "loss", "margin")


def main_rows(tables: Tables, task: str) -> pl.DataFrame:
    """Rows of the main edits, by scheme, seed, layer, target, metric; with the column `taken`."""
    rows = tables.concentration.filter(pl.col("method") == _main(), task=task)
    places = {"target": list(MAIN), "metric": list(METRICS)}
    ranked = rows.with_columns(
        pl.col(name).cast(pl.Enum(values)).to_physical().alias(f"{name}_rank")
        for name, values in places.items()
    )
    taken = pl.col("target").replace(WORDS).alias("taken")
    return ordered(ranked.with_columns(taken), "seed", "layer", "target_rank", "metric_rank")


def _main() -> pl.Expr:
    return pl.col("target").replace(MAIN)


def has_position(rows: pl.DataFrame) -> bool:
    """Whether rows are of outputs and of positions: then a column says which."""
    return "position" in rows["target"]


def metrics_of(tables: Tables) -> str:
    """The metrics that concentration was measured on, as text lists them."""
    found = set(tables.concentration["metric"])
    return listed([metric for metric in METRICS if metric in found] or [""])


def concentration_listing(tables: Tables, task: str) -> Listing:
    """The first layer of each run of a task, in points of accuracy; a line for each target."""
    rows = main_rows(tables, task).filter(layer=0, metric="accuracy")
    both = has_position(rows)
    columns = ["Scheme", "Seed", *([TAKEN] if both else []), "Verdict", "Top head"]
    columns += ["Largest (points)", "Second (points)", "Can be lost (points)", "Top share"]
    columns += ["Effective heads", "Deposit index", "Counted", "p (null)"]
    palette = colours(tables.summary["scheme"])
    lines = []
    for run in rows.partition_by(*KEY, maintain_order=True):
        scheme, seed = run["scheme"][0], run["seed"][0]
        for row in run.iter_rows(named=True):
            texts = [title(scheme), str(seed), *([row["taken"]] if both else []), *_shares(row)]
            lines.append((palette[scheme], texts))
        if both and not has_position(run):
            texts = [title(scheme), str(seed), WORDS["position"], "not measured"]
            lines.append((palette[scheme], texts + ["–"] * (len(columns) - len(texts))))
    return Listing(columns, lines, joined=2)


def _shares(row: dict[str, Any]) -> list[str]:
    if row["verdict"] == "undefined":
        return ["undefined", *["–"] * 9]
    undefined = row["counted"] == 0
    return [
        row["verdict"],
        "–" if undefined else str(row["top_head"]),
        f"{number(100 * row['largest'], 1)} ({number(100 * row['largest_low'], 1)})",
        f"{number(100 * row['second'], 1)} ({number(100 * row['second_high'], 1)})",
        number(100 * row["lost"], 1),
        _ranged(row, "top_share"),
        _ranged(row, "effective_heads"),
        number(row["deposit_index"]),
        f"{row['counted']} of {row['heads']}",
        number(row["null_p"], 3),
    ]


def _ranged(row: dict[str, Any], name: str) -> str:
    """A statistic with its interval, or a dash where it is undefined."""
    value = number(row[name])
    if value == "–":
        return value
    return f"{value} ({number(row[f'{name}_low'])}–{number(row[f'{name}_high'])})"


def layer_listing(tables: Tables, task: str) -> Listing:
    """Every layer, target and metric, in few columns."""
    rows = main_rows(tables, task)
    both = has_position(rows)
    columns = ["Scheme", "Seed", "Layer", *([TAKEN] if both else []), "Metric", "Verdict"]
    columns += ["Top head", "Largest effect", "Second", "Top share", "Effective heads"]
    palette = colours(tables.summary["scheme"])
    lines = [
        (palette[row["scheme"]], _layer(row, [row["taken"]] if both else []))
        for row in rows.iter_rows(named=True)
    ]
    return Listing(columns, lines)


def _layer(row: dict[str, Any], taken: list[str]) -> list[str]:
    unit, scale, digits = ("points", 100, 1) if row["metric"] == "accuracy" else ("nats", 1, 2)
    return [
        title(row["scheme"]),
        str(row["seed"]),
        str(row["layer"]),
        *taken,
        row["metric"],
        row["verdict"],
        "–" if row["counted"] == 0 else str(row["top_head"]),
        *(
            "–" if row["verdict"] == "undefined" else f"{number(scale * row[it], digits)} {unit}"
            for it in ("largest", "second")
        ),
        number(row["top_share"]),
        number(row["effective_heads"]),
    ]


def seed_listings(tables: Tables, task: str) -> tuple[Listing, Listing] | None:
    """The spread over seeds, on accuracy: of first layers, and of all; None for one seed alone."""
    rows = main_rows(tables, task)
    spread = over_seeds(rows.filter(metric="accuracy"))
    if spread.filter(pl.col("seeds") > 1).is_empty():
        return None
    palette, both = colours(tables.summary["scheme"]), has_position(rows)
    return (
        _spread(spread.filter(layer=0), palette, both, layers=False),
        _spread(spread, palette, both, layers=True),
    )


def _spread(rows: pl.DataFrame, palette: dict[str, str], both: bool, layers: bool) -> Listing:
    columns = ["Scheme", *(["Layer"] if layers else []), *([TAKEN] if both else []), "Seeds"]
    columns += ["Verdicts", "Top share", "Effective heads", "Deposit index", "Defined in"]
    lines = []
    for group in rows.partition_by("scheme", "layer", maintain_order=True):
        scheme = group["scheme"][0]
        head = [title(scheme), *([str(group["layer"][0])] if layers else [])]
        for row in group.iter_rows(named=True):
            taken = [WORDS[row["target"]]] if both else []
            lines.append((palette[scheme], [*head, *taken, *_over_seeds(row)]))
        if both and not has_position(group):
            texts = [*head, WORDS["position"], "0", "not measured"]
            lines.append((palette[scheme], texts + ["–"] * (len(columns) - len(texts))))
    return Listing(columns, lines, joined=1 + layers)


def _over_seeds(row: dict[str, Any]) -> list[str]:
    return [
        str(row["seeds"]),
        row["verdicts"],
        *(_mean(row, name) for name in ("top_share", "effective_heads", "deposit_index")),
        f"{row['defined']} of {row['seeds']}",
    ]


def _mean(row: dict[str, Any], name: str) -> str:
    """A mean over seeds with its range, or a dash where no seed defines it."""
    mean, low, high = (number(row[it]) for it in (name, f"{name}_min", f"{name}_max"))
    return mean if row["defined"] < 2 else f"{mean} ({low}–{high})"
