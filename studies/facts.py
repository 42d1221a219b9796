"""What the templates may say: the committed tables, and numbers taken from them."""

from collections import Counter
from typing import Any

import polars as pl

from poslens.claims import CLAIMS, ledger
from poslens.claims.base import EDITS, MINIMUM_SEEDS
from poslens.claims.corrections import PUBLISHED
from poslens.claims.extrapolation import correlations
from poslens.claims.words import listed, title
from poslens.encodings.base import Shape
from poslens.encodings.rope import RoPESettings
from poslens.experiments.rates import Rates
from poslens.model.latent_attention import LatentSettings
from poslens.report import markdown
from poslens.report.corrections import changes, judged, read_all
from poslens.report.improving import still_rising
from poslens.report.style import number, percent, rank
from poslens.results import Tables, described_runs, read
from poslens.training.loop import SOLVED_IN_A_ROW
from theory_facts import RESULTS, THEORY_FACTS

CORRECTIONS, SIZES = RESULTS / "corrections", RESULTS / "published_size"
FIRST = {"layer": 0, "metric": "accuracy"}  # the layer that the study's claims are about

# Share of the ceiling below which a model of the published size decides nothing.
DECIDES = 0.9
# Accuracy from which on a scheme has solved its task, in every seed.
SOLVES = 0.99
NEARLY = 0.95  # what the prose calls learned, at the least
# What would turn the verdict, or make it surer, by claim.
WOULD_CHANGE = {
    "C1": (
        "Where every scheme solves the task none is best. A harder task or a smaller budget would "
        "tell schemes apart by how soon they learn, and which is soonest turns on the learning "
        "rate; the claim is about accuracy."
    ),
    "C2": (
        "The study's slopes (the correction *slopes*), or a task whose distances are beyond what "
        "the steepest heads see."
    ),
    "C3": "Models or budgets too small to solve the count: see the corrections.",
    "C4": (
        "Another place for keys and values, another rate, a larger model: see the corrections and "
        "the published size. One more seed with a deposit would make it mixed."
    ),
    "C5": (
        "A scheme without RoPE whose first layer has a deposit in some seed. Passing says little "
        "where RoPE has none either."
    ),
    "C6 (k = 1)": "A budget too small for one head: it learns later than all do.",
    "C6 (k = 2)": "A budget too small for two heads.",
    "C8": (
        "Other layers than those after the second, a deeper or longer-trained model, or another "
        "measure of where a direction has gone: the position subspace may turn while position is "
        "still read as well (the probes)."
    ),
    "P6.1": (
        "More examples, where the interval straddles the threshold; another size of threshold. The "
        "study's own proposition may mean another quantity."
    ),
    "P6.2": (
        "More examples, where intervals straddle the threshold. That one head's seed is surely not "
        "small contradicts this reading, in which *cancels* is of every head."
    ),
    "T6.1": (
        "A margin that is not above zero leaves gamma undefined, and more examples would only make "
        "that surer where heads of a layer are alike."
    ),
    "C7": "Another latent width or rotary width: MLA was run at one of each.",
}

quick = read(RESULTS / "quick")
standard = read(RESULTS / "standard")
_corrections = read_all(CORRECTIONS) if CORRECTIONS.exists() else []
# The claims that need no further tables than training and ablation write: C1 to C7.
_JUDGED = tuple(claim for claim in CLAIMS if not claim.measured)
corrections = judged(_corrections, _JUDGED) if _corrections else []
corrected = {it.name: it.own for it in _corrections}
# RoPE at the standard size with keys and values from the embeddings.
memory = read(RESULTS / "memory") if (RESULTS / "memory").exists() else None
sizes = {name: read(SIZES / name) for name in ("standard", "published") if (SIZES / name).exists()}
verdicts = [it for it in ledger(standard) if it.verdict != "not run"]


def with_verdict(*names: str) -> list[str]:
    """The claims that have one of these verdicts at the standard size."""
    return [it.claim for it in verdicts if it.verdict in names]


def training(scheme: str, task: str, tables: Tables = standard) -> pl.Series:
    """Sequences trained on, a value for each seed."""
    return tables.summary.filter(scheme=scheme, task=task)["sequences"]


def largest(scheme: str, task: str, target: str, tables: Tables = standard) -> pl.Series:
    """Largest fall in accuracy that editing one first-layer head causes, a value for each seed."""
    edit = {"target": target, "method": EDITS[target], **FIRST}
    effects = tables.effects.filter(pl.col("head") >= 0, scheme=scheme, task=task, **edit)
    return effects.group_by("seed").agg(pl.col("effect").max()).sort("seed")["effect"]


