"""Heads: what removing each one costs, how sure that is, and whether one carries it all."""

from poslens.heads.ablate import LAST_TABLE, ablate_run
from poslens.heads.effects import zero_ablation

__all__ = ["LAST_TABLE", "ablate_run", "zero_ablation"]
