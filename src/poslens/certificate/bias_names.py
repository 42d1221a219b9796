"""Naming a bias kernel: ALiBi, T5, KERPLE, or none of them and by how much.

Shapes: H heads, N distances 0, 1, .. from the query.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from poslens.certificate.bias_sides import Direction, Sides, split
from poslens.certificate.buckets import Buckets, recover_buckets, steps
from poslens.certificate.finding import Finding
from poslens.certificate.kernel_families import Fit, fit_linear, fit_logarithmic, fit_power
from poslens.certificate.slopes import name_slopes

# A function that changes at every distance, or nearly so, has no buckets.
_STEPS_SHARE = 0.5


@dataclass(frozen=True)
class Named:
    """What a kernel was found to be: `recovered["scheme"]` and its parameters.

    `fitted_HN` is the named function itself, and `misses_HN` how far the kernel is from it, where
    it has a formula; heads without bias are left out.
    """

    sides: Sides
    direction: Direction
    findings: list[Finding] = field(default_factory=list)
    recovered: dict[str, Any] = field(default_factory=dict)
    fitted_HN: Tensor | None = None
    misses_HN: Tensor | None = None


def name_kernel(past_HN: Tensor, future_HN: Tensor, tolerance_H: Tensor) -> Named:
    """Names a kernel whose values are each known up to the tolerance, (H,)."""
    sides = split(past_HN, future_HN, tolerance_H)
    direction = sides.direction
    if direction == "none":
        return Named(sides, direction, recovered={"scheme": "none"})
    kernel_HN = sides.visible_HN
    active_H = kernel_HN.abs().amax(-1) > tolerance_H
    kernel_HN, allowed_H = kernel_HN[active_H], tolerance_H[active_H]
    linear = fit_linear(kernel_HN)
    if _fits(linear, allowed_H):
        return _linear(sides, direction, linear, active_H, allowed_H, tolerance_H)
    edges = steps(kernel_HN)
    if len(edges) <= _STEPS_SHARE * kernel_HN.shape[-1]:
        return _bucketed(sides, direction, kernel_HN, edges)
    logarithmic, power = fit_logarithmic(kernel_HN), fit_power(kernel_HN)
    for variant, fit in (("logarithmic", logarithmic), ("power", power)):
        if _fits(fit, allowed_H):
            return _kerple(sides, direction, variant, fit)
    return _free(sides, direction, kernel_HN, linear, logarithmic, power)


def _fits(fit: Fit, allowed_H: Tensor) -> bool:
    """Twice the tolerance: the fitted function takes up part of the error itself."""
    return bool((fit.misses_HN.amax(-1) <= 2 * allowed_H).all())


def _linear(
    sides: Sides,
    direction: Direction,
    fit: Fit,
    active_H: Tensor,
    allowed_H: Tensor,
    tolerance_H: Tensor,
) -> Named:
    # Least squares through the origin turns an error e at each of N distances into at most
    # e sum d / sum d^2 = 3 e / (2 N) of slope, and slightly more for few of them.
    error_H = 2 * allowed_H / (fit.fitted_HN.shape[-1] - 1)
    named = name_slopes(fit.weight_H, error_H)
    what, verdict = named.what, named.verdict
    if not active_H.all():
        verdict = "unusual" if verdict == "right" else verdict
        what = f"{what}; {int((~active_H).sum())} heads have no bias"
    findings = [Finding("bias", "scheme", verdict, what, named.meaning, named.mend, named.numbers)]
    findings.append(_sign(fit.weight_H, press=named.name.startswith("alibi")))
    slopes_H = torch.zeros(len(active_H), dtype=torch.float64)
    slopes_H[active_H] = fit.weight_H
    recovered = {"scheme": "alibi", "variant": named.name, "slopes": slopes_H.tolist()}
    if "varies" in sides.future and direction == "asymmetric":
        future = fit_linear(sides.future_HN.nan_to_num())
        if bool((future.misses_HN.amax(-1) <= 2 * tolerance_H).all()):
            recovered["future_slopes"] = future.weight_H.tolist()
    return Named(sides, direction, findings, recovered, fit.fitted_HN, fit.misses_HN)


def _sign(weight_H: Tensor, press: bool) -> Finding:
    grows = int((weight_H < 0).sum())
    heads = len(weight_H)
    if grows == 0:
        return Finding(
            "bias",
            "sign",
            "right",
            "nearer keys weigh more, in every head",
            numbers={"heads_that_favour_far_keys": 0},
        )
    return Finding(
        "bias",
        "sign",
        "wrong" if grows == heads or press else "unusual",
        f"farther keys weigh more, in {grows} of {heads} heads",
        "Attention is drawn to the far end of the context, the more the longer it is.",
        "The bias is minus slope times distance: check its sign, and that of the distance.",
        {"heads_that_favour_far_keys": grows},
    )


def _bucketed(sides: Sides, direction: Direction, kernel_HN: Tensor, edges: list[int]) -> Named:
    found = recover_buckets(edges, kernel_HN.shape[-1])
    both = direction in ("asymmetric", "symmetric", "linear")
    after = steps(sides.future_HN.nan_to_num()) if both else []
    seen = min(kernel_HN.shape[-1], sides.future_HN.shape[-1])
    same = not both or [edge for edge in edges if edge < seen] == after
    if found is None or not same:
        where = ", ".join(str(edge) for edge in edges[:8]) + (", .." if len(edges) > 8 else "")
        finding = Finding(
            "bias",
            "scheme",
            "unusual",
            f"one value for each of {len(edges) + 1} ranges of distance, but not those of T5: it "
            f"changes at distance {where}"
            + ("" if same else "; elsewhere after the query than before it"),
            "Right if the ranges were chosen so; T5's are 1, 2, .. and then logarithmic.",
            "",
            {"edges": edges},
        )
        return Named(sides, direction, [finding], {"scheme": "buckets", "edges": edges})
    return _t5(sides, direction, found, both, edges)


def _t5(sides: Sides, direction: Direction, found: Buckets, both: bool, edges: list[int]) -> Named:
    buckets = found.side * (2 if both else 1)
    kind = "both directions" if both else "causal"
    unbounded = found.highest is None
    at = "any" if unbounded else str(found.max_distance)
    numbers = {"edges": edges, "max_distance_range": [found.lowest, found.highest]}
    recovered = {
        "scheme": "t5",
        "buckets": buckets,
        "max_distance": None if unbounded else found.max_distance,
        "max_distance_range": [found.lowest, found.highest],
        "complete": found.complete,
    }
    what = f"T5 buckets, {kind}: {buckets} buckets, max_distance {at}"
    if not unbounded and found.lowest != found.highest:
        what += f" ({found.lowest} to {found.highest} are the same function)"
    verdict, meaning = "right", ""
    if not found.complete:
        verdict = "unusual"
        what = (
            f"T5 buckets, {kind}: at least {buckets} buckets, max_distance at least {found.lowest}"
        )
        meaning = "The last bucket lies beyond the distances that were seen."
    finding = Finding("bias", "scheme", verdict, what, meaning, "", numbers)  # type: ignore[arg-type]
    return Named(sides, direction, [finding], recovered)


def _kerple(sides: Sides, direction: Direction, variant: str, fit: Fit) -> Named:
    assert fit.inner_H is not None
    formula = "-r1 log(1 + r2 d)" if variant == "logarithmic" else "-r1 d^r2"
    finding = Finding(
        "bias",
        "scheme",
        "right",
        f"KERPLE, {variant}: {formula}",
        numbers={"misses": float(fit.misses_HN.max())},
    )
    recovered = {
        "scheme": "kerple",
        "variant": variant,
        "r1": fit.weight_H.tolist(),
        "r2": fit.inner_H.tolist(),
    }
    findings = [finding, _sign(fit.weight_H, press=False)]
    return Named(sides, direction, findings, recovered, fit.fitted_HN, fit.misses_HN)


def _free(sides: Sides, direction: Direction, kernel_HN: Tensor, *fits: Fit) -> Named:
    range_H = kernel_HN.amax(-1) - kernel_HN.amin(-1)
    names = ("ALiBi", "KERPLE, logarithmic", "KERPLE, power")
    misses = {
        name: float((fit.misses_HN.amax(-1) / range_H).max())
        for name, fit in zip(names, fits, strict=True)
    }
    nearest = min(misses, key=lambda name: misses[name])
    finding = Finding(
        "bias",
        "scheme",
        "unusual",
        "a function of the offset that is none of ALiBi, T5 and KERPLE; nearest is "
        f"{nearest}, off by up to {misses[nearest]:.0%} of the bias's range",
        "Right if it is meant to be so: a learned value for each offset, for instance.",
        "",
        {"relative_misses": misses},
    )
    return Named(sides, direction, [finding], {"scheme": "free"})
