"""C1, C2, C3 and C6 on hand-made tables, every way they can turn out."""

from collections.abc import Callable
from typing import Any

import pytest

from poslens.claims.accuracy import difference

StudyOf = Callable[[], Any]
DISTANCE = {
    "nope": 0.22,
    "sinusoidal": 0.9,
    "learned": 0.8,
    "t5": 0.7,
    "alibi": 0.22,
    "rope": 0.97,
    "mla": 0.93,
}
COUNT = {
    "nope": 0.78,
    "sinusoidal": 0.75,
    "learned": 0.75,
    "t5": 0.75,
    "alibi": 0.5,
    "rope": 0.69,
    "mla": 0.97,
}


def grid(study: Any, task: str, accuracies: dict[str, float], seeds: int = 3) -> Any:
    for seed in range(seeds):
        for scheme, accuracy in accuracies.items():
            study.run(scheme, task, seed, accuracy)
    return study


def outcomes(verdict: Any) -> list[str]:
    return [result.outcome for result in verdict.seeds]


@pytest.mark.parametrize(
    ("claim", "task", "accuracies", "changed", "verdict", "words"),
    [
        ("C1", "distance", DISTANCE, {}, "reproduced", "6 of 6 comparisons come out"),
        ("C1", "distance", DISTANCE, {"mla": 0.99}, "contradicted", "RoPE (97.00 %) is below MLA"),
        ("C1", "distance", DISTANCE, {"mla": 0.965}, "inconclusive", "level within error"),
        ("C1", "distance", DISTANCE, {"mla": 0.965, "t5": 0.99}, "contradicted", "below T5 bias"),
        ("C2", "distance", DISTANCE, {}, "reproduced", "is 2.0 points above"),
        ("C2", "distance", DISTANCE, {"alibi": 0.249}, "reproduced", "4.9 points above"),
        ("C2", "distance", DISTANCE, {"alibi": 0.251}, "contradicted", "5.1 points above"),
        ("C2", "distance", DISTANCE, {"nope": 0.1}, "reproduced", "10.0 points below"),
        ("C3", "count", COUNT, {}, "reproduced", "8 of 8 comparisons come out"),
        ("C3", "count", COUNT, {"rope": 0.85}, "contradicted", "NoPE (78.00 %) is below RoPE"),
        ("C3", "count", COUNT, {"alibi": 0.72}, "contradicted", "RoPE (69.00 %) is below ALiBi"),
        ("C3", "count", COUNT, {"rope": 0.775}, "inconclusive", "level within error"),
    ],
)
def test_rules(
    study: StudyOf,
    claim: str,
    task: str,
    accuracies: dict[str, float],
    changed: dict[str, float],
    verdict: str,
    words: str,
) -> None:
    found = grid(study(), task, {**accuracies, **changed}).verdict(claim)
    assert found.verdict == verdict
    assert found.direction == ""
    assert words in found.reason


def test_seeds_that_differ_are_mixed(study: StudyOf) -> None:
    runs = grid(study(), "distance", DISTANCE, seeds=2)
    for scheme, accuracy in {**DISTANCE, "rope": 0.6}.items():
        runs.run(scheme, "distance", 2, accuracy)
    found = runs.verdict("C1")
    assert found.verdict == "mixed"
    assert outcomes(found) == ["passes", "passes", "fails"]
    assert found.reason.endswith("2 of 3 seeds pass, 1 fail.")
    assert "RoPE 0.970 / 0.970 / 0.600" in found.numbers


def test_schemes_that_share_the_ceiling_are_not_told_apart(study: StudyOf) -> None:
    perfect = {**DISTANCE, "rope": 1.0, "sinusoidal": 1.0}
    found = grid(study(), "distance", perfect).verdict("C1")
    assert outcomes(found) == ["undecided"] * 3
    assert found.label == "inconclusive, undecided"
    assert "at the ceiling, where this task does not tell them apart: RoPE" in found.reason


def test_one_seed_leans(study: StudyOf) -> None:
    found = grid(study(), "distance", DISTANCE, seeds=1).verdict("C1")
    assert found.label == "inconclusive, leaning reproduced"
    assert "1 seed is fewer than the 3 a verdict needs" in found.reason
    assert found.budget == "1 seed, up to 96,000 training sequences a run"


def test_rope_variants_are_no_rivals_of_rope(study: StudyOf) -> None:
    better = {**DISTANCE, "sinusoidal+rope": 1.0, "rope@1": 1.0}
    assert grid(study(), "distance", better).verdict("C1").verdict == "reproduced"


@pytest.mark.parametrize(
    ("part", "whole", "verdict", "outcome"),
    [
        (0.9, 0.94, "reproduced", "passes"),
        (0.89, 0.94, "contradicted", "fails"),
        (0.45, 0.46, "inconclusive", "undecided"),
    ],
)
@pytest.mark.parametrize("heads", [1, 2])
def test_rope_on_some_heads(
    study: StudyOf, heads: int, part: float, whole: float, verdict: str, outcome: str
) -> None:
    runs = grid(study(), "distance", {f"rope@{heads}": part, "rope": whole})
    found = runs.verdict(f"C6 (k = {heads})")
    assert found.verdict == verdict
    assert outcomes(found) == [outcome] * 3


def test_error_of_a_difference() -> None:
    """Agresti and Caffo's example shape: 7 of 10 against 3 of 10 at 95 %."""
    found = difference({"accuracy": 0.7, "evaluated": 10}, {"accuracy": 0.3, "evaluated": 10})
    expected = 1.959964 * (2 * (8 / 12) * (4 / 12) / 12) ** 0.5
    assert found.value == pytest.approx(0.4)
    assert found.error == pytest.approx(expected, rel=1e-5)
    assert found.above is True
    faultless = {"accuracy": 1.0, "evaluated": 4096}
    assert 0 < difference(faultless, faultless).error < 0.001
    assert difference(faultless, faultless).above is None
