"""Models: attention with three doors, the standard Transformer, the registry of schemes."""

from poslens.model.published import PUBLISHED, Preset, preset
from poslens.model.schemes import STUDY, build, parse_scheme
from poslens.model.sites import Sites, State, TransformerSites
from poslens.model.transformer import ModelSettings, Transformer

__all__ = [
    "PUBLISHED",
    "STUDY",
    "ModelSettings",
    "Preset",
    "Sites",
    "State",
    "Transformer",
    "TransformerSites",
    "build",
    "parse_scheme",
    "preset",
]
