"""The decomposition page: tables and term images of decomposed runs in, one offline page out."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from poslens.claims.words import listed, title
from poslens.errors import InputError
from poslens.report.listings import Listing
from poslens.report.page import fill, refuse_without_permission, source, write
from poslens.report.style import (
    EFFECT_HARM,
    colours,
    number,
    percent,
    rank,
    task_rank,
    task_title,
    tasks_of,
)
from poslens.report.term_images import Images, packed, read_images
from poslens.results import KEY, Tables, read

PAGE = "decomposition.html"
ALGEBRAS = ("additive", "mixed", "multiplicative", "undefined")
# Below zero as deep as above it, so that the eye weighs both alike.
NEGATIVE = ("#f4f3f1", "#d5e6f3", "#a6cbe6", "#5f9ccc", "#2f6fae", "#143a70")
TERM_COLOURS = {
    "content-content": "#7d8894",
    "content-position": "#2f7f86",
    "position-content": "#5f9ccc",
    "position-position": "#14149b",
    "bias": "#da5d07",
    "constant-constant": "#973e9d",
}
Run = tuple[str, str, int]


def build_decomposition(folder: Path) -> Path:
    """Write `decomposition.html` into `folder`, from the files `poslens decompose` wrote.

    `folder` holds runs, or is one run. The page shows tables of all decomposed runs, and the terms
    of one run of each scheme: of the first task, from the lowest seed. It needs no network; the
    same files give the same bytes. Raises InputError where there is no decomposed run, a file is
    damaged, or there is no permission to write.
    """
    folder = Path(folder)
    tables = read(folder)
    if tables.decomposition.is_empty():
        raise InputError(f"{folder} holds no decomposed run; run `poslens decompose` on it first")
    refuse_without_permission(folder)
    page = folder / PAGE
    write(page, render(tables, folder))
    return page


def render(tables: Tables, folder: Path) -> str:
    """The page as text."""
    heads = tables.decomposition
    places = run_folders(folder)
    runs = shown_runs(heads)
    images = packed([read_images(places[run]) for run in runs])
    shown = [run_data(tables, run, its) for run, its in zip(runs, images, strict=True)]
    data = {"runs": shown, "colours": TERM_COLOURS, "scale": [NEGATIVE, EFFECT_HARM]}
    script = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return fill(
        "decomposition.html.j2",
        style=source("report.css", "decomposition.css"),
        script=source("decomposition.js"),
        data=script,
        facts=facts(heads),
        only_layer_0=heads["split"].eq("embedding").any(),
        task=task_title(runs[0][1]),
        algebra=[
            (task_title(task), algebra_listing(tables, task), algebra_listing(tables, task, True))
            for task in tasks_of(heads)
        ],
        contraction=[
            (task_title(task), contraction_listing(tables, task))
            for task in tasks_of(tables.spectra)
        ],
    )


def run_folders(folder: Path) -> dict[Run, Path]:
    """Where each decomposed run below `folder` (or `folder` itself) lies."""
    alone = (folder / "config.json").exists()
    places: dict[Run, Path] = {}
    for place in [folder] if alone else sorted(folder.iterdir()):
        if (place / "summary.parquet").exists() and (place / "decomposition.parquet").exists():
            config = json.loads((place / "config.json").read_text())
            places[config["scheme"], config["task"], config["seed"]] = place
    return places


def shown_runs(heads: pl.DataFrame) -> list[Run]:
    """One run of each scheme, in the study's order: of the first task, from the lowest seed."""
    runs = sorted(heads.select(*KEY).unique().iter_rows(), key=lambda it: (task_rank(it[1]), it[2]))
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(run[0], run)
    return sorted(first.values(), key=lambda run: rank(run[0]))


def of_run(table: pl.DataFrame, run: Run) -> pl.DataFrame:
    return table.filter(**dict(zip(KEY, run, strict=True)))


def run_data(tables: Tables, run: Run, images: Images) -> dict[str, Any]:
    """What the page's script knows of a run; numbers that are not defined are null."""
    scheme, task, seed = run
    rows = of_run(tables.decomposition, run)
    terms = own_variances(of_run(tables.covariances, run))
    symbols = of_run(tables.symbols, run)
    made = terms.filter(pl.col("covariance") > 0)["term"].unique()
    heads = []
    for row in rows.iter_rows(named=True):
        place = {"layer": row["layer"], "head": row["head"]}
        shares, symbol = terms.filter(**place), symbols.filter(**place)
        heads.append(
            {
                **place,
                **{"algebra": row["algebra"], "reason": row["reason"]},
                **{name: rounded(row[name]) for name in ("explained", "tau", "tau_row", "error")},
                "shares": [rounded(it) for it in shares["share"]],
                "within": [rounded(it) for it in shares["share_within_rows"]],
                "offsets": symbol["offset"].to_list(),
                "symbol": [rounded(it) for it in symbol["value"]],
            }
        )
    return {
        "title": f"{title(scheme)} ({task_title(task).lower()}, seed {seed})",
        "length": rows["length"][0],
        "terms": terms["term"].unique(maintain_order=True).to_list(),
        "made": [term for term in terms["term"].unique(maintain_order=True) if term in made],
        "heads": heads,
        **images.json(),
    }


