"""The tables of the report as Markdown, for documents that quote them."""

import math

import polars as pl

from poslens.claims import Verdict
from poslens.claims.base import EDITS
from poslens.claims.extrapolation import correlations
from poslens.claims.words import title
from poslens.report.accuracy import PAPER
from poslens.report.corrections import LOOKS, Judged, label
from poslens.report.extrapolation import LOST, NAMES
from poslens.report.improving import RISING, rising_schemes
from poslens.report.style import number, percent, rank, task_title, tasks_of
from poslens.report.words import first_layer_rows
from poslens.results import Tables


def summary_page(tables: Tables, verdicts: list[Verdict]) -> str:
    """Accuracy of every scheme, then the ledger."""
    return f"{accuracy_table(tables)}\n\n{ledger_table(verdicts)}\n"


def accuracy_table(tables: Tables) -> str:
    """One line a scheme: for each task held-out accuracy, training sequences, first layer.

    Of several seeds the mean with smallest and largest; of sequences no mean where a run ended
    unsolved. "First layer" is the verdict on zero ablation of the first layer's heads, with the
    number of seeds; an arrow marks schemes of which a run was still improving when its budget
    ended.
    """
    summary = tables.summary
    tasks = tasks_of(summary)
    head = ["scheme"]
    for task in tasks:
        study = any(of == task for of, _ in PAPER)
        head += [f"{task}: accuracy{' [study]' if study else ''}, %", "sequences", "first layer"]
    lines = [head]
    marked = {task: rising_schemes(tables, task) for task in tasks}
    for scheme in sorted(summary["scheme"].unique(), key=rank):
        line = [title(scheme)]
        for task in tasks:
            runs = summary.filter(scheme=scheme, task=task)
            if runs.is_empty():
                line += ["", "", ""]
                continue
            arrow = f" {RISING}" if scheme in marked[task] else ""
            paper = PAPER.get((task, scheme))
            line += [
                mean_and_range(100 * runs["accuracy"], 1)
                + arrow
                + (f" [{number(100 * paper, 2)}]" if paper else ""),
                _trained_on(runs),
                _tally(first_layer_rows(tables.concentration, task).filter(scheme=scheme)),
            ]
        lines.append(line)
    notes = [f"{_bounds(summary, task)}." for task in tasks]
    if summary["seed"].n_unique() > 1:
        notes.append("Mean over seeds, smallest and largest in brackets.")
    if not summary["solved"].all():
        notes.append("> marks runs that had not solved their task when the budget ended.")
    if any(marked.values()):
        notes.append(f"{RISING} marks schemes still improving when the budget ended.")
    return f"{table(lines)}\n\n{' '.join(notes)}"


def _trained_on(runs: pl.DataFrame) -> str:
    """Training sequences until solved; those of runs that were not are a bound."""
    counts = runs["sequences"].to_numpy()
    low, high, mean = (number(it, 0) for it in (counts.min(), counts.max(), counts.mean()))
    if not runs["solved"].any():
        return f"> {high}"
    if not runs["solved"].all():
        return f"{low} to > {high}"
    return mean if runs.height == 1 else f"{mean} ({low} to {high})"


def _tally(layers: pl.DataFrame) -> str:
    """Verdicts of a layer over seeds: the verdict, or how many seeds have which."""
    counts = layers["verdict"].value_counts(sort=True, name="seeds")
    if counts.height == 1:
        return str(counts["verdict"][0])
    return ", ".join(f"{verdict} {seeds}" for verdict, seeds in counts.sort("verdict").iter_rows())


def _bounds(summary: pl.DataFrame, task: str) -> str:
    row = summary.filter(task=task).row(0, named=True)
    chance, baseline, ceiling = (percent(row[it]) for it in ("chance", "baseline", "ceiling"))
    budget, evaluated = (number(row[name], 0) for name in ("budget", "evaluated"))
    return (
        f"{task_title(task)}: chance {chance}, length only {baseline}, ceiling {ceiling}, "
        f"at most {budget} training sequences, {evaluated} held out"
    )


def ledger_table(verdicts: list[Verdict], numbers: bool = True) -> str:
    """One line a claim: its verdict and, unless left out, the numbers behind it."""
    lines = [["claim", "", "verdict here", "numbers, by seed"]]
    lines += [[it.claim, it.statement, f"**{it.label}**", it.numbers] for it in verdicts]
    return table(lines if numbers else [line[:3] for line in lines])


