"""The preset `published`: the code released with Gu et al. 2026 (arXiv 2505.13027) as switches.

One row per scheme, since that code differs from the standard model in other ways for each. Every
switch is a setting of its own and can be used alone; `docs/published.md` explains them.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from poslens.errors import InputError
from poslens.model.schemes import parse_scheme

Values = dict[str, Any]


@dataclass(frozen=True)
class Preset:
    """What a published run has in place of the defaults, by setting.

    `model` are values for ModelSettings, `parts` for the scheme's parts, `task` for the task's
    settings, `training` for TrainingSettings. Sizes, budget and learning rate are not here: they
    belong together, and the profile `paper` has the published ones.
    """

    model: Values
    parts: dict[str, Values] = field(default_factory=dict)
    task: Values = field(default_factory=lambda: {"fillers": "published"})
    training: Values = field(default_factory=lambda: {"betas": (0.98, 0.9), "weight_decay": 1e-5})

    def only(self, switch: str) -> "Preset | None":
        """What one switch of `SWITCHES` sets in it; None where that is nothing."""
        wanted = {*SWITCHES[switch]}

        def kept(values: Values, where: str) -> Values:
            return {name: it for name, it in values.items() if f"{where}.{name}" in wanted}

        parts = {part: kept(own, f"parts.{part}") for part, own in self.parts.items()}
        found = Preset(
            kept(self.model, "model"),
            {part: own for part, own in parts.items() if own},
            kept(self.task, "task"),
            kept(self.training, "training"),
        )
        return found if any(vars(found).values()) else None


# What each switch sets, when it is thrown alone: every setting of a preset belongs to one of them.
SWITCHES: dict[str, tuple[str, ...]] = {
    "memory": ("model.memory_from_embeddings",),
    "table": ("model.extra_table", "parts.sinusoidal.layout"),
    "slopes": ("parts.alibi.slopes",),
    "fillers": ("task.fillers",),
    "offsets": ("parts.t5.exact", "model.bias_per_layer"),
    "query": ("parts.mla.shared_rotary_query",),
    "step": ("parts.rope.step",),
    "padding": ("model.mask_padding",),
    "norm": ("model.final_norm",),
    "dropout": ("model.dropout",),
    "activation": ("model.activation",),
    "optimiser": ("training.betas", "training.weight_decay"),
}

_MULTI_HEAD = {
    "memory_from_embeddings": True,
    "mask_padding": False,
    "final_norm": False,
    "dropout": 0.1,
}
_HALVES = {"sinusoidal": {"layout": "half"}}

PUBLISHED = {
    "nope": Preset(_MULTI_HEAD),
    "sinusoidal": Preset(_MULTI_HEAD, _HALVES),
    "learned": Preset(_MULTI_HEAD),  # its name there: random
    "t5": Preset(_MULTI_HEAD | {"bias_per_layer": True}, {"t5": {"exact": True}}),  # relative
    "alibi": Preset(_MULTI_HEAD, {"alibi": {"slopes": "published"}}),
    "rope": Preset(_MULTI_HEAD | {"extra_table": "sinusoidal"}),
    "rope@k": Preset(_MULTI_HEAD),
    "sinusoidal+rope": Preset(_MULTI_HEAD, _HALVES),  # the same model as rope
    "mla": Preset(
        {"extra_table": "learned", "activation": "gelu", "dropout": 0.1},
        {"mla": {"shared_rotary_query": True}, "rope": {"step": "published"}},
    ),
}


def preset(scheme: str) -> Preset:
    """The preset of a scheme. Raises InputError for an unknown one and for one not published."""
    parse_scheme(scheme)
    row = re.sub(r"^rope@\d+$", "rope@k", scheme)
    if row not in PUBLISHED:
        raise InputError(
            f"the study's code has no {scheme!r}, so there is no preset; "
            f"it has: {', '.join(PUBLISHED)}"
        )
    return PUBLISHED[row]
