"""Positional-encoding code with one mistake each, for the catalogue in certificate.md.

Shapes: B batch, H heads, L positions, D head width, F pairs, P rows of a table, E its width.
Every fault stands beside the code it was made from.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from poslens.encodings.alibi import alibi_slopes
from poslens.encodings.scaling import YaRNScaling, geometric_frequencies
from poslens.encodings.t5 import t5_buckets

Rotary = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Bias = Callable[[int, int], Tensor]
Layout = Literal["half", "interleaved"]
Picture = Literal["logits", "kernel", "error", "frequencies", "values", "bias", "length", "phase"]

HEAD_DIM, BASE, TRAINED, FACTOR = 64, 10_000.0, 4096, 8.0
PLAIN = {"head_dim": HEAD_DIM, "rope_theta": BASE, "max_position_embeddings": TRAINED}
YARN = PLAIN | {
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": FACTOR,
        "original_max_position_embeddings": TRAINED,
    },
    "max_position_embeddings": int(FACTOR * TRAINED),
}
SLOPES = alibi_slopes(4)
PARTIAL = PLAIN | {"partial_rotary_factor": 0.5}


@dataclass(frozen=True)
class Fault:
    """`options` are those of `poslens.certify`; `right` is the same code without the mistake."""

    slug: str
    title: str
    wrong: Any
    right: Any
    picture: Picture
    options: dict[str, Any] = field(default_factory=dict)


def frequencies(width: int = HEAD_DIM, base: float = BASE) -> Tensor:
    return geometric_frequencies(base, width, torch.device("cpu")).float()


def yarn(**changes: Any) -> tuple[Tensor, float]:
    """Frequencies and attention factor of YaRN."""
    base = changes.pop("base", BASE)
    scaling = YaRNScaling(FACTOR, TRAINED, **changes)
    theta_F, magnitude = scaling.frequencies(base, HEAD_DIM, torch.tensor(1))
    return theta_F.float(), magnitude


def turned(x: Tensor, layout: Layout) -> Tensor:
    """A quarter turn of every pair."""
    if layout == "half":
        first, second = x.chunk(2, -1)
        return torch.cat([-second, first], -1)
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def rotate(
    x: Tensor,
    angle_LF: Tensor,
    layout: Layout = "half",
    table: Layout | None = None,
    magnitude: float = 1.0,
) -> Tensor:
    """RoPE on the first channels, as many as there are angles for; the others pass."""
    width = 2 * angle_LF.shape[-1]
    if (table or layout) == "half":
        angle_LD = torch.cat([angle_LF, angle_LF], -1)
    else:
        angle_LD = angle_LF.repeat_interleave(2, -1)
    cos, sin = magnitude * angle_LD.cos(), magnitude * angle_LD.sin()
    x, rest = x[..., :width], x[..., width:]
    return torch.cat([x * cos + turned(x, layout) * sin, rest], -1)


def rope(
    theta_F: Tensor | None = None,
    read: Callable[[Tensor], Tensor] = lambda positions: positions,
    key: dict[str, Any] | None = None,
    key_read: Callable[[Tensor], Tensor] = lambda positions: positions,
    times: int = 1,
    **how: Any,
) -> Rotary:
    """(q, k, positions) -> (q, k). `key` and `key_read` change the side of the keys alone."""
    theta_F = frequencies() if theta_F is None else theta_F

    def rotary(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        where = read(positions)
        for _ in range(times):
            q = rotate(q, where[..., None] * theta_F, **how)
            k = rotate(k, key_read(where)[..., None] * theta_F, **(how | (key or {})))
        return q, k

    return rotary


def only_queries(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return rope()(q, k, positions)[0], k.clone()


def exchanged(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """x sin + turned(x) cos: a quarter turn less the angle."""
    angle_LF = torch.pi / 2 - positions[..., None] * frequencies()
    return rotate(q, angle_LF), rotate(k, angle_LF)


def with_values(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    angle_LF = positions[..., None] * frequencies()
    return rotate(q, angle_LF), rotate(k, angle_LF), rotate(v, angle_LF)


def values_pass(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return *rope()(q, k, positions), v.clone()


def low_positions(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return rope()(q, k, positions.bfloat16().float())


def distance(queries: int, keys: int) -> Tensor:
    """Query less key position, the queries standing at the last keys."""
    return torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)


def alibi(slopes_H: Tensor, sign: int = -1) -> Bias:
    return lambda query_len, key_len: (
        sign * slopes_H[:, None, None] * distance(query_len, key_len).abs()
    )


def by_length(query_len: int, key_len: int) -> Tensor:
    return alibi(SLOPES)(query_len, key_len) / key_len


def t5(sign: int = 1) -> Bias:
    table_KH = torch.randn(32, 1, generator=torch.Generator().manual_seed(0))
    return lambda query_len, key_len: table_KH[
        t5_buckets(sign * distance(query_len, key_len), 32, 128, True)
    ].movedim(-1, 0)


def waves(
    positions: Tensor, base: float = BASE, held: Callable[[Tensor], Tensor] = lambda x: x
) -> Tensor:
    """A sinusoidal table, sine and cosine in turn."""
    angle_PF = held(positions.float())[:, None] * frequencies(base=base)
    return torch.stack([angle_PF.sin(), angle_PF.cos()], -1).flatten(-2)


def low(x: Tensor) -> Tensor:
    return x.bfloat16().float()


ROWS = torch.arange(1024)
EXPECT: dict[str, Any] = {"head_dim": HEAD_DIM, "expect": PLAIN}
ROTARY: dict[str, Any] = {"kind": "rotary", "head_dim": HEAD_DIM}
BIAS: dict[str, Any] = {"kind": "bias"}
YARN_F, YARN_SIZE = yarn()
NTK_BASE = BASE * FACTOR ** (HEAD_DIM / (HEAD_DIM - 2))

FAULTS = (
    Fault("table-layout", "Half-split rotation, interleaved table",
          rope(table="interleaved"), rope(), "logits", ROTARY),
    Fault("queries-only", "Only queries rotated", only_queries, rope(), "logits", ROTARY),
    Fault("two-layouts", "Queries and keys in different layouts",
          rope(key={"layout": "interleaved"}), rope(), "logits", ROTARY),
    Fault("keys-backwards", "Keys turned the other way",
          rope(key_read=lambda p: -p), rope(), "logits", ROTARY),
    Fault("modulo", "A table read modulo its length", rope(read=lambda p: p % 2048), rope(),
          "error", ROTARY),
    Fault("one-apart", "Query and key positions one apart",
          rope(key_read=lambda p: p + 1), rope(), "kernel", ROTARY),
    Fault("negated", "Sine negated", rope(read=lambda p: -p), rope(), "kernel", EXPECT),
    Fault("exchanged", "Sine and cosine exchanged", exchanged, rope(), "kernel", ROTARY),
    Fault("twice", "Rotation twice", rope(times=2), rope(), "kernel", ROTARY),
    Fault("one-side", "Attention factor on one side only",
          rope(YARN_F, magnitude=YARN_SIZE, key={"magnitude": 1.0}),
          rope(YARN_F, magnitude=YARN_SIZE), "kernel", ROTARY),
    Fault("values", "Values rotated", with_values, values_pass, "values", ROTARY),
    Fault("low-frequencies", "Frequencies in bfloat16", rope(low(frequencies())), rope(),
          "error", ROTARY),
    Fault("low-positions", "Positions in bfloat16", low_positions, rope(), "error", ROTARY),
    Fault("short-table", "A table one position short",
          rope(read=lambda p: p.clamp(max=TRAINED - 2)), rope(), "error",
          ROTARY | {"length": TRAINED}),
    Fault("partial", "Partial rotary, frequencies from the head width",
          rope(frequencies()[:16]), rope(frequencies(32)), "frequencies",
          {"head_dim": HEAD_DIM, "expect": PARTIAL}),
    Fault("yarn-ntk", "YaRN on the NTK-changed base",
          rope(yarn(base=NTK_BASE)[0], magnitude=YARN_SIZE), rope(YARN_F, magnitude=YARN_SIZE),
          "frequencies", {"head_dim": HEAD_DIM, "expect": YARN}),
    Fault("yarn-bounds", "YaRN with its bounds exchanged",
          rope(frequencies() * (1 + 1 / FACTOR) - YARN_F, magnitude=YARN_SIZE),
          rope(YARN_F, magnitude=YARN_SIZE),
          "frequencies", ROTARY),
    Fault("yarn-clamped", "YaRN by scaled and clamped positions",
          rope(read=lambda p: (p / FACTOR).clamp(max=TRAINED - 1), magnitude=YARN_SIZE),
          rope(YARN_F, magnitude=YARN_SIZE),
          "frequencies", {"head_dim": HEAD_DIM, "expect": YARN}),
    Fault("alibi-exponent", "ALiBi exponent off by one",
          alibi(SLOPES * 2 ** (8 / len(SLOPES))), alibi(SLOPES), "bias", BIAS),
    Fault("alibi-sign", "ALiBi with the wrong sign",
          alibi(SLOPES, sign=1), alibi(SLOPES), "bias", BIAS),
    Fault("alibi-length", "ALiBi divided by the length", by_length, alibi(SLOPES),
          "length", BIAS),
    Fault("t5-exchanged", "Causal T5 buckets, query and key exchanged", t5(-1), t5(), "bias", BIAS),
    Fault("table-base", "Sinusoidal table, base in bfloat16",
          waves(ROWS, float(low(torch.tensor(BASE)))), waves(ROWS), "phase"),
    Fault("table-positions", "Sinusoidal table, positions in bfloat16",
          waves(ROWS, held=low), waves(ROWS), "phase"),
    Fault("table-start", "Sinusoidal table one row off", waves(ROWS + 1), waves(ROWS), "phase"),
)  # fmt: skip
