"""The claim that RoPE turns position away from where a table put it: C8."""

from poslens.claims.accuracy import LEARNED
from poslens.claims.base import Cell, Claim, Judgement, Row, Runs, all_of
from poslens.claims.words import listed, title

DISPLACED = 0.5  # mean cos^2 with the input's position subspace, below which it is displaced
AFTER = 2  # layers: states after more than these are judged

_WITH_ROPE = Cell("sinusoidal+rope", "distance")
_ALONE = Cell("sinusoidal", "distance")
_CELLS = (_WITH_ROPE, _ALONE)


def judge_displaced(runs: Runs) -> Judgement:
    """After more than `AFTER` layers displaced in every state with RoPE, in none without."""
    late = {
        cell: [it for it in runs.measured["subspaces"][cell] if it["state"] > AFTER]
        for cell in _CELLS
    }
    if shallow := [cell for cell in _CELLS if not late[cell]]:
        names = listed(title(cell.scheme) for cell in shallow)
        return Judgement("undecided", {}, f"{names}: no more than {AFTER} layers to look at.")
    largest = max(row["mean_cos2"] for row in late[_WITH_ROPE])
    smallest = min(row["mean_cos2"] for row in late[_ALONE])
    numbers = {
        f"{title(_WITH_ROPE.scheme)}, largest": largest,
        f"{title(_ALONE.scheme)}, smallest": smallest,
    }
    words = (
        f"After more than {AFTER} layers, mean cos² with the input's position subspace is at most "
        f"{largest:.3f} in {title(_WITH_ROPE.scheme)} and at least {smallest:.3f} in "
        f"{title(_ALONE.scheme)} (1 is the same subspace, {late[_ALONE][-1]['null']:.3f} a random "
        "one)."
    )
    reasons = [reason for cell in _CELLS for reason in _open(cell, runs, late[cell])]
    if reasons:
        return Judgement("undecided", numbers, f"{words} But {listed(reasons)}.")
    return Judgement(all_of([largest < DISPLACED, smallest > DISPLACED]), numbers, words)


def _open(cell: Cell, runs: Runs, late: list[Row]) -> list[str]:
    """Why a run leaves the claim open."""
    name, summary, reasons = title(cell.scheme), runs.summary[cell], []
    if summary["accuracy"] - summary["baseline"] < LEARNED:
        reasons.append(f"{name} has not learned the task")
    if any(row["above_noise"] < row["dimensions"] for row in late):
        reasons.append(f"in {name} not all of the subspace stands out from noise")
    if any(row["null"] >= DISPLACED for row in late):
        reasons.append(f"in {name} a random subspace would be as near")
    return reasons


C8 = Claim(
    id="C8",
    statement="RoPE suppresses implicit position: with a table, the position direction is "
    "displaced after layer 2.",
    statistic="mean cos^2 of the principal angles between the position subspaces of a state and "
    "of the input, of sinusoidal+rope and of sinusoidal, paired by seed",
    rule=(
        f"A seed passes if in every state after more than {AFTER} layers the mean cos^2 is below "
        f"{DISPLACED:.2f} in sinusoidal+rope and above it in sinusoidal; it is undecided if a "
        f"model has no such state, is less than {LEARNED:.1f} above the length-only baseline, or "
        "has a subspace there that does not stand out from noise in every dimension, or could be a "
        "random one; otherwise it fails."
    ),
    paper="no figure given",
    cells=_CELLS,
    judge=judge_displaced,
    measured=("subspaces",),
)
