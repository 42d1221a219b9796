"""The part of each layer's attention input that is position, for schemes with a table.

A table adds position to the residual stream. In layer 0 its part is the table's row as the norm
passes it on (the embedding split); above, layers have mixed it with content, and it is the mean at
each position over sequences of independent tokens (the mean split). That mean carries noise, a
share of the content: where it is little else, as above an untrained table of small values, position
is not in the layer's input as far as can be told, and its part is 0.

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

# Mean square of the position part over that of its noise, below which it counts as none.
ABOVE_NOISE = 1.5


def position_part(model: Transformer, task: Task) -> PositionPart:
    """How `Reference` finds the position that a table added; for schemes without one, that it
    added none.

    In layer 0 (B, L, E), above (1, L, E). Fitted on sequences of independent tokens as long as the
    task's longest, the same for all runs of a task.
    """
    if "table" not in doors(model.encoding):
        return no_position_part
    device = next(model.parameters()).device
    splits: list[EmbeddingSplit | MeanSplit] = []
    with torch.no_grad():
        for state in walk(model, independent_tokens(task).to(device)):
            if state.layer == 0:
                splits.append(EmbeddingSplit.fit(model, state))
                continue
            split = MeanSplit.fit(model, state)
            if not stands_out(split, model, state):
                split.position_LE.zero_()
            splits.append(split)

    def part(state: State) -> Tensor:
        return splits[state.layer].parts(model, state).position

    return part


def stands_out(split: MeanSplit, model: Transformer, state: State) -> bool:
    """Whether the position part is more than the noise of a mean over the sequences it is of.

    `state` is the one that the split was fitted on, sequences of one length. The noise of a mean of
    n has 1/n of the mean square of what is left.
    """
    _, content_BLE, position_1LE = split.parts(model, state)
    sequences = len(content_BLE)
    noise = content_BLE.square().mean() / (sequences - 1)
    return bool(position_1LE.square().mean() > ABOVE_NOISE * noise)
