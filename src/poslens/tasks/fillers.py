"""Drawing words, the one place where the kinds of fillers differ."""

from typing import Literal

import torch
from torch import Tensor

from poslens.errors import InputError

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
