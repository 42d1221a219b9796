"""Claims on gradient seeds and their margins: P6.1, P6.2 and T6.1, as this project reads them.

The study's propositions and theorem are known to it by their statements alone.
"""

from poslens.claims.base import Cell, Claim, Judgement, Row, Runs, all_of
from poslens.claims.words import listed

LEAST_EXAMPLES = 65_536  # behind every seed that is judged
SEED_SIZE = 0.05  # of mu / sigma: above it there is a seed, below it none worth the name

_ROPE = Cell("rope", "distance")
_ALIBI = Cell("alibi", "distance")


def judge_a_seed(runs: Runs) -> Judgement:
    """P6.1: some head's mu / sigma lies surely above `SEED_SIZE`."""
    rows, few = _initial(runs, _ROPE)
    if not rows:
        return Judgement("undecided", {}, f"No seeds at initialisation in {_ROPE.words}.")
    largest = max(rows, key=lambda row: row["ratio_low"])
    highest = max(row["ratio_high"] for row in rows)
    numbers = {"mu/sigma, lower bound": largest["ratio_low"], "measured": largest["ratio"]}
    words = (
        f"In {_ROPE.words} at initialisation, the surest seed is that of {_name(largest)}: "
        f"mu/sigma {largest['ratio']:.3f}, at least {largest['ratio_low']:.3f}."
    )
    if few:
        return Judgement("undecided", numbers, f"{words} {few}")
    if largest["ratio_low"] > SEED_SIZE:
        return Judgement("passes", numbers, words)
    if highest < SEED_SIZE:
        return Judgement("fails", numbers, f"{words} No head's exceeds {highest:.3f}.")
    return Judgement("undecided", numbers, f"{words} Another may be as large as {highest:.3f}.")


def judge_no_seed(runs: Runs) -> Judgement:
    """P6.2: every head's |mu| / sigma lies surely below `SEED_SIZE`."""
    rows, few = _initial(runs, _ALIBI)
    if not rows:
        return Judgement("undecided", {}, f"No seeds at initialisation in {_ALIBI.words}.")
    largest = max(rows, key=_upper)
    surest = max(_lower(row) for row in rows)
    numbers = {"|mu|/sigma, upper bound": _upper(largest), "measured": abs(largest["ratio"])}
    words = (
        f"In {_ALIBI.words} at initialisation, |mu|/sigma may be largest in {_name(largest)}: "
        f"{abs(largest['ratio']):.3f}, at most {_upper(largest):.3f}."
    )
    if few:
        return Judgement("undecided", numbers, f"{words} {few}")
    if _upper(largest) < SEED_SIZE:
        return Judgement("passes", numbers, words)
    if surest > SEED_SIZE:
        return Judgement("fails", numbers, f"{words} Some head's is at least {surest:.3f}.")
    return Judgement("undecided", numbers, words)


def judge_growing(runs: Runs) -> Judgement:
    """T6.1: every gamma lies surely above 1, at every step that was recorded."""
    rows = [row for row in runs.measured["margins"][_ROPE] if row["initialisation"] == 0]
    last = max(row["layer"] for row in rows)
    judged = [row for row in rows if row["layer"] < last]
    steps = sorted({row["step"] for row in rows})
    if not judged:
        return Judgement("undecided", {}, "A model of one layer has no gamma.")
    parts = [_above_one(row) for row in judged]
    defined = [row for row in judged if row["gamma"] == row["gamma"]]
    above, below = (sum(part is told for part in parts) for told in (True, False))
    words = (
        f"Of {len(parts)} gammas of {_ROPE.words} (layers 0 to {last - 1}, steps "
        f"{listed(map(str, steps))}), {above} are surely above 1 and {below} surely below."
    )
    numbers: dict[str, float] = {}
    if defined:
        least = min(defined, key=lambda row: row["gamma"])
        numbers = {"smallest gamma": least["gamma"], "lower bound": least["gamma_low"]}
        words += (
            f" The smallest is {least['gamma']:.2f} ({least['gamma_low']:.2f} to "
            f"{least['gamma_high']:.2f}), in layer {least['layer']} at step {least['step']}."
        )
    reasons = dict.fromkeys(row["reason"] for row in judged if row["reason"])
    words += "".join(f" Undefined: {reason}." for reason in reasons)
    few = _few(judged)
    return Judgement(all_of(parts), numbers, f"{words} {few}" if few else words)


def _above_one(row: Row) -> bool | None:
    """Whether gamma is surely above 1 or surely below; None where neither can be said."""
    if row["examples"] < LEAST_EXAMPLES or row["gamma"] != row["gamma"]:
        return None
    if row["gamma_low"] > 1:
        return True
    return False if row["gamma_high"] < 1 else None


def _initial(runs: Runs, cell: Cell) -> tuple[list[Row], str]:
    """The heads' seeds at the run's own initialisation, and what to say of too few examples."""
    rows = [
        row
        for row in runs.measured["seeds"][cell]
        if row["step"] == row["initialisation"] == 0 and row["ratio"] == row["ratio"]
    ]
    return rows, _few(rows)


def _few(rows: list[Row]) -> str:
    fewest = min((row["examples"] for row in rows), default=0)
    if fewest >= LEAST_EXAMPLES:
        return ""
    return f"{fewest:,} examples are fewer than the {LEAST_EXAMPLES:,} that the rule asks for."


def _upper(row: Row) -> float:
    return max(float(row["ratio_high"]), -float(row["ratio_low"]))


def _lower(row: Row) -> float:
    return max(float(row["ratio_low"]), -float(row["ratio_high"]))


def _name(row: Row) -> str:
    return f"layer {row['layer']}, head {row['head']}"


P6_1 = Claim(
    id="P6.1",
    statement="RoPE gives some head a positive gradient seed with a lower bound.",
    statistic="mu/sigma of every head's seed at initialisation, with its interval",
    rule=(
        f"A seed passes if the lower bound of mu/sigma of some head is above {SEED_SIZE:.2f}, and "
        f"fails if the upper bounds of all heads are below it; otherwise, or with fewer than "
        f"{LEAST_EXAMPLES:,} examples, it is undecided."
    ),
    paper="no figure given",
    cells=(_ROPE,),
    judge=judge_a_seed,
    measured=("seeds",),
    trained=False,
)

P6_2 = Claim(
    id="P6.2",
    statement="ALiBi's gradient seed cancels when the batch is aggregated.",
    statistic="|mu|/sigma of every head's seed at initialisation, with its interval",
    rule=(
        f"A seed passes if the upper bound of |mu|/sigma of every head is below {SEED_SIZE:.2f}, "
        f"and fails if the lower bound of some head's is above it; otherwise, or with fewer than "
        f"{LEAST_EXAMPLES:,} examples, it is undecided."
    ),
    paper="no figure given",
    cells=(_ALIBI,),
    judge=judge_no_seed,
    measured=("seeds",),
    trained=False,
)

T6_1 = Claim(
    id="T6.1",
    statement="In RoPE the lead of the strongest seed grows on the way down to the input.",
    statistic="gamma, a layer's margin over that of the layer above, at every recorded step",
    rule=(
        "A seed passes if the interval of gamma lies above 1 in every layer at every step, and "
        "fails if it lies below 1 in one; otherwise it is undecided, as are steps with fewer than "
        f"{LEAST_EXAMPLES:,} examples."
    ),
    paper="every gamma above 1; no figure given",
    cells=(_ROPE,),
    judge=judge_growing,
    measured=("margins",),
)
