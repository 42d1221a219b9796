"""The document of definitions and the code cannot drift apart."""

import re
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from poslens.claims import (
    CLAIMS,
    accuracy,
    base,
    deposit,
    displaced,
    extrapolation,
    foresight,
    seeds,
)
from poslens.experiments import rates
from poslens.heads import concentration, intervals, position_part, set_tables, sets, stopping
from poslens.probing import probes, subspaces
from poslens.probing import tables as probing
from poslens.theory import falls, margins, tables
from poslens.theory import seeds as recording

TEXT = (Path(__file__).parents[2] / "docs" / "definitions.md").read_text("utf-8")
STATED = {
    name: float(Fraction(value)) for name, value in re.findall(r"`([A-Z_]+) = ([\d./]+)`", TEXT)
}
# Precision and memory of a computation, and marks in tables: they define nothing.
NOT_DEFINITIONS = {"BISECTIONS", "CHUNK", "BLOCK", "TOGETHER", "ON_GPU", "WHOLE_MODEL", "LAST"}


def constants(module: ModuleType) -> dict[str, float]:
    return {
        name: value
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int | float) and name not in NOT_DEFINITIONS
    }


MODULES = (
    *(intervals, concentration, stopping, sets, set_tables, base, accuracy, deposit, rates),
    *(extrapolation, foresight, displaced, seeds, probes, subspaces, probing),
    *(falls, margins, tables, recording, position_part),
)


@pytest.mark.parametrize("module", MODULES)
def test_every_threshold_is_stated_with_its_value(module: ModuleType) -> None:
    found = constants(module)
    assert found
    assert {name: STATED.get(name) for name in found} == pytest.approx(found)


def test_nothing_is_stated_that_the_code_lacks() -> None:
    assert set(STATED) == {name for module in MODULES for name in constants(module)}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_every_claim_stands_there_with_its_rule(claim: base.Claim) -> None:
    section = re.search(rf"^### {claim.id[:2]}$(.*?)(?=^### |\Z)", TEXT, re.M | re.S)
    assert section is not None
    assert claim.id in section[0]
    assert f"- Rule: {claim.rule}" in section[0]


@pytest.mark.parametrize(
    "word",
    [
        *("deposit", "weak deposit", "spread", "none", "undecidable"),
        *("reproduced", "contradicted", "mixed", "inconclusive", "not run"),
    ],
)
def test_every_verdict_is_defined(word: str) -> None:
    assert re.search(rf"^\| \*{word}\* \| ", TEXT, re.M)
