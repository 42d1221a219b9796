"""`tune`: the learning rate of every scheme and task, over one declared grid, on its own seed."""

from dataclasses import replace
from pathlib import Path

import polars as pl

from poslens import results
from poslens.experiments.local import Cell
from poslens.experiments.profiles import Profile
from poslens.experiments.rates import COLUMNS, Rates
from poslens.experiments.reproduce import Runner, Watch, complete
from poslens.training.folder import write_text

# Around the rates at which Transformers of this size train with AdamW; the same for all.
GRID = (1e-3, 3e-3, 6e-3, 1.2e-2)
# No profile's seed: rates are not chosen on the data they are judged on.
VALIDATION_SEED = 1000


def tune(
    profile: Profile,
    folder: Path,
    jobs: int,
    device: str = "cpu",
    watch: Watch | None = None,
    runner: Runner | None = None,
) -> Rates:
    """Train every scheme and task of the profile at every rate; write learning_rates.csv.

    Runs are kept and continued like those of `reproduce`. Raises what `reproduce` raises.
    """
    profile = replace(profile, name=f"tune-{profile.name}", tuned=False, seeds=(VALIDATION_SEED,))
    cells = []
    for rate in GRID:
        for run in profile.cells(Rates()):
            training = replace(run.training, learning_rate=rate)
            run = replace(run, training=training)
            cells.append(Cell(run, folder / f"{run.name}-lr{rate:g}", train_only=True))
    complete(cells, profile, folder, jobs, device, watch, runner)

    rows = results.read(folder).summary.select(*COLUMNS).sort("task", "scheme", "learning_rate")
    path = folder / "learning_rates.csv"
    write_text(path, pl.DataFrame(rows).write_csv())
    return Rates(path)
