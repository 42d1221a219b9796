"""The ledger as cards: a claim's verdict, the numbers behind it and the reason in words."""

from collections import Counter
from dataclasses import dataclass

from poslens.claims import Verdict
from poslens.claims.words import listed
from poslens.report.dots import Number, strips


@dataclass(frozen=True)
class Card:
    """`tone` is the class of its colours; `numbers`, `ends` and `limit` are as in `Strips`."""

    id: str
    tone: str
    badge: str
    statement: str
    reason: str
    by_seed: list[str]
    numbers: list[Number]
    ends: tuple[str, str]
    limit: str
    paper: str
    budget: str
    rule: str


def cards(verdicts: list[Verdict]) -> list[Card]:
    """One card for each claim, in the ledger's order."""
    return [_card(verdict) for verdict in verdicts]


def _card(it: Verdict) -> Card:
    by_seed = [f"Seed {result.seed}: {result.words}" for result in it.seeds]
    several = len(by_seed) > 1
    reason = it.reason
    for part in by_seed if several else []:
        reason = reason.replace(part, "", 1)
    found = strips(it)
    return Card(
        id=it.claim,
        tone=it.verdict.replace(" ", "-"),
        badge=it.label,
        statement=it.statement,
        reason=reason.strip(),
        by_seed=by_seed if several else [],
        numbers=found.numbers,
        ends=found.ends,
        limit=found.limit,
        paper=it.paper,
        budget=it.budget,
        rule=f"Compared: {it.statistic}. {it.rule}",
    )


def tally(verdicts: list[Verdict]) -> str:
    """How many claims got which verdict, in a sentence."""
    leaning = Counter(it.direction for it in verdicts if it.verdict == "inconclusive")
    leans = [
        f"{count} {f'leaning {way}' if way else 'undecided'}" for way, count in leaning.items()
    ]
    parts = []
    for verdict, count in Counter(it.verdict for it in verdicts).items():
        inside = f" ({', '.join(leans)})" if verdict == "inconclusive" else ""
        parts.append(f"{count} {verdict}{inside}")
    return f"Of the {len(verdicts)} claims judged below: {listed(parts)}."