def rounded(value: float | None) -> float | None:
    """To 5 significant digits; null where it is not a number."""
    text = f"{float('nan') if value is None else value:.5g}"
    return None if text in ("nan", "inf", "-inf") else float(text)


def own_variances(covariances: pl.DataFrame) -> pl.DataFrame:
    """Of the pairs of terms, each term with itself."""
    return covariances.filter(pl.col("term") == pl.col("other"))


def largest_terms(covariances: pl.DataFrame, count: int = 3) -> list[tuple[str, float]]:
    """The terms with the largest share of variance within rows, mean over heads."""
    means = (
        own_variances(covariances)
        .with_columns(pl.col("share_within_rows").fill_nan(None))
        .group_by("term", maintain_order=True)
        .agg(pl.col("share_within_rows").mean().alias("share"))
        .drop_nulls()
        .sort("share", descending=True, maintain_order=True)
    )
    return [(term, share) for term, share in means.head(count).iter_rows() if share >= 0.005]


def algebra_counts(heads: pl.DataFrame) -> str:
    """How many heads were measured additive and so on: "20 mixed, 4 multiplicative"."""
    counts = {name: heads.filter(algebra=name).height for name in ALGEBRAS}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def algebra_listing(tables: Tables, task: str, by_layer: bool = False) -> Listing:
    """Runs of a task, or their layers, by how position acts in their heads as measured."""
    columns = ["Scheme", "Seed", *(["Layer"] if by_layer else []), *map(str.title, ALGEBRAS)]
    columns += ["Same for all sequences", "Row-aware Toeplitz share", "Largest terms"]
    palette = colours(tables.decomposition["scheme"])
    runs = tables.decomposition.filter(task=task)
    keys = ["scheme", "seed", *(["layer"] if by_layer else [])]
    rows = []
    groups = runs.partition_by(keys, maintain_order=True)
    for heads in sorted(groups, key=lambda it: (rank(it["scheme"][0]), *it.row(0)[2:4])):
        first = heads.row(0, named=True)
        place = {key: first[key] for key in keys}
        terms = largest_terms(tables.covariances.filter(task=task, **place))
        rows.append(
            (
                palette[first["scheme"]],
                [
                    title(first["scheme"]),
                    *(str(first[key]) for key in keys[1:]),
                    *(str(heads.filter(algebra=name).height) for name in ALGEBRAS),
                    _spread(heads["explained"]),
                    _spread(heads["tau_row_adjusted"]),
                    ", ".join(f"{term} {number(share)}" for term, share in terms),
                ],
            )
        )
    return Listing(columns, rows)


def _spread(values: pl.Series) -> str:
    """Mean and range over heads, leaving out those where it is undefined."""
    known = values.fill_nan(None).drop_nulls().to_list()
    if not known:
        return number(None)
    mean = number(sum(known) / len(known))
    return mean if len(known) == 1 else f"{mean} ({number(min(known))} to {number(max(known))})"


def contraction_listing(tables: Tables, task: str) -> Listing:
    """Each layer of runs with a rotary kernel: norms of the logits with over without it."""
    columns = ["Scheme", "Seed", "Layer", "Operator norm", "Operator norm fell in"]
    columns += ["Nuclear norm", "Nuclear norm fell in", "No norm grew in"]
    palette = colours(tables.spectra["scheme"])
    layers = tables.spectra.filter(task=task).partition_by(
        "scheme", "seed", "layer", maintain_order=True
    )
    rows = []
    for heads in sorted(layers, key=lambda it: (rank(it["scheme"][0]), *it.row(0)[2:4])):
        first = heads.row(0, named=True)
        cells = [
            *(_spread(heads["operator"]), percent(_mean(heads, "operator_contracted"), 0)),
            *(_spread(heads["nuclear"]), percent(_mean(heads, "nuclear_contracted"), 0)),
            percent(_mean(heads, "none_grew"), 0),
        ]
        text = [title(first["scheme"]), str(first["seed"]), str(first["layer"]), *cells]
        rows.append((palette[first["scheme"]], text))
    return Listing(columns, rows)


def _mean(heads: pl.DataFrame, column: str) -> float:
    return sum(heads[column]) / heads.height


def facts(heads: pl.DataFrame) -> list[tuple[str, str]]:
    """Name and text of what a reader must know, for the head of the page."""
    lengths = [str(length) for length in heads["length"].unique().sort().to_list()]
    sequences, error = max(heads["sequences"].to_list()), max(heads["error"].to_list())
    splits = heads["split"].unique().sort().to_list()
    return [
        ("Runs", str(heads.select(*KEY).n_unique())),
        ("Split of position and content", listed(splits)),
        (
            "Measured on",
            f"{sequences} sequences of independent words a run",
        ),
        ("Length", f"{listed(lengths)} words"),
        ("Largest error of a sum of terms", f"{error:.1e} of their size"),
    ]
