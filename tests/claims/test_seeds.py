"""P6.1, P6.2 and T6.1 on hand-made tables, every way they can turn out."""

from collections.abc import Callable
from typing import Any

import pytest

StudyOf = Callable[[], Any]
EXPECTED = {"passes": "reproduced", "fails": "contradicted", "undecided": "inconclusive"}
NAN = float("nan")


@pytest.mark.parametrize(
    ("ratios", "outcome"),
    [
        ([0.02, 0.061, -0.2], "passes"),
        ([0.02, 0.06, -0.2], "undecided"),  # the bound itself does not pass
        ([0.02, 0.045], "undecided"),
        ([0.02, 0.039, -0.5], "fails"),  # a negative one is no positive seed
        ([NAN, 0.07], "passes"),
    ],
)
def test_some_head_has_a_positive_seed(study: StudyOf, ratios: list[float], outcome: str) -> None:
    runs = study()
    for seed in range(3):
        runs.run("rope", seed=seed, curve=[0.1, 0.9]).seed("rope", seed, ratios)
        runs.seed("rope", seed, [0.9], initialisation=1).seed("rope", seed, [0.9], step=5)
    found = runs.verdict("P6.1")
    assert {result.outcome for result in found.seeds} == {outcome}
    assert found.verdict == EXPECTED[outcome]  # no training is judged: improving does not matter


@pytest.mark.parametrize(
    ("ratios", "outcome"),
    [
        ([0.0, 0.039, -0.039], "passes"),
        ([0.0, 0.04], "undecided"),
        ([0.0, -0.055], "undecided"),
        ([0.0, -0.061], "fails"),
        ([0.3], "fails"),
        ([NAN, 0.01], "passes"),
    ],
)
def test_no_head_has_a_seed(study: StudyOf, ratios: list[float], outcome: str) -> None:
    runs = study()
    for seed in range(3):
        runs.run("alibi", seed=seed).seed("alibi", seed, ratios)
    found = runs.verdict("P6.2")
    assert {result.outcome for result in found.seeds} == {outcome}
    assert found.verdict == EXPECTED[outcome]


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        ([[1.3, 1.5], [2.0, 1.21]], "passes"),
        ([[1.3, 1.5], [2.0, 1.2]], "undecided"),
        ([[1.3, 1.5], [2.0, NAN]], "undecided"),
        ([[1.3, 1.5], [0.8, 1.3]], "fails"),
        ([[NAN, 0.9], [0.8, 1.3]], "fails"),
        ([[]], "undecided"),  # one layer has no gamma
    ],
)
def test_margins_grow_on_the_way_down(
    study: StudyOf, steps: list[list[float]], outcome: str
) -> None:
    runs = study()
    for seed in range(3):
        runs.run("rope", seed=seed)
        for step, gammas in enumerate(steps):
            runs.gammas(seed, gammas, step=100 * step)
        runs.gammas(seed, [0.1, 0.1], initialisation=1)
    found = runs.verdict("T6.1")
    assert {result.outcome for result in found.seeds} == {outcome}
    assert found.verdict == EXPECTED[outcome]
    if steps != [[]]:
        told = "Of 4 gammas of RoPE on distance (layers 0 to 1, steps 0 and 100), "
        assert told in found.reason


def test_too_few_examples_decide_nothing(study: StudyOf) -> None:
    runs = study().run("rope").run("alibi")
    runs.seed("rope", 0, [0.9], examples=8192).seed("alibi", 0, [0.9], examples=8192)
    runs.gammas(0, [3.0], examples=8192)
    for claim in ("P6.1", "P6.2", "T6.1"):
        found = runs.verdict(claim)
        assert found.label == "inconclusive, undecided"
        assert "8,192 examples are fewer than the 65,536 that the rule asks for." in found.reason


def test_steps_of_few_examples_leave_open_what_others_do_not_refute(study: StudyOf) -> None:
    runs = study().run("rope").gammas(0, [2.0]).gammas(0, [0.5], step=9, examples=8192)
    assert runs.verdict("T6.1").label == "inconclusive, undecided"
    runs.gammas(0, [0.5], step=12)
    assert runs.verdict("T6.1").label == "inconclusive, leaning contradicted"


def test_undefined_gammas_are_told_with_their_reasons(study: StudyOf) -> None:
    reason = "no head leads in layer 1: its margin is not above 0"
    runs = study().run("rope").gammas(0, [NAN, 2.0], reason=reason)
    assert f"Undefined: {reason}." in runs.verdict("T6.1").reason


def test_without_the_tables_they_are_not_run(study: StudyOf) -> None:
    runs = study().run("rope").run("alibi")
    for claim, scheme, table in (
        *(("P6.1", "RoPE", "seeds"), ("P6.2", "ALiBi", "seeds")),
        ("T6.1", "RoPE", "margins"),
    ):
        found = runs.verdict(claim)
        assert found.verdict == "not run"
        assert found.reason == f"There are no runs of {scheme} on distance with {table}."
    runs.seed("rope", 0, [0.9])
    assert runs.verdict("P6.1").verdict == "inconclusive"


def test_seeds_at_other_steps_alone_decide_nothing_at_initialisation(study: StudyOf) -> None:
    runs = study().run("rope").seed("rope", 0, [0.9], step=5)
    assert runs.verdict("P6.1").label == "inconclusive, undecided"
