"""What a task is: labelled sequences without end, and the numbers that bound any answer to them.

Shapes: B batch, L positions.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from poslens.errors import InputError

PAD = 0


@dataclass(frozen=True)
class Batch:
    """Sequences and their labels.

    `tokens_BL` (int64) is padded on the right with `PAD`; `lengths_B` counts the real tokens;
    `labels_B` are classes from 0.
    """

    tokens_BL: Tensor
    lengths_B: Tensor
    labels_B: Tensor

    def __len__(self) -> int:
        return self.tokens_BL.shape[0]

    def rows(self, index: Tensor | slice) -> "Batch":
        return Batch(self.tokens_BL[index], self.lengths_B[index], self.labels_B[index])

    def trim(self) -> "Batch":
        """The same sequences without the columns that are padding in every row."""
        longest = int(self.lengths_B.max())
        return Batch(self.tokens_BL[:, :longest], self.lengths_B, self.labels_B)

    @staticmethod
    def joined(batches: "list[Batch]") -> "Batch":
        """Batches after one another, padded to the longest."""
        longest = max(batch.tokens_BL.shape[1] for batch in batches)
        padded = [
            F.pad(batch.tokens_BL, (0, longest - batch.tokens_BL.shape[1]), value=PAD)
            for batch in batches
        ]
        return Batch(
            torch.cat(padded),
            torch.cat([batch.lengths_B for batch in batches]),
            torch.cat([batch.labels_B for batch in batches]),
        )

    def to(self, device: torch.device | str) -> "Batch":
        return Batch(self.tokens_BL.to(device), self.lengths_B.to(device), self.labels_B.to(device))


@dataclass(frozen=True)
class Bound:
    """A number between 0 and 1 with its standard error (0 where it is exact)."""

    value: float
    standard_error: float = 0.0


class Task(ABC):
    """A classification task on generated sequences, a pure function of a `torch.Generator`."""

    name: ClassVar[str]
    Settings: ClassVar[type[Any]]

    classes: int  # number of labels
    embeddings: int  # rows of the embedding table, padding included
    max_length: int  # no sequence is longer
    label_unit: ClassVar[str]  # what a label counts, for axis titles
    first_label: int = 0  # what class 0 stands for, in that unit

    def __init__(self, settings: Any = None) -> None:
        self.settings = self.Settings() if settings is None else settings

    @abstractmethod
    def sample(self, size: int, generator: torch.Generator) -> Batch:
        """`size` fresh sequences, tokens padded to the longest of them."""

    def lengthen(self, batch: Batch, extra: int, generator: torch.Generator) -> Batch:
        """The same sequences and labels with `extra` more words each, for trying longer ones.

        Raises InputError for a task that does not say how.
        """
        raise InputError(f"the task {self.name!r} does not say how its sequences are lengthened")

    @property
    def filler_words(self) -> range:
        """The words that say nothing of the answer; all there are where a task names none.

        Analyses that want sequences of no content draw from these.
        """
        return range(PAD + 1, self.embeddings)

    @property
    def chance(self) -> float:
        """Accuracy of the best constant answer."""
        return 1.0 / self.classes

    @abstractmethod
    def baseline(self) -> Bound:
        """Accuracy of the best answer that sees only the sequence's length."""

    @abstractmethod
    def ceiling(self) -> Bound:
        """Accuracy of the best answer that knows the generator."""
