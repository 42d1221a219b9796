"""What all claims share: missing runs, pairing by seed, joining seeds, still improving."""

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from poslens.claims import CLAIMS, LEDGER, ledger, ledger_rows
from poslens.claims.base import Cell, join, still_improving

StudyOf = Callable[[], Any]


@pytest.mark.parametrize(
    ("outcomes", "improving", "verdict", "direction"),
    [
        (["passes"] * 3, False, "reproduced", ""),
        (["fails"] * 3, False, "contradicted", ""),
        (["passes", "fails", "passes"], False, "mixed", ""),
        (["passes", "fails", "undecided"], False, "mixed", ""),
        (["passes", "passes", "undecided"], False, "inconclusive", "reproduced"),
        (["fails", "undecided", "undecided"], False, "inconclusive", "contradicted"),
        (["undecided"] * 3, False, "inconclusive", ""),
        (["passes"], False, "inconclusive", "reproduced"),
        (["fails", "fails"], False, "inconclusive", "contradicted"),
        (["passes", "fails"], False, "inconclusive", ""),
        (["passes"] * 3, True, "inconclusive", "reproduced"),
        (["fails"] * 4, True, "inconclusive", "contradicted"),
        (["passes", "fails", "passes"], True, "inconclusive", ""),
    ],
)
def test_seeds_join_to_a_verdict(
    outcomes: list[Any], improving: bool, verdict: str, direction: str
) -> None:
    found = join(outcomes, [(Cell("mla", "distance"), 1)] if improving else [])
    assert found[:2] == (verdict, direction)
    assert ("MLA on distance (seed 1)" in found[2]) == improving


def test_nothing_run_is_not_run(study: StudyOf) -> None:
    verdicts = ledger(study().tables())
    assert [it.claim for it in verdicts] == [claim.id for claim in CLAIMS]
    assert {it.verdict for it in verdicts} == {"not run"}
    assert all(it.numbers == it.budget == "" for it in verdicts)


def test_missing_runs_are_named(study: StudyOf) -> None:
    runs = study().run("alibi").run("rope", verdict=None).run("rope@1")
    assert runs.verdict("C2").reason == "There are no runs of NoPE on distance."
    assert runs.verdict("C4").reason == "There are no ablated runs of RoPE on distance."
    assert runs.verdict("C6 (k = 1)").verdict == "inconclusive"
    assert runs.verdict("C6 (k = 2)").verdict == "not run"
    assert "RoPE on 2 heads on distance" in runs.verdict("C6 (k = 2)").reason


def test_seeds_are_paired(study: StudyOf) -> None:
    runs = study()
    for seed in (0, 1, 2):
        runs.run("alibi", seed=seed, accuracy=0.21)
    for seed in (1, 2, 3):
        runs.run("nope", seed=seed, accuracy=0.21)
    verdict = runs.verdict("C2")
    assert [result.seed for result in verdict.seeds] == [1, 2]
    assert verdict.label == "inconclusive, leaning reproduced"
    assert "left out: 0 and 3" in verdict.reason
    assert verdict.budget == "2 seeds, up to 96,000 training sequences a run"
    apart = study().run("alibi", seed=0).run("nope", seed=1).verdict("C2")
    assert apart.verdict == "not run"
    assert apart.reason == "No seed has all of ALiBi on distance and NoPE on distance."


@pytest.mark.parametrize(
    ("curve", "solved", "improving"),
    [
        ([0.5] * 20, False, False),
        ([0.5] * 18 + [0.52, 0.52], False, True),
        ([0.5] * 18 + [0.52, 0.52], True, False),
        ([0.5] * 18 + [0.509, 0.509], False, False),
        ([0.5] * 19 + [0.53], False, True),  # means of two: 0.515 against 0.5
        ([0.2] * 16 + [0.9] * 4, False, False),  # only the last two tenths are compared
        ([0.9, 0.5], False, False),
        ([0.5, 0.9], False, True),
        ([0.9], False, True),
        ([], False, True),
        ([0.9], True, False),
    ],
)
def test_still_improving(study: StudyOf, curve: list[float], solved: bool, improving: bool) -> None:
    tables = study().run("rope", seed=5, curve=curve, solved=solved).run("rope", seed=6).tables()
    assert still_improving(tables, Cell("rope", "distance"), 5) == improving


def test_a_scheme_still_improving_withholds_the_verdict(study: StudyOf) -> None:
    runs = study()
    for seed in range(3):
        rising = [0.1] * 18 + [0.2, 0.21]
        runs.run("alibi", seed=seed, accuracy=0.21)
        runs.run("nope", seed=seed, accuracy=0.21, curve=rising if seed == 1 else None)
    verdict = runs.verdict("C2")
    assert (verdict.verdict, verdict.direction) == ("inconclusive", "reproduced")
    assert "NoPE on distance (seed 1)" in verdict.reason


def test_rows_fit_their_schema_and_json(study: StudyOf) -> None:
    runs = study()
    for seed in range(3):
        runs.run("rope", seed=seed, verdict="deposit", largest=0.6 + seed / 100)
    rows = ledger_rows(ledger(runs.tables()))
    frame = pl.DataFrame(rows, schema=LEDGER)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert list(rows[0]) == list(LEDGER)
    (row,) = frame.filter(pl.col("claim") == "C4").rows(named=True)
    assert row["verdict"] == "reproduced"
    assert row["seeds"] == [0, 1, 2]
    assert row["outcomes"] == ["passes"] * 3
    assert {"seed": 2, "name": "largest effect", "value": 0.62} in row["numbers"]
    assert (
        runs.verdict("C4").numbers == "largest effect 0.600 / 0.610 / 0.620; "
        "second 0.020 / 0.020 / 0.020"
    )
