"""Rows of the tables on sets of heads: which are chosen, and what they come to.

Heads are chosen on the first half of the sequences, by what each costs alone in loss, and sets of
them are measured on the second, so that no number is flattered by its own selection.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from poslens.heads.edits import Edit, Reference
from poslens.heads.effects import Effort, HeadAt
from poslens.heads.estimates import Measured
from poslens.heads.sets import Interval, interactions, necessity, sufficiency
from poslens.tasks import Batch

CANDIDATES = 12  # heads among which the search for a necessary set looks
PAIRED = 4  # heads whose pairs are measured

Row = dict[str, object]


@dataclass(frozen=True)
class SetRows:
    """Rows of three tables; adding joins them."""

    necessity: list[Row] = field(default_factory=list)
    sufficiency: list[Row] = field(default_factory=list)
    interactions: list[Row] = field(default_factory=list)

    def __add__(self, other: "SetRows") -> "SetRows":
        return SetRows(
            self.necessity + other.necessity,
            self.sufficiency + other.sufficiency,
            self.interactions + other.interactions,
        )

    def tables(self) -> dict[str, list[Row]]:
        """Rows by the name of their table (`poslens.results`)."""
        return vars(self)


def set_rows(
    data: Batch,
    edit: Edit,
    reference: Reference,
    loss: Measured,
    decidable: bool = True,
    effort: Effort | None = None,
) -> SetRows:
    """Sets of heads under an edit; `loss` is what it does to each head alone, on the same data.

    Without `decidable` the number of heads needed is NaN: there is nothing to lose.
    """
    half = len(data) // 2
    cost_AH = loss.harm_AHN[..., :half].mean(-1)
    heads: list[HeadAt] = [(a, h) for a, layer in enumerate(cost_AH) for h in range(len(layer))]
    ranked = sorted(heads, key=lambda at: -float(cost_AH[at]))
    judge = data.rows(slice(half, None))
    same: Row = {"target": edit.target, "method": edit.method}
    rows = SetRows()

    found = necessity(data, edit, reference, ranked[:CANDIDATES], effort=effort)
    steps: list[HeadAt] = [(-1, -1), *found.heads]
    count = found.count if decidable else Interval(*[float("nan")] * 3)
    for step, ((layer, head), accuracy) in enumerate(zip(steps, found.accuracy_K, strict=True)):
        rows.necessity.append(
            {
                **same,
                **{"step": step, "layer": layer, "head": head, "accuracy": accuracy},
                **{"floor": found.floor, "count": count.value},
                **{"count_low": count.low, "count_high": count.high},
                "sequences": len(judge),
            }
        )
    for layer, order in _by_layer(ranked):
        curve = sufficiency(judge, edit, reference, layer, order, effort).accuracy_K
        for kept, (head, it) in enumerate(zip([-1, *order], curve, strict=True)):
            rows.sufficiency.append(
                {
                    **{"layer": layer, **same, "kept": kept, "head": head},
                    **{"accuracy": it.value, "low": it.low, "high": it.high},
                    "sequences": len(judge),
                }
            )
    for pair in interactions(judge, edit, reference, ranked[:PAIRED], effort):
        rows.interactions.append(
            {
                **same,
                **{"layer": pair.first[0], "head": pair.first[1]},
                **{"other_layer": pair.second[0], "other_head": pair.second[1]},
                **{"together": pair.together, "excess": pair.excess.value},
                **{"low": pair.excess.low, "high": pair.excess.high},
                "sequences": len(judge),
            }
        )
    return rows


def _by_layer(ranked: list[HeadAt]) -> Iterator[tuple[int, list[int]]]:
    """Each layer with its heads in their order."""
    for layer, group in groupby(sorted(ranked, key=lambda at: at[0]), key=lambda at: at[0]):
        yield layer, [head for _, head in group]
