"""Where position can be read in the residual stream, and in which directions it lies."""

from poslens.probing.probes import Score, probe
from poslens.probing.streams import filler_sequences, residual_streams
from poslens.probing.subspaces import (
    Angles,
    Explained,
    PositionParts,
    angles,
    dimensions,
    explained,
    mean_cos2,
)
from poslens.probing.tables import SEQUENCES, measure, prepare, probe_run

__all__ = [
    "SEQUENCES",
    "Angles",
    "Explained",
    "PositionParts",
    "Score",
    "angles",
    "dimensions",
    "explained",
    "filler_sequences",
    "mean_cos2",
    "measure",
    "prepare",
    "probe",
    "probe_run",
    "residual_streams",
]