def concentration_table(tables: Tables, task: str, layer: int = 0) -> str:
    """One line a scheme: of one layer, largest effect (points), effective heads and verdicts.

    Heads zeroed, then heads that lose their position; over seeds mean, smallest and largest.
    """
    lines = [["scheme", *(name for it in ("zeroed", "position taken") for name in _of_edit(it))]]
    rows = tables.concentration.filter(task=task, layer=layer, metric="accuracy")
    for scheme in sorted(rows["scheme"].unique(), key=rank):
        line = [title(scheme)]
        for target, method in EDITS.items():
            found = rows.filter(scheme=scheme, target=target, method=method)
            largest = found["largest"].fill_nan(None).drop_nulls()
            heads = found["effective_heads"].fill_nan(None).drop_nulls()
            line += [
                mean_and_range(100 * largest, 1) if len(largest) else "-",
                mean_and_range(heads, 1) if len(heads) else "-",
                _tally(found),
            ]
        lines.append(line)
    return table(lines)


def _of_edit(edit: str) -> list[str]:
    return [f"{edit}: largest, points", "effective heads", "verdict"]


def matrix_table(rows: list[list[Judged]]) -> str:
    """One line a correction, one column a claim: the verdict's sign, and seeds that pass : fail.

    Bold where it differs from the standard model; a dot where no scheme of the claim has the
    switch.
    """
    lines = [["correction", *(cell.claim for cell in rows[0])]]
    for row in rows:
        line = [row[0].correction]
        for cell in row:
            told = f"{cell.look[2]} {cell.count}".strip()
            line.append("·" if cell.same else f"**{told}**" if cell.change else told)
        lines.append(line)
    signs = ", ".join(f"{sign} {label(verdict)}" for verdict, (_, _, sign) in LOOKS.items())
    return f"{table(lines)}\n\n{signs}; · the standard runs, no scheme of the claim has the switch."


def length_table(tables: Tables, task: str) -> str:
    """One line a scheme: accuracy (%) by longest sequence over that of training, mean and range."""
    lengths = tables.lengths.filter(task=task)
    factors = sorted(lengths["factor"].unique())
    lines = [["scheme", *(f"{factor}x" for factor in factors)]]
    for scheme in sorted(lengths["scheme"].unique(), key=rank):
        line = [title(scheme)]
        for factor in factors:
            found = lengths.filter(scheme=scheme, factor=factor)["accuracy"].fill_nan(None)
            known = found.drop_nulls()
            line.append("cannot" if known.is_empty() else mean_and_range(100 * known, 1))
        lines.append(line)
    return table(lines)


def correlation_table(tables: Tables) -> str:
    """One line a task, edit and measure of first-layer concentration: correlation by length."""
    found = correlations(tables)
    factors = sorted(found["factor"].unique())
    lines = [["task", "heads", "measure", *(f"{factor}x" for factor in factors), "runs of schemes"]]
    for key, rows in found.group_by("task", "target", "measure", maintain_order=True):
        task, target, measure = map(str, key)
        line = [task, LOST[target].lower(), NAMES[measure].lower()]
        for factor in factors:
            (row,) = rows.filter(factor=factor).to_dicts()
            known = math.isfinite(row["correlation"])
            interval = f"{row['correlation']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
            line.append(interval if known else "-")
        (row, *_) = rows.to_dicts()
        line.append(f"{row['runs']} of {row['schemes']}")
        lines.append(line)
    return table(lines)


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
                mean_and_range(acting["explained"]),
                mean_and_range(acting["tau_row"]),
            ]
        )
    return table(lines)


def contraction_table(tables: Tables, task: str) -> str:
    """One line a rotary scheme and layer: norms of the logits with over without the kernel."""
    lines = [
        ["scheme", "layer", "operator norm", "below 1 in", "nuclear norm", "no norm has grown in"]
    ]
    for (scheme, layer), heads in _by_layer(tables.spectra, task):
        lines.append(
            [
                title(scheme),
                str(layer),
                mean_and_range(heads["operator"]),
                percent(float(heads["operator_contracted"].to_numpy().mean())),
                mean_and_range(heads["nuclear"]),
                percent(float(heads["none_grew"].to_numpy().mean())),
            ]
        )
    return table(lines)


def _by_layer(table: pl.DataFrame, task: str) -> list[tuple[tuple[str, int], pl.DataFrame]]:
    rows = table.filter(pl.col("task") == task).partition_by("scheme", "layer", as_dict=True)
    found = [((str(scheme), int(layer)), heads) for (scheme, layer), heads in rows.items()]
    return sorted(found, key=lambda item: (rank(item[0][0]), item[0][1]))


def mean_and_range(values: pl.Series, digits: int = 2) -> str:
    """A mean (of heads, of seeds) with smallest and largest, where there are several."""
    numbers = values.to_numpy()
    mean = number(numbers.mean(), digits)
    if len(values) == 1:
        return mean
    return f"{mean} ({number(numbers.min(), digits)} to {number(numbers.max(), digits)})"


def table(lines: list[list[str]]) -> str:
    """A Markdown table; the first line is its head."""
    head, *rest = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rest])
