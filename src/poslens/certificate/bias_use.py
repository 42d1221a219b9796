"""How a bias behaves in use: called again, at another length, with a cache, far away.

Shapes: H heads, L query positions, M key positions.
"""

import time
from typing import Literal

import torch
from torch import Tensor

from poslens.certificate.bias_sample import (
    BiasFunction,
    BiasSample,
    call_bias,
    tolerance,
)
from poslens.certificate.finding import Finding
from poslens.errors import InputError

Alignment = Literal["end", "start", "either", "neither", "not possible"]

# One query and the last few: a decoding step and a chunk of a prompt.
_CHUNKS = (1, 7)
# Lengths of one row. Some functions build the whole square and cut it; the first of these tells,
# by the time it takes, whether the second can be afforded (sixteen times that, or four).
_FAR = (1024, 4096)
_SECONDS = 0.03
# A bias divided by the length may take it as any of these.
_DIVISORS = {"length": 0, "length - 1": -1, "length + 1": 1}


def check_repeatable(bias: BiasFunction, square: BiasSample) -> None:
    """Raises InputError where a second call gives another bias."""
    again = call_bias(bias, *square.values_HLM.shape[-2:])
    if not torch.equal(again.raw, square.raw):
        raise InputError(
            "the bias is another each time it is called; call .eval() first if there is dropout, "
            "and draw random values once"
        )


def length_dependence(
    shorter: BiasSample, square: BiasSample, precision: torch.dtype
) -> tuple[Finding, float | None]:
    """Is the same pair given the same bias in a longer sequence?

    Also what the bias must be multiplied by to undo a division by the length, else None: 1.0 where
    the bias does not depend on it.
    """
    near = shorter.values_HLM.shape[-1]
    short_HN = torch.cat([shorter.last_row, shorter.first_row], -1).nan_to_num()
    full_HN = torch.cat([square.last_row[:, :near], square.first_row[:, :near]], -1).nan_to_num()
    allowed_H = tolerance(shorter.scale_H, precision) + tolerance(square.scale_H, precision)
    differs_H = (full_HN - short_HN).abs().amax(-1)
    keys = square.values_HLM.shape[-1]
    if bool((differs_H <= allowed_H).all()):
        return Finding(
            "bias",
            "length",
            "right",
            f"the same at lengths {near} and {keys}",
            numbers={"difference": float(differs_H.max())},
        ), 1.0
    for name, shift in _DIVISORS.items():
        ratio = (near + shift) / (keys + shift)
        if bool(((full_HN - ratio * short_HN).abs().amax(-1) <= allowed_H).all()):
            return Finding(
                "bias",
                "length",
                "wrong",
                f"divided by the current length ({name})",
                "The longer the sequence, the less position counts; each decoding step changes "
                "the bias of pairs that came before.",
                "Leave out the division: slopes are per position.",
                {"ratio": ratio},
            ), float(keys + shift)
    worst = float(differs_H.max())
    return Finding(
        "bias",
        "length",
        "unusual",
        f"depends on the current length: the same pair differs by up to {worst:.3g} logits "
        f"between lengths {near} and {keys}",
        "A token decoded at one length was trained at another; a comparison between lengths "
        "compares two encodings.",
        "Right if it is dynamic on purpose; otherwise compute it from the offset alone.",
        {"difference": worst},
    ), None


def alignment(
    bias: BiasFunction, square: BiasSample, precision: torch.dtype
) -> tuple[Finding, Alignment]:
    """With fewer queries than keys, do the queries stand at the last keys, as with a cache?"""
    keys = square.values_HLM.shape[-1]
    fits = {"end": True, "start": True}
    worst = 0.0
    for queries in _CHUNKS:
        try:
            chunk = call_bias(bias, queries, keys)
        except InputError as error:
            return Finding(
                "use",
                "cached decoding",
                "unusual",
                f"cannot be called with fewer queries than keys: {error}",
                "With a cache of keys, the last rows have to be cut from the whole bias.",
            ), "not possible"
        ends = _row_difference(chunk.values_HLM, square.values_HLM[:, keys - queries :])
        starts = _row_difference(chunk.values_HLM, square.values_HLM[:, :queries])
        allowed_H = 2 * tolerance(square.scale_H, precision)
        fits["end"] &= bool((ends <= allowed_H).all())
        fits["start"] &= bool((starts <= allowed_H).all())
        worst = max(worst, float(ends.max()))
    if all(fits.values()):
        return Finding("use", "cached decoding", "right", "all queries have the same row"), "either"
    if fits["end"]:
        return Finding(
            "use",
            "cached decoding",
            "right",
            "with fewer queries than keys, the queries stand at the last keys",
            "Decoding with a cache gives the rows of the whole bias.",
        ), "end"
    if fits["start"]:
        return Finding(
            "use",
            "cached decoding",
            "unusual",
            "with fewer queries than keys, the queries stand at the first keys",
            "Decoding with a cache needs the last rows: called with one query, this gives the "
            "first, in which all keys lie ahead.",
            "Where keys are cached, ask for as many queries as keys and cut the last rows.",
            {"difference_from_last_rows": worst},
        ), "start"
    return Finding(
        "use",
        "cached decoding",
        "wrong",
        "with fewer queries than keys, the rows are neither the last nor the first of the whole "
        f"bias: they differ from the last by up to {worst:.3g} logits",
        "Decoding with a cache gives other attention than the whole sequence.",
        "The query positions are key_len - query_len, .., key_len - 1.",
        {"difference_from_last_rows": worst},
    ), "neither"


