"""Users' predictions: what a file may say, and how seeds are judged."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poslens.claims import Verdict
from poslens.claims.predictions import claim, read_predictions
from poslens.errors import InputError

PAGE = (Path(__file__).parents[2] / "docs" / "definitions.md").read_text()
SECTION = PAGE.split("## Your own predictions\n")[1]

ACCURACY = {"id": "it", "claim": "So it is.", "metric": "accuracy", "scheme": "rope"}
ACCURACY |= {"task": "distance"}
LARGEST = ACCURACY | {"metric": "largest effect", "layer": 0}


def verdict(study: Any, *, base: dict[str, Any] = ACCURACY, **entry: Any) -> Verdict:
    (prediction,) = read_predictions({"prediction": [base | entry]}, "mine.toml")
    return claim(prediction).verdict(study.tables())


def outcome(study: Any, *, base: dict[str, Any] = ACCURACY, **entry: Any) -> str:
    """Of a study of one seed."""
    (result,) = verdict(study, base=base, **entry).seeds
    return result.outcome


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ({"above": 0.9}, "passes"),
        ({"above": 0.9375}, "fails"),  # equal is not above
        ({"above": 0.95}, "fails"),
        ({"below": 0.95}, "passes"),
        ({"below": 0.9375}, "fails"),
        ({"below": 0.9}, "fails"),
    ],
)
def test_against_a_number_as_measured(
    study: Callable, bound: dict[str, Any], expected: str
) -> None:
    assert outcome(study().run("rope", accuracy=0.9375), **bound) == expected


# 4096 sequences: the error of the difference is about 0.014 here.
@pytest.mark.parametrize(
    ("other", "by", "expected"),
    [
        (0.80, 0.05, "passes"),
        (0.80, 0.09, "undecided"),
        (0.80, 0.11, "undecided"),
        (0.80, 0.12, "fails"),
        (0.90, 0.0, "undecided"),
        (0.95, 0.0, "fails"),
    ],
)
def test_accuracies_differ_beyond_error_and_margin(
    study: Callable, other: float, by: float, expected: str
) -> None:
    made = study().run("rope", accuracy=0.9).run("alibi", accuracy=other)
    assert outcome(made, above={"scheme": "alibi", "by": by}) == expected
    swapped = ACCURACY | {"scheme": "alibi"}
    assert outcome(made, base=swapped, below={"scheme": "rope", "by": by}) == expected
    excess = {"metric": "excess", "above": {"scheme": "alibi", "by": by}}
    assert outcome(made, **excess) == expected


def test_excess_is_above_the_baseline(study: Callable) -> None:
    made = study().run("rope", accuracy=0.9)  # the baseline is 0.2
    assert outcome(made, metric="excess", above=0.69) == "passes"
    assert outcome(made, metric="excess", above=0.71) == "fails"
    made.run("rope", task="count", accuracy=0.9)  # the baseline is 0.03
    count = ACCURACY | {"metric": "excess", "task": "count"}
    assert outcome(made, base=count, above={"task": "distance", "by": 0.15}) == "passes"


def test_losses_are_compared_as_measured(study: Callable) -> None:
    made = study().run("rope").run("alibi")
    for row, loss in zip(made.summary, (0.5, 0.53), strict=True):
        row["loss"] = loss
    assert outcome(made, metric="loss", below={"scheme": "alibi", "by": 0.02}) == "passes"
    assert outcome(made, metric="loss", below={"scheme": "alibi", "by": 0.04}) == "fails"
    assert outcome(made, metric="loss", below=0.5) == "fails"


@pytest.mark.parametrize(
    ("rope", "alibi", "expected"),
    [
        ((1000, True), (2000, True), "passes"),
        ((2000, True), (1000, True), "fails"),
        ((1000, True), (2000, False), "passes"),  # ALiBi needs more than 2000
        ((3000, True), (2000, False), "undecided"),  # by how many more is not known
        ((2000, False), (1000, True), "fails"),
        ((1000, False), (2000, True), "undecided"),
        ((2000, False), (2000, False), "undecided"),
    ],
)
def test_sequences_of_an_unsolved_run_have_no_upper_bound(
    study: Callable, rope: tuple[int, bool], alibi: tuple[int, bool], expected: str
) -> None:
    made = study().run("rope", solved=rope[1]).run("alibi", solved=alibi[1])
    for row, (sequences, _) in zip(made.summary, (rope, alibi), strict=True):
        row["sequences"] = sequences
    assert outcome(made, metric="sequences", below={"scheme": "alibi"}) == expected


def test_an_unsolved_run_and_a_number_of_sequences(study: Callable) -> None:
    made = study().run("rope")
    made.summary[0]["sequences"] = 1000
    assert outcome(made, metric="sequences", above=900) == "passes"
    assert outcome(made, metric="sequences", above=1100) == "undecided"
    assert outcome(made, metric="sequences", below=900) == "fails"
    assert outcome(made, metric="sequences", below=1100) == "undecided"
    (result,) = verdict(made, metric="sequences", above=900).seeds
    assert "more than 1,000 (not solved) for RoPE on distance" in result.words


def test_effects_of_one_layer(study: Callable) -> None:
    made = study().run("rope", largest=0.3).run("alibi", largest=0.1)
    made.concentration[2]["largest"] = 0.7  # RoPE, layer 1, on accuracy
    assert outcome(made, base=LARGEST, below=0.45) == "passes"
    assert outcome(made, base=LARGEST, layer=1, below=0.45) == "fails"
    assert outcome(made, base=LARGEST, above={"scheme": "alibi", "by": 0.15}) == "passes"
    assert outcome(made, base=LARGEST, above={"scheme": "alibi", "by": 0.25}) == "fails"
    assert outcome(made, base=LARGEST, below={"layer": 1, "by": 0.3}) == "passes"
    assert outcome(made, base=LARGEST, metric="second effect", below=0.03) == "passes"
    names = verdict(made, base=LARGEST, below={"layer": 1}).seeds[0].numbers
    assert names == {"RoPE on distance, layer 0": 0.3, "RoPE on distance, layer 1": 0.7}


def test_effects_of_position_are_another_target(study: Callable) -> None:
    made = study().run("rope", largest=0.3).run("nope", verdict="undecidable")
    base = LARGEST | {"target": "position"}
    assert verdict(made, base=base, above=0.2).reason.startswith("There are no ablated runs of")
    for row in [*made.concentration]:
        told = {"target": "position", "method": "none", "largest": 0.6}
        made.concentration.append(row | told)
        if row["scheme"] == "nope":
            made.concentration[-1]["verdict"] = "undefined"
    assert outcome(made, base=base, above=0.5) == "passes"
    assert outcome(made, base=LARGEST, above=0.5) == "fails"
    assert outcome(made, base=base, above={"target": "head", "by": 0.2}) == "passes"
    judged = verdict(made, base=base, above={"target": "head"})
    assert judged.statistic == (
        "largest effect of RoPE on distance, layer 0, position and of RoPE on distance, layer 0, "
        "paired by seed"
    )
    (result,) = verdict(made, base=base, scheme="nope", above=0.1).seeds
    assert result.outcome == "undecided"
    assert result.words == (
        "There is no position in the attention of NoPE on distance, layer 0, position: undefined."
    )
    assert outcome(made, base=base, scheme="nope", metric="verdict", equals="undefined") == "passes"


@pytest.mark.parametrize(
    ("metric", "column"),
    [
        ("layer effect", "lost"),
        ("top share", "top_share"),
        ("effective heads", "effective_heads"),
        ("deposit index", "deposit_index"),
    ],
)
def test_other_metrics_of_a_layer(study: Callable, metric: str, column: str) -> None:
    made = study().run("rope")
    made.concentration[0][column] = 0.625
    assert outcome(made, base=LARGEST, metric=metric, above=0.6) == "passes"
    made.concentration[0][column] = math.nan
    (result,) = verdict(made, base=LARGEST, metric=metric, above=0.6).seeds
    assert result.outcome == "undecided"
    assert "not defined where no head counts" in result.words


def test_a_verdict_is_or_is_not_a_word(study: Callable) -> None:
    base = LARGEST | {"metric": "verdict"}
    made = study().run("rope", verdict="deposit", above="spread")
    assert outcome(made, base=base, equals="deposit") == "passes"
    assert outcome(made, base=base, equals="weak deposit") == "fails"
    assert outcome(made, base=base, differs="deposit") == "fails"
    assert outcome(made, base=base, layer=1, differs="deposit") == "passes"


def test_where_there_is_nothing_to_lose_nothing_is_decided(study: Callable) -> None:
    made = study().run("rope", verdict="undecidable").run("alibi")
    assert outcome(made, base=LARGEST, below=0.9) == "undecided"
    alibi = LARGEST | {"scheme": "alibi"}
    assert outcome(made, base=alibi, below={"scheme": "rope"}) == "undecided"
    word = LARGEST | {"metric": "verdict"}
    assert outcome(made, base=word, differs="deposit") == "undecided"
    assert outcome(made, base=word, equals="undecidable") == "passes"


def test_seeds_are_joined_as_in_the_ledger(study: Callable) -> None:
    made = study()
    for seed, other in enumerate((0.5, 0.6, 0.7)):
        made.run("rope", seed=seed).run("alibi", seed=seed, accuracy=other)
    found = verdict(made, above={"scheme": "alibi", "by": 0.1})
    assert found.verdict == "reproduced"
    assert found.claim == "it"
    assert found.statement == "So it is."
    assert verdict(made, below={"scheme": "alibi"}).verdict == "contradicted"
    assert verdict(made, above={"scheme": "alibi", "by": 0.3}).verdict == "mixed"
    assert verdict(made, above={"scheme": "mla"}).verdict == "not run"
    made.run("rope", seed=3, curve=[0.1, 0.9]).run("alibi", seed=3, accuracy=0.5)
    found = verdict(made, above={"scheme": "alibi", "by": 0.1})
    assert found.label == "inconclusive, leaning reproduced"
    assert "Still improving" in found.reason
    without_ablation = study().run("rope", verdict=None)
    assert verdict(without_ablation, base=LARGEST, below=0.5).reason == (
        "There are no ablated runs of RoPE on distance."
    )


def test_the_rule_in_words(study: Callable) -> None:
    assert verdict(study(), above=0.9).rule == (
        "A seed passes if the accuracy of RoPE on distance is above 0.9, and fails otherwise."
    )
    found = verdict(study(), base=LARGEST, below={"scheme": "rope@1", "task": "count", "by": 0.1})
    assert found.statistic == (
        "largest effect of RoPE on distance, layer 0 and of RoPE on 1 head on count, layer 0, "
        "paired by seed"
    )
    assert found.rule == (
        "A seed passes if the largest effect of RoPE on distance, layer 0 is below that of "
        "RoPE on 1 head on count, layer 0 by more than 0.1; it is undecided if the layer's "
        "verdict is undecidable; else it fails."
    )


def test_a_layer_that_runs_lack_is_bad_input(study: Callable) -> None:
    words = "a prediction is on RoPE on distance, layer 2, but these runs have layers 0 to 1"
    with pytest.raises(InputError, match=words):
        verdict(study().run("rope"), base=LARGEST, layer=2, below=0.5)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"metric": "acuracy", "above": 1}, "has metric 'acuracy'; use one of: accuracy, loss, ex"),
        ({"metric": ["loss"], "above": 1}, "has metric ['loss']; use one of: "),
        ({"above": 0.9, "schem": "x"}, "has no setting 'schem'; it has: scheme"),
        ({"above": 0.9, "scheme": 3}, "prediction 1.scheme is 3; it takes a value of type str"),
        ({}, "has no comparison; give one of: above, below, equals, differs"),
        ({"above": 0.1, "below": 0.9}, "has both above and below; give one of"),
        ({"above": "much"}, "above is 'much'; it takes a value of type float"),
        ({"above": True}, "above is True; it takes a value of type float"),
        ({"above": math.nan}, "above is nan; use a finite number"),
        ({"above": {"by": -0.1, "task": "count"}}, "has by = -0.1; use a number from 0"),
        ({"above": {"by": math.inf, "task": "count"}}, "has by = inf; use a number from 0"),
        ({"above": {"schema": "alibi"}}, "prediction 1, above has no setting 'schema'"),
        ({"above": {"by": 0.1}}, "compares RoPE on distance with itself; name another"),
        ({"above": {"scheme": "rope"}}, "compares RoPE on distance with itself"),
        ({"above": 0.9, "layer": 0}, "has a layer, but accuracy is the whole run's; leave it out"),
        ({"above": {"scheme": "mla", "layer": 1}}, "has a layer, but accuracy is the whole run's"),
        ({"above": 0.9, "target": "position"}, "has a target, but accuracy is the whole run's"),
        ({"metric": "top share", "above": 0.9}, "needs a layer, which top share is of; the first"),
        ({"metric": "top share", "above": 0.9, "layer": -1}, "has layer -1; layers count from 0"),
        ({"metric": "top share", "above": 0.9, "layer": "first"}, "layer is 'first'; it takes a"),
        ({"equals": "deposit"}, "compares accuracy by 'equals'; use above or below"),
        (
            {"metric": "verdict", "layer": 0, "above": 0.9},
            "compares verdict by 'above'; use equals or differs",
        ),
        (
            {"metric": "verdict", "layer": 0, "equals": "deposits"},
            "has equals = 'deposits'; use deposit, weak deposit, spread, none, undecidable and",
        ),
        ({"above": 0.9, "claim": " "}, "has an empty claim"),
        ({"above": 0.9, "id": ""}, "has an empty id"),
    ],
)
def test_bad_predictions_are_named(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_predictions({"prediction": [ACCURACY | entry]}, "mine.toml")
    assert words in str(caught.value)
    assert str(caught.value).startswith("mine.toml: prediction 1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "mine.toml holds no predictions; add a table [[prediction]]"),
        ({"prediction": {"id": "a"}}, "holds no predictions"),
        ({"prediction": []}, "holds no predictions"),
        ({"prediction": ["a"]}, "prediction 1 is 'a'; write a table [[prediction]]"),
        ({"prediction": [ACCURACY | {"above": 1}], "id": "x"}, "has 'id' outside its predictions"),
        ({"prediction": [ACCURACY | {"above": 1}] * 2}, "uses the id 'it' twice"),
        ({"prediction": [{"id": "it", "above": 1}]}, "prediction 1 needs 'claim'; add it"),
    ],
)
def test_bad_files_are_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_predictions(values, "mine.toml")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "word",
    [
        *("accuracy", "loss", "excess", "sequences", "largest effect", "second effect"),
        *("layer effect", "top share", "effective heads", "deposit index", "verdict"),
        *("above", "below", "equals", "differs", "by"),
    ],
)
def test_every_metric_and_comparison_is_explained(word: str) -> None:
    assert f"`{word}`" in SECTION
