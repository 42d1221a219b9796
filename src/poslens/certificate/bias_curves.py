"""The pictures of a bias: its kernel by offset, and how far it is from the function it was named.

Shapes: H heads, N distances.
"""

from typing import Any

import torch
from torch import Tensor

from poslens.certificate.bias_names import Named
from poslens.certificate.bias_sample import ROUNDINGS, BiasSample

_REACH = 128
_HEADS = 8
_POINTS = 64


def bias_curves(sample: BiasSample, named: Named, precision: torch.dtype) -> dict[str, Any]:
    """Series as the certificate's page draws them: x, lines by label, names with units."""
    reach = min(_REACH, sample.last_row.shape[-1] - 1)
    future_HN, past_HN = sample.first_row[:, 1 : reach + 1], sample.last_row[:, : reach + 1]
    both_HN = torch.cat([future_HN.flip(-1), past_HN], -1)
    heads = spread_heads(len(both_HN))
    curves: dict[str, Any] = {
        "kernel": {
            "title": "Kernel by offset",
            "x_label": "Offset: query position - key position (positions)",
            "y_label": "Bias, less that of the own key (logits)",
            "x": list(range(-reach, reach + 1)),
            "lines": {f"head {head}": rounded(both_HN[head]) for head in heads},
            "note": "Keys after the query on the left, keys before it on the right.",
        }
    }
    if named.misses_HN is not None and named.misses_HN.any():
        misses_N = named.misses_HN.amax(0)
        largest_N = named.fitted_HN.abs().amax(0)  # type: ignore[union-attr]
        places = thinned(len(misses_N))
        allowed_N = ROUNDINGS * torch.finfo(precision).eps * largest_N
        curves["error"] = {
            "title": "Error by distance",
            "x_label": "Distance (positions)",
            "y_label": "Largest error of any head (logits)",
            "x": places,
            "lines": {"from the formula": rounded(misses_N[places])},
            "bands": {f"{ROUNDINGS} roundings": rounded(allowed_N[places])},
            "log_x": True,
            "log_y": True,
            "note": "How far the bias is from the formula it was recognised as.",
        }
    return curves


def spread_heads(count: int) -> list[int]:
    """Up to eight heads, evenly from the first to the last."""
    return sorted({round(place) for place in torch.linspace(0, count - 1, _HEADS).tolist()})


def thinned(count: int) -> list[int]:
    """Distances 1 .. count - 1, or so many of them at even ratios that a curve needs."""
    places = torch.logspace(0, torch.log10(torch.tensor(count - 1.0)).item(), _POINTS)
    return sorted({min(round(place), count - 1) for place in places.tolist()})


def rounded(values_N: Tensor) -> list[float | None]:
    """Six digits are more than a picture shows; None where there is no value."""
    return [float(f"{it:.6g}") if it == it else None for it in values_N.tolist()]
