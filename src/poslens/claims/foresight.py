"""Do seeds predict who carries position? Seeds along training against position effects at its end.

Pure table work: |mu| and mu of the table SEEDS at each step, and the final effects of taking each
head's position away (table EFFECTS, target position, method none), by ranks.

Shapes: K heads, R permutations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import rankdata

from poslens.claims.base import EDITS
from poslens.results import KEY, Tables

MEASURES = ("|mu|", "mu")
METRICS = ("loss", "accuracy")
WHOLE_MODEL = -1  # in place of a layer
LAST = -1  # in place of a step: the last of each run
LEAST_HEADS = 3  # fewer have no ranks worth comparing
HEAD_PERMUTATIONS = 1999
FORESIGHT = {
    "step": pl.Int64,  # of training, at which seeds were recorded
    "final": pl.Boolean,  # whether it is the run's last
    "measure": pl.String,  # what heads are ranked by: |mu| or mu
    "metric": pl.String,  # of the effect: loss or accuracy
    "layer": pl.Int64,  # whose heads are ranked; -1: those of all layers together
    "heads": pl.Int64,  # that have a seed
    "agreement": pl.Float64,  # Spearman's rank correlation, NaN for fewer than `LEAST_HEADS`
    "p": pl.Float64,  # share of permutations of the heads that agree as well
    "hit": pl.Boolean,  # whether the head of the largest seed has the largest effect
    "chance": pl.Float64,  # of a hit by guessing: 1 / heads
}
OVER_SEEDS = {
    "scheme": pl.String,
    "task": pl.String,
    "step": pl.Int64,  # -1: the last of each run, wherever it is
    "measure": pl.String,
    "metric": pl.String,
    "layer": pl.Int64,
    "runs": pl.Int64,
    "agreement": pl.Float64,  # mean over runs
    "p": pl.Float64,  # of that mean: heads permuted within each run
    "hits": pl.Int64,  # runs whose head of the largest seed has the largest effect
    "expected": pl.Float64,  # hits by guessing
    "hit_p": pl.Float64,  # share of the same permutations with as many hits
}


@dataclass(frozen=True)
class Ranked:
    """One run's heads, ranked by seed and by effect (R + 1, K): as they are, then permuted."""

    seeds_RK: NDArray[np.float64]
    effects_RK: NDArray[np.float64]

    @cached_property
    def agreement_R(self) -> NDArray[np.float64]:
        """Spearman's correlation; NaN where one side is constant or heads are too few."""
        if self.seeds_RK.shape[1] < LEAST_HEADS:
            return np.full(len(self.seeds_RK), np.nan)
        pair = (self.seeds_RK, self.effects_RK)
        x_RK, y_RK = (it - it.mean(1, keepdims=True) for it in pair)
        with np.errstate(invalid="ignore", divide="ignore"):
            found: NDArray[np.float64] = (x_RK * y_RK).sum(1) / np.sqrt(
                (x_RK**2).sum(1) * (y_RK**2).sum(1)
            )
        return found

    @cached_property
    def hit_R(self) -> NDArray[np.bool_]:
        """Whether the same head is first on both sides."""
        found: NDArray[np.bool_] = self.seeds_RK.argmax(1) == self.effects_RK.argmax(1)
        return found


def foresight(tables: Tables, seed: int = 0) -> pl.DataFrame:
    """One row per run, step, measure, metric and layer; columns KEY and `FORESIGHT`.

    Of the runs' own initialisations. p is one-sided: (1 + permutations whose agreement is at least
    as high) / (1 + `HEAD_PERMUTATIONS`). Over all layers together, agreement may be no more than
    that lower layers have larger seeds and larger effects.
    """
    rows = [
        {
            **where,
            "heads": ranked.seeds_RK.shape[1],
            "agreement": float(ranked.agreement_R[0]),
            "p": _share(ranked.agreement_R),
            "hit": bool(ranked.hit_R[0]),
            "chance": 1 / ranked.seeds_RK.shape[1],
        }
        for where, ranked in _ranked(tables, seed)
    ]
    return pl.DataFrame(rows, schema={**KEY, **FORESIGHT})


