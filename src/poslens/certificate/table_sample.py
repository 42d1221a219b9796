"""Reading a table of positions, given as rows or as a function of positions.

Shapes: P positions (rows), E width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from poslens.certificate.calls import CallError, guarded, needs_gpu
from poslens.errors import InputError

TableFunction = Callable[[Tensor], Any]

# Values read at most: 32 MiB in float64.
_VALUES = 1 << 22
# Where a table may end, tried in turn; the last is one of the positions precision is judged at.
_LENGTHS = (1, 16, 256, 4096, 65_536)


@dataclass(frozen=True)
class TableSample:
    """Rows 0 .. P - 1 in float64, as many as are read; `length` None where no end was found.

    `function` gives rows at other positions; None for a table given as rows.
    """

    rows_PE: Tensor
    dtype: torch.dtype
    length: int | None
    function: TableFunction | None


def read_table(table: Any) -> TableSample:
    """Reads a table (P, E) or (1, P, E), or a callable positions (P,) -> (P, E) or (1, P, E).

    Raises InputError for other shapes, for values that are no floats, and for a callable that
    raises at position 0 or answers differently the second time.
    """
    if isinstance(table, Tensor | np.ndarray):
        raw_PE = _matrix(table, None, "the table")
        rows = _rows(raw_PE.shape[1], len(raw_PE))
        return TableSample(raw_PE[:rows].double(), raw_PE.dtype, len(raw_PE), None)
    if not callable(table):
        raise InputError(
            "expected a table (length, width) or a function of positions, "
            f"got {type(table).__name__}"
        )
    first = call_table(table, torch.arange(1))
    length = _length(table)
    rows = _rows(first.shape[1], length or _VALUES)
    while rows > 1 and not _takes(table, torch.arange(rows)):
        rows //= 2  # it takes the position by itself, but not as one of so many
    raw_PE = call_table(table, torch.arange(rows))
    if not torch.equal(raw_PE.nan_to_num(), call_table(table, torch.arange(rows)).nan_to_num()):
        raise InputError(
            "the table is another each time it is called; call .eval() first if there is dropout"
        )
    return TableSample(raw_PE.double(), raw_PE.dtype, length, table)


def call_table(table: TableFunction, positions: Tensor) -> Tensor:
    """The rows at those positions, (P, E), in the precision returned."""
    try:
        answer = guarded(table, positions)
    except CallError as error:
        hint = "; run this where there is a GPU" if needs_gpu(str(error)) else ""
        raise InputError(
            f"the table called with positions {_range(positions)} raised {error}{hint}"
        ) from error
    return _matrix(answer, len(positions), f"the table called with {len(positions)} positions")


def _matrix(answer: Any, rows: int | None, what: str) -> Tensor:
    if isinstance(answer, Tensor):
        raw = answer.detach().cpu()
    elif isinstance(answer, np.ndarray) and answer.dtype.kind in "fiu":
        raw = torch.from_numpy(answer.copy())
    else:
        raise InputError(f"{what} is {type(answer).__name__}; expected a tensor or array of floats")
    shape = tuple(raw.shape)
    if raw.ndim == 3 and shape[0] == 1:
        raw = raw[0]
    if raw.ndim != 2 or 0 in raw.shape or (rows is not None and raw.shape[0] != rows):
        raise InputError(f"{what} has shape {shape}; expected ({rows or 'length'}, width)")
    if not raw.is_floating_point():
        raise InputError(f"{what} holds {raw.dtype}; expected floating-point values")
    return raw


def _rows(width: int, length: int) -> int:
    return max(1, min(length, _VALUES // width, _LENGTHS[3]))


def _length(table: TableFunction) -> int | None:
    """How many positions the table takes, from 0 on; None where it takes all that are tried."""
    good = 1
    for bad in (*_LENGTHS[1:], 1_048_576):
        if _takes(table, torch.tensor([bad - 1])):
            good = bad
            continue
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (
                (middle, bad) if _takes(table, torch.tensor([middle - 1])) else (good, middle)
            )
        return good
    return None


def _takes(table: TableFunction, positions: Tensor) -> bool:
    try:
        guarded(table, positions)
    except CallError:
        return False
    return True


def _range(positions: Tensor) -> str:
    if len(positions) == 1:
        return str(int(positions[0]))
    return f"{int(positions[0])} .. {int(positions[-1])}"
