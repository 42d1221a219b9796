"""The report's main table and ledger as Markdown, for documents that quote them."""

import polars as pl

from poslens.claims import Verdict
from poslens.claims.words import title
from poslens.report.accuracy import PAPER
from poslens.report.style import number, percent, rank
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
            first = layers.filter(scheme=scheme, task=task, layer=0, metric="accuracy")
            study = PAPER.get((task, scheme))
            shown = " / ".join(number(100 * value, 1) for value in runs["accuracy"])
            line += [
                shown + (f" ({number(100 * study, 2)})" if study else ""),
                " / ".join(number(value, 0) for value in runs["sequences"]),
                " / ".join(first["verdict"]),
            ]
        lines.append(line)
    bounds = "; ".join(_bounds(summary, task) for task in tasks)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{bounds}."


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
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
