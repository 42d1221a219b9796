"""Judging a bias on the logits: relative or not, which known scheme, and what is wrong with it.

Shapes: H heads, L query positions, M key positions, N distances. Offset = query position - key
position; *past* is the keys at or before the query, *future* those after it.

Softmax ignores a constant per row, so nothing here depends on one: a bias m j that sees keys only
is the same as -m (i - j). Tolerances are those of `bias_sample.tolerance`: four roundings of the
largest bias, in the precision the bias is returned in.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from poslens.certificate.bias_curves import bias_curves
from poslens.certificate.bias_expected import compare_bias
from poslens.certificate.bias_names import Named, name_kernel
from poslens.certificate.bias_sample import (
    BiasFunction,
    BiasSample,
    call_bias,
    past_only,
    tolerance,
)
from poslens.certificate.bias_sides import judge_direction
from poslens.certificate.bias_use import (
    alignment,
    by_position,
    check_repeatable,
    far_row,
    length_dependence,
)
from poslens.certificate.finding import Finding, Verdict
from poslens.toeplitz import project, row_aware_share

# Long enough for bfloat16 to run out of integers (256) and for T5's usual last bucket (from 91 or
# 113 on); no power of two, so that nothing fits by accident.
LENGTH = 300
SHORTER = 97
# For buckets that reach farther, where the function gives no single rows.
LONGER = 1024
# The share is told, not judged, and a smaller matrix tells it as well.
_SHARE_LENGTH = 48

_KNOWN = ("alibi", "t5", "kerple", "none")
_LOW_PRECISIONS = (torch.bfloat16, torch.float16)

Judgement = tuple[list[Finding], dict[str, Any], dict[str, Any]]


def judge_bias(
    bias: BiasFunction,
    heads: int | None = None,
    causal: bool | None = None,
    expected: Mapping[str, Any] | None = None,
) -> Judgement:
    """Findings on a bias (query_len, key_len) -> (H, L, M) or (H, 1, M), what it is, and curves.

    `heads` is how many heads there should be; `causal` says whether the model masks keys after
    the query, which decides how they are judged; `expected` holds values that were configured
    ("scheme", "slopes", "buckets", "max_distance", "heads", "causal"), see `expected_bias`.
    Raises InputError where the function raises, is random, or returns anything but such a bias.
    """
    expected = expected or {}
    heads = expected.get("heads", heads)
    causal = expected.get("causal", causal)
    square = call_bias(bias, LENGTH, LENGTH)
    recovered: dict[str, Any] = {
        "heads": square.raw.shape[0],
        "key_only": square.key_only,
        "dtype": _dtype(square.dtype),
    }
    check_repeatable(bias, square)
    findings = []
    if heads is not None and heads != recovered["heads"]:
        findings.append(_head_count(heads, recovered["heads"]))

    square, relative, precision = _relative(square, causal)
    findings.append(relative)
    if precision is None:
        return findings, recovered, {}
    if relative.verdict == "unusual":
        bias = past_only(bias)
    shorter = call_bias(bias, SHORTER, SHORTER)
    length, divisor = length_dependence(shorter, square, precision)
    aligned, recovered["decoding"] = alignment(bias, square, precision)
    findings += [length, aligned]
    far = None
    if divisor == 1 and recovered["decoding"] in ("end", "either"):
        far, beyond = far_row(bias, square, precision)
        findings.append(beyond)

    named, used = _name(bias, square, far, precision, divisor or 1.0)
    findings.append(
        judge_direction(named.direction, named.sides, named.recovered["scheme"], causal)
    )
    findings += named.findings
    findings.append(_precision(square, named, used))
    recovered |= {"direction": named.direction, **named.recovered}
    findings += compare_bias(expected, recovered)
    return findings, recovered, bias_curves(square, named, used)


def _head_count(expected: int, found: int) -> Finding:
    if found == 1:
        return Finding(
            "bias",
            "heads",
            "unusual",
            f"one bias for all {expected} heads",
            "Every head forgets at the same rate.",
            numbers={"heads": found},
        )
    return Finding(
        "bias",
        "heads",
        "wrong",
        f"{found} heads; {expected} expected",
        "The bias does not broadcast over the model's heads.",
        "Return one bias for each head.",
        {"heads": found, "expected": expected},
    )


def _relative(
    square: BiasSample, causal: bool | None
) -> tuple[BiasSample, Finding, torch.dtype | None]:
    """The sample to go on with, the finding, and in which precision the bias is relative."""
    unusable = _unusable_mask(square)
    if unusable:
        return square, unusable, None
    precision = _relative_in(square, square)
    if precision is not None:
        return square, _is_relative(square, precision), precision
    past = call_bias(past_only(lambda queries, keys: square.raw), LENGTH, LENGTH)
    precision = None if causal is False else _relative_in(past, square)
    if precision is not None:
        return past, _is_relative(past, precision, "before the query"), precision
    return square, by_position(square) or _not_relative(square), None


def _unusable_mask(square: BiasSample) -> Finding | None:
    """A mask within the bias that leaves nothing to judge, if there is one."""
    if square.counts_HLM.all():
        return None
    own_key_HL = square.counts_HLM.diagonal(dim1=-2, dim2=-1)
    if not own_key_HL.all():
        query = int((~own_key_HL).any(0).nonzero()[0])
        return Finding(
            "relative",
            "Toeplitz",
            "wrong",
            f"a query's own key is masked (query {query})",
            "The query cannot attend to itself; the first one has no key at all.",
            "Leave the diagonal unmasked.",
        )
    mask_HLM = square.counts_HLM.double()
    if torch.equal(project(mask_HLM), mask_HLM):
        return None
    return Finding(
        "relative",
        "Toeplitz",
        "undecidable",
        "which keys are masked does not depend on the offset alone",
        "A padding mask, or another mask over the bias, hides it.",
        "Hand over the bias without such a mask.",
    )


def _precisions(sample: BiasSample) -> Iterator[torch.dtype]:
    """What the bias may have been computed in: as returned, or lower if all values say so."""
    yield sample.dtype
    yield from (low for low in _LOW_PRECISIONS if low != sample.dtype and sample.on_grid(low))


def _relative_in(sample: BiasSample, whole: BiasSample) -> torch.dtype | None:
    """The first precision in which the sample is Toeplitz, a constant per row aside."""
    return next(
        (
            precision
            for precision in _precisions(whole)
            if bool((sample.departure_H <= tolerance(sample.scale_H, precision)).all())
        ),
        None,
    )


def _is_relative(sample: BiasSample, precision: torch.dtype, only: str = "") -> Finding:
    scale = float(sample.scale_H.max())
    allowed = float(tolerance(sample.scale_H, precision).max())
    departure = float(sample.departure_H.max())
    what = (
        "a function of the offset alone, up to a constant per row: departs by at most "
        f"{departure:.2g} logits of {scale:.3g} (tolerance {allowed:.2g})"
    )
    meaning = "Shifting all positions changes no attention weight."
    if only:
        what = f"over the keys {only}, {what}"
        meaning = (
            "The other keys have biases that depend on more than the offset: harmless only if "
            "they are masked."
        )
    numbers = {"departure": departure, "tolerance": allowed, "row_aware_share": _share(sample)}
    verdict: Verdict = "unusual" if only else "right"
    return Finding("relative", "Toeplitz", verdict, what, meaning, "", numbers)


def _not_relative(sample: BiasSample) -> Finding:
    departure = float(sample.departure_H.max())
    scale = float(sample.scale_H.max())
    return Finding(
        "relative",
        "Toeplitz",
        "wrong",
        f"not a function of the offset: pairs at the same offset differ by up to {departure:.3g} "
        f"logits of {scale:.3g}, a constant per row aside",
        "The same words get other attention weights when they stand elsewhere in the sequence.",
        "Compute the bias from query position - key position; look for query and key axes "
        "exchanged in a reshape, positions counted from the wrong end, or a missing head axis.",
        {"departure": departure, "row_aware_share": _share(sample)},
    )


def _share(sample: BiasSample) -> float:
    """The smallest row-aware Toeplitz share of a head; 1 where the rows are constant."""
    small = slice(None), slice(_SHARE_LENGTH), slice(_SHARE_LENGTH)
    mask_HLM = sample.counts_HLM[small]
    common = bool((mask_HLM == mask_HLM[:1]).all())
    found = row_aware_share(sample.values_HLM[small], mask_HLM[0] if common else mask_HLM)
    return float(found.value.nan_to_num(1.0).min())


def _name(
    bias: BiasFunction,
    square: BiasSample,
    far: BiasSample | None,
    precision: torch.dtype,
    divisor: float,
) -> tuple[Named, torch.dtype]:
    """The kernel's name, and the precision in which it has one.

    `divisor` undoes a division by the length. A function that gives no far rows is asked for a
    longer square where its buckets need one.
    """
    sample = square if far is None else far
    past_HN, future_HN = divisor * sample.last_row, divisor * square.first_row
    scale_H = divisor * torch.maximum(square.scale_H, sample.scale_H)
    names: list[tuple[Named, torch.dtype]] = []
    for used in _precisions(sample) if precision == square.dtype else [precision]:
        names.append((name_kernel(past_HN, future_HN, tolerance(scale_H, used)), used))
        if names[-1][0].recovered["scheme"] in _KNOWN:
            break
    else:
        names.reverse()
    named, used = names[-1]
    if far is None and named.recovered.get("complete") is False:
        longer = call_bias(bias, LONGER, LONGER)
        if torch.equal(longer.last_row[:, :LENGTH], square.last_row):
            return name_kernel(longer.last_row, longer.first_row, tolerance(scale_H, used)), used
    return named, used


def _precision(square: BiasSample, named: Named, used: torch.dtype) -> Finding:
    """What rounding does to the bias: judged where it was hidden, told where it shows."""
    returned, hidden = _dtype(square.dtype), _dtype(used)
    numbers: dict[str, Any] = {"dtype": returned}
    off = "exact"
    if named.misses_HN is not None:
        numbers["error"] = float(named.misses_HN.max())
        distance = named.misses_HN.shape[-1] - 1
        off = f"off by up to {numbers['error']:.2g} logits within distance {distance}"
    if used != square.dtype:
        return Finding(
            "precision",
            "rounding",
            "wrong",
            f"computed in {hidden}, returned as {returned}: {off}",
            "The rounding cannot be undone by a wider type; from 256 (bfloat16) or 2,048 "
            "(float16) on, not even whole positions are told apart.",
            "Compute positions, slopes and products in float32.",
            numbers,
        )
    if used in _LOW_PRECISIONS and named.misses_HN is not None:
        why = (
            "Biases by key position grow with the sequence, and so does their rounding; "
            "-m |offset| would keep near keys exact."
            if square.key_only
            else "Far keys only: rounding grows with the distance."
        )
        return Finding("precision", "rounding", "right", f"{returned}: {off}", why, "", numbers)
    return Finding("precision", "rounding", "right", f"{returned}: {off}", "", "", numbers)


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
