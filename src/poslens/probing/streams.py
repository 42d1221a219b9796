"""The residual stream on sequences without content, state by state.

State 0 is what enters the first layer; state s is what has passed s layers, before any norm.

Shapes: B batch, L positions, E model width.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from poslens.errors import InputError
from poslens.model.sites import Sites
from poslens.tasks import Batch, Task
from poslens.tasks.data import generator_for
from poslens.tasks.fillers import draw_words

ROWS = 128  # sequences of one forward pass: bounds memory, not results


def filler_sequences(task: Task, sequences: int, length: int | None = None) -> Batch:
    """Independent filler words, all sequences `length` long (None: the task's longest).

    Every position holds the same distribution of words, so that what differs between positions is
    position. From a generator of their own, which no training uses, and the same for every run of
    the task. Labels are 0. Raises InputError where the vocabulary has no filler.
    """
    words = task.filler_words
    if not words:
        raise InputError(
            f"the vocabulary of this {task.name} task has no fillers, so there are no sequences "
            "without content; use a task with more words"
        )
    length = task.max_length if length is None else length
    generator = generator_for(0, "probe")
    tokens_BL = draw_words(sequences, length, words[0], words[-1], True, generator)
    none_B = torch.zeros(sequences, dtype=torch.int64)
    return Batch(tokens_BL, torch.full((sequences,), length), none_B)


def residual_streams(sites: Sites, batch: Batch) -> Iterator[Tensor]:
    """The residual stream (B, L, E) in each state, 0 to the number of layers, in one forward pass.

    All sequences must be equally long; one state is held at a time.
    """
    with torch.no_grad():
        parts = [
            sites.enter(batch.rows(slice(start, start + ROWS)))
            for start in range(0, len(batch), ROWS)
        ]
        yield torch.cat([part.x_BLE for part in parts])
        for _ in range(sites.layers):
            parts = [sites.advance(it, sites.write(it, sites.heads(it))) for it in parts]
            yield torch.cat([part.x_BLE for part in parts])
