"""C4, C5 and C7 on hand-made tables, every way they can turn out."""

from collections.abc import Callable
from typing import Any

import pytest

StudyOf = Callable[[], Any]
WITHOUT_ROPE = ("nope", "sinusoidal", "learned", "t5", "alibi")


@pytest.mark.parametrize(
    ("first", "largest", "outcome"),
    [
        ("deposit", 0.45, "passes"),
        ("deposit", 0.44, "fails"),
        ("weak deposit", 0.6, "fails"),
        ("spread", 0.87, "fails"),
        ("none", 0.0, "fails"),
        ("undecidable", 0.1, "undecided"),
    ],
)
def test_deposit_of_rope(study: StudyOf, first: str, largest: float, outcome: str) -> None:
    runs = study()
    for seed in range(3):
        runs.run("rope", seed=seed, verdict=first, largest=largest, above="deposit")
    found = runs.verdict("C4")
    assert {result.outcome for result in found.seeds} == {outcome}
    expected = {"passes": "reproduced", "fails": "contradicted", "undecided": "inconclusive"}
    assert found.verdict == expected[outcome]
    assert f"verdict is {first}" in found.reason


def elsewhere(study: Any, **verdicts: str) -> Any:
    """All cells of C5, three seeds; NoPE on distance is undecidable, as it is at its baseline."""
    found = {"nope_distance": "undecidable", **verdicts}
    for seed in range(3):
        for scheme in WITHOUT_ROPE:
            for task in ("distance", "count"):
                study.run(scheme, task, seed, verdict=found.get(f"{scheme}_{task}", "spread"))
        study.run("rope", "count", seed, verdict=found.get("rope_count", "spread"))
        study.run("rope", "distance", seed, verdict=found.get("rope_distance", "deposit"))
    return study


def test_no_deposit_elsewhere(study: StudyOf) -> None:
    found = elsewhere(study()).verdict("C5")
    assert found.verdict == "reproduced"
    assert "First layer undecidable: NoPE on distance." in found.reason
    assert "RoPE on distance has no deposit" not in found.reason
    assert "NoPE on distance" not in found.numbers  # nothing was measurable there
    assert "RoPE on count, largest effect 0.300" in found.numbers


@pytest.mark.parametrize("cell", ["rope_count", "nope_count", "t5_distance"])
def test_a_deposit_elsewhere_contradicts(study: StudyOf, cell: str) -> None:
    assert elsewhere(study(), **{cell: "deposit"}).verdict("C5").verdict == "contradicted"
    assert elsewhere(study(), **{cell: "weak deposit"}).verdict("C5").verdict == "reproduced"


def test_without_a_deposit_in_rope_itself_the_reason_says_so(study: StudyOf) -> None:
    found = elsewhere(study(), rope_distance="spread").verdict("C5")
    assert found.verdict == "reproduced"
    assert "RoPE on distance has no deposit here either." in found.reason


def test_nothing_decidable_is_undecided(study: StudyOf) -> None:
    every = {f"{s}_{t}": "undecidable" for s in WITHOUT_ROPE for t in ("distance", "count")}
    found = elsewhere(study(), **every, rope_count="undecidable").verdict("C5")
    assert found.label == "inconclusive, undecided"


@pytest.mark.parametrize(
    ("first", "verdict"),
    [
        ("spread", "reproduced"),
        ("weak deposit", "reproduced"),
        ("none", "reproduced"),
        ("deposit", "contradicted"),
        ("undecidable", "inconclusive"),
    ],
)
def test_no_deposit_in_latent_attention(study: StudyOf, first: str, verdict: str) -> None:
    runs = study()
    for seed in range(3):
        runs.run("mla", seed=seed, verdict=first)
    assert runs.verdict("C7").verdict == verdict


def test_deposits_above_the_first_layer_are_told(study: StudyOf) -> None:
    found = study().run("mla", verdict="spread", above="deposit").verdict("C7")
    assert found.label == "inconclusive, leaning reproduced"
    assert "MLA on distance (layer 1)" in found.reason
