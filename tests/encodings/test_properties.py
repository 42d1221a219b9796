"""What holds for every relative encoding, at any position, in float64.

Shapes: B batch, L positions, H heads, D head width, F rotary frequencies, O offsets.
"""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from poslens.encodings import (
    KERPLE,
    ALiBi,
    Both,
    DynamicNTKScaling,
    Encoding,
    FirstHeads,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    NoPE,
    NTKScaling,
    RoPE,
    RoPESettings,
    Scaling,
    Shape,
    T5Bias,
    YaRNScaling,
)

B, H, L, D = 2, 4, 9, 8
SHAPE = Shape(width=H * D, heads=H, head_width=D, max_length=32)
CAUSAL = Shape(width=H * D, heads=H, head_width=D, max_length=32, causal=True)
SCALINGS = {
    "linear": LinearScaling(3.0),
    "ntk": NTKScaling(4.0),
    "yarn": YaRNScaling(4.0, 16),
    "llama3": Llama3Scaling(8.0, 16),
}
LENGTH_DEPENDENT = {
    "dynamic": DynamicNTKScaling(4.0, 5),
    "longrope": LongRoPEScaling((1.0, 1.5, 2.0, 3.0), (1.0, 3.0, 6.0, 9.0), 5, factor=4.0),
}


def rope(scaling: Scaling) -> Encoding:
    return RoPE(SHAPE, RoPESettings(scaling=scaling))


RELATIVE: dict[str, Callable[[], Encoding]] = {
    "nope": lambda: NoPE(SHAPE),
    "t5": lambda: T5Bias(SHAPE),
    "t5 causal": lambda: T5Bias(CAUSAL),
    "alibi": lambda: ALiBi(SHAPE),
    "kerple": lambda: KERPLE(SHAPE),
    "rope": lambda: RoPE(SHAPE),
    "rope half": lambda: RoPE(SHAPE, RoPESettings(layout="half")),
    "rope partial": lambda: RoPE(SHAPE, RoPESettings(width=4, base=50.0)),
    **{f"rope {name}": partial(rope, scaling) for name, scaling in SCALINGS.items()},
    "t5 on 2 heads": lambda: FirstHeads(SHAPE, T5Bias(SHAPE), 2),
    "rope on 1 head": lambda: FirstHeads(SHAPE, RoPE(SHAPE), 1),
    "yarn on 3 heads": lambda: FirstHeads(SHAPE, rope(SCALINGS["yarn"]), 3),
    "alibi and rope": lambda: Both(SHAPE, ALiBi(SHAPE), RoPE(SHAPE)),
}
ROPES: dict[str, Callable[[], Encoding]] = {
    name: make for name, make in RELATIVE.items() if isinstance(make(), RoPE)
} | {f"rope {name}": partial(rope, scaling) for name, scaling in LENGTH_DEPENDENT.items()}


def logits(encoding: Encoding, q_BHLD: Tensor, k_BHLD: Tensor, positions: Tensor) -> Tensor:
    """(B, H, L, L), queries and keys at the same positions."""
    q_BHLD, k_BHLD = encoding.rotate(q_BHLD, k_BHLD, positions, positions)
    scores_BHLL = q_BHLD @ k_BHLD.mT / math.sqrt(D)
    bias = encoding.bias(positions, positions)
    return scores_BHLL if bias is None else scores_BHLL + bias


