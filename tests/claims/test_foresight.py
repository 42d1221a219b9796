"""Seeds against final position effects: known rankings, the null, runs joined."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

from poslens.claims.foresight import (
    FORESIGHT,
    HEAD_PERMUTATIONS,
    LAST,
    OVER_SEEDS,
    foresight,
    foresight_over_seeds,
)
from poslens.results import EFFECTS, KEY, SEEDS, Tables

StudyOf = Callable[[], Any]
HEADS = 6


def made(study: StudyOf, mu: Any, effect: Any, seeds: int = 3, steps: Any = (0, 10)) -> Tables:
    """Two layers of `HEADS` heads; `mu(rng, layer)` and `effect(rng, layer, mu)` give a layer's."""
    runs, seed_rows, effect_rows = study(), [], []
    for seed in range(seeds):
        runs.run("rope", seed=seed)
        key = {"scheme": "rope", "task": "distance", "seed": seed}
        rng = np.random.default_rng(seed)
        for layer in range(2):
            mu_H = mu(rng, layer)
            effects_H = effect(rng, layer, mu_H)
            for head in range(HEADS):
                place = {**key, "layer": layer, "head": head}
                for step in steps:
                    row = {"step": step, "initialisation": 0, "mu": float(mu_H[head]), "ratio": 0.0}
                    row["trained"] = 10
                    seed_rows.append(place | row)
                    seed_rows.append(place | row | {"initialisation": 1, "mu": 99.0})
                of = place | {"target": "position", "method": "none"}
                effect_rows += [
                    of | {"metric": metric, "effect": float(effects_H[head])}
                    for metric in ("loss", "accuracy", "margin")
                ]
    tables = runs.tables()
    return replace(
        tables,
        seeds=pl.DataFrame(seed_rows, schema={**KEY, **SEEDS}),
        effects=pl.DataFrame(effect_rows, schema={**KEY, **EFFECTS}),
    )


def test_untrained_seeds_are_no_last_ones(study: StudyOf) -> None:
    """A run of which no later step was recorded has none to tell of its end."""
    drawn = (lambda rng, layer: rng.normal(size=HEADS), lambda rng, layer, mu_H: mu_H)
    for steps, told in (((0,), {0}), ((0, 5), {0, 5}), ((0, 10), {0, 10, LAST})):
        assert {*foresight_over_seeds(made(study, *drawn, steps=steps))["step"]} == told


def test_seeds_that_foretell_everything(study: StudyOf) -> None:
    """|mu| ranks as the effects do; mu, whose signs are mixed, does not."""
    signs_H = np.array([-1, 1, -1, 1, -1, 1])
    tables = made(
        study,
        lambda rng, layer: signs_H * rng.permutation(np.arange(1.0, HEADS + 1)),
        lambda rng, layer, mu_H: np.abs(mu_H) ** 2,
    )
    rows = foresight(tables)
    assert rows.schema == {**KEY, **FORESIGHT}
    assert rows.height == 3 * 2 * 2 * 2 * 3  # runs, steps, measures, metrics, layers and the model
    sizes = rows.filter(measure="|mu|")
    np.testing.assert_allclose(sizes["agreement"], 1)
    within = sizes.filter(pl.col("layer") >= 0)
    assert within["hit"].all()
    assert set(within["chance"]) == {1 / HEADS}
    assert max(within["p"]) < 0.01
    assert rows.filter(measure="mu")["agreement"].max() < 1
    assert rows.filter(pl.col("final"))["step"].unique().to_list() == [10]

    joined = foresight_over_seeds(tables)
    assert joined.schema == OVER_SEEDS
    assert set(joined["step"]) == {-1, 0, 10}
    for row in joined.filter(pl.col("layer") >= 0, measure="|mu|").iter_rows(named=True):
        assert (row["runs"], row["hits"]) == (3, 3)
        assert row["expected"] == pytest.approx(3 / HEADS)
        assert row["agreement"] == pytest.approx(1)
        assert row["p"] == pytest.approx(1 / (HEAD_PERMUTATIONS + 1))
        assert row["hit_p"] == pytest.approx(1 / HEADS**3, abs=0.005)


def test_agreement_is_spearmans(study: StudyOf) -> None:
    tables = made(
        study,
        lambda rng, layer: rng.normal(size=HEADS),
        lambda rng, layer, mu_H: mu_H + rng.normal(size=HEADS).round(),
    )
    for row in foresight(tables).iter_rows(named=True):
        of = {"seed": row["seed"]} | ({"layer": row["layer"]} if row["layer"] >= 0 else {})
        mu_K = tables.seeds.filter(**of, step=0, initialisation=0)["mu"].to_numpy()
        effects_K = tables.effects.filter(**of, metric="loss")["effect"].to_numpy()
        mu_K = np.abs(mu_K) if row["measure"] == "|mu|" else mu_K
        assert row["agreement"] == pytest.approx(spearmanr(mu_K, effects_K).statistic)
        assert row["hit"] == (mu_K.argmax() == effects_K.argmax())


def test_seeds_that_foretell_nothing(study: StudyOf) -> None:
    """p is uniform, hits are a matter of chance: 60 runs of one seed, 4 standard errors."""
    tables = made(
        study,
        lambda rng, layer: rng.normal(size=HEADS),
        lambda rng, layer, mu_H: rng.normal(size=HEADS),
        seeds=60,
        steps=(0,),
    )
    rows = foresight(tables).filter(pl.col("layer") >= 0, measure="|mu|", metric="loss")
    assert 0.35 < rows["p"].mean() < 0.65
    assert 0.0 < rows["hit"].mean() < 0.31
    joined = foresight_over_seeds(tables).filter(step=0, metric="loss")
    assert joined["p"].min() > 0.001
    assert joined["runs"].unique().to_list() == [60]


def test_layers_alone_agree_over_the_model_and_not_within(study: StudyOf) -> None:
    tables = made(
        study,
        lambda rng, layer: 10 * (1 - layer) + rng.random(HEADS),
        lambda rng, layer, mu_H: 10 * (1 - layer) + rng.random(HEADS),
        steps=(0,),
    )
    joined = foresight_over_seeds(tables).filter(step=0, metric="loss", measure="mu")
    whole, *within = joined.sort("layer").iter_rows(named=True)
    assert (whole["layer"], [row["layer"] for row in within]) == (-1, [0, 1])
    assert whole["agreement"] > 0.6
    assert whole["p"] < 0.01
    assert all(row["p"] > 0.01 for row in within)


def test_heads_without_seeds_and_runs_without_effects_are_left_out(study: StudyOf) -> None:
    tables = made(study, lambda rng, _: rng.random(HEADS), lambda rng, _, mu_H: mu_H, seeds=1)
    undefined = pl.when(pl.col("head") > 1).then(float("nan")).otherwise(pl.col("ratio"))
    few = replace(tables, seeds=tables.seeds.with_columns(ratio=undefined))
    rows = foresight(few)
    assert set(rows.filter(pl.col("layer") >= 0)["heads"]) == {2}
    assert rows.filter(pl.col("layer") >= 0)["agreement"].is_nan().all()
    assert rows.filter(pl.col("layer") >= 0)["p"].is_nan().all()
    assert foresight(replace(tables, effects=tables.effects.clear())).is_empty()
    assert foresight(replace(tables, seeds=tables.seeds.clear())).is_empty()
    assert foresight_over_seeds(replace(tables, seeds=tables.seeds.clear())).is_empty()
