"""Task 1, distance: how far apart are two trigger words among fillers?

Position-sensitive: needs to know what stands where. Gu et al. 2026 (arXiv 2505.13027), task 1.

Shapes: B batch, L positions, S slots of the uncut layout, C classes.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from poslens.errors import InputError
from poslens.tasks.base import PAD, Batch, Bound, Task
from poslens.tasks.data import generator_for
from poslens.tasks.fillers import (
    Fillers,
    draw_words,
    require_kind,
    require_whole,
    surround,
)
from poslens.tasks.posterior import distance_posterior

FIRST_TRIGGER, SECOND_TRIGGER = 1, 2
CEILING_SAMPLE = 4096


@dataclass(frozen=True)
class DistanceSettings:
    """Sizes of the distance task; the study used between=70, aside=25, cut=120, "published".

    between: at most this many words between the triggers (at least 1, uniform).
    aside: at most this many words before, and as many after (at least 1, uniform).
    cut: longer sequences lose their end; None keeps them whole.
    words: size of the vocabulary, the two triggers included.
    fillers: "clean", drawn with replacement from the words that are no triggers, or "published",
        drawn from all words, triggers included, without replacement within each of the three
        segments (before, between, after), as in the study's released code.
    """

    between: int = 20
    aside: int = 6
    cut: int | None = None
    words: int = 573
    fillers: Fillers = "clean"


class Distance(Task):
    """Fillers, word 1, 1..between fillers, word 2, fillers: classify the distance of the two.

    Word 1 always stands before word 2. Token 0 is padding, words count from 1. The label is the
    number of words between, less one: class 0 stands for a distance of 2 words (one between).

    Raises `InputError` for sizes below 1, a vocabulary too small, or a cut that may lose a trigger.
    """

    name = "distance"
    Settings = DistanceSettings
    label_unit = "words"
    first_label = 2
    settings: DistanceSettings

    def __init__(self, settings: DistanceSettings | None = None) -> None:
        super().__init__(settings)
        _check(self.settings)
        self.classes = self.settings.between
        self.embeddings = self.settings.words + 1
        whole = self.settings.between + 2 * self.settings.aside + 2
        self.max_length = whole if self.settings.cut is None else min(whole, self.settings.cut)

    def sample(self, size: int, generator: torch.Generator) -> Batch:
        sizes = self.settings
        before_B1 = torch.randint(1, sizes.aside + 1, (size, 1), generator=generator)
        between_B1 = torch.randint(1, sizes.between + 1, (size, 1), generator=generator)
        after_B1 = torch.randint(1, sizes.aside + 1, (size, 1), generator=generator)

        # Every segment at full length first; then each position reads its slot, jumping over
        # what its row does not use.
        slots_BS = torch.cat(
            [
                self._fillers(size, sizes.aside, generator),
                torch.full((size, 1), FIRST_TRIGGER),
                self._fillers(size, sizes.between, generator),
                torch.full((size, 1), SECOND_TRIGGER),
                self._fillers(size, sizes.aside, generator),
            ],
            dim=1,
        )
        positions_L = torch.arange(self.max_length)
        slot_BL = (
            positions_L
            + (positions_L >= before_B1) * (sizes.aside - before_B1)
            + (positions_L > before_B1 + between_B1) * (sizes.between - between_B1)
        )
        tokens_BL = slots_BS.gather(1, slot_BL.clamp(max=slots_BS.shape[1] - 1))
        lengths_B1 = (before_B1 + between_B1 + after_B1 + 2).clamp(max=self.max_length)
        tokens_BL = tokens_BL.masked_fill(positions_L >= lengths_B1, PAD)
        longest = int(lengths_B1.max())
        return Batch(tokens_BL[:, :longest], lengths_B1.squeeze(1), between_B1.squeeze(1) - 1)

    def _fillers(self, rows: int, length: int, generator: torch.Generator) -> Tensor:
        clean = self.settings.fillers == "clean"
        first = SECOND_TRIGGER + 1 if clean else 1
        return draw_words(rows, length, first, self.settings.words, clean, generator)

    @property
    def filler_words(self) -> range:
        """All but the two triggers."""
        return range(SECOND_TRIGGER + 1, self.embeddings)

    def lengthen(self, batch: Batch, extra: int, generator: torch.Generator) -> Batch:
        """Fillers before and after, as many on either side as chance will have it."""
        return surround(batch, extra, self.filler_words, generator)

    def baseline(self) -> Bound:
        """Exact, over all (before, between, after).

        Without a cut it is (N + S - 1) / (N S) for 1..N words between and 1..S aside.
        """
        aside = torch.arange(1, self.settings.aside + 1)
        between = torch.arange(1, self.settings.between + 1)
        lengths = (aside[:, None, None] + between[:, None] + aside + 2).clamp(max=self.max_length)
        classes = (between[:, None] - 1).expand_as(lengths)
        cases = torch.bincount((lengths * self.classes + classes).flatten())
        cases = torch.nn.functional.pad(cases, (0, -len(cases) % self.classes))
        right = cases.view(-1, self.classes).amax(dim=1).sum()
        return Bound(right.item() / lengths.numel())

    def ceiling(self) -> Bound:
        """1 for clean fillers; else the mean over fixed random sequences of the largest posterior.

        Published fillers may be trigger words, and then some sequences stay ambiguous.
        """
        return Bound(1.0) if self.settings.fillers == "clean" else self._published_ceiling

    @cached_property
    def _published_ceiling(self) -> Bound:
        batch = self.sample(CEILING_SAMPLE, generator_for(0, "ceiling"))
        best_B = self.posterior(batch).amax(dim=1)
        return Bound(best_B.mean().item(), best_B.std().item() / len(batch) ** 0.5)

    def posterior(self, batch: Batch) -> Tensor:
        """Probability of each class given the sequence, (B, C), for published fillers."""
        sizes = self.settings
        return distance_posterior(
            batch,
            triggers=(FIRST_TRIGGER, SECOND_TRIGGER),
            between=sizes.between,
            aside=sizes.aside,
            cut=sizes.cut,
            words=sizes.words,
        )


def _check(settings: DistanceSettings) -> None:
    between, aside, cut, words = settings.between, settings.aside, settings.cut, settings.words
    require_kind(settings.fillers)
    require_whole("between", between)
    require_whole("aside", aside)
    require_whole("words", words)
    if settings.fillers == "clean" and words < 3:
        raise InputError(f"words={words} is too small: 2 triggers and a filler need at least 3")
    if settings.fillers == "published" and words < max(between, aside, 2):
        raise InputError(
            f"words={words} is too small: 2 triggers and segments of up to "
            f"max(between={between}, aside={aside}) different words need at least "
            f"{max(between, aside, 2)}"
        )
    if cut is not None:
        require_whole("cut", cut)
        if cut < aside + between + 2:
            raise InputError(
                f"cut={cut} may lose a trigger: aside={aside} and between={between} need "
                f"at least {aside + between + 2}"
            )
