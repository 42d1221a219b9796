"""Task 2, count: how many of the words are trigger words?

Position-agnostic: the order of the words says nothing. Gu et al. 2026 (arXiv 2505.13027), task 2.

Shapes: B batch, L positions.
"""

from dataclasses import dataclass

import torch

from poslens.errors import InputError
from poslens.tasks.base import Batch, Bound, Task
from poslens.tasks.fillers import (
    Fillers,
    draw_words,
    require_kind,
    require_whole,
    surround,
)


@dataclass(frozen=True)
class CountSettings:
    """Sizes of the counting task; the defaults are the study's.

    length: words in every sequence.
    most: the largest number of triggers in a sequence (from 0, uniform).
    triggers: number of trigger words, words 1..triggers.
    words: size of the vocabulary, the triggers included.
    fillers: never triggers; "clean", drawn with replacement, or "published", without.
    """

    length: int = 120
    most: int = 100
    triggers: int = 30
    words: int = 573
    fillers: Fillers = "clean"


class Count(Task):
    """0..most trigger words, drawn with replacement, shuffled among fillers: classify how many.

    Token 0 is padding (never needed: all sequences are equally long), words count from 1. The label
    is the number of triggers. Raises `InputError` for sizes below 1, more triggers than fit into
    the sequence, or a vocabulary too small.
    """

    name = "count"
    Settings = CountSettings
    label_unit = "triggers"
    first_label = 0
    settings: CountSettings

    def __init__(self, settings: CountSettings | None = None) -> None:
        super().__init__(settings)
        _check(self.settings)
        self.classes = self.settings.most + 1
        self.embeddings = self.settings.words + 1
        self.max_length = self.settings.length

    def sample(self, size: int, generator: torch.Generator) -> Batch:
        sizes = self.settings
        labels_B = torch.randint(0, self.classes, (size,), generator=generator)
        triggers_BL = draw_words(size, sizes.length, 1, sizes.triggers, True, generator)
        clean = sizes.fillers == "clean"
        first = sizes.triggers + 1
        fillers_BL = draw_words(size, sizes.length, first, sizes.words, clean, generator)
        # A row's ranks are a random permutation: those below its label mark the triggers' places.
        ranks_BL = draw_words(size, sizes.length, 0, sizes.length - 1, False, generator)
        tokens_BL = torch.where(ranks_BL < labels_B[:, None], triggers_BL, fillers_BL)
        return Batch(tokens_BL, torch.full((size,), sizes.length), labels_B)

    @property
    def filler_words(self) -> range:
        """All but the triggers."""
        return range(self.settings.triggers + 1, self.embeddings)

    def lengthen(self, batch: Batch, extra: int, generator: torch.Generator) -> Batch:
        """Fillers before and after, as many on either side as chance will have it."""
        return surround(batch, extra, self.filler_words, generator)

    def baseline(self) -> Bound:
        """Chance: all sequences are equally long."""
        return Bound(self.chance)

    def ceiling(self) -> Bound:
        """1: fillers are never triggers."""
        return Bound(1.0)


def _check(settings: CountSettings) -> None:
    length, triggers, words = settings.length, settings.triggers, settings.words
    require_kind(settings.fillers)
    require_whole("length", length)
    require_whole("most", settings.most)
    require_whole("triggers", triggers)
    require_whole("words", words)
    if settings.most > length:
        raise InputError(
            f"most={settings.most} triggers do not fit into sequences of length={length}: "
            f"most may be {length} at the most"
        )
    fillers = length if settings.fillers == "published" else 1
    if words < triggers + fillers:
        raise InputError(
            f"words={words} is too small: triggers={triggers} and {fillers} different "
            f"{'filler needs' if fillers == 1 else 'fillers need'} at least {triggers + fillers}"
        )
