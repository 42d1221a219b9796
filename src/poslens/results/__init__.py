"""The result tables: what analyses write, and all that claims and reports read.

Layers and heads count from 0. One folder holds one run; `read` stacks the tables of many, and every
table read back carries the run's `scheme`, `task` and `seed` as its first columns. `collect` makes
of many runs one folder of a few small files, which reads the same: for results to be kept.
"""

from poslens.results.collected import collect, described_runs, read_object, run_key
from poslens.results.folders import RUNS, read, read_table, update_table, write_table
from poslens.results.schemas import (
    CONCENTRATION,
    CURVE,
    EFFECTS,
    KEY,
    LABELS,
    LENGTHS,
    MARGINS,
    RUN_TABLES,
    SEEDS,
    SUMMARY,
    Tables,
)

__all__ = [
    "CONCENTRATION",
    "CURVE",
    "EFFECTS",
    "KEY",
    "LABELS",
    "LENGTHS",
    "MARGINS",
    "RUNS",
    "RUN_TABLES",
    "SEEDS",
    "SUMMARY",
    "Tables",
    "collect",
    "described_runs",
    "read",
    "read_object",
    "read_table",
    "run_key",
    "update_table",
    "write_table",
]
