"""Numbers of claims as dots on the axis of their card."""

from dataclasses import replace
from pathlib import Path

import pytest

from poslens.claims import ledger
from poslens.claims.base import SeedResult, Verdict
from poslens.report.dots import axis_ends, strips
from poslens.results import read

C4 = Verdict(
    claim="C4",
    statement="One head.",
    statistic="effect",
    rule="At least 0.45.",
    paper="60 points",
    verdict="mixed",
    direction="",
    reason="",
    seeds=(
        SeedResult(0, "passes", {"largest effect": 0.6, "second": 0.1}, ""),
        SeedResult(1, "fails", {"largest effect": 0.3, "second": float("nan")}, ""),
    ),
)


def test_every_seed_is_a_dot_where_its_number_lies() -> None:
    found = strips(C4)
    largest, second = found.numbers
    assert found.ends == ("0.1", "0.6")
    assert [(dot.where, dot.outcome) for dot in largest.dots] == [
        ("100.00%", "passes"),
        ("40.00%", "fails"),
    ]
    assert largest.dots[1].words == "seed 1: 0.300, fails"
    assert (largest.text, second.text) == ("0.600 / 0.300", "0.100 / –")
    assert [dot.where for dot in second.dots] == ["0.00%"]


def test_the_threshold_is_a_line_on_the_number_it_is_for() -> None:
    largest, second = strips(C4).numbers
    assert (largest.limit, second.limit) == ("70.00%", "")
    assert strips(C4).limit == "Line: at least 0.45"


def test_a_threshold_above_the_baseline_moves_with_it() -> None:
    numbers = {"ALiBi": 0.9, "NoPE": 0.2, "baseline": 0.2}
    verdict = replace(C4, claim="C2", seeds=(SeedResult(0, "fails", numbers, ""),))
    alibi, nope, baseline = strips(verdict).numbers
    assert alibi.limit == nope.limit == f"{100 * 0.05 / 0.7:.2f}%"
    assert (baseline.limit, baseline.dots, baseline.text) == ("", [], "0.200")


@pytest.mark.parametrize(
    ("claim", "name", "words"),
    [
        ("P6.1", "mu/sigma, lower bound", "Line: above 0.05"),
        ("P6.2", "|mu|/sigma, upper bound", "Line: below 0.05"),
        ("T6.1", "lower bound", "Line: above 1"),
    ],
)
def test_claims_on_seeds_have_their_thresholds(
    standard: Path, claim: str, name: str, words: str
) -> None:
    (verdict,) = [it for it in ledger(read(standard)) if it.claim == claim]
    found = strips(verdict)
    assert found.limit == words
    assert [it.name for it in found.numbers if it.limit] == [name]


def test_every_dot_of_a_ledger_lies_on_its_axis(standard: Path) -> None:
    for verdict in ledger(read(standard)):
        for it in strips(verdict).numbers:
            places = [*(dot.where for dot in it.dots), *filter(None, [it.limit])]
            assert len(it.dots) == (0 if it.name == "baseline" else len(verdict.seeds))
            assert all(0 <= float(place.rstrip("%")) <= 100 for place in places)


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([], (0, 1)),
        ([0.3], (0.3, 0.5)),
        ([0.1 + 0.2, 0.6], (0.3, 0.6)),
        ([0.97, 0.99], (0.8, 1.0)),
        ([-0.004, 0.5], (-0.1, 0.5)),
        ([1.003], (0.9, 1.1)),
    ],
)
def test_axes_end_at_tenths(values: list[float], ends: tuple[float, float]) -> None:
    assert axis_ends(values) == pytest.approx(ends)