def first_layer(scheme: str, task: str, target: str, tables: Tables = standard) -> pl.DataFrame:
    """Rows of the table CONCENTRATION of the first layer on accuracy, one for each seed."""
    edit = {"target": target, "method": EDITS[target], **FIRST}
    return tables.concentration.filter(scheme=scheme, task=task, **edit).sort("seed")


def at_length(scheme: str, factor: int, task: str = "distance") -> pl.Series:
    """Accuracy on sequences so many times as long as in training, a value for each seed."""
    return standard.lengths.filter(scheme=scheme, task=task, factor=factor)["accuracy"]


def solvers(task: str) -> list[str]:
    """The schemes that solve a task in every seed, in the study's order."""
    worst = standard.summary.filter(task=task).group_by("scheme").agg(pl.col("accuracy").min())
    return sorted(worst.filter(pl.col("accuracy") >= SOLVES)["scheme"], key=rank)


def titles(schemes: list[str]) -> list[str]:
    return [title(scheme) for scheme in schemes]


def exceeds_all(values: pl.Series, schemes: tuple[str, ...], factor: int = 2) -> bool:
    """Whether the least of `values` exceeds the most that any of these has at that length."""
    most = [at_length(scheme, factor).to_numpy().max() for scheme in schemes]
    return bool(values.to_numpy().min() > max(most))


def correlated(task: str) -> pl.DataFrame:
    """Correlations of length and concentration that have an interval."""
    return correlations(standard).filter(pl.col("low").is_not_nan(), task=task)


def tied(task: str) -> pl.DataFrame:
    """Those whose interval leaves out zero."""
    return correlated(task).filter((pl.col("low") > 0) | (pl.col("high") < 0))


def switches_with(claim: str, verdict: str) -> list[str]:
    """The corrections under which a claim has this verdict, of those that touch it."""
    cells = [cell for row in corrections for cell in row if cell.claim == claim and not cell.same]
    return [cell.correction for cell in cells if cell.label == verdict]


def above_baseline(scheme: str, task: str) -> pl.Series:
    """Accuracy above the length-only baseline, a value for each seed."""
    runs = standard.summary.filter(scheme=scheme, task=task)
    return runs["accuracy"] - runs["baseline"]


def left(scheme: str, task: str) -> pl.Series:
    """Accuracy with position taken from all heads of the model, a value for each seed."""
    edit = {"target": "position", "method": EDITS["position"], "metric": "accuracy", "layer": -1}
    rows = standard.effects.filter(scheme=scheme, task=task, **edit).sort("seed")
    return rows["intact"] - rows["effect"]


def deposits(
    scheme: str, task: str, tables: Tables = standard, target: str = "head"
) -> list[dict[str, Any]]:
    """Layers and seeds whose heads have the verdict *weak deposit* or *deposit*."""
    edit = {"target": target, "method": EDITS[target], "metric": "accuracy"}
    rows = tables.concentration.filter(scheme=scheme, task=task, **edit)
    return rows.filter(pl.col("verdict").str.ends_with("deposit")).to_dicts()


def deposits_by_position(task: str) -> list[str]:
    """Schemes with a first-layer deposit where position is taken, with their seeds."""
    edit = {"target": "position", "method": EDITS["position"], "verdict": "deposit", **FIRST}
    rows = standard.concentration.filter(task=task, **edit).sort("scheme", "seed")
    return [f"{title(row['scheme'])} (seed {row['seed']})" for row in rows.to_dicts()]


def range_of(values: pl.Series) -> str:
    """A mean of whole numbers, with smallest and largest in brackets."""
    them = values.to_numpy()
    mean, low, high = (number(it, 0) for it in (them.mean(), them.min(), them.max()))
    return f"{mean} ({low} to {high})"


def rising(tables: Tables = standard) -> list[str]:
    """The runs still improving when their budget ended, in words."""
    runs = sorted(still_rising(tables))
    return [f"{title(scheme)} on {task}, seed {seed}" for scheme, task, seed in runs]


def settings(name: str, task: str = "distance") -> dict[str, Any]:
    """Configuration and environment of a folder's first run of a task: what its runs share."""
    return next(it for it in described_runs(RESULTS / name) if it["config"]["task"] == task)


def commits(name: str) -> str:
    """The commits at which a folder's runs were made, with how many of them."""
    found = Counter(it["environment"]["commit"][:7] for it in described_runs(RESULTS / name))
    return listed(f"`{commit}` ({runs} runs)" for commit, runs in sorted(found.items()))


