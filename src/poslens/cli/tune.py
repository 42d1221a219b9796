"""`poslens tune`: the learning rate of every scheme and task, over one grid."""

from dataclasses import dataclass, field
from pathlib import Path

from poslens.cli.engine import Workers, engine
from poslens.cli.options import parse, print_json
from poslens.cli.progress import Bars
from poslens.experiments.profiles import profile_named, select
from poslens.experiments.tune import GRID, VALIDATION_SEED, tune


@dataclass(frozen=True)
class Tune:
    __doc__ = f"""Train every scheme and task at each learning rate and write what each reached.

    Rates: {", ".join(f"{rate:g}" for rate in GRID)}; seed: {VALIDATION_SEED}, which no profile
    uses; table: OUT/learning_rates.csv.

    Give the table to 'poslens reproduce --rates'; the one that comes with poslens was made so.
    """

    schemes: tuple[str, ...] = ()
    """Only these schemes [default: the profile's]."""
    tasks: tuple[str, ...] = ()
    """Only these tasks [default: the profile's]."""
    profile: str = "quick"
    """smoke, quick, standard or paper."""
    out: Path = Path("runs/tune")
    """Folder of runs; the same command continues it."""
    workers: Workers = field(default_factory=Workers)
    json: bool = False
    """Print the table as JSON."""


def run(arguments: list[str]) -> None:
    command = parse(Tune, arguments, "tune")
    profile = select(profile_named(command.profile), command.schemes, command.tasks)
    with (
        engine(command.workers) as chosen,
        Bars() as bars,
    ):
        rates = tune(profile, command.out, watch=bars, **chosen)
    if command.json:
        print_json(rates.table.to_dicts())
        return
    print(f"{'scheme':<18}{'task':<10}{'best rate':>10}{'accuracy':>10}")
    for scheme, task in rates.table.select("scheme", "task").unique(maintain_order=True).rows():
        best = rates.best(scheme, task)
        row = rates.row(scheme, task, best)
        print(f"{scheme:<18}{task:<10}{best:>10g}{row['accuracy']:>10.3f}")
    print(command.out / "learning_rates.csv")
