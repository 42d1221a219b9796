"""Which channels are paired, in the words of the field."""

from dataclasses import dataclass

import numpy as np

from poslens.certificate.probe import Pairs


@dataclass(frozen=True)
class Layout:
    """`name` is half-split, interleaved or irregular; `words` says where it holds.

    `exponent_width` is what 2f is divided by in the frequencies' exponents: the rotated width, or
    the head's where the pairs reach across it.
    """

    name: str
    words: str
    exponent_width: int
    start: int = 0
    across: bool = False


def describe(pairs: Pairs, head_dim: int) -> Layout:
    """The layout of the channels that go in."""
    count, first, second = len(pairs), pairs.first_F, pairs.second_F
    width, f = 2 * count, np.arange(count)
    for start in sorted({0, head_dim - width}):
        where = _where(start, width, head_dim)
        if np.array_equal(first, start + 2 * f) and np.array_equal(second, first + 1):
            words = f"channels 2f and 2f + 1 pair up (interleaved){where}"
            return Layout("interleaved", words, width, start)
        if np.array_equal(first, start + f) and np.array_equal(second, first + count):
            words = f"channels f and f + {count} pair up (half-split){where}"
            return Layout("half-split", words, width, start)
    half = head_dim // 2
    if np.array_equal(first, f) and np.array_equal(second, f + half):
        words = (
            f"channels f and f + {half} pair up across the head (half-split), {width} of "
            f"{head_dim} channels turn"
        )
        return Layout("half-split", words, head_dim, 0, True)
    return Layout("irregular", _irregular(first, second, head_dim), width)


def _where(start: int, width: int, head_dim: int) -> str:
    if width == head_dim:
        return ""
    return f" within the {'first' if start == 0 else 'last'} {width} of {head_dim} channels"


def _irregular(first: np.ndarray, second: np.ndarray, head_dim: int) -> str:
    gaps, counts = np.unique(second - first, return_counts=True)
    order = np.argsort(-counts)[:3]
    shown = ", ".join(f"{counts[i]} pairs {gaps[i]} apart" for i in order)
    return f"{2 * len(first)} of {head_dim} channels turn, in no regular pairs ({shown})"


def permutation(pairs: Pairs) -> dict[str, list[int]]:
    """Where each channel comes out: `out[c]` holds channel `c` of the content."""
    source = np.concatenate([pairs.first_F, pairs.second_F, pairs.rest_R])
    target = np.concatenate([pairs.out_first_F, pairs.out_second_F, pairs.out_rest_R])
    return {"out": target[np.argsort(source)].tolist()}


def out_layout(pairs: Pairs, head_dim: int) -> Layout:
    """The layout of the channels that come out."""
    order = np.argsort(pairs.out_first_F)
    moved = Pairs(
        pairs.out_first_F[order], pairs.out_second_F[order], pairs.out_first_F[order],
        pairs.out_second_F[order], pairs.out_rest_R, pairs.out_rest_R,
    )  # fmt: skip
    return describe(moved, head_dim)
