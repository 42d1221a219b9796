"""Runs whose budget ended while they were still getting better."""

from poslens.claims.base import Cell, still_improving
from poslens.results import KEY, Tables

RISING = "↑"  # marks their schemes
Run = tuple[str, str, int]


def still_rising(tables: Tables) -> set[Run]:
    """The runs (scheme, task, seed) that claims call still improving, of those with a curve."""
    runs = set(tables.summary.select(*KEY).iter_rows())
    runs &= set(tables.curve.select(*KEY).unique().iter_rows())
    return {run for run in runs if still_improving(tables, Cell(run[0], run[1]), run[2])}


def rising_schemes(tables: Tables, task: str) -> set[str]:
    """The schemes with such a run of the task, of any seed."""
    return {scheme for scheme, of, _ in still_rising(tables) if of == task}
