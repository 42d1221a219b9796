"""`poslens reproduce`: the whole study, from nothing to a report."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from poslens.cli.engine import Workers, engine
from poslens.cli.options import before_the_rest, override, parse, print_json, read_file
from poslens.cli.progress import Bars
from poslens.experiments.profiles import Profile, profile_named, select
from poslens.experiments.published import as_published
from poslens.experiments.rates import COMMITTED, Rates
from poslens.experiments.reproduce import reproduce


@dataclass(frozen=True)
class StudyFile:
    """What a TOML file may set; the rest comes from the profile."""

    profile: str = "quick"
    schemes: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reproduce:
    """Train, ablate and judge every scheme on every task, and write OUT/report.html.

    What is finished is kept: the same command does only what is missing, after an interrupt too.

    For example:
      poslens reproduce
      poslens reproduce --profile standard --jobs 2
      poslens reproduce --schemes rope alibi --tasks distance --seeds 0 1 2 --out runs/three
      poslens reproduce --config study.toml
      poslens reproduce --profile standard --engine ray --address auto
      poslens reproduce --profile paper --published --device cuda
    """

    profile: str = "quick"
    """smoke (a minute), quick (15 minutes), standard (hours) or paper (a GPU)."""
    schemes: tuple[str, ...] = ()
    """Only these schemes [default: the profile's]; NAME, NAME@k, A+B or mla."""
    tasks: tuple[str, ...] = ()
    """Only these tasks [default: the profile's]."""
    seeds: tuple[int, ...] = ()
    """These seeds [default: the profile's]."""
    out: Path | None = None
    """Folder of the experiment [default: runs/PROFILE, or runs/PROFILE-published]."""
    config: Path | None = None
    """TOML file with any of: profile, schemes, seeds, [tasks.NAME], [model], [training]."""
    published: bool = False
    """Every scheme as in the study's released code (docs/published.md), but what the file sets."""
    kept: Path | None = None
    """Collected results ('poslens collect') whose runs are not trained again."""
    rates: Path = COMMITTED
    """Table of tuned learning rates, made by 'poslens tune'."""
    workers: Workers = field(default_factory=Workers)
    json: bool = False
    """Print the ledger as JSON."""


def run(arguments: list[str]) -> None:
    early = before_the_rest(arguments, "profile", "config")
    file = read_file(StudyFile, early.get("config"))
    profile = profile_named(early.get("profile", file.profile))
    default = Reproduce(profile=profile.name, schemes=file.schemes, seeds=file.seeds)
    command = parse(Reproduce, arguments, "reproduce", default)
    profile = select(from_file(profile, file), command.schemes, command.tasks, command.seeds)
    if command.published:
        profile = as_published(profile, file.model, file.training, file.tasks)
    folder = command.out or Path("runs") / profile.name
    rates = Rates(command.rates)
    with (
        engine(command.workers) as chosen,
        Bars() as bars,
    ):
        cells = reproduce(profile, folder, rates=rates, watch=bars, kept=command.kept, **chosen)
    if not cells:
        print(f"{command.kept} has every run that was asked for", file=sys.stderr)
        return

    from poslens import results
    from poslens.claims import ledger, ledger_rows
    from poslens.report import build

    verdicts = ledger(results.read(folder))
    report = build(folder)
    if command.json:
        print_json({"ledger": ledger_rows(verdicts), "report": str(report)})
        return
    for verdict in verdicts:
        print(f"{verdict.claim:<12}{verdict.label:<36}{verdict.statement}")
    print(f"report: {report}")


def from_file(profile: Profile, file: StudyFile) -> Profile:
    """The profile with what a TOML file sets; only the tasks it names, where it names any."""
    tasks = {name: profile.tasks.get(name, {}) | own for name, own in file.tasks.items()}
    tasks = tasks or profile.tasks
    fallback = next(iter(profile.training.values()))
    return replace(
        profile,
        tasks=tasks,
        model=override(profile.model, file.model, "model"),
        training={
            task: override(profile.training.get(task, fallback), file.training, "training")
            for task in tasks
        },
        tuned=profile.tuned and "learning_rate" not in file.training,
    )