def latent_words(width: int, heads: int) -> str:
    """The widths that MLA has in a model of the standard size."""
    shape = Shape(width, heads, width // heads, max_length=1)
    queries, keys, content, rotary, values = LatentSettings().resolve(shape)
    return (
        f"{content} content and {rotary} rotary dimensions and values of {values}, from latents "
        f"of {queries} (queries) and {keys} (keys and values)"
    )


def span(values: pl.Series, digits: int = 1) -> str:
    """Shares in per cent: the mean, with smallest and largest in brackets."""
    return markdown.mean_and_range(100 * values, digits)


def rates_tried() -> int:
    """How many learning rates were tried for a scheme on a task."""
    return int(Rates().table["learning_rate"].n_unique())


def _whole_seeds() -> int:
    """Seeds whose runs are finished under every switch."""
    if not _corrections or _corrections[-1].name != PUBLISHED:
        return 0
    return min(it.own.summary["seed"].n_unique() for it in _corrections if not it.missing)


def at_largest_rate() -> bool:
    """Whether most of the chosen learning rates are the largest that were tried."""
    rates = Rates()
    tried = rates.table.select("scheme", "task").unique().rows()
    most = float(rates.table["learning_rate"].to_numpy().max())
    return sum(rates.best(scheme, task) == most for scheme, task in tried) > len(tried) / 2


def size_table() -> str:
    """One line a run of the published size: how far it came, and what its first layer shows."""
    effects = ("zeroed: largest, points", "second", "position taken: largest, points")
    lines = [
        [
            *("model", "accuracy, %", "of the ceiling, %", "sequences", *effects),
            *("first layer", "deposits in layers above"),
        ]
    ]
    lines.append(["---"] * len(lines[0]))
    for name, tables in sizes.items():
        for row in tables.summary.iter_rows(named=True):
            reached = row["accuracy"] / row["ceiling"]
            zeroed = _first_row(tables, row["scheme"], "head")
            taken = _first_row(tables, row["scheme"], "position")
            lines.append(
                [
                    f"{title(row['scheme'])}, {name}",
                    number(100 * row["accuracy"], 1),
                    number(100 * reached, 1),
                    number(row["sequences"], 0),
                    number(100 * zeroed["largest"], 1),
                    number(100 * zeroed["second"], 1),
                    number(100 * taken["largest"], 1),
                    zeroed["verdict"] if reached >= DECIDES else "inconclusive",
                    _above_first(deposits(row["scheme"], "distance", tables)),
                ]
            )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _above_first(found: list[dict[str, Any]]) -> str:
    """Deposits above the first layer: where, and what the largest and the next head cost."""
    return "; ".join(
        f"{it['verdict']} in layer {it['layer']}: {number(100 * it['largest'], 1)}, next "
        f"{number(100 * it['second'], 1)}"
        for it in found
        if it["layer"]
    )


def _first_row(tables: Tables, scheme: str, target: str) -> dict[str, Any]:
    return first_layer(scheme, "distance", target, tables).row(0, named=True)


_TABLES = ("accuracy", "algebra", "concentration", "contraction", "correlation", "ledger", "length")
# What templates see, by name.
FACTS: dict[str, Any] = {
    **THEORY_FACTS,
    "quick": quick,
    "standard": standard,
    "corrections": corrections,
    "corrected": corrected,
    "corrections_seeds": _whole_seeds(),
    "MINIMUM_SEEDS": MINIMUM_SEEDS,
    "ROPE_BASE": RoPESettings().base,
    "SOLVED_IN_A_ROW": SOLVED_IN_A_ROW,
    "changed": changes(corrections, _JUDGED) if corrections else [],
    "memory": memory,
    "sizes": sizes,
    "verdicts": verdicts,
    "WOULD_CHANGE": WOULD_CHANGE,
    "DECIDES": DECIDES,
    "SOLVES": SOLVES,
    "NEARLY": NEARLY,
    **{f"{name}_table": getattr(markdown, f"{name}_table") for name in (*_TABLES, "matrix")},
    **{
        function.__name__: function
        for function in (
            *(with_verdict, training, largest, first_layer, at_length, rising),
            *(settings, span, rates_tried, size_table, commits, latent_words),
            *(above_baseline, switches_with),
            *(
                ledger,
                changes,
                listed,
                number,
                percent,
                solvers,
                exceeds_all,
                titles,
                at_largest_rate,
            ),
            *(tied, correlated, left, deposits, deposits_by_position, range_of),
            *(markdown.mean_and_range,),
        )
    },
}
