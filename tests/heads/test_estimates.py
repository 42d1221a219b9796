"""The table of effects: signs, families, columns."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from poslens.errors import InputError
from poslens.heads.estimates import Measured, effect_rows, estimate
from poslens.heads.intervals import holm, paired_accuracy
from poslens.results import EFFECTS

LAYERS, HEADS, SEQUENCES = 2, 3, 600


def measured(metric: str) -> Measured:
    """Layer 1 head 2 costs 100 of 600 answers, or 0.5 nats; no other head does anything."""
    generator = np.random.default_rng(0)
    if metric == "accuracy":
        intact_N = np.arange(SEQUENCES) < 540
        heads_AHN = np.tile(intact_N, (LAYERS, HEADS, 1))
        heads_AHN[1, 2, :100] = False
        layers_AN = np.zeros((LAYERS, SEQUENCES), bool)
    else:
        intact_N = generator.exponential(size=SEQUENCES)
        heads_AHN = np.tile(intact_N, (LAYERS, HEADS, 1))
        heads_AHN[1, 2] += 0.5 + generator.normal(size=SEQUENCES)
        layers_AN = np.tile(intact_N + 2, (LAYERS, 1))
    return Measured(metric, intact_N, heads_AHN, layers_AN)


@pytest.mark.parametrize(("metric", "effect"), [("accuracy", 100 / 600), ("loss", 0.5)])
def test_rows_hold_harm_as_positive_effects(metric: str, effect: float) -> None:
    rows = effect_rows(estimate(measured(metric)))
    table = pl.DataFrame(rows, schema=EFFECTS)
    assert rows[0].keys() == EFFECTS.keys()
    assert table["head"].to_list() == [-1, 0, 1, 2] * LAYERS
    assert table["layer"].to_list() == [0] * 4 + [1] * 4
    assert set(table["sequences"]) == {SEQUENCES}
    harmful = table.filter((pl.col("holm_low") > 0) & (pl.col("head") >= 0))
    assert harmful.select("layer", "head").rows() == [(1, 2)]
    assert harmful["effect"][0] == pytest.approx(effect, abs=0.1 if metric == "loss" else 1e-12)
    assert (table["holm_low"] <= table["low"]).all()
    assert (table["low"] <= table["effect"]).all()
    assert (table["effect"] <= table["high"]).all()
    whole = table.filter(pl.col("head") == -1)["effect"].to_list()
    assert whole == pytest.approx([0.9, 0.9] if metric == "accuracy" else [2.0, 2.0])


def test_holm_compares_all_heads_of_the_model_and_layers_apart() -> None:
    answers = measured("accuracy")
    answers.heads_AHN[0, 0, 100:105] = False
    answers.heads_AHN[0, 1, 100:108] = False
    heads = estimate(answers).heads
    rejected, _ = holm(heads.p.ravel())
    np.testing.assert_array_equal(heads.harmful.ravel(), rejected)
    # Five of five against a family of six: significant alone (p 0.025), not in the family.
    assert heads.low[0, 0] > 0 > heads.holm_low[0, 0]
    assert heads.harmful[0, 1]  # eight of eight: p 0.0047 against 0.05 / 5


@pytest.mark.parametrize("metric", ["accuracy", "loss", "margin"])
def test_the_whole_model_has_a_row_and_an_interval_of_its_own(metric: str) -> None:
    without = measured(metric)
    whole_N = without.layers_AN[0].copy()
    whole_N[:60] = without.intact_N[:60]
    answers = replace(without, model_N=whole_N)
    alone, rows = effect_rows(estimate(without)), effect_rows(estimate(answers))
    row = rows[0]
    assert (row["layer"], row["head"]) == (-1, -1)
    for name in ("effect", "low", "high", "p", "holm_low", "holm_high"):  # of all other rows
        assert [row[name] for row in rows[1:]] == pytest.approx([row[name] for row in alone])
    sign = 1 if metric == "loss" else -1
    rise_N = whole_N.astype(float) - without.intact_N.astype(float)
    assert row["effect"] == pytest.approx(sign * rise_N.mean())
    assert (row["low"], row["high"]) == (row["holm_low"], row["holm_high"])
    if metric == "accuracy":
        expected = paired_accuracy(without.intact_N, whole_N[None])
        assert (row["low"], row["high"]) == (expected.low[0], expected.high[0])


def test_rows_carry_the_numbers_of_what_was_measured() -> None:
    some = replace(measured("accuracy"), layers=(2, 5), heads=(0, 3, 4))
    rows = effect_rows(estimate(some))
    assert [(row["layer"], row["head"]) for row in rows] == [
        (layer, head) for layer in (2, 5) for head in (-1, 0, 3, 4)
    ]
    with pytest.raises(InputError, match="of 2 layers of 3 heads, but 1 layers and 3 heads have"):
        replace(some, layers=(2,))


def test_shapes_that_do_not_fit_are_named() -> None:
    answers = measured("accuracy")
    with pytest.raises(InputError, match=r"accuracy has shapes \(600,\) intact, \(2, 3, 600\)"):
        Measured("accuracy", answers.intact_N, answers.heads_AHN, answers.layers_AN[:1])
