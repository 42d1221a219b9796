"""Rotary code written for the tests: right by default, with every fault that is looked for.

It shares nothing with the code under test; stretched frequencies come from `transformers`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


@dataclass(frozen=True)
class Spec:
    """What correct code would do: `rope` are rotary parameters as transformers 5 spells them."""

    head_dim: int = 32
    share: float = 1.0
    layout: str = "half"
    rope: dict[str, Any] = field(default_factory=lambda: {"rope_type": "default"})
    base: float = 10_000.0
    magnitude: float | None = None  # None: what the scaling implies
    table: torch.dtype = torch.float32
    length: int = 4096

    @property
    def across(self) -> bool:
        return self.rope["rope_type"] == "proportional"

    @property
    def width(self) -> int:
        return int(self.head_dim * self.share)

    @property
    def config(self) -> dict[str, Any]:
        """As a model's config.json would have it."""
        rope = {**self.rope, "rope_theta": self.base, "partial_rotary_factor": self.share}
        if self.magnitude is not None and rope["rope_type"] in ("yarn", "longrope"):
            rope["attention_factor"] = self.magnitude
        return {
            "head_dim": self.head_dim,
            "hidden_size": 4 * self.head_dim,
            "num_attention_heads": 4,
            "max_position_embeddings": self.length,
            "rope_parameters": rope,
        }

    def frequencies(self) -> tuple[Tensor, float]:
        kind = self.rope["rope_type"]
        if kind in ("default", "ntk"):
            base, width = self.base, self.width
            if kind == "ntk":
                base *= self.rope["factor"] ** (width / (width - 2))
            implied, theta = 1.0, 1 / base ** (torch.arange(0, width, 2).float() / width)
        else:
            theta, implied = ROPE_INIT_FUNCTIONS[kind](LlamaConfig(**self.config))
        return theta, implied if self.magnitude is None else self.magnitude


def rotate(x: Tensor, layout: str) -> Tensor:
    if layout == "half":
        first, second = x.chunk(2, -1)
        return torch.cat([-second, first], -1)
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def build(
    spec: Spec,
    *,
    theta: Tensor | None = None,
    table_layout: str | None = None,
    key_layout: str | None = None,
    queries_only: bool = False,
    key_shift: int = 0,
    shift: int = 0,
    key_sign: int = 1,
    sign: float = 1.0,
    exchange: bool = False,
    times: int = 1,
    key_magnitude: float | None = None,
    positions_in: torch.dtype = torch.float32,
    read: Callable[[Tensor], Tensor] = lambda positions: positions,
) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """(q, k, positions) -> (q, k), right unless a fault is asked for."""
    frequencies, magnitude = spec.frequencies()
    frequencies = frequencies if theta is None else theta
    width = spec.head_dim if spec.across else spec.width

    def tables(positions: Tensor, layout: str, size: float) -> tuple[Tensor, Tensor]:
        where = read(positions)[..., None].to(positions_in) * sign
        angles = where * frequencies.to(torch.promote_types(positions_in, frequencies.dtype))
        if layout == "half":
            angles = torch.cat([angles, angles], -1)
        else:
            angles = angles.repeat_interleave(2, -1)
        cos, sin = (f(angles.float()).mul(size).to(spec.table) for f in (torch.cos, torch.sin))
        return (sin, cos) if exchange else (cos, sin)

    def turn(x: Tensor, positions: Tensor, layout: str, size: float) -> Tensor:
        cos, sin = tables(positions, table_layout or layout, size)
        if positions.ndim == 2:
            cos, sin = cos[:, None], sin[:, None]
        turned, rest = x[..., :width], x[..., width:]
        for _ in range(times):
            turned = turned * cos.to(x.dtype) + rotate(turned, layout) * sin.to(x.dtype)
        return torch.cat([turned, rest], -1)

    def rotary(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        q = turn(q, positions + shift, spec.layout, magnitude)
        if queries_only:
            return q, k.clone()
        size = magnitude if key_magnitude is None else key_magnitude
        where = (positions + shift + key_shift) * key_sign
        return q, turn(k, where, key_layout or spec.layout, size)

    return rotary


def random_spec(seed: int, kinds: tuple[str, ...] = ("default",), **fixed: Any) -> Spec:
    """A correct configuration drawn from what models use, and beyond."""
    draw = random.Random(seed)
    kind = draw.choice(kinds)
    head_dim = draw.choice((16, 32, 48, 64, 64, 80, 128))
    share = 1.0 if kind == "yarn" else draw.choice((1.0, 1.0, 0.5, 0.25, 0.75))
    if int(head_dim * share) % 2 or int(head_dim * share) < 8:
        share = 1.0
    base = draw.choice((10_000.0, 500_000.0, 1e6, 10 ** draw.uniform(3.3, 7)))
    length = draw.choice((1024, 4096, 8192))
    factor = draw.choice((2.0, 4.0, 8.0, 32.0, draw.uniform(1.5, 40)))
    magnitude = None
    rope: dict[str, Any] = {"rope_type": kind}
    layout = draw.choice(("half", "interleaved"))
    if kind != "default":
        rope["factor"] = factor
    if kind == "proportional":
        rope.pop("factor") if draw.random() < 0.5 else None
        layout, share = "half", draw.choice((0.25, 0.5, 0.75))
    if kind in ("yarn", "llama3"):
        head_dim = draw.choice((64, 96, 128))
        base = draw.choice((10_000.0, 50_000.0, 500_000.0, 10 ** draw.uniform(4, 6)))
        rope["original_max_position_embeddings"] = length
    if kind == "yarn":
        rope["truncate"] = draw.random() < 0.7
    if kind == "llama3":
        share = 1.0
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": draw.choice((4.0, 3.0, 8.0))}
    if kind != "yarn" and draw.random() < 0.3:
        magnitude = draw.uniform(0.7, 1.6)
    if kind == "yarn" and draw.random() < 0.3:
        magnitude = 1.0
    table = draw.choice((torch.float32, torch.float32, torch.bfloat16, torch.float16))
    values = {
        "head_dim": head_dim, "share": share, "layout": layout, "rope": rope, "base": base,
        "magnitude": magnitude, "table": table, "length": length,
    }  # fmt: skip
    return Spec(**{**values, **fixed})


@pytest.fixture(scope="session")
def rotaries() -> Any:
    """`Spec`, `build`, `random_spec` and `rotate` for the tests of this folder."""

    return SimpleNamespace(Spec=Spec, build=build, random_spec=random_spec, rotate=rotate)
