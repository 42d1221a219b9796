"""`poslens interventions`: does the leading head stay when something is done to it?"""

from dataclasses import dataclass, field
from pathlib import Path

from poslens.cli.engine import Workers, engine
from poslens.cli.options import before_the_rest, parse, print_json, read_file
from poslens.cli.progress import Bars
from poslens.cli.reproduce import StudyFile, from_file
from poslens.experiments.interventions import run_interventions
from poslens.experiments.profiles import profile_named, select
from poslens.experiments.rates import COMMITTED, Rates


@dataclass(frozen=True)
class Interventions:
    """Train RoPE on distance with learned positional gains, and change what makes a head lead.

    Below OUT an experiment for each: control; lower (the leader's gain starts at a quarter); higher
    (that of the head which does least starts at four); tied (one gain a layer for the first
    quarter); off (the leader has no position); bases (rotary bases of their own). All use up the
    same budget. Writes OUT/interventions.csv. What is finished is kept.
    """

    profile: str = "quick"
    """smoke, small, quick, standard or paper: sizes and budget."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """These seeds; each chooses heads by its own control run."""
    config: Path | None = None
    """TOML file with any of: profile, seeds, [tasks.distance], [model], [training]."""
    out: Path = Path("runs/interventions")
    """Folder of the experiments."""
    rates: Path = COMMITTED
    """Table of tuned learning rates, made by 'poslens tune'."""
    workers: Workers = field(default_factory=Workers)
    json: bool = False
    """Print the table as JSON."""


def run(arguments: list[str]) -> None:
    early = before_the_rest(arguments, "profile", "config")
    file = read_file(StudyFile, early.get("config"))
    profile = profile_named(early.get("profile", file.profile))
    default = Interventions(profile.name, file.seeds or Interventions.seeds)
    command = parse(Interventions, arguments, "interventions", default)
    profile = select(from_file(profile, file), seeds=command.seeds)
    rates = Rates(command.rates)
    with (
        engine(command.workers) as chosen,
        Bars() as bars,
    ):
        run_interventions(profile, command.out, rates=rates, watch=bars, **chosen)

    from poslens.claims.interventions import outcomes, read_interventions
    from poslens.training.folder import write_text

    table = outcomes(read_interventions(command.out))
    path = command.out / "interventions.csv"
    write_text(path, table.write_csv())
    if command.json:
        print_json(table.to_dicts())
        return
    for row in table.iter_rows(named=True):
        led = "" if row["stays"] is None else " (stays)" if row["stays"] else " (another)"
        print(
            f"{row['intervention']:<10}seed {row['seed']}  accuracy {row['accuracy']:.3f}  leader "
            f"{row['leader']}{led}, {row['effect']:+.3f}; next {row['second']:+.3f}; control's "
            f"leader {row['was_leader']:+.3f}; {row['verdict']}"
        )
    print(path)
