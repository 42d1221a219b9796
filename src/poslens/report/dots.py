"""Numbers of a claim as dots: one for each seed, on an axis that all numbers of the claim share."""

import math
from dataclasses import dataclass
from statistics import fmean

from poslens.claims import Verdict
from poslens.claims.accuracy import FAILING, KEPT
from poslens.claims.deposit import LARGEST
from poslens.claims.displaced import DISPLACED
from poslens.claims.seeds import SEED_SIZE
from poslens.report.style import number

LEAST_SPAN = 2  # tenths
BASELINE = "baseline"


@dataclass(frozen=True)
class Dot:
    """One seed: `where` on the axis as CSS has it, its outcome, and both in words."""

    where: str
    outcome: str
    words: str


@dataclass(frozen=True)
class Number:
    """A number of a claim: its text and dots, and where the rule's threshold lies, if anywhere.

    What others are held against (a baseline) has no dots.
    """

    name: str
    text: str
    dots: list[Dot]
    limit: str


@dataclass(frozen=True)
class Strips:
    """All numbers of a claim, what the ends of their axis are, and the threshold in words."""

    numbers: list[Number]
    ends: tuple[str, str]
    limit: str


def strips(verdict: Verdict) -> Strips:
    """The numbers behind a verdict; empty where there are none."""
    names = list(dict.fromkeys(name for result in verdict.seeds for name in result.numbers))
    limits = {name: threshold(verdict, name) for name in names}
    found = [value for result in verdict.seeds for value in result.numbers.values()]
    marked = [value for value, _ in limits.values()]
    low, high = axis_ends([value for value in [*found, *marked] if math.isfinite(value)])

    def place(value: float) -> str:
        return f"{100 * (value - low) / (high - low):.2f}%" if math.isfinite(value) else ""

    numbers = []
    for name in names:
        dots = [
            Dot(place(value), it.outcome, f"seed {it.seed}: {number(value, 3)}, {it.outcome}")
            for it in verdict.seeds
            for value in [it.numbers.get(name, math.nan)]
            if math.isfinite(value) and name != BASELINE
        ]
        text = " / ".join(number(it.numbers.get(name), 3) for it in verdict.seeds)
        numbers.append(Number(name, text, dots, place(limits[name][0])))
    words = next((words for _, words in limits.values() if words), "")
    return Strips(numbers, (number(low, 1), number(high, 1)), words)


def threshold(verdict: Verdict, name: str) -> tuple[float, str]:
    """What the claim's rule holds the number against, and that in words; NaN where nothing.

    Orders of accuracies (C1, C3) and verdicts on layers (C5, C7) have no one number.
    """
    if verdict.claim == "C4" and name == "largest effect":
        return LARGEST, f"Line: at least {LARGEST:.2f}"
    if verdict.claim.startswith("C6") and name == "share kept":
        return KEPT, f"Line: at least {KEPT:.2f}"
    if verdict.claim == "C8":
        return DISPLACED, f"Line: {DISPLACED:.2f}"
    if verdict.claim == "C2" and name != BASELINE:
        baseline = fmean(result.numbers[BASELINE] for result in verdict.seeds)
        return baseline + FAILING, f"Line: at most baseline + {FAILING:.2f}"
    if verdict.claim == "P6.1" and name == "mu/sigma, lower bound":
        return SEED_SIZE, f"Line: above {SEED_SIZE:.2f}"
    if verdict.claim == "P6.2" and name == "|mu|/sigma, upper bound":
        return SEED_SIZE, f"Line: below {SEED_SIZE:.2f}"
    if verdict.claim == "T6.1" and name == "lower bound":
        return 1.0, "Line: above 1"
    return math.nan, ""


def axis_ends(values: list[float]) -> tuple[float, float]:
    """Tenths that enclose the values, `LEAST_SPAN` apart at least; 0 to 1 for none."""
    if not values:
        return 0.0, 1.0
    # Rounded first, so that 0.3 as computed does not fall just outside of 0.3.
    low = math.floor(round(10 * min(values), 6))
    high = math.ceil(round(10 * max(values), 6))
    while high - low < LEAST_SPAN:
        low, high = (low - 1, high) if high >= 10 else (low, high + 1)
    return low / 10, high / 10
