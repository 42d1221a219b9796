"""The report's main table and ledger as Markdown, for documents that quote them."""

import polars as pl

from poslens.claims import Verdict
from poslens.claims.words import title
from poslens.report.accuracy import PAPER
from poslens.report.style import number, percent, rank
from poslens.report.words import first_layer_rows
from poslens.results import Tables


def summary_page(tables: Tables, verdicts: list[Verdict]) -> str:
    """Accuracy of every scheme, then the ledger."""
    return f"{accuracy_table(tables)}\n\n{ledger_table(verdicts)}\n"


def accuracy_table(tables: Tables) -> str:
    """One line a scheme: for each task mean held-out accuracy, training sequences, first layer.

    "First layer" is the verdict on zero ablation of the first layer's heads, one for each seed.
    """
    summary, layers = tables.summary, tables.concentration
    tasks = sorted(summary["task"].unique(), key=("distance", "count").index)
    head = ["Scheme"]
    for task in tasks:
        head += [f"{task}: accuracy (study), %", "sequences", "first layer"]
    lines = [head, ["---"] * len(head)]
    for scheme in sorted(summary["scheme"].unique(), key=rank):
        line = [title(scheme)]
        for task in tasks:
            runs = summary.filter(scheme=scheme, task=task)
            if runs.is_empty():
                line += ["", "", ""]
                continue
            first = first_layer_rows(layers, task).filter(scheme=scheme)
            study = PAPER.get((task, scheme))
            shown = " / ".join(number(100 * value, 1) for value in runs["accuracy"])
            line += [
                shown + (f" ({number(100 * study, 2)})" if study else ""),
                " / ".join(number(value, 0) for value in runs["sequences"]),
                " / ".join(first["verdict"]),
            ]
        lines.append(line)
    bounds = "; ".join(_bounds(summary, task) for task in tasks)
    return f"{_table(lines)}\n\n{bounds}."


def _bounds(summary: pl.DataFrame, task: str) -> str:
    row = summary.filter(task=task).row(0, named=True)
    return (
        f"{task}: chance {percent(row['chance'])}, length only {percent(row['baseline'])}, "
        f"ceiling {percent(row['ceiling'])}, at most {number(row['budget'], 0)} training "
        f"sequences, {number(row['evaluated'], 0)} held out"
    )


def ledger_table(verdicts: list[Verdict]) -> str:
    """One line a claim: its verdict and the numbers behind it."""
    lines = [["Claim", "", "Verdict here", "Numbers"], ["---"] * 4]
    lines += [[it.claim, it.statement, f"**{it.label}**", it.numbers] for it in verdicts]
    return _table(lines)


def algebra_table(tables: Tables, task: str) -> str:
    """One line a scheme and layer: how its heads' position acts as measured, and how Toeplitz.

    Heads that the scheme leaves without position are not counted.
    """
    lines = [
        [
            "scheme",
            "layer",
            "additive / mixed / multiplicative",
            "same for all sequences",
            "tau_row",
        ]
    ]
    lines.append(["---"] * len(lines[0]))
    for (scheme, layer), heads in _by_layer(tables.decomposition, task):
        acting = heads.filter(pl.col("explained").is_finite())
        if acting.is_empty():
            continue
        kinds = [(acting["algebra"] == k).sum() for k in ("additive", "mixed", "multiplicative")]
        lines.append(
            [
                title(scheme),
                str(layer),
                " / ".join(map(str, kinds)),
                _mean_and_range(acting["explained"]),
                _mean_and_range(acting["tau_row"]),
            ]
        )
    return _table(lines)


def contraction_table(tables: Tables, task: str) -> str:
    """One line a rotary scheme and layer: norms of the logits with over without the kernel."""
    lines = [
        ["scheme", "layer", "operator norm", "below 1 in", "nuclear norm", "no norm has grown in"]
    ]
    lines.append(["---"] * len(lines[0]))
    for (scheme, layer), heads in _by_layer(tables.spectra, task):
        lines.append(
            [
                title(scheme),
                str(layer),
                _mean_and_range(heads["operator"]),
                percent(float(heads["operator_contracted"].to_numpy().mean())),
                _mean_and_range(heads["nuclear"]),
                percent(float(heads["none_grew"].to_numpy().mean())),
            ]
        )
    return _table(lines)


def _by_layer(table: pl.DataFrame, task: str) -> list[tuple[tuple[str, int], pl.DataFrame]]:
    rows = table.filter(pl.col("task") == task).partition_by("scheme", "layer", as_dict=True)
    found = [((str(scheme), int(layer)), heads) for (scheme, layer), heads in rows.items()]
    return sorted(found, key=lambda item: (rank(item[0][0]), item[0][1]))


def _mean_and_range(values: pl.Series) -> str:
    """A mean over heads, with the smallest and largest head where there are several."""
    numbers = values.to_numpy()
    mean = f"{numbers.mean():.2f}"
    return mean if len(values) == 1 else f"{mean} ({numbers.min():.2f} to {numbers.max():.2f})"


def _table(lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
