"""From per-example scores of one model to the table of effects.

Shapes: A layers, H heads, N sequences.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from poslens.errors import InputError
from poslens.heads.intervals import (
    LEVEL,
    Bools,
    Estimate,
    Floats,
    LossBootstrap,
    holm,
    paired_accuracy,
)

Metric = Literal["accuracy", "loss", "margin"]
METRICS: tuple[Metric, ...] = ("accuracy", "loss", "margin")


@dataclass(frozen=True)
class Measured:
    """One metric of one model on the same N held-out sequences, intact and ablated.

    Accuracy is given as right or wrong (bool; or a share of draws), loss as cross-entropy in nats,
    margin as the right class's score over the next. `layers_AN` is the model with all heads of a
    layer edited at once, `model_N` with all heads of all layers: the floor of what a layer's heads
    can lose is the former, of what their position can lose the latter. `layers` and `heads` are the
    numbers of those measured, by default all, from 0.

    Raises `InputError` for shapes that do not fit each other.
    """

    metric: Metric
    intact_N: NDArray[np.generic]
    heads_AHN: NDArray[np.generic]
    layers_AN: NDArray[np.generic]
    target: str = "head"
    method: str = "zero"
    model_N: NDArray[np.generic] | None = None
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        shape = self.heads_AHN.shape
        fits = (
            len(shape) == 3
            and self.intact_N.shape == (shape[2],)
            and self.layers_AN.shape == (shape[0], shape[2])
        )
        if not fits:
            raise InputError(
                f"{self.metric} has shapes {self.intact_N.shape} intact, {shape} by head and "
                f"{self.layers_AN.shape} by layer: give (N,), (layers, heads, N) and (layers, N)"
            )
        for axis, name in enumerate(("layers", "heads")):
            object.__setattr__(self, name, tuple(getattr(self, name) or range(shape[axis])))
        if (len(self.layers), len(self.heads)) != shape[:2]:
            raise InputError(
                f"{self.metric} is of {shape[0]} layers of {shape[1]} heads, but "
                f"{len(self.layers)} layers and {len(self.heads)} heads have numbers"
            )

    @property
    def harm_AHN(self) -> NDArray[np.float32]:
        """Per example, what editing each head costs: fall in accuracy or margin, rise in loss."""
        rise_AHN = self.heads_AHN.astype(np.float32) - self.intact_N.astype(np.float32)
        return rise_AHN if self.metric == "loss" else -rise_AHN

    @property
    def paired(self) -> bool:
        """Whether answers are right or wrong (or shares of draws): proportions, not amounts."""
        return self.metric == "accuracy"


@dataclass(frozen=True)
class Intervals:
    """Effects with their interval at `LEVEL` and at the level Holm's procedure gives each.

    Arrays have shape (A, H) for heads, (A,) for whole layers and () for the whole model.
    """

    effect: Floats
    low: Floats
    high: Floats
    p: Floats
    holm_low: Floats
    holm_high: Floats

    @property
    def harmful(self) -> Bools:
        """Whose Holm interval lies above 0."""
        return self.holm_low > 0


@dataclass(frozen=True)
class Effects:
    """Effects of heads, of layers as wholes and, where measured, of the model as one."""

    measured: Measured
    heads: Intervals
    layers: Intervals
    model: Intervals | None = None


def estimate(measured: Measured, seed: int = 0) -> Effects:
    """Effect of every head, every whole layer and the whole model, with intervals.

    Holm's procedure runs over all heads measured, apart from them over the layers, and leaves the
    whole model's interval as it is.
    Accuracy: `paired_accuracy`. Loss: `LossBootstrap`, with resamples drawn from `seed`.
    """
    layers, heads, sequences = measured.heads_AHN.shape
    single, whole = layers * heads, layers * heads + layers
    variants = [measured.heads_AHN.reshape(single, sequences), measured.layers_AN]
    if measured.model_N is not None:
        variants.append(measured.model_N[None])
    variants_VN = np.concatenate(variants)
    families = [slice(0, single), slice(single, whole), slice(whole, None)]
    if measured.paired:
        marginal = paired_accuracy(measured.intact_N, variants_VN)
        joint = paired_accuracy(measured.intact_N, variants_VN, _holm_levels(marginal.p, families))
    else:
        sign = 1.0 if measured.metric == "loss" else -1.0
        rise_VN = variants_VN.astype(np.float64) - measured.intact_N.astype(np.float64)
        bootstrap = LossBootstrap(sign * rise_VN, family=single, seed=seed)
        marginal = bootstrap.interval(LEVEL)
        joint = bootstrap.interval(_holm_levels(marginal.p, families))
    return Effects(
        measured,
        heads=_intervals(marginal, joint, families[0], (layers, heads)),
        layers=_intervals(marginal, joint, families[1], (layers,)),
        model=None if measured.model_N is None else _intervals(marginal, joint, families[2], ()),
    )


def _holm_levels(p_V: Floats, families: list[slice]) -> Floats:
    return np.concatenate([holm(p_V[family])[1] for family in families])


def _intervals(
    marginal: Estimate, joint: Estimate, part: slice, shape: tuple[int, ...]
) -> Intervals:
    arrays = (*marginal, joint.low, joint.high)
    return Intervals(*(array[part].reshape(shape) for array in arrays))


def effect_rows(effects: Effects) -> list[dict[str, object]]:
    """Rows of the table EFFECTS (`poslens.results`).

    The whole model first, where measured (layer -1, head -1), then by layer, the whole layer
    (head -1) and its heads.
    """
    measured = effects.measured
    rows = [] if effects.model is None else [_row(measured, effects.model, (), -1, -1)]
    for a, layer in enumerate(measured.layers):
        rows.append(_row(measured, effects.layers, (a,), layer, -1))
        for h, head in enumerate(measured.heads):
            rows.append(_row(measured, effects.heads, (a, h), layer, head))
    return rows


def _row(
    measured: Measured, found: Intervals, index: tuple[int, ...], layer: int, head: int
) -> dict[str, object]:
    return {
        "layer": layer,
        "head": head,
        "target": measured.target,
        "method": measured.method,
        "metric": measured.metric,
        "intact": float(measured.intact_N.mean()),
        "effect": float(found.effect[index]),
        "low": float(found.low[index]),
        "high": float(found.high[index]),
        "p": float(found.p[index]),
        "holm_low": float(found.holm_low[index]),
        "holm_high": float(found.holm_high[index]),
        "sequences": len(measured.intact_N),
    }
