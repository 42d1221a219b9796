"""How much of a layer's effect one head carries, and the verdict on it.

Shapes: A layers, H heads, N sequences, R resamples or permutations.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from poslens.errors import InputError
from poslens.heads.estimates import METRICS, Effects, Metric
from poslens.heads.intervals import LEVEL, resampled_means
from poslens.model import Sites

LayerVerdict = Literal["deposit", "weak deposit", "spread", "none", "undecidable", "undefined"]

NOTHING_TO_LOSE = 0.3  # accuracy above the length-only baseline below which nothing is decided
DEPOSIT_SIZE = 0.3  # of what can be lost, which a deposit's lower bound must exceed
SECOND_HEAD = 1 / 3  # of the largest effect's lower bound, below which the others must stay
DEPOSIT_HEADS = 2.0  # effective heads, which a deposit stays below
SHARE_RESAMPLES = 2_000  # bootstrap resamples behind the intervals of shares
PERMUTATIONS = 199  # random permutations behind null_p


@dataclass(frozen=True)
class Concentration:
    """Concentration of one metric in one layer: the columns of the table CONCENTRATION.

    Shares are s_h = e_h / sum e of the effects e clipped at 0, and set to 0 where the Holm interval
    holds 0. All that is made of shares is NaN for a layer of one head, and where no head counts.
    `largest` and `second` are the two largest effects as measured; their bounds are Holm bounds,
    `second_high` the highest of any head but the largest.
    """

    heads: int
    counted: int
    top_head: int
    top_share: float
    top_share_low: float
    top_share_high: float
    effective_heads: float
    effective_heads_low: float
    effective_heads_high: float
    deposit_index: float
    null_p: float
    lost: float
    largest: float
    largest_low: float
    second: float
    second_high: float

    @property
    def concentrated(self) -> bool:
        """One head above noise, the bounds of all others below a third of its own lower bound."""
        return (
            self.largest_low > 0
            and self.second_high < SECOND_HEAD * self.largest_low
            and self.effective_heads < DEPOSIT_HEADS
        )

    @property
    def large(self) -> bool:
        """The largest effect is sure to exceed `DEPOSIT_SIZE` of what can be lost."""
        return self.lost > 0 and self.largest_low > DEPOSIT_SIZE * self.lost


def concentration(effects: Effects, layer: int, seed: int = 0) -> Concentration:
    """Concentration of the effects in one layer, with bootstrap intervals over sequences.

    The resamples keep the set of heads that count, so their intervals are those of the shares
    among these heads.
    """
    effect_H = effects.heads.effect[layer]
    counts_H = effects.heads.harmful[layer]
    harm_HN = effects.measured.harm_AHN[layer]
    heads = len(effect_H)

    top, heads_carrying = shares(np.where(counts_H, effect_H, 0.0))
    means_RH = resampled_means(harm_HN, SHARE_RESAMPLES, seed)
    top_R, heads_carrying_R = shares(np.where(counts_H, means_RH, 0.0))
    order = np.argsort(-effect_H, kind="stable")
    alone = heads == 1
    return Concentration(
        heads=heads,
        counted=int(counts_H.sum()),
        top_head=int(order[0]),
        top_share=float(top),
        **_bounds("top_share", top_R),
        effective_heads=float(heads_carrying),
        **_bounds("effective_heads", heads_carrying_R),
        deposit_index=float("nan") if alone else float((top - 1 / heads) / (1 - 1 / heads)),
        null_p=permutation_p(harm_HN, seed),
        lost=_lost(effects, layer),
        largest=float(effect_H[order[0]]),
        largest_low=float(effects.heads.holm_low[layer, order[0]]),
        second=float("nan") if alone else float(effect_H[order[1]]),
        second_high=float("nan")
        if alone
        else float(effects.heads.holm_high[layer, order[1:]].max()),
    )


def _lost(effects: Effects, layer: int) -> float:
    """What can be lost: all heads of the layer, or the position of every head of the model."""
    if effects.measured.target == "head":
        return float(effects.layers.effect[layer])
    if effects.model is None:
        raise InputError(
            "what can be lost by taking position is not known without the model's answers with "
            "every head's position taken; give them as model_N"
        )
    return float(effects.model.effect)


def shares(effect_H: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Largest share, and effective heads 1 / sum s^2, of effects (..., H) clipped at 0.

    NaN for one head, and where all effects are 0 or below.
    """
    clipped_H = np.maximum(effect_H, 0.0).astype(np.float64)
    total = clipped_H.sum(axis=-1, keepdims=True)
    if effect_H.shape[-1] == 1:
        total = np.zeros_like(total)
    with np.errstate(invalid="ignore", divide="ignore"):
        share_H = np.where(total > 0, clipped_H / total, np.nan)
        return share_H.max(axis=-1), 1 / np.square(share_H).sum(axis=-1)


