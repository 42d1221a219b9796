"""What a configuration says about a bias, and whether the bias found is that."""

from collections.abc import Mapping
from typing import Any

import torch

from poslens.certificate.finding import Finding
from poslens.encodings.alibi import alibi_slopes

# A configured slope is compared in the precision in which models are run.
_SLOPE_ROUNDINGS = 32


def expected_bias(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a `transformers` config says about its bias, as `judge_bias` expects it.

    Knows T5 and its relatives (`relative_attention_num_buckets`), BLOOM, Falcon (`alibi`) and MPT
    (`attn_config`). Empty where the config speaks of no bias.
    """
    found: dict[str, Any] = {}
    names = ("num_attention_heads", "n_head", "n_heads", "num_heads")
    heads = next((config[name] for name in names if name in config), None)
    if heads is not None:
        found["heads"] = int(heads)
    if "relative_attention_num_buckets" in config:
        found["scheme"] = "t5"
        found["buckets"] = int(config["relative_attention_num_buckets"])
        found["max_distance"] = int(config.get("relative_attention_max_distance", 128))
        if not config.get("is_encoder_decoder", True):
            found["causal"] = bool(config.get("is_decoder", False))
        return found
    attention = config.get("attn_config") or {}
    if config.get("model_type") == "bloom" or config.get("alibi"):
        return (
            {**found, "scheme": "alibi", "causal": True, "slopes": alibi_slopes(heads).tolist()}
            if heads
            else {"scheme": "alibi", "causal": True}
        )
    if isinstance(attention, Mapping) and attention.get("alibi"):
        return {**found, "scheme": "alibi", "causal": True}
    return {}


def compare_bias(expected: Mapping[str, Any], recovered: Mapping[str, Any]) -> list[Finding]:
    """One finding for each configured value that could be compared with what was recovered."""
    findings = []
    if "scheme" in expected:
        findings.append(_same("scheme", expected["scheme"], recovered.get("scheme")))
    if "buckets" in expected and "buckets" in recovered:
        findings.append(_same("buckets", expected["buckets"], recovered["buckets"]))
    if "max_distance" in expected and "max_distance" in recovered:
        low, high = recovered["max_distance_range"]
        wanted = expected["max_distance"]
        inside = low <= wanted and (high is None or wanted <= high)
        found = wanted if inside else recovered["max_distance"]
        findings.append(_same("max_distance", wanted, found))
    if "slopes" in expected and "slopes" in recovered:
        findings.append(_slopes(expected["slopes"], recovered["slopes"]))
    return findings


def _same(name: str, expected: Any, found: Any) -> Finding:
    numbers = {"expected": expected, "found": found}
    if expected == found:
        return Finding("expected", name, "right", f"{name} {found}, as configured", numbers=numbers)
    return Finding(
        "expected",
        name,
        "wrong",
        f"{name} is {found}; the configuration says {expected}",
        "The code and the configuration disagree.",
        f"Set {name} to {expected}.",
        numbers,
    )


def _slopes(expected: list[float], found: list[float]) -> Finding:
    numbers = {"expected": list(expected), "found": found}
    if len(expected) == len(found):
        wanted_H, found_H = torch.tensor(expected).double(), torch.tensor(found).double()
        off_H = (found_H / wanted_H - 1).abs()
        head = int(off_H.argmax())
        if off_H[head] <= _SLOPE_ROUNDINGS * torch.finfo(torch.float32).eps:
            return Finding("expected", "slopes", "right", "slopes as configured", numbers=numbers)
        what = (
            f"slope of head {head} is {found[head]:.6g}; the configuration says "
            f"{expected[head]:.6g}"
        )
    else:
        what = f"{len(found)} slopes; the configuration says {len(expected)}"
    return Finding(
        "expected",
        "slopes",
        "wrong",
        what,
        "The code and the configuration disagree.",
        "Compute the slopes for the head count of the configuration.",
        numbers,
    )
