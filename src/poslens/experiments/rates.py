"""Tuned learning rates: one table of what each rate reached, and which is best.

The committed table, `learning_rates.csv` beside this file, was made by `poslens tune`.
"""

from pathlib import Path
from typing import Any

import polars as pl

from poslens.errors import InputError
from poslens.training import TrainingSettings

COMMITTED = Path(__file__).with_name("learning_rates.csv")
# Accuracies closer than this are level: about twice the standard error of 4,096 sequences at 0.99.
NEAR_BEST = 0.003
COLUMNS = {
    "scheme": pl.String,
    "task": pl.String,
    "learning_rate": pl.Float64,
    "accuracy": pl.Float64,
    "loss": pl.Float64,
    "sequences": pl.Int64,
    "seed": pl.Int64,
}


class Rates:
    """A table of learning rates by scheme and task.

    Raises InputError where the file is missing or is not such a table.
    """

    def __init__(self, path: Path | str = COMMITTED) -> None:
        try:
            self.table = pl.read_csv(path, schema_overrides=COLUMNS)
        except (OSError, pl.exceptions.PolarsError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"{path} is no table of learning rates ({reason}); make one with 'poslens tune'"
            ) from error
        missing = [name for name in COLUMNS if name not in self.table.columns]
        if missing:
            raise InputError(f"{path} lacks {', '.join(missing)}; make one with 'poslens tune'")

    def best(self, scheme: str, task: str) -> float:
        """The rate of lowest loss among those within `NEAR_BEST` of the highest accuracy.

        A scheme on some heads borrows the rate of its nearest relative: of itself on another
        number of heads, then of itself on all. A scheme that was never tuned gets the default.
        """
        name = scheme.split("@")[0]
        rows = self.table.filter(pl.col("task") == task)
        for relative in (
            pl.col("scheme") == scheme,
            pl.col("scheme").str.starts_with(f"{name}@") & ("@" in scheme),
            pl.col("scheme") == name,
        ):
            tried = rows.filter(relative)
            if len(tried):
                level = tried.filter(pl.col("accuracy") >= pl.col("accuracy").max() - NEAR_BEST)
                return float(level.sort("loss")["learning_rate"][0])
        return TrainingSettings().learning_rate

    def row(self, scheme: str, task: str, rate: float) -> dict[str, Any]:
        """What one tried rate reached. Raises where it was not tried."""
        return self.table.row(
            by_predicate=(pl.col("scheme") == scheme)
            & (pl.col("task") == task)
            & (pl.col("learning_rate") == rate),
            named=True,
        )
