"""Judging a table of positions that is added to the input: sinusoidal or free, and what is wrong.

Shapes: P positions (rows), E width.

A sinusoidal table is relative in a way a free one need not be: the products of its rows,
sum_f cos((i - j) theta_f), depend on the offset alone. Tolerances are the certificate's: a phase at
position p may be off by max(1e-6, 4 eps p theta_max), eps that of float32, and a stored value by
one rounding of its type.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from poslens.certificate.bias_curves import rounded
from poslens.certificate.finding import Finding
from poslens.certificate.sinusoidal import judge_sinusoidal
from poslens.certificate.table_sample import TableSample, call_table, read_table
from poslens.certificate.waves import Waves, recover_waves
from poslens.toeplitz import share, symbol

Judgement = tuple[list[Finding], dict[str, Any], dict[str, Any]]

_LOW_PRECISIONS = (torch.bfloat16, torch.float16)
# Rows whose products are told by offset.
_GRAM_ROWS = 128
# Waves are not looked for in fewer rows: too little to tell a frequency by.
_LEAST_ROWS = 4


def judge_table(table: Any, expected: Mapping[str, Any] | None = None) -> Judgement:
    """Findings on a table (length, width) or a callable positions (P,) -> (P, width).

    The second and third values are what was recovered (kind, length, width; base, layout, offset
    and scale of a sinusoidal one) and curves. `expected` holds values that were configured:
    "kind" ("sinusoidal" or "free"), "length", "width", "base", "layout". Raises InputError where
    it is no such table.
    """
    sample = read_table(table)
    recovered: dict[str, Any] = {
        "width": sample.rows_PE.shape[1],
        "length": sample.length,
        "dtype": str(sample.dtype).removeprefix("torch."),
    }
    findings = [_finite(sample)]
    if findings[0].verdict == "wrong":
        return findings, recovered, {}
    findings += _reads_positions(sample)
    distinct = _distinct(sample.rows_PE)
    # Beyond its end, a table that repeats itself or stands still says nothing about its own rows.
    own = distinct.numbers.get("own_rows", len(sample.rows_PE))
    sample = replace(sample, rows_PE=sample.rows_PE[:own])
    curves = {"gram": _gram_curve(sample.rows_PE)}
    waves, stored = _waves(sample)
    # Of waves, phases say more than equal rows do: which a coarse type may give to right phases.
    if waves is None or distinct.verdict != "wrong" or "own_rows" in distinct.numbers:
        findings.append(distinct)
    if distinct.verdict == "undecidable":
        recovered["kind"] = "constant"
    elif waves is None:
        gram = _gram_share(sample.rows_PE)
        recovered |= {"kind": "free", "gram_toeplitz_share": gram}
        findings.append(_free(sample, gram))
    else:
        sinusoidal, law, curves["error"] = judge_sinusoidal(sample, waves, stored)
        recovered |= _recovered(waves) | law
        findings += sinusoidal
    findings += _compare(expected or {}, recovered)
    return findings, recovered, curves


def _waves(sample: TableSample) -> tuple[Waves | None, torch.dtype]:
    """The waves in a table, and the precision its values are rounded to."""
    rows_PE = sample.rows_PE
    if rows_PE.shape[1] % 2:  # an odd width ends in a sine without its cosine, or in padding
        rows_PE = rows_PE[:, :-1]
    # Rows of zeros are padding, which comes first.
    empty = (rows_PE == 0).all(-1).nonzero()[:, 0]
    first_row = int(empty[-1]) + 1 if len(empty) else 0
    rows_PE = rows_PE[first_row:]
    if len(rows_PE) < _LEAST_ROWS or rows_PE.shape[1] == 0:
        return None, sample.dtype
    for precision in (sample.dtype, *_LOW_PRECISIONS):
        on_grid = bool((rows_PE.to(precision).double() == rows_PE).all())
        waves = recover_waves(rows_PE, precision) if on_grid else None
        if waves is not None:
            return replace(waves, first_row=first_row), precision
    return None, sample.dtype


def _recovered(waves: Waves) -> dict[str, Any]:
    return {
        "kind": "sinusoidal",
        "layout": waves.layout,
        "sine_first": waves.sine_first,
        "offset": round(waves.offset - waves.first_row, 6) + 0.0,  # never -0
        "amplitude": waves.amplitude,
        "frequencies": waves.frequencies_F.tolist(),
    }


def _finite(sample: TableSample) -> Finding:
    bad_P = ~sample.rows_PE.isfinite().all(-1)
    if not bad_P.any():
        return Finding("table", "finite", "right", "all values are finite")
    rows = bad_P.nonzero()[:, 0]
    return Finding(
        "table",
        "finite",
        "wrong",
        f"{len(rows)} rows hold NaN or infinity, row {int(rows[0])} first",
        "A token at such a position turns everything that attends to it to NaN.",
        "Look for an overflow in half precision, or memory that was never filled.",
        {"rows": rows[:100].tolist()},
    )


def _reads_positions(sample: TableSample) -> list[Finding]:
    """Does a function give each position its own row, wherever it stands in the input?"""
    if sample.function is None:
        return []
    count = min(16, len(sample.rows_PE) // 2)
    if count == 0:
        return []
    positions = torch.arange(count - 1, 2 * count - 1).flip(0)
    rows_PE = call_table(sample.function, positions).double()
    off = (rows_PE - sample.rows_PE[positions]).abs().max()
    if off <= 4 * torch.finfo(sample.dtype).eps * sample.rows_PE.abs().max():
        return [
            Finding("use", "positions", "right", "reads the positions it is given, in any order")
        ]
    return [
        Finding(
            "use",
            "positions",
            "wrong",
            "does not read the positions it is given: the same position has another row when "
            "others stand before it",
            "Left padding and decoding with a cache give tokens the positions of others.",
            "Look up row p for position p; do not count along the input.",
        )
    ]


def _distinct(rows_PE: Tensor) -> Finding:
    """Are the rows told apart? Rows of zeros are taken for padding."""
    count = len(rows_PE)
    if count > 1 and bool((rows_PE == rows_PE[:1]).all()):
        return Finding(
            "table",
            "distinct rows",
            "undecidable",
            "all rows are the same",
            "Nothing tells positions apart: a table before training, perhaps.",
            "Hand over a trained or random table.",
        )
    filled_P = (rows_PE != 0).any(-1)
    _, inverse_P, counts = rows_PE.unique(dim=0, return_inverse=True, return_counts=True)
    repeated_P = (counts[inverse_P] > 1) & filled_P
    if not repeated_P.any():
        zeros = int((~filled_P).sum())
        note = f"; {zeros} of zeros" if zeros else ""
        return Finding("table", "distinct rows", "right", f"no two of {count} rows are equal{note}")
    numbers = {"repeated": int(repeated_P.sum())}
    again = ((inverse_P[1:] == inverse_P[0]).nonzero()[:, 0] + 1).tolist()
    period = next((p for p in again if torch.equal(inverse_P[p:], inverse_P[:-p])), None)
    last = int((inverse_P != inverse_P[-1]).nonzero()[-1]) + 1
    if period is not None:
        numbers["own_rows"] = period
        what = f"rows repeat after {period}: the table is read modulo its length"
    elif count - last > 2:
        numbers["own_rows"] = last + 1
        what = f"all rows from {last} on are the same: positions beyond the last are clamped"
    else:
        first = int(repeated_P.nonzero()[0])
        what = f"{numbers['repeated']} rows equal another, row {first} first"
    return Finding(
        "table",
        "distinct rows",
        "wrong",
        what,
        "Tokens at these positions cannot be told apart.",
        "Make the table as long as the sequences, and let longer ones raise an error.",
        numbers,
    )


def _free(sample: TableSample, gram: float) -> Finding:
    length = "of any length" if sample.length is None else f"{sample.length} positions"
    size = float(sample.rows_PE.square().mean().sqrt())
    return Finding(
        "table",
        "scheme",
        "right",
        f"free (learned): {length}, {sample.rows_PE.shape[1]} channels, root mean square "
        f"{size:.3g}; {gram:.0%} of the products of rows is a function of the offset",
        "Absolute positions; there is no formula to compare it with.",
        "",
        {"gram_toeplitz_share": gram, "rms": size},
    )


def _gram_share(rows_PE: Tensor) -> float:
    rows_PE = rows_PE[:_GRAM_ROWS]
    return float(share(rows_PE @ rows_PE.mT).value.nan_to_num(1.0))


def _gram_curve(rows_PE: Tensor) -> dict[str, Any]:
    rows_PE = rows_PE[:_GRAM_ROWS]
    gram_PP = rows_PE @ rows_PE.mT
    count = len(rows_PE)
    means = symbol(gram_PP).values[count - 1 :]
    diagonals = [gram_PP.diagonal(offset) for offset in range(count)]
    return {
        "title": "Products of rows by offset",
        "x_label": "Offset (positions)",
        "y_label": "Product of two rows",
        "x": list(range(count)),
        "lines": {"mean": rounded(means)},
        "bands": {
            "smallest": rounded(torch.stack([it.min() for it in diagonals])),
            "largest": rounded(torch.stack([it.max() for it in diagonals])),
        },
        "note": "One line where the products depend on the offset alone, as those of a sinusoidal "
        "table do.",
    }


def _compare(expected: Mapping[str, Any], recovered: Mapping[str, Any]) -> list[Finding]:
    findings = []
    for name, wanted in expected.items():
        found = recovered.get(name)
        numbers = {"expected": wanted, "found": found}
        # A table may be longer than a model needs, or have no end at all.
        enough = name == "length" and (found is None or found >= wanted)
        if found == wanted or enough:
            what = f"{name} {'without end' if found is None else found}, as configured"
            findings.append(Finding("expected", name, "right", what, numbers=numbers))
        else:
            findings.append(
                Finding(
                    "expected",
                    name,
                    "wrong",
                    f"{name} is {found}; the configuration says {wanted}",
                    "The code and the configuration disagree.",
                    f"Set {name} to {wanted}.",
                    numbers,
                )
            )
    return findings