def foresight_over_seeds(
    tables: Tables,
    seed: int = 0,
    measures: tuple[str, ...] = MEASURES,
    metrics: tuple[str, ...] = METRICS,
) -> pl.DataFrame:
    """The runs of a scheme on a task together, columns `OVER_SEEDS`: a stratified permutation test.

    Heads are permuted within each run, so that differences between runs play no part; compared are
    the mean agreement (of runs in which it is defined) and the number of hits. Last steps are
    joined as step `LAST`, too, since runs that end early end at different ones.
    """
    groups: dict[tuple[object, ...], list[Ranked]] = {}
    for where, ranked in _ranked(tables, seed, measures, metrics):
        rest = (where["measure"], where["metric"], where["layer"])
        for step in [where["step"], *([LAST] if where["final"] else [])]:
            key = (where["scheme"], where["task"], step, *rest)
            groups.setdefault(key, []).append(ranked)
    rows = []
    for group, runs in groups.items():
        defined = [it.agreement_R for it in runs if np.isfinite(it.agreement_R[0])]
        agreement_R = np.mean(defined or [runs[0].agreement_R], 0)
        hits_R = np.sum([ranked.hit_R for ranked in runs], 0)
        rows.append(
            {
                **dict(zip(list(OVER_SEEDS)[:6], group, strict=True)),
                "runs": len(runs),
                "agreement": float(agreement_R[0]),
                "p": _share(agreement_R),
                "hits": int(hits_R[0]),
                "expected": sum(1 / ranked.seeds_RK.shape[1] for ranked in runs),
                "hit_p": _share(hits_R.astype(np.float64)),
            }
        )
    return pl.DataFrame(rows, schema=OVER_SEEDS)


def _ranked(
    tables: Tables,
    seed: int,
    measures: tuple[str, ...] = MEASURES,
    metrics: tuple[str, ...] = METRICS,
) -> Iterator[tuple[dict[str, object], Ranked]]:
    """Every comparison there is, with what it is of."""
    own = tables.seeds.filter(pl.col("initialisation") == 0, pl.col("ratio").is_not_nan())
    if own.is_empty():
        return
    effects = tables.effects.filter(
        pl.col("head") >= 0, target="position", method=EDITS["position"]
    ).select(*KEY, "layer", "head", "metric", "effect")
    joined = own.join(effects, on=[*KEY, "layer", "head"])
    joined = joined.with_columns(pl.col("mu").abs().alias("|mu|"))
    for (*run, step, metric), heads in joined.sort(*KEY, "step", "layer", "head").group_by(
        *KEY, "step", "metric", maintain_order=True
    ):
        if metric not in metrics:
            continue
        layers = [(WHOLE_MODEL, heads), *((n, rows) for (n,), rows in heads.group_by("layer"))]
        for layer, rows in sorted(layers, key=lambda it: it[0]):
            for measure in measures:
                where = dict(zip(KEY, run, strict=True)) | {"step": step, "metric": metric}
                final = rows["trained"][0] == step
                # The same permutations whatever the step and measure, others for other runs.
                name = (seed, layer + 1, int(run[2]), sum(map(ord, f"{run[0]}/{run[1]}")))
                yield (
                    {**where, "final": final, "measure": measure, "layer": layer},
                    _permuted(rows[measure].to_numpy(), rows["effect"].to_numpy(), name),
                )


def _permuted(
    seeds_K: NDArray[np.floating], effects_K: NDArray[np.floating], seed: tuple[int, ...]
) -> Ranked:
    seeds_RK = rankdata(seeds_K)[_orders(len(seeds_K), seed)]
    return Ranked(seeds_RK, np.broadcast_to(rankdata(effects_K), seeds_RK.shape))


@lru_cache(maxsize=64)
def _orders(heads: int, seed: tuple[int, ...]) -> NDArray[np.integer]:
    """The heads as they are, then permuted, (R + 1, K)."""
    own_RK = np.tile(np.arange(heads), (HEAD_PERMUTATIONS, 1))
    order_RK = np.random.default_rng(seed).permuted(own_RK, axis=1)
    return np.concatenate([np.arange(heads)[None], order_RK])


def _share(values_R: NDArray[np.float64]) -> float:
    """Of all, those at least as large as the first, itself with them; NaN for NaN."""
    if np.isnan(values_R[0]):
        return float("nan")
    return float((values_R >= values_R[0] - 1e-12).mean())
