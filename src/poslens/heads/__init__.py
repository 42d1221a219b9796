"""Heads: what removing each one costs, how sure that is, and whether one carries it all."""

from poslens.heads.ablate import LAST_TABLE, ablate_run
from poslens.heads.edits import Edit, Reference
from poslens.heads.effects import Effort, measure

__all__ = ["LAST_TABLE", "Edit", "Effort", "Reference", "ablate_run", "measure"]
