"""How concentration varies from seed to seed."""

import polars as pl

from poslens.claims.predictions import VERDICTS

STATISTICS = ("top_share", "effective_heads", "deposit_index")
GROUP = ("scheme", "task", "layer", "target", "method", "metric")


def over_seeds(concentration: pl.DataFrame) -> pl.DataFrame:
    """One row per scheme, task, layer, target, method and metric of a table CONCENTRATION.

    Columns besides these: `seeds`; `defined`, the seeds in which shares are defined (some head
    counts, in a layer of more than one head); of top share, effective heads and deposit index
    the mean (under the statistic's own name) and `_min` and `_max` over the seeds in which they
    are defined, null where they are in none; `verdicts`, how many seeds have which: "deposit 2,
    spread 1". Rows come in the order in which the table first names them.
    """
    statistics = [pl.col(name).fill_nan(None) for name in STATISTICS]
    return concentration.group_by(GROUP, maintain_order=True).agg(
        pl.col("seed").n_unique().cast(pl.Int64).alias("seeds"),
        pl.col("top_share").fill_nan(None).count().cast(pl.Int64).alias("defined"),
        *(it.mean() for it in statistics),
        *(it.min().name.suffix("_min") for it in statistics),
        *(it.max().name.suffix("_max") for it in statistics),
        _tally().alias("verdicts"),
    )


def _tally() -> pl.Expr:
    """The verdicts of a group with their numbers, as text."""
    counted = [
        pl.when((pl.col("verdict") == name).any()).then(
            pl.format("{} {}", pl.lit(name), (pl.col("verdict") == name).sum())
        )
        for name in VERDICTS
    ]
    return pl.concat_str(counted, separator=", ", ignore_nulls=True)