def permutation_p(harm_HN: NDArray[np.float32], seed: int = 0) -> float:
    """How often the top share is as large when each example's effects are permuted over heads.

    The null: which head matters is drawn anew for every example. Top shares are of all clipped
    effects here, counted or not, on both sides of the comparison. p = (1 + number of
    permutations with a top share as large) / (1 + permutations); NaN where no share is defined.
    """
    observed = float(shares(harm_HN.mean(axis=1))[0])
    if np.isnan(observed):
        return float("nan")
    generator = np.random.default_rng(seed)
    # An example that treats all heads alike is the same under every permutation.
    varied_N = harm_HN.min(axis=0) < harm_HN.max(axis=0)
    alike = harm_HN[0, ~varied_N].sum(dtype=np.float64)
    varied_NH = np.ascontiguousarray(harm_HN[:, varied_N].T)
    mean_RH = (
        np.stack(
            [
                (generator.permuted(varied_NH, axis=1).sum(axis=0, dtype=np.float64) + alike)
                for _ in range(PERMUTATIONS)
            ]
        )
        / harm_HN.shape[1]
    )
    top_R = shares(mean_RH)[0]
    return float((1 + np.count_nonzero(top_R >= observed - 1e-9)) / (1 + PERMUTATIONS))


def verdict(accuracy: Concentration, loss: Concentration, room: float) -> LayerVerdict:
    """The verdict on one layer, from both metrics together.

    `room` is the intact accuracy above the length-only baseline. In this order:
    *undecidable*: `room` below `NOTHING_TO_LOSE`, or one head only;
    *none*: no head above noise on either metric;
    *deposit*: on both metrics the same head is concentrated and large;
    *weak deposit*: concentrated on both, but not large on both;
    *spread*: the rest.
    """
    if room < NOTHING_TO_LOSE or accuracy.heads == 1:
        return "undecidable"
    if accuracy.counted == 0 and loss.counted == 0:
        return "none"
    one_head = accuracy.top_head == loss.top_head
    if not (one_head and accuracy.concentrated and loss.concentrated):
        return "spread"
    return "deposit" if accuracy.large and loss.large else "weak deposit"


def concentration_rows(
    found: Mapping[Metric, Effects], baseline: float, seed: int = 0
) -> list[dict[str, object]]:
    """Rows of the table CONCENTRATION (`poslens.results`): each layer on every metric found.

    The verdict is that of accuracy and loss together, the same in all rows of a layer. `baseline`
    is the accuracy of the best answer that sees only a sequence's length. Raises `InputError` where
    accuracy or loss is missing, or metrics are of different edits or heads.
    """
    if not {"accuracy", "loss"} <= set(found):
        raise InputError(f"a verdict needs accuracy and loss, got {', '.join(found)}; measure both")
    edits = {
        (it.measured.heads_AHN.shape, it.measured.target, it.measured.method): metric
        for metric, it in found.items()
    }
    if len(edits) > 1:
        raise InputError(
            "metrics are of different edits or heads: "
            f"{', '.join(f'{metric} has {edit}' for edit, metric in edits.items())}; "
            "measure all on the same heads and sequences"
        )
    room = float(found["accuracy"].measured.intact_N.mean()) - baseline
    rows: list[dict[str, object]] = []
    for layer in range(len(found["accuracy"].layers.effect)):
        measured = {
            metric: concentration(effects, layer, seed) for metric, effects in found.items()
        }
        judged = verdict(measured["accuracy"], measured["loss"], room)
        rows.extend(
            {
                "layer": layer,
                "target": found[metric].measured.target,
                "method": found[metric].measured.method,
                "metric": metric,
                **asdict(it),
                "verdict": judged,
            }
            for metric, it in measured.items()
        )
    return rows


def undefined_rows(target: str, method: str, sites: Sites) -> list[dict[str, object]]:
    """Rows of the table CONCENTRATION for an edit that is not defined for a model."""
    nothing = {entry.name: float("nan") for entry in fields(Concentration)}
    return [
        {
            **{"layer": layer, "target": target, "method": method, "metric": metric},
            **nothing,
            **{"heads": sites.heads_in(layer), "counted": 0, "top_head": None},
            "verdict": "undefined",
        }
        for layer in range(sites.layers)
        for metric in METRICS
    ]


def _bounds(name: str, values_R: NDArray[np.float64]) -> dict[str, float]:
    """Percentile interval at `LEVEL`, over the resamples in which the value is defined."""
    defined_R = values_R[np.isfinite(values_R)]
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.quantile(defined_R, tails) if len(defined_R) else (np.nan, np.nan)
    return {f"{name}_low": float(low), f"{name}_high": float(high)}
