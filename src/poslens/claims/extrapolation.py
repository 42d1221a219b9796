"""Is concentration tied to length? Accuracy on longer sequences against concentration, over runs.

Rank correlation only: runs differ in scheme and seed, and schemes in more than concentration.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import rankdata

from poslens.claims.base import EDITS
from poslens.results import KEY, Tables

MEASURES = ("deposit_index", "effective_heads")
LEAST_RUNS = 5  # fewer give no correlation worth an interval
RUN_RESAMPLES = 2000  # bootstrap resamples of runs
FIRST_LAYER = 0
CORRELATIONS = {
    "task": pl.String,
    "factor": pl.Int64,  # longest sequence over the longest in training
    "target": pl.String,  # of the edit that concentration is of
    "measure": pl.String,  # a column of the table CONCENTRATION
    "runs": pl.Int64,
    "correlation": pl.Float64,  # Spearman's, NaN for fewer than `LEAST_RUNS` runs
    "low": pl.Float64,  # 95 % percentile interval over runs drawn with replacement
    "high": pl.Float64,
}


def correlations(tables: Tables, seed: int = 0) -> pl.DataFrame:
    """Spearman's correlation of accuracy beyond training length with first-layer concentration.

    Over the runs of a task in which concentration is defined (some head counts) and decidable, and
    which can read sequences of that length. Concentration is that on accuracy.
    """
    first = tables.concentration.filter(metric="accuracy", layer=FIRST_LAYER).filter(
        ~pl.col("verdict").is_in(["undecidable", "undefined"])
    )
    beyond = tables.lengths.filter(pl.col("factor") > 1, pl.col("accuracy").is_not_nan())
    rows: list[dict[str, object]] = []
    for target, method in EDITS.items():
        own = first.filter(target=target, method=method)
        joined = beyond.join(own, on=list(KEY), how="inner")
        for (task, factor), runs in joined.group_by("task", "factor", maintain_order=True):
            for measure in MEASURES:
                both = runs.filter(pl.col(measure).is_not_nan())
                found = spearman(both["accuracy"].to_numpy(), both[measure].to_numpy(), seed)
                same = {"task": task, "factor": factor, "target": target, "measure": measure}
                names = ("correlation", "low", "high")
                rows.append({**same, "runs": both.height, **dict(zip(names, found, strict=True))})
    return pl.DataFrame(rows, schema=CORRELATIONS).sort("task", "target", "measure", "factor")


def spearman(
    x: NDArray[np.floating], y: NDArray[np.floating], seed: int = 0
) -> tuple[float, float, float]:
    """Rank correlation of paired values with its bootstrap interval; NaN for too few or constant.

    Draws in which one side is constant have no correlation and are left out.
    """
    if len(x) < LEAST_RUNS:
        return (float("nan"),) * 3
    drawn_RN = np.random.default_rng(seed).integers(0, len(x), (RUN_RESAMPLES, len(x)))
    drawn_RN = np.concatenate([np.arange(len(x))[None], drawn_RN])
    x_RN, y_RN = (rankdata(values[drawn_RN], axis=1) for values in (x, y))
    x_RN, y_RN = (ranks - ranks.mean(1, keepdims=True) for ranks in (x_RN, y_RN))
    with np.errstate(invalid="ignore", divide="ignore"):
        scale_R = np.sqrt(np.square(x_RN).sum(1) * np.square(y_RN).sum(1))
        value, *others = (x_RN * y_RN).sum(1) / scale_R
    defined = np.array(others)[np.isfinite(others)]
    if not np.isfinite(value) or not len(defined):
        return (float("nan"),) * 3
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(value), float(low), float(high)