def random_content(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (B, H, L, D)
    return (
        torch.randn(shape, generator=generator, dtype=torch.float64),
        torch.randn(shape, generator=generator, dtype=torch.float64),
    )


def rows(start: int, step: int) -> Tensor:
    """(B, L) positions, with gaps of `step`, that differ from row to row."""
    return start + step * torch.arange(L) + 3 * torch.arange(B)[:, None]


seeds = st.integers(0, 2**32 - 1)
starts = st.integers(-5000, 5000)
steps = st.integers(1, 40)
few = settings(deadline=None, max_examples=15)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", RELATIVE)
@few
@given(seed=seeds, start=starts, step=steps)
def test_constant_content_gives_logits_of_the_offset_alone(
    name: str, seed: int, start: int, step: int
) -> None:
    torch.manual_seed(seed)
    encoding = RELATIVE[name]().double()
    q, k = (x[:, :, :1].expand(B, H, L, D) for x in random_content(seed))
    scores = logits(encoding, q, k, rows(start, step))
    for offset in range(-L + 1, L):
        diagonal = scores.diagonal(-offset, dim1=-2, dim2=-1)
        close(diagonal, diagonal[..., :1].expand_as(diagonal))


@pytest.mark.parametrize("name", RELATIVE)
@few
@given(seed=seeds, start=starts, step=steps, shift=starts)
def test_shifting_all_positions_changes_nothing(
    name: str, seed: int, start: int, step: int, shift: int
) -> None:
    torch.manual_seed(seed)
    encoding = RELATIVE[name]().double()
    q, k = random_content(seed)
    positions = rows(start, step)
    scores = logits(encoding, q, k, positions)
    close(logits(encoding, q, k, positions + shift), scores)
    for row in range(B):  # (L,) positions are those of every row
        alone = logits(encoding, q[row : row + 1], k[row : row + 1], positions[row])
        close(alone[0], scores[row])


@pytest.mark.parametrize("name", ROPES)
@few
@given(seed=seeds, start=starts, step=steps)
def test_rope_keeps_norms_but_for_the_attention_factor(
    name: str, seed: int, start: int, step: int
) -> None:
    encoding = ROPES[name]()
    assert isinstance(encoding, RoPE)
    q, k = random_content(seed)
    positions = rows(start, step)
    _, factor = encoding.frequencies(positions.max() + 1)
    for before, after in zip((q, k), encoding.rotate(q, k, positions, positions), strict=True):
        turned = after[..., : encoding.width].norm(dim=-1) / factor
        close(turned, before[..., : encoding.width].norm(dim=-1))
        assert torch.equal(after[..., encoding.width :], before[..., encoding.width :])


@pytest.mark.parametrize("name", RELATIVE | ROPES)
@few
@given(seed=seeds)
def test_kernel_is_what_the_doors_do(name: str, seed: int) -> None:
    """Logits = bias kernel, or content under the multiplicative kernel, pair by pair."""
    torch.manual_seed(seed)
    encoding = (RELATIVE | ROPES)[name]().double()
    positions = torch.arange(L)
    offsets_LL = positions[:, None] - positions
    kernel = encoding.kernel(torch.arange(-L + 1, L))
    q, k = random_content(seed)
    content = q @ k.mT / math.sqrt(D)
    scores = logits(encoding, q, k, positions)
    if encoding.kind in ("none", "hybrid"):
        assert kernel is None
    elif encoding.kind == "additive":
        assert kernel is not None
        close(scores, content + kernel[:, offsets_LL + L - 1])
    else:
        assert kernel is not None
        width = 2 * kernel.shape[1]
        layout = getattr(encoding.settings, "layout", "interleaved")
        q_BHLF, k_BHLF = (pairs(x[..., :width], layout) for x in (q, k))
        modulated = torch.einsum(
            "bhlf,bhmf,hflm->bhlm", q_BHLF, k_BHLF.conj(), kernel[:, :, offsets_LL + L - 1]
        ).real
        unrotated = q[..., width:] @ k[..., width:].mT
        close(scores, (modulated + unrotated) / math.sqrt(D))


def pairs(x: Tensor, layout: str) -> Tensor:
    """Channel pairs as complex numbers, written out once more from their definition."""
    half = x.shape[-1] // 2
    if layout == "half":
        return x[..., :half] + 1j * x[..., half:]
    return x[..., 0::2] + 1j * x[..., 1::2]
