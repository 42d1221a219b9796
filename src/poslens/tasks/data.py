"""Data from a seed: one independent generator for each purpose, batches by number.

The same seed and task give the same data, whatever else a run does, so runs of different schemes
see the same sequences and a continued run sees what an uninterrupted one would have.

Shapes: B batch, L positions.
"""

import hashlib
from functools import lru_cache

import numpy as np
import polars as pl
import torch
from torch import Tensor

from poslens.errors import InputError
from poslens.tasks.base import Batch, Task
from poslens.tasks.fillers import require_whole

# Rows drawn at once while a fixed set is filled: bounds its memory.
DRAWN_AT_ONCE = 8192


def generator_for(seed: int, purpose: str, step: int = 0) -> torch.Generator:
    """A fresh CPU generator, a function of its arguments alone.

    Purposes in use: "train", "order" (of a fixed set), "initialisation", "dropout", "validate"
    (learning curves), "evaluate" (final numbers and effects), "ceiling", "data" (`poslens data`),
    "reference", "donors-.." and "positions-.." (what edits replace from), "decompose", "lengthen",
    "probe", "probe-shuffle" (permuted positions) "probe-noise" and
    "seeds" (`poslens theory`).
    """
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=4).digest()
    # torch's CPU generator keeps 32 bits of its seed. An odd stride visits all of them before it
    # comes back, so no two steps of one purpose share a state; hashing the step could collide.
    state = int.from_bytes(digest) + step * 0x9E3779B1
    return torch.Generator().manual_seed(state % 2**32)


def held_out(task: Task, size: int, seed: int, purpose: str = "evaluate") -> Batch:
    """`size` sequences for evaluation, from a generator that training never uses."""
    require_whole("number of held-out sequences", size)
    return task.sample(size, generator_for(seed, purpose))


class Stream:
    """Training batches without end, each reached by its number.

    With `size` None every batch is fresh. Otherwise a fixed set of `size` sequences, no two with
    the same tokens, is made once and shuffled anew in every epoch; what does not fill a batch at
    the end of an epoch is left out of that epoch.

    Raises `InputError` for sizes below 1, a batch larger than the set, or a task that has fewer
    than `size` different sequences.
    """

    def __init__(self, task: Task, batch_size: int, seed: int, size: int | None = None) -> None:
        require_whole("batch_size", batch_size)
        self.task = task
        self.batch_size = batch_size
        self.seed = seed
        self.fixed: Batch | None = None
        if size is not None:
            require_whole("size", size)
            if batch_size > size:
                raise InputError(
                    f"batch_size={batch_size} is larger than the set of size={size} sequences: "
                    f"take a batch_size of at most {size}"
                )
            self.fixed = _distinct(task, size, generator_for(seed, "train"))
        self._order = lru_cache(maxsize=1)(self._shuffled)

    def batch(self, step: int) -> Batch:
        """The batch of training step `step`, counted from 0."""
        if self.fixed is None:
            return self.task.sample(self.batch_size, generator_for(self.seed, "train", step))
        epoch, number = divmod(step, len(self.fixed) // self.batch_size)
        start = number * self.batch_size
        return self.fixed.rows(self._order(epoch)[start : start + self.batch_size]).trim()

    def _shuffled(self, epoch: int) -> Tensor:
        assert self.fixed is not None
        return torch.randperm(len(self.fixed), generator=generator_for(self.seed, "order", epoch))


def to_frame(batch: Batch, task: Task) -> pl.DataFrame:
    """One row per sequence: `tokens` (list, without padding), `length`, `label`.

    The label is in the task's unit, that is class + `first_label`.
    """
    length = pl.Series("length", batch.lengths_B.numpy())
    padded = pl.Series("tokens", batch.tokens_BL.numpy()).arr.to_list()
    label = pl.Series("label", batch.labels_B.numpy() + task.first_label)
    return pl.DataFrame([padded, length, label]).with_columns(pl.col("tokens").list.head("length"))


def _distinct(task: Task, size: int, generator: torch.Generator) -> Batch:
    """The first `size` different sequences that the generator gives."""
    kept = Batch(
        torch.empty(0, task.max_length, dtype=torch.int64),
        torch.empty(0, dtype=torch.int64),
        torch.empty(0, dtype=torch.int64),
    )
    while len(kept) < size:
        fresh = task.sample(DRAWN_AT_ONCE, generator)
        joined = Batch.joined([kept, fresh])
        found = joined.rows(_first_occurrences(joined.tokens_BL))
        if len(found) == len(kept):
            raise InputError(
                f"size={size} different sequences cannot be had: {task.name} with these settings "
                f"gave only {len(kept)}; ask for fewer or enlarge the vocabulary"
            )
        kept = found
    return kept.rows(slice(size))


def _first_occurrences(tokens_BL: Tensor) -> Tensor:
    """Rows that equal no earlier row, in their order."""
    rows = np.ascontiguousarray(tokens_BL.numpy())
    as_one_item = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).squeeze(1)
    _, first = np.unique(as_one_item, return_index=True)
    return torch.from_numpy(np.sort(first))
