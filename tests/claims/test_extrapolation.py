"""Rank correlation against scipy's, and which runs it is over."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

from poslens.claims.extrapolation import CORRELATIONS, SCHEME_RESAMPLES, correlations, spearman
from poslens.results import KEY, LENGTHS


def test_it_is_spearmans() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=40).round(1)  # with ties
    y = x + generator.normal(size=40)
    apart = np.arange(40)
    value, low, high = spearman(x, y, apart)
    assert value == pytest.approx(spearmanr(x, y).statistic)
    assert low < value < high
    assert spearman(x, -x, apart)[0] == pytest.approx(-1)


def test_its_interval_covers() -> None:
    """Of a normal pair with correlation r, Spearman's is 6 / pi arcsin(r / 2)."""
    generator, r, hits = np.random.default_rng(1), 0.6, 0
    truth = 6 / math.pi * math.asin(r / 2)
    for seed in range(200):
        x, noise = generator.normal(size=(2, 30))
        _, low, high = spearman(x, r * x + math.sqrt(1 - r * r) * noise, np.arange(30), seed)
        hits += low <= truth <= high
    # A percentile interval at 30 pairs: nominal 95 %, 4 standard errors of 200 tries below 93 %.
    assert hits / 200 > 0.86


def test_too_few_and_constant_values_have_none() -> None:
    assert all(map(math.isnan, spearman(np.arange(4.0), np.arange(4.0), np.arange(4))))
    assert all(map(math.isnan, spearman(np.arange(9.0), np.arange(9.0), np.arange(9) % 4)))
    assert all(map(math.isnan, spearman(np.arange(9.0), np.ones(9), np.arange(9))))


def test_a_draw_has_all_runs_of_its_schemes() -> None:
    """The interval is that of rank correlations of whole schemes drawn, one draw at a time."""
    generator = np.random.default_rng(2)
    schemes = np.repeat(np.arange(8), 3)
    x = (generator.normal(size=8)[schemes] + generator.normal(size=24) / 4).round(1)
    y = (x + generator.normal(size=8)[schemes]).round(1)
    found = spearman(x, y, schemes, seed=3)
    drawn = np.random.default_rng(3).integers(0, 8, (SCHEME_RESAMPLES, 8))
    rows = [np.concatenate([np.flatnonzero(schemes == it) for it in draw]) for draw in drawn]
    plain = [spearmanr(x[row], y[row]).statistic for row in rows]
    assert found[1:] == pytest.approx(np.quantile(plain, [0.025, 0.975]))


def test_runs_that_are_undecidable_or_cannot_read_the_length_are_left_out(study: Callable) -> None:
    made = study()
    lengths = []
    for number, scheme in enumerate(("rope", "alibi", "t5", "learned", "mla", "nope", "rope@1")):
        verdict = "undecidable" if scheme == "nope" else "spread"
        made.run(scheme, verdict=verdict)
        for row in made.concentration[-4:]:
            row |= {"deposit_index": number / 10, "effective_heads": 8.0 - number}
        key = {"scheme": scheme, "task": "distance", "seed": 0}
        accuracy = math.nan if scheme == "learned" else 0.9 - number / 20
        lengths += [key | {"factor": f, "accuracy": accuracy} for f in (1, 2)]
    tables = replace(made.tables(), lengths=pl.DataFrame(lengths, schema={**KEY, **LENGTHS}))
    found = correlations(tables)
    assert found.schema == CORRELATIONS
    rows = {row["measure"]: row for row in found.iter_rows(named=True)}
    assert {row["factor"] for row in rows.values()} == {2}
    assert rows["deposit_index"]["runs"] == 5
    assert rows["deposit_index"]["correlation"] == pytest.approx(-1)
    assert rows["effective_heads"]["correlation"] == pytest.approx(1)
