"""The part of each layer's attention input that is position, for schemes with a table.

A table adds position to the residual stream. In layer 0 its part is the table's row as the norm
passes it on (the embedding split); above, layers have mixed it with content, and it is the mean at
each position over sequences of independent tokens (the mean split).

Shapes: B batch, L positions, E model width.
"""

import torch
from torch import Tensor

from poslens.encodings.base import doors
from poslens.heads.edits import PositionPart, no_position_part
from poslens.model import State, Transformer
from poslens.tasks import Task
from poslens.toeplitz.splits import EmbeddingSplit, MeanSplit, walk
from poslens.toeplitz.tables import independent_tokens


def position_part(model: Transformer, task: Task) -> PositionPart:
    """How `Reference` finds the position that a table added; for schemes without one, that it
    added none.

    In layer 0 (B, L, E), above (1, L, E). Fitted on sequences of independent tokens as long as the
    task's longest, the same for all runs of a task.
    """
    if "table" not in doors(model.encoding):
        return no_position_part
    device = next(model.parameters()).device
    with torch.no_grad():
        splits: list[EmbeddingSplit | MeanSplit] = [
            EmbeddingSplit.fit(model, state) if state.layer == 0 else MeanSplit.fit(model, state)
            for state in walk(model, independent_tokens(task).to(device))
        ]

    def part(state: State) -> Tensor:
        return splits[state.layer].parts(model, state).position

    return part
