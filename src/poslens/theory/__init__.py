"""Gradient seeds: what more position in a head would do to the loss, and what follows from it."""

from poslens.theory.seeds import Recorded, fresh, record, seeds_and_losses
from poslens.theory.tables import EXAMPLES, Plan, theory_run

__all__ = [
    "EXAMPLES",
    "Plan",
    "Recorded",
    "fresh",
    "record",
    "seeds_and_losses",
    "theory_run",
]
