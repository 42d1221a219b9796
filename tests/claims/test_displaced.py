"""C8 on hand-made tables, every way it can turn out."""

from collections.abc import Callable
from typing import Any

import pytest

StudyOf = Callable[[], Any]


def probed(
    study: Any, with_rope: tuple[float, ...], alone: tuple[float, ...], seeds: int = 3, **run: Any
) -> Any:
    for seed in range(seeds):
        study.run("sinusoidal+rope", seed=seed, cos2=with_rope, **run)
        study.run("sinusoidal", seed=seed, cos2=alone, **run)
    return study


@pytest.mark.parametrize(
    ("with_rope", "alone", "outcome"),
    [
        ((0.9, 0.7, 0.4), (0.9, 0.8, 0.6), "passes"),
        ((0.9, 0.7, 0.4, 0.49), (0.9, 0.8, 0.6, 0.51), "passes"),
        ((0.1, 0.1, 0.51), (0.9, 0.8, 0.6), "fails"),  # displaced early, and back again
        ((0.9, 0.7, 0.4, 0.51), (0.9, 0.8, 0.6, 0.6), "fails"),  # one state is not
        ((0.9, 0.7, 0.4), (0.9, 0.8, 0.49), "fails"),  # nor is the table alone where it was
        ((0.9, 0.7, 0.5), (0.9, 0.8, 0.6), "fails"),
        ((0.9, 0.7, 0.4), (0.9, 0.4, 0.6), "passes"),  # after two layers nothing is asked
        ((0.9, 0.4), (0.9, 0.8), "undecided"),
    ],
)
def test_the_rule(
    study: StudyOf, with_rope: tuple[float, ...], alone: tuple[float, ...], outcome: str
) -> None:
    verdict = probed(study(), with_rope, alone).verdict("C8")
    assert [it.outcome for it in verdict.seeds] == [outcome] * 3
    expected = {"passes": "reproduced", "fails": "contradicted", "undecided": "inconclusive"}
    assert verdict.verdict == expected[outcome]


def test_numbers_are_those_nearest_to_the_line(study: StudyOf) -> None:
    verdict = probed(study(), (0.9, 0.7, 0.3, 0.4), (0.9, 0.8, 0.7, 0.6), seeds=1).verdict("C8")
    assert verdict.numbers == "Sinusoidal + RoPE, largest 0.400; Sinusoidal, smallest 0.600"
    assert "at most 0.400 in Sinusoidal + RoPE and at least 0.600 in Sinusoidal" in verdict.reason
    assert "0.250 a random one" in verdict.reason


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({"accuracy": 0.49}, "Sinusoidal + RoPE has not learned the task"),
        ({"above_noise": 7}, "in Sinusoidal not all of the subspace stands out from noise"),
        ({"dimensions": 16, "above_noise": 20}, "in Sinusoidal a random subspace would be as near"),
    ],
)
def test_what_cannot_be_told_is_undecided(study: StudyOf, run: dict[str, Any], words: str) -> None:
    verdict = probed(study(), (0.9, 0.7, 0.4), (0.9, 0.8, 0.6), **run).verdict("C8")
    assert verdict.label == "inconclusive, undecided"
    assert words in verdict.reason
    two = probed(study(), (0.9, 0.4), (0.9, 0.8)).verdict("C8")
    assert "Sinusoidal + RoPE and Sinusoidal: no more than 2 layers" in two.reason


def test_runs_that_were_not_probed_are_no_evidence(study: StudyOf) -> None:
    runs = study()
    for seed in range(3):
        runs.run("sinusoidal+rope", seed=seed, cos2=(0.9, 0.7, 0.4)).run("sinusoidal", seed=seed)
    verdict = runs.verdict("C8")
    assert verdict.verdict == "not run"
    assert verdict.reason == "There are no runs of Sinusoidal on distance with subspaces."
