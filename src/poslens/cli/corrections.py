"""`poslens corrections`: which oddity of the study's code makes which of its claims."""

from dataclasses import dataclass, field
from pathlib import Path

from poslens.cli.engine import Workers, engine
from poslens.cli.options import parse, print_json
from poslens.cli.progress import Bars
from poslens.experiments.corrections import run_corrections
from poslens.experiments.profiles import profile_named, select
from poslens.experiments.rates import COMMITTED, Rates

SHORT = {
    "reproduced": "reproduced",
    "contradicted": "contradicted",
    "mixed": "mixed",
    "not run": "-",
}


@dataclass(frozen=True)
class Corrections:
    """Judge the study's claims with one switch of its released code thrown at a time.

    Trains, below OUT, the standard experiment, one for each switch (docs/published.md) with the
    schemes that have it, and one with all of them; writes OUT/corrections.csv, a row for each
    correction and claim, and OUT/corrections.html. What is finished is kept.
    """

    profile: str = "small"
    """smoke, small (three seeds of short sequences), quick, standard or paper."""
    schemes: tuple[str, ...] = ()
    """Only these schemes [default: the profile's]."""
    tasks: tuple[str, ...] = ()
    """Only these tasks [default: the profile's]."""
    seeds: tuple[int, ...] = ()
    """These seeds [default: the profile's]."""
    out: Path = Path("runs/corrections")
    """Folder of the experiments."""
    rates: Path = COMMITTED
    """Table of tuned learning rates, made by 'poslens tune'."""
    workers: Workers = field(default_factory=Workers)
    json: bool = False
    """Print the table as JSON."""


def run(arguments: list[str]) -> None:
    command = parse(Corrections, arguments, "corrections")
    profile = select(profile_named(command.profile), command.schemes, command.tasks, command.seeds)
    rates = Rates(command.rates)
    with (
        engine(command.workers) as chosen,
        Bars() as bars,
    ):
        run_corrections(profile, command.out, rates=rates, watch=bars, **chosen)

    from poslens.claims import CLAIMS
    from poslens.claims.corrections import matrix, read_corrections
    from poslens.report import build
    from poslens.training.folder import write_text

    table = matrix(read_corrections(command.out), CLAIMS)
    path = command.out / "corrections.csv"
    write_text(path, table.write_csv())
    page = build(command.out)
    if command.json:
        print_json(table.to_dicts())
        return
    print("".join(f"{name:<16}" for name in ("correction", *(claim.id for claim in CLAIMS))))
    for (correction,), rows in table.group_by("correction", maintain_order=True):
        words = [_words(row) for row in rows.iter_rows(named=True)]
        print("".join(f"{word:<16}" for word in (correction, *words)))
    print(path)
    print(page)


def _words(row: dict[str, str]) -> str:
    """A verdict in short; an inconclusive one by where it leans."""
    if row["verdict"] in SHORT:
        return SHORT[row["verdict"]]
    return f"({row['direction']})" if row["direction"] else "undecided"
