"""What the tables say, in sentences: every number here is read from them."""

from statistics import fmean
from typing import Any

import polars as pl

from poslens.claims.predictions import VERDICTS
from poslens.claims.words import listed, title
from poslens.report.accuracy import accuracy_frame
from poslens.report.provenance import Provenance
from poslens.report.style import percent, points, rank, task_title, tasks_of
from poslens.results import Tables

# The study's own allowance for "no better than the length tells" (claim C2).
EXCESS = 0.05


def findings(tables: Tables, found: Provenance) -> list[str]:
    """A sentence or two for each task, then for the heads."""
    sentences = []
    for task in tasks_of(tables.summary):
        sentences.append(best_of(tables.summary, task))
        sentences += position_free(tables.summary, task, found)
    for task in tasks_of(tables.concentration):
        sentences += first_layer(tables.concentration, task)
        sentences += first_positions(tables.concentration, task)
    return sentences


def best_of(summary: pl.DataFrame, task: str) -> str:
    """Who is best, by how much, and how far from the ceiling."""
    frame = accuracy_frame(summary, task)
    cells = frame.unique("scheme", keep="first", maintain_order=True).to_dicts()
    best, where = cells[0], f"On {task_title(task).lower()}, {title(cells[0]['scheme'])}"
    ceiling = fmean(summary.filter(task=task, scheme=best["scheme"])["ceiling"])
    below = points(max(0.0, ceiling - best["mean"]))
    text = f"{where} is most accurate: {_cell(frame, best)}, {below} below the ceiling"
    if len(cells) > 1:
        second = cells[1]
        close = best["runs"] == second["runs"] == 1 and second["high"] >= best["low"]
        text += f"; next comes {title(second['scheme'])} with {percent(second['mean'])}"
        text += " (their intervals overlap)" if close else ""
        text += f", last {title(cells[-1]['scheme'])} with {percent(cells[-1]['mean'])}"
    return text + "."


def _cell(frame: pl.DataFrame, cell: dict[str, Any]) -> str:
    """A scheme's accuracy with its interval, or with the range of its seeds."""
    if cell["runs"] == 1:
        interval = f"{percent(cell['low'])} to {percent(cell['high'])}"
        return f"{percent(cell['mean'])} (95\u202f% interval {interval})"
    seeds = frame.filter(scheme=cell["scheme"])["accuracy"].to_list()
    lowest, highest = percent(min(seeds)), percent(max(seeds))
    return f"{percent(cell['mean'])} (mean of {cell['runs']} seeds, {lowest} to {highest})"


def position_free(summary: pl.DataFrame, task: str, found: Provenance) -> list[str]:
    """How NoPE stands to the length-only baseline, and why where it is well above it.

    Only for tasks whose baseline is more than chance, where length says something.
    """
    runs = summary.filter(task=task, scheme="nope").filter(pl.col("baseline") > pl.col("chance"))
    if runs.is_empty():
        return []
    accuracy, baseline = fmean(runs["accuracy"]), fmean(runs["baseline"])
    above = accuracy - baseline
    text = (
        f"Without any position (NoPE), accuracy on {task_title(task).lower()} is "
        f"{percent(accuracy)}, {points(abs(above))} {'above' if above >= 0 else 'below'} the "
        f"{percent(baseline)} that sequence length alone allows."
    )
    if above > EXCESS:
        config = found.configs.get(("nope", task, runs["seed"][0]), {})
        text += " " + _excess(config)
    return [text]


def _excess(config: dict[str, Any]) -> str:
    """Why bidirectional NoPE's bound may not hold in a run of this configuration."""
    if config.get("model", {}).get("causal"):
        return (
            "Under a causal mask a token's number of visible neighbours tells its position, "
            "so this bound does not hold for the run."
        )
    if config.get("task_settings", {}).get("fillers") == "published":
        return (
            "These fillers are drawn without replacement within a segment, so repeated words "
            "tell something about where segments end: the bound does not hold for the run."
        )
    return (
        "Fillers drawn independently leave a bidirectional model without position nothing but the "
        "length, so an excess of this size points to a fault and should be looked into."
    )


def first_layer(concentration: pl.DataFrame, task: str) -> list[str]:
    """Which schemes deposit position in one first-layer head, by verdict; RoPE in numbers."""
    rows = first_layer_rows(concentration, task)
    if rows.is_empty():
        return []
    text = f"Zeroing first-layer heads on {task_title(task).lower()}: {_by_verdict(rows)}."
    rope = rows.filter(scheme="rope")
    if not rope.is_empty():
        first, second = fmean(rope["largest"]), fmean(rope["second"])
        text += (
            f" In the RoPE model the costliest head takes {points(first)} of accuracy, "
            f"the next {points(second)}."
        )
    return [text]


def first_positions(concentration: pl.DataFrame, task: str) -> list[str]:
    """The same where first-layer heads lose their position alone; nothing where none did."""
    rows = first_layer_rows(concentration, task, "position", "none")
    if rows.is_empty():
        return []
    text = (
        f"Taking from first-layer heads nothing but their position on {task_title(task).lower()}: "
        f"{_by_verdict(rows)}."
    )
    rope = rows.filter(scheme="rope")
    if not rope.is_empty():
        first, lost = fmean(rope["largest"]), fmean(rope["lost"])
        text += (
            f" In the RoPE model the costliest head's position is worth {points(first)}, "
            f"that of all heads of the model {points(lost)}."
        )
    return [text]


def _by_verdict(rows: pl.DataFrame) -> str:
    """The verdicts and the schemes that got them."""
    groups = []
    for verdict in VERDICTS:
        names = [
            _seeded(scheme, rows.filter(scheme=scheme)["verdict"], verdict)
            for scheme in sorted(rows.filter(verdict=verdict)["scheme"].unique(), key=rank)
        ]
        if names:
            groups.append(f"{verdict} in {listed(names)}")
    return "; ".join(groups)


def _seeded(scheme: str, verdicts: pl.Series, verdict: str) -> str:
    """The scheme, and how many of its seeds have the verdict where not all do."""
    have = int((verdicts == verdict).sum())
    return title(scheme) + (f" ({have} of {len(verdicts)} seeds)" if have < len(verdicts) else "")


def first_layer_rows(
    concentration: pl.DataFrame, task: str, target: str = "head", method: str = "zero"
) -> pl.DataFrame:
    """Layer 0 of each run of the task, in accuracy; zeroed heads unless another edit is named."""
    return concentration.filter(task=task, layer=0, target=target, method=method, metric="accuracy")
