"""Claims on accuracy: C1, C2, C3 and C6."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from scipy.special import ndtri

from poslens.claims.base import Cell, Claim, Judgement, Row, Runs, all_of
from poslens.claims.words import listed, percent, points, title

ERROR_LEVEL = 0.95  # of the two-sample interval that an order of two accuracies must leave 0
NEAR_CEILING = 0.01  # distance from the ceiling within which a tie is called one at the ceiling
FAILING = 0.05  # C2: accuracy above the length-only baseline, at most
KEPT = 0.95  # C6: share of all-heads accuracy, at least
LEARNED = 0.3  # C6: all-heads accuracy above the baseline, below which a share means nothing

# The schemes the study ranks. RoPE on some heads and RoPE with a table are RoPE themselves.
RANKED = ("nope", "sinusoidal", "learned", "t5", "alibi", "rope", "mla")


class Difference(NamedTuple):
    """Accuracy of one run minus that of another, and the half-width of its interval."""

    value: float
    error: float

    @property
    def above(self) -> bool | None:
        """Whether the first is above the second; None within error."""
        return None if abs(self.value) <= self.error else self.value > 0


def difference(first: Row, second: Row) -> Difference:
    """Difference of two runs' accuracies on held-out sequences, with a two-sample interval.

    The half-width is that of Agresti and Caffo (2000), The American Statistician 54, 280-288: one
    right and one wrong answer are added to each run, so that two runs without a fault still have
    an error. Runs of a seed share their held-out sequences; treating them as independent makes the
    interval too wide rather than too narrow.
    """
    variance = 0.0
    for row in (first, second):
        rate = (row["accuracy"] * row["evaluated"] + 1) / (row["evaluated"] + 2)
        variance += rate * (1 - rate) / (row["evaluated"] + 2)
    z = float(-ndtri((1 - ERROR_LEVEL) / 2))
    return Difference(first["accuracy"] - second["accuracy"], z * math.sqrt(variance))


class Order(NamedTuple):
    """How two cells compare: whether as claimed (None within error), where, and in words."""

    held: bool | None
    at_ceiling: bool
    words: str


def order(low: Cell, high: Cell, runs: Runs) -> Order:
    """Whether `high` is above `low` beyond error."""
    row, other = runs.summary[high], runs.summary[low]
    found = difference(row, other)
    ceiling = row["ceiling"] - NEAR_CEILING
    at_ceiling = min(row["accuracy"], other["accuracy"]) >= ceiling
    names = f"{title(high.scheme)} ({percent(row['accuracy'], 2)})"
    against = f"{title(low.scheme)} ({percent(other['accuracy'], 2)})"
    gap = f"by {points(abs(found.value), 2)}, error {100 * found.error:.2f}"
    if found.above is None:
        return Order(None, at_ceiling, f"{names} and {against} ({gap})")
    side = "above" if found.above else "below"
    return Order(found.above, at_ceiling, f"{names} is {side} {against} {gap}")


def judge_orders(pairs: Sequence[tuple[Cell, Cell]], runs: Runs) -> Judgement:
    """Every `high` above its `low`: fails if one is reversed, undecided if one is level."""
    orders = [order(low, high, runs) for low, high in pairs]
    cells = dict.fromkeys(cell for pair in pairs for cell in reversed(pair))
    numbers = {title(cell.scheme): runs.summary[cell]["accuracy"] for cell in cells}
    level = [it for it in orders if it.held is None]
    groups = {
        "": [it.words for it in orders if it.held is False],
        "level within error: ": [it.words for it in level if not it.at_ceiling],
        "level within error at the ceiling, where this task does not tell them apart: ": [
            it.words for it in level if it.at_ceiling
        ],
    }
    kept = sum(it.held is True for it in orders)
    words = [f"{kept} of {len(orders)} comparisons come out as claimed"]
    words += [name + ", ".join(found) for name, found in groups.items() if found]
    return Judgement(all_of(it.held for it in orders), numbers, f"{'; '.join(words)}.")


def judge_failing(cells: tuple[Cell, ...], runs: Runs) -> Judgement:
    """No scheme is more than `FAILING` above the length-only baseline."""
    numbers, within, found = {}, [], []
    for cell in cells:
        row = runs.summary[cell]
        excess = row["accuracy"] - row["baseline"]
        numbers[title(cell.scheme)] = row["accuracy"]
        within.append(excess <= FAILING)
        side = "above" if excess > 0 else "below"
        found.append(
            f"{title(cell.scheme)} ({percent(row['accuracy'])}) is {points(abs(excess))} {side}"
        )
    numbers["baseline"] = row["baseline"]
    words = f"{listed(found)} the length-only baseline ({percent(row['baseline'])})."
    return Judgement(all_of(within), numbers, words)


def judge_kept(some: Cell, whole: Cell, runs: Runs) -> Judgement:
    """RoPE on some heads keeps `KEPT` of the accuracy of RoPE on all."""
    part, all_heads = runs.summary[some], runs.summary[whole]
    numbers = {title(cell.scheme): runs.summary[cell]["accuracy"] for cell in (some, whole)}
    if all_heads["accuracy"] - all_heads["baseline"] < LEARNED:
        words = f"{title(whole.scheme)} itself has not learned the task, so nothing can be kept."
        return Judgement("undecided", numbers, words)
    share = part["accuracy"] / all_heads["accuracy"]
    numbers["share kept"] = share
    words = (
        f"{title(some.scheme)} keeps {percent(share)} of the accuracy of {title(whole.scheme)} "
        f"({percent(part['accuracy'])} of {percent(all_heads['accuracy'])})."
    )
    return Judgement("passes" if share >= KEPT else "fails", numbers, words)


def _on(task: str, *schemes: str) -> tuple[Cell, ...]:
    return tuple(Cell(scheme, task) for scheme in schemes)


_ROPE = Cell("rope", "distance")
_C1_ORDERS = tuple((cell, _ROPE) for cell in _on("distance", *RANKED) if cell != _ROPE)

C1 = Claim(
    id="C1",
    statement="RoPE is best on the distance task.",
    statistic="held-out accuracy of RoPE minus that of each other scheme, paired by seed",
    rule=(
        "A seed passes if RoPE is above NoPE, sinusoidal, learned, T5 bias, ALiBi and MLA, each "
        f"time by more than the {ERROR_LEVEL:.0%} error of the difference; it fails if RoPE is "
        "below one of them by more than that; otherwise it is undecided."
    ),
    paper="RoPE 92.64 %, MLA 88.34 %, absolute tables next",
    cells=_on("distance", *RANKED),
    judge=lambda runs: judge_orders(_C1_ORDERS, runs),
)

_C2_CELLS = _on("distance", "alibi", "nope")

C2 = Claim(
    id="C2",
    statement="ALiBi and NoPE fail the distance task.",
    statistic="held-out accuracy minus the length-only baseline",
    rule=(
        f"A seed passes if both are at most {FAILING:.2f} above the length-only baseline; "
        "otherwise it fails."
    ),
    paper="no figure given",
    cells=_C2_CELLS,
    judge=lambda runs: judge_failing(_C2_CELLS, runs),
)

_COUNT = {scheme: Cell(scheme, "count") for scheme in RANKED}
_C3_ORDERS = (
    (_COUNT["rope"], _COUNT["nope"]),
    (_COUNT["nope"], _COUNT["mla"]),
    *((_COUNT["alibi"], cell) for scheme, cell in _COUNT.items() if scheme != "alibi"),
)

C3 = Claim(
    id="C3",
    statement="On the count task RoPE is weak, NoPE better, MLA near the top, ALiBi worst.",
    statistic="differences of held-out accuracy, paired by seed",
    rule=(
        "A seed passes if RoPE < NoPE < MLA and ALiBi is below NoPE, sinusoidal, learned, T5 bias, "
        f"RoPE and MLA, each time by more than the {ERROR_LEVEL:.0%} error of the difference; it "
        "fails if one of these orders is reversed by more than that; otherwise it is undecided."
    ),
    paper="RoPE 69.43 %, NoPE 77.69 %, MLA 97.41 %, absolute tables between",
    cells=tuple(_COUNT.values()),
    judge=lambda runs: judge_orders(_C3_ORDERS, runs),
)


def kept_by(heads: int, paper: str) -> Claim:
    """C6 for RoPE on the first `heads` heads."""
    some = Cell(f"rope@{heads}", "distance")
    return Claim(
        id=f"C6 (k = {heads})",
        statement=f"{title(some.scheme)}, the others NoPE, does about as well on distance as RoPE.",
        statistic=f"held-out accuracy of {some.scheme} divided by that of rope, paired by seed",
        rule=(
            f"A seed passes if the share is at least {KEPT:.2f}, and fails below it; it is "
            f"undecided if RoPE on all heads is less than {LEARNED:.1f} above the length-only "
            "baseline."
        ),
        paper=paper,
        cells=(some, _ROPE),
        judge=lambda runs: judge_kept(some, _ROPE, runs),
    )


C6_1 = kept_by(1, "about 90 % on one head, 92.64 % on all")
C6_2 = kept_by(2, "above 90 % on two heads, 92.64 % on all")
