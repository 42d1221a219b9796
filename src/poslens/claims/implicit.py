"""From which state on position can be read from the residual stream."""

import polars as pl

from poslens.results import KEY

APPEARS = {**KEY, "appears": pl.Int64, "states": pl.Int64}


def appears(probes: pl.DataFrame) -> pl.DataFrame:
    """One row per run of a table PROBES, with the columns of `APPEARS`.

    `appears` is the first state in which the held-out R^2 of the true position lies above chance
    and above the shuffled control, intervals against interval: its lower bound exceeds 0 and the
    control's upper bound. Null where there is none. `states` is the number of states looked at.
    A control alone would not do: a probe that has shrunk to a constant has an R^2 of 0 and next to
    no interval, which a control that has not may fall below.
    """
    read = probes.filter(score="r2")
    true, control = (
        read.filter(target=target).select(*KEY, "state", "low", "high")
        for target in ("true", "shuffled")
    )
    both = true.join(control, on=[*KEY, "state"], suffix="_control")
    above = pl.col("low") > pl.max_horizontal(pl.col("high_control"), pl.lit(0.0))
    return (
        both.group_by(*KEY)
        .agg(
            pl.col("state").filter(above).min().cast(pl.Int64).alias("appears"),
            pl.col("state").n_unique().cast(pl.Int64).alias("states"),
        )
        .select(*APPEARS)
        .sort(*KEY)
    )
