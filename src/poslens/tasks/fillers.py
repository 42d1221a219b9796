"""Drawing words, the one place where the kinds of fillers differ."""

from typing import Literal

import torch
from torch import Tensor

from poslens.errors import InputError
from poslens.tasks.base import PAD, Batch

Fillers = Literal["clean", "published"]
KINDS = ("clean", "published")


def require_kind(fillers: str) -> None:
    """Raise `InputError` unless `fillers` is a kind there is."""
    if fillers not in KINDS:
        raise InputError(f"fillers must be 'clean' or 'published', not {fillers!r}")


def require_whole(name: str, value: int, least: int = 1) -> None:
    """Raise `InputError` unless `value` is a whole number, `least` or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")


def draw_words(
    rows: int, length: int, first: int, last: int, repeats: bool, generator: torch.Generator
) -> Tensor:
    """Words `first`..`last`, uniformly, as an int64 tensor (rows, length).

    With `repeats` every word is drawn independently; without, a row holds no word twice, which
    needs `length` <= `last` - `first` + 1.
    """
    if repeats:
        return torch.randint(first, last + 1, (rows, length), generator=generator)
    # The order of random keys is a random permutation; in float64 because ties would bias it.
    keys = torch.rand(rows, last - first + 1, generator=generator, dtype=torch.float64)
    return first + keys.topk(length, dim=1).indices


def surround(batch: Batch, extra: int, words: range, generator: torch.Generator) -> Batch:
    """Each sequence with `extra` of `words` around it, drawn with replacement.

    How many of them stand before it is uniform from 0 to `extra`. Raises InputError for a negative
    number, and where there is no such word.
    """
    require_whole("number of extra words", extra, least=0)
    if not words:
        raise InputError(
            "sequences cannot be lengthened: the vocabulary has no word that says "
            "nothing; use more words"
        )
    size, longest = batch.tokens_BL.shape
    before_B1 = torch.randint(0, extra + 1, (size, 1), generator=generator)
    fillers_BL = draw_words(size, longest + extra, words[0], words[-1], True, generator)
    steps_L = torch.arange(longest + extra)
    old_BL = steps_L - before_B1
    inside_BL = (old_BL >= 0) & (old_BL < batch.lengths_B[:, None])
    tokens_BL = batch.tokens_BL.gather(1, old_BL.clamp(0, longest - 1))
    tokens_BL = torch.where(inside_BL, tokens_BL, fillers_BL)
    lengths_B = batch.lengths_B + extra
    tokens_BL = tokens_BL.masked_fill(steps_L >= lengths_B[:, None], PAD)
    return Batch(tokens_BL, lengths_B, batch.labels_B)
