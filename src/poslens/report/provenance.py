"""What was run, on what, and what is still missing: read from the folder's JSON files."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from poslens.claims.words import listed, title
from poslens.report.style import duration, number, task_rank, task_title, tasks_of
from poslens.results import KEY, Tables, described_runs, read_object, run_key

Run = tuple[str, str, int]
ENVIRONMENT = (
    *("commit", "processor", "accelerator", "threads"),
    *("gemm_gflops", "seconds", "peak_memory_bytes"),
)


@dataclass(frozen=True)
class Provenance:
    """`configs` and `environments` by run (scheme, task, seed); `asked` the experiment's file."""

    asked: dict[str, Any]
    configs: dict[Run, dict[str, Any]]
    environments: dict[Run, dict[str, Any]]


def read_provenance(folder: Path) -> Provenance:
    """What the runs of a folder were, and the experiment they belong to, as far as it is told."""
    runs = {run_key(it["config"]): it for it in described_runs(folder)}
    configs, environments = (
        {key: it[name] for key, it in runs.items()} for name in ("config", "environment")
    )
    return Provenance(read_object(folder / "experiment.json"), configs, environments)


def profile(found: Provenance) -> str:
    """The profile's name; "custom" for runs that no profile made."""
    return str(found.asked.get("profile", "custom"))


def facts(tables: Tables, found: Provenance) -> list[tuple[str, str]]:
    """Name and text of what a reader must know of the runs, for the head of the page."""
    summary = tables.summary
    finished, left = summary.height, len(missing_runs(tables, found))
    seeds = [str(seed) for seed in sorted(summary["seed"].unique())]
    rates = [f"{rate:g}" for rate in sorted(summary["learning_rate"].unique())]
    return [
        ("Profile", profile(found)),
        ("Runs finished", f"{finished} of {finished + left}"),
        ("Seed" if len(seeds) == 1 else "Seeds", listed(seeds)),
        ("Budget", _by_task(summary, "budget", "sequences a run")),
        ("Held-out data", _by_task(summary, "evaluated", "sequences a run")),
        ("Model", _models(summary)),
        ("Learning rate", rates[0] if len(rates) == 1 else f"by scheme, {rates[0]} to {rates[-1]}"),
        *_machine([values for values in found.environments.values() if values]),
    ]


def _machine(environments: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Software, hardware and what the runs took, as far as they noted it."""
    columns = {key: [it[key] for it in environments if it.get(key)] for key in ENVIRONMENT}
    versions = [
        ", ".join(f"{key} {it[key]}" for key in ("poslens", "torch", "python") if it.get(key))
        for it in environments
    ]
    seconds, memory = columns["seconds"], columns["peak_memory_bytes"]
    speeds = columns["gemm_gflops"]
    rows = [
        ("Software", _most(versions)),
        ("Commit", _most([commit[:12] for commit in columns["commit"]])),
        ("Processor", _most(columns["accelerator"] or columns["processor"])),
        ("Threads", f"{_most(columns['threads'])} a run" if columns["threads"] else ""),
        (
            "float32 GEMM",
            f"{min(speeds):.0f} to {max(speeds):.0f} GFLOP/s, measured in each run"
            if speeds
            else "",
        ),
        ("Time", f"{duration(sum(seconds))} of training, runs added up" if seconds else ""),
        ("Memory", f"at most {number(max(memory) / 2**30, 1)} GiB a run" if memory else ""),
    ]
    return [(name, text) for name, text in rows if text]


def _most(values: list[Any]) -> str:
    """The most frequent value, and how many others there are."""
    kinds = Counter(str(value) for value in values if value)
    if not kinds:
        return ""
    others = f" (and {len(kinds) - 1} other)" if len(kinds) > 1 else ""
    return kinds.most_common(1)[0][0] + others


def _by_task(summary: pl.DataFrame, column: str, unit: str) -> str:
    """The values of a column, told by task where the tasks differ."""
    found = {
        task: listed([number(value, 0) for value in rows[column].unique().sort()])
        for task in tasks_of(summary)
        for rows in [summary.filter(task=task)]
    }
    if len(set(found.values())) == 1:
        return f"{next(iter(found.values()))} {unit}"
    texts = [f"{task_title(task).lower()} {text}" for task, text in found.items()]
    return f"{', '.join(texts)} {unit}"


def _models(summary: pl.DataFrame) -> str:
    sizes = summary.select("layers", "heads", "width").unique().sort(pl.all())
    return listed(
        [
            f"{layers} layers, {heads} heads, width {width}"
            for layers, heads, width in sizes.iter_rows()
        ]
    )


def missing_runs(tables: Tables, found: Provenance) -> list[Run]:
    """Runs asked for (or started, or implied by the grid of the others) that are not finished."""
    finished = set(tables.summary.select(*KEY).iter_rows())
    known = finished | set(found.configs)
    schemes, tasks, seeds = (
        list(found.asked.get(name, sorted({run[i] for run in known})))
        for i, name in enumerate(("schemes", "tasks", "seeds"))
    )
    asked = {(scheme, task, seed) for scheme in schemes for task in tasks for seed in seeds}
    return sorted((asked | known) - finished, key=lambda run: (task_rank(run[1]), run[0], run[2]))


def missing(tables: Tables, found: Provenance) -> list[str]:
    """Sentences that say what the page cannot show yet; empty for a complete folder."""
    sentences = []
    if runs := missing_runs(tables, found):
        sentences.append(f"Not finished: {'; '.join(_names(runs))}.")
    finished = list(tables.summary.select(*KEY).iter_rows())
    for table, name in ((tables.effects, "head ablation"), (tables.concentration, "concentration")):
        have = set(table.select(*KEY).iter_rows())
        if lacking := [run for run in finished if run not in have]:
            everywhere = len(lacking) == len(finished)
            which = "any run" if everywhere else "; ".join(_names(lacking))
            sentences.append(f"No {name} yet for {which}.")
    return sentences


def _names(runs: list[Run]) -> list[str]:
    """Runs in words, a task and seed at a time."""
    groups: dict[tuple[str, int], list[str]] = {}
    for scheme, task, seed in runs:
        groups.setdefault((task, seed), []).append(title(scheme))
    return [
        f"{listed(names)} on {task_title(task).lower()}, seed {seed}"
        for (task, seed), names in groups.items()
    ]
