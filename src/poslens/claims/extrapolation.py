"""Is concentration tied to length? Accuracy on longer sequences against concentration, over runs.

Rank correlation only: runs differ in scheme and seed, and schemes in more than concentration.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from poslens.claims.base import EDITS
from poslens.results import KEY, Tables

MEASURES = ("deposit_index", "effective_heads")
LEAST_SCHEMES = 5  # fewer give no correlation worth an interval
SCHEME_RESAMPLES = 2000  # bootstrap resamples of schemes
FIRST_LAYER = 0
CORRELATIONS = {
    "task": pl.String,
    "factor": pl.Int64,  # longest sequence over the longest in training
    "target": pl.String,  # of the edit that concentration is of
    "measure": pl.String,  # a column of the table CONCENTRATION
    "runs": pl.Int64,
    "schemes": pl.Int64,  # that these runs are of
    "correlation": pl.Float64,  # Spearman's, NaN for fewer than `LEAST_SCHEMES` schemes
    "low": pl.Float64,  # 95 % percentile interval over schemes drawn with replacement
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
                columns = ("accuracy", measure, "scheme")
                both = runs.filter(pl.col(measure).is_not_nan())
                accuracies, values, schemes = (both[name].to_numpy() for name in columns)
                found = spearman(accuracies, values, schemes, seed)
                same = {"task": task, "factor": factor, "target": target, "measure": measure}
                counts = {"runs": both.height, "schemes": both["scheme"].n_unique()}
                names = ("correlation", "low", "high")
                rows.append({**same, **counts, **dict(zip(names, found, strict=True))})
    return pl.DataFrame(rows, schema=CORRELATIONS).sort("task", "target", "measure", "factor")


def spearman(
    x_N: NDArray[np.floating],
    y_N: NDArray[np.floating],
    schemes_N: NDArray[np.generic],
    seed: int = 0,
) -> tuple[float, float, float]:
    """Rank correlation of paired values with its interval; NaN for too few schemes or constants.

    The interval is from drawing schemes with replacement, each with all its runs, since runs of a
    scheme resemble each other. Draws in which one side is constant are left out.
    """
    names, of_N = np.unique(schemes_N, return_inverse=True)
    if len(names) < LEAST_SCHEMES:
        return (float("nan"),) * 3
    drawn_RS = np.random.default_rng(seed).integers(0, len(names), (SCHEME_RESAMPLES, len(names)))
    times_RS = (drawn_RS[..., None] == np.arange(len(names))).sum(1)
    times_RN = np.concatenate([np.ones((1, len(x_N)), int), times_RS[:, of_N]])
    x_RN, y_RN = (_centred_ranks(values, times_RN) for values in (x_N, y_N))
    with np.errstate(invalid="ignore", divide="ignore"):
        scale_R = np.sqrt((times_RN * x_RN**2).sum(1) * (times_RN * y_RN**2).sum(1))
        value, *others = (times_RN * x_RN * y_RN).sum(1) / scale_R
    defined = np.array(others)[np.isfinite(others)]
    if not np.isfinite(value) or not len(defined):
        return (float("nan"),) * 3
    low, high = np.quantile(defined, [0.025, 0.975])
    return float(value), float(low), float(high)


def _centred_ranks(
    values_N: NDArray[np.floating], times_RN: NDArray[np.int_]
) -> NDArray[np.float64]:
    """Mid-ranks of values of which each draw has some several times, less the draw's mean rank."""
    below_NN = np.sign(values_N[:, None] - values_N) / 2 + 0.5
    ranks_RN = times_RN @ below_NN.T
    means_R1: NDArray[np.float64] = (times_RN * ranks_RN).sum(1, keepdims=True)
    return np.asarray(ranks_RN - means_R1 / times_RN.sum(1, keepdims=True))
