"""Heads: what removing each one costs, how sure that is, and whether one carries it all."""

from poslens.heads.ablate import STANDARD, Ablatable, ablate_run, is_ablated
from poslens.heads.edits import Edit, Reference
from poslens.heads.effects import Effort, measure

__all__ = [
    "STANDARD",
    "Ablatable",
    "Edit",
    "Effort",
    "Reference",
    "ablate_run",
    "is_ablated",
    "measure",
]