def _row_difference(a_HLM: Tensor, b_HLM: Tensor) -> Tensor:
    """The largest difference in each head, (H,), a constant per row aside."""
    difference_HLM = a_HLM - b_HLM
    lowest_HL, highest_HL = difference_HLM.amin(-1), difference_HLM.amax(-1)
    return (highest_HL - lowest_HL).amax(-1)


def far_row(
    bias: BiasFunction, square: BiasSample, precision: torch.dtype
) -> tuple[BiasSample | None, Finding]:
    """The last row at the largest length that can be afforded, and what is wrong with it."""
    near = square.values_HLM.shape[-1]
    best = None
    for keys in _FAR:
        start = time.perf_counter()
        try:
            sample = call_bias(bias, 1, keys)
        except InputError as error:
            return best, Finding(
                "use",
                "far positions",
                "right",
                f"ends before {keys} positions: {error}",
                "Longer sequences raise an error instead of going wrong.",
            )
        difference_H = (sample.last_row[:, :near] - square.last_row).nan_to_num().abs().amax(-1)
        allowed_H = tolerance(sample.scale_H, precision) + tolerance(square.scale_H, precision)
        if bool((difference_H > allowed_H).any()):
            return best, Finding(
                "use",
                "far positions",
                "unusual",
                f"at {keys} keys, the same offsets differ by up to {float(difference_H.max()):.3g} "
                f"logits from those at {near}",
                "The bias changes in long sequences.",
                "Right if it is dynamic on purpose.",
                {"difference": float(difference_H.max())},
            )
        best = sample
        if time.perf_counter() - start > _SECONDS:
            break
    assert best is not None
    keys = best.values_HLM.shape[-1]
    return best, Finding("use", "far positions", "right", f"the same function at {keys} keys")


def by_position(square: BiasSample) -> Finding | None:
    """Is a bias that is not relative a function of distance over query position, as FIRE is?

    FIRE (Li et al. 2024, arXiv 2310.04418) is f(psi(i - j) / psi(max(i, threshold))): from the
    threshold on, the first key (j = 0, at f(1)) and the query's own (at f(0)) have biases that are
    the same in every row. The finding where they are, in the last third of the rows at least.
    """
    allowed_H = tolerance(square.scale_H, square.dtype)
    own_HL = square.values_HLM.diagonal(dim1=-2, dim2=-1)
    span_HL = own_HL - square.values_HLM[..., 0]
    if _flattens(square, span_HL, allowed_H):
        return Finding(
            "relative",
            "Toeplitz",
            "wrong",
            "a linear bias divided by the query's position: not a function of the offset",
            "The later a query, the flatter its bias; the first key always weighs the same.",
            "Leave out the division: slopes are per position.",
        )
    rows = span_HL.shape[-1]
    same_L = ((span_HL - span_HL[:, -1:]).abs() <= allowed_H[:, None]).all(0)
    from_row = rows - int(same_L.flip(0).long().cumprod(0).sum())
    if from_row > 2 * rows / 3 or bool((span_HL[:, -1].abs() <= allowed_H).all()):
        return None
    return Finding(
        "relative",
        "Toeplitz",
        "unusual",
        "not a function of the offset but of distance over query position, as FIRE is (Li et al. "
        f"2024): from query {from_row} on, the first key has the same bias in every row",
        "Attention depends on where in the sequence the words stand, by design. Buckets, slopes "
        "and signs are not judged.",
        "",
        {"from_query": from_row},
    )


def _flattens(square: BiasSample, span_HL: Tensor, allowed_H: Tensor) -> bool:
    """Is every row linear over its past, with one over its slope linear in the query position?"""
    past_HLM = square.values_HLM.tril()
    bends_HLM = past_HLM.diff(n=2, dim=-1).tril(-2)
    if bool((bends_HLM.abs().amax((-2, -1)) > 4 * allowed_H).any()):
        return False
    first = span_HL.shape[-1] // 2  # later rows tell slopes well
    rows_L = torch.arange(first, span_HL.shape[-1], dtype=torch.float64)
    # span_i = m i / (i + c): span_i (i + c) = m i, so that i (m - span_i) / span_i = c.
    flatter_HL = rows_L / span_HL[:, first:]
    bend_H = flatter_HL.diff(n=2, dim=-1).abs().amax(-1)
    error_H = 4 * (flatter_HL.abs().amax(-1) * allowed_H / span_HL[:, first:].abs().amin(-1))
    return bool((bend_H <= error_H).all() and (span_HL[:, -1].abs() > allowed_H).all())
