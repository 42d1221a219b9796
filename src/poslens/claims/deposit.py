"""Claims on the single-head deposit: C4, C5 and C7."""

from poslens.claims.base import Cell, Claim, Judgement, Row, Runs
from poslens.claims.words import listed, points, title

FIRST_LAYER = 0  # the layer these claims are about
LARGEST = 0.45  # C4: fall in accuracy of the largest first-layer head, at least

_ROPE = Cell("rope", "distance")
_MLA = Cell("mla", "distance")
# Every scheme without RoPE on distance, and all of these and RoPE on count. MLA has C7; RoPE on
# one head is a deposit by construction, and RoPE with a table is what the study ran as RoPE.
_WITHOUT_ROPE = ("nope", "sinusoidal", "learned", "t5", "alibi")
_ELSEWHERE = (
    *(Cell(scheme, "distance") for scheme in _WITHOUT_ROPE),
    *(Cell(scheme, "count") for scheme in (*_WITHOUT_ROPE, "rope")),
)


def judge_deposit(cell: Cell, runs: Runs) -> Judgement:
    """The largest first-layer effect reaches `LARGEST`, and the layer's verdict is *deposit*."""
    row = _first(runs, cell)
    numbers = {"largest effect": row["largest"], "second": row["second"]}
    words = (
        f"In {cell.words}, ablating head {row['top_head']} of the first layer costs "
        f"{points(row['largest'])} of accuracy, the next head {points(row['second'])}: "
        f"the layer's verdict is {row['verdict']}."
    )
    if row["verdict"] == "undecidable":
        return Judgement("undecided", numbers, words)
    passes = row["largest"] >= LARGEST and row["verdict"] == "deposit"
    return Judgement("passes" if passes else "fails", numbers, words)


def judge_no_deposit(cells: tuple[Cell, ...], runs: Runs) -> Judgement:
    """No first layer of `cells` has the verdict *deposit*, among those decidable."""
    verdicts = {cell: _first(runs, cell)["verdict"] for cell in cells}
    numbers = {
        f"{cell.words}, largest effect": _first(runs, cell)["largest"]
        for cell, verdict in verdicts.items()
        if verdict != "undecidable"
    }
    words = _by_verdict(verdicts)
    above = [
        f"{cell.words} (layer {row['layer']})"
        for cell in cells
        for row in runs.layers["head"][cell]
        if row["verdict"] == "deposit" and row["layer"] != FIRST_LAYER
    ]
    if above:
        words += f" Deposits in higher layers, which this rule leaves aside: {listed(above)}."
    if not numbers:
        return Judgement("undecided", numbers, words)
    return Judgement("fails" if "deposit" in verdicts.values() else "passes", numbers, words)


def judge_nowhere_else(runs: Runs) -> Judgement:
    """C5's rule, and a warning where there is no deposit in RoPE either."""
    judgement = judge_no_deposit(_ELSEWHERE, runs)
    if _ROPE in runs.layers["head"] and _first(runs, _ROPE)["verdict"] != "deposit":
        words = f"{judgement.words} RoPE on distance has no deposit here either."
        return judgement._replace(words=words)
    return judgement


def _first(runs: Runs, cell: Cell) -> Row:
    return next(row for row in runs.layers["head"][cell] if row["layer"] == FIRST_LAYER)


def _by_verdict(verdicts: dict[Cell, str]) -> str:
    """The first-layer verdicts and the cells that got them, a sentence each."""
    sentences = []
    for verdict in dict.fromkeys(verdicts.values()):
        tasks: dict[str, list[str]] = {}
        for cell in (cell for cell, found in verdicts.items() if found == verdict):
            tasks.setdefault(cell.task, []).append(title(cell.scheme))
        where = "; ".join(f"{listed(schemes)} on {task}" for task, schemes in tasks.items())
        sentences.append(f"First layer {verdict}: {where}.")
    return " ".join(sentences)


C4 = Claim(
    id="C4",
    statement="Single-head deposit: one first-layer head carries RoPE's accuracy on distance.",
    statistic="fall in accuracy when the first layer's largest head is zeroed, and the verdict",
    rule=(
        f"A seed passes if the largest first-layer effect is at least {LARGEST:.2f} and the "
        "layer's verdict is deposit; it is undecided if the verdict is undecidable; otherwise it "
        "fails."
    ),
    paper="about 60 points, the other heads almost nothing",
    cells=(_ROPE,),
    judge=lambda runs: judge_deposit(_ROPE, runs),
    ablated=("head",),
)

C5 = Claim(
    id="C5",
    statement="The deposit appears only for RoPE on distance: not for NoPE, not on count.",
    statistic="first-layer verdicts of NoPE, sinusoidal, learned, T5 bias and ALiBi on distance, "
    "and of these and RoPE on count",
    rule=(
        "A seed passes if no first layer among those decidable has the verdict deposit, and fails "
        "if one has; it is undecided if none is decidable."
    ),
    paper="no figure given",
    cells=_ELSEWHERE,
    judge=judge_nowhere_else,
    ablated=("head",),
)

C7 = Claim(
    id="C7",
    statement="MLA shows no deposit on distance.",
    statistic="first-layer verdict of MLA",
    rule=(
        "A seed passes if the verdict is not deposit, and fails if it is; it is undecided if the "
        "verdict is undecidable."
    ),
    paper="no figure given",
    cells=(_MLA,),
    judge=lambda runs: judge_no_deposit((_MLA,), runs),
    ablated=("head",),
)
