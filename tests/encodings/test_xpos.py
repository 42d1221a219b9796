"""xPos against the formula of Sun et al., pair by pair, and what its kernel is.

Shapes: B batch, L query positions, M key positions, H heads, D head width.
"""

import cmath
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poslens.encodings import RoPE, RoPESettings, Shape, XPos, XPosSettings
from poslens.errors import InputError

H, D = 3, 8
SHAPE = Shape(width=H * D, heads=H, head_width=D, max_length=32)


def logit(q: list[float], k: list[float], i: int, j: int, gamma: float, span: float) -> float:
    """Re sum_f q_f conj(k_f) (zeta_f^(1/span) e^(i theta_f))^(i - j), f = 0 .. D/2 - 1."""
    total = 0.0
    for f in range(D // 2):
        theta = 10_000.0 ** (-2 * f / D)
        zeta = (f / (D / 2) + gamma) / (1 + gamma)
        pair = complex(q[2 * f], q[2 * f + 1]) * complex(k[2 * f], k[2 * f + 1]).conjugate()
        total += (pair * zeta ** ((i - j) / span) * cmath.exp(1j * (i - j) * theta)).real
    return total


@pytest.mark.parametrize(("gamma", "span"), [(0.4, 512.0), (0.1, 6.0)])
def test_formula(gamma: float, span: float) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(1, H, 5, D).double(), torch.randn(1, H, 7, D).double()
    queries, keys = torch.tensor([0, 3, 9, 40, 1000]), torch.tensor([0, 1, 2, 3, 39, 990, 1010])
    encoding = XPos(SHAPE, XPosSettings(gamma=gamma, span=span))
    turned_q, turned_k = encoding.rotate(q, k, queries, keys)
    found = turned_q @ turned_k.mT
    for h in range(H):
        for a, i in enumerate(queries.tolist()):
            for b, j in enumerate(keys.tolist()):
                expected = logit(q[0, h, a].tolist(), k[0, h, b].tolist(), i, j, gamma, span)
                assert float(found[0, h, a, b]) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_decay_is_the_papers_table() -> None:
    """zeta = (f/(d/2) + 0.4) / 1.4 for d = 8."""
    zeta_F = (XPos(SHAPE).decay(torch.device("cpu")) * 512).exp()
    expected = [0.4 / 1.4, 0.65 / 1.4, 0.9 / 1.4, 1.15 / 1.4]
    assert zeta_F.tolist() == pytest.approx(expected)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**31), st.integers(-3000, 3000), st.integers(-3000, 3000))
def test_it_is_relative_and_its_kernel_is_what_it_does(seed: int, start: int, shift: int) -> None:
    torch.manual_seed(seed)
    encoding = XPos(SHAPE, XPosSettings(span=40.0))
    q, k = torch.randn(2, 2, H, 9, D).double()
    positions = start + torch.arange(9)

    def logits(positions: torch.Tensor) -> torch.Tensor:
        turned_q, turned_k = encoding.rotate(q, k, positions, positions)
        return turned_q @ turned_k.mT

    torch.testing.assert_close(logits(positions + shift), logits(positions), rtol=1e-9, atol=1e-9)
    kernel = encoding.kernel(torch.arange(-8, 9))
    offsets = torch.arange(9)[:, None] - torch.arange(9) + 8
    q_F, k_F = (torch.view_as_complex(x.unflatten(-1, (-1, 2))) for x in (q, k))
    expected = torch.einsum("bhlf,bhmf,hflm->bhlm", q_F, k_F.conj(), kernel[:, :, offsets]).real
    torch.testing.assert_close(logits(positions), expected, rtol=1e-9, atol=1e-9)


def test_the_kernel_falls_with_the_offset_and_is_not_of_unit_modulus() -> None:
    modulus = XPos(SHAPE).kernel(torch.arange(100)).abs()
    assert modulus[:, :, 0].tolist() == [[1.0] * 4] * H
    assert (modulus[:, :, 1:] < modulus[:, :, :-1]).all()
    assert (modulus[:, 0, 50] < modulus[:, 3, 50]).all()  # high frequencies first


def test_without_decay_it_is_rope() -> None:
    q, k = torch.randn(2, 2, H, 6, D).double()
    positions = torch.arange(6)
    slow, rope = XPos(SHAPE, XPosSettings(span=1e15)), RoPE(SHAPE)
    pair = zip(
        slow.rotate(q, k, positions, positions),
        rope.rotate(q, k, positions, positions),
        strict=True,
    )
    for found, expected in pair:
        torch.testing.assert_close(found, expected)


def test_scalings_layouts_and_partial_width_are_ropes() -> None:
    x = torch.randn(1, H, 6, D).double()
    positions = torch.arange(6)
    settings_of = {"layout": "half", "width": 4, "base": 100.0}
    found, _ = XPos(SHAPE, XPosSettings(span=1e15, **settings_of)).rotate(
        x, x, positions, positions
    )
    expected, _ = RoPE(SHAPE, RoPESettings(**settings_of)).rotate(x, x, positions, positions)
    torch.testing.assert_close(found, expected)


def test_long_sequences_neither_overflow_nor_vanish() -> None:
    positions = torch.tensor([200_000, 230_000])
    x = torch.ones(1, H, 2, D)
    q, k = XPos(SHAPE).rotate(x, x, positions, positions)
    assert q.isfinite().all()
    assert k.isfinite().all()
    same = (q @ k.mT).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(same, torch.full_like(same, D))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"gamma": 0.0}, "xPos needs a gamma above 0, got 0.0"),
        ({"span": -1.0}, "xPos needs a span above 0, got -1.0"),
        ({"width": 3}, "rotary width must be even"),
    ],
)
def test_bad_settings(bad: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        XPos(SHAPE, XPosSettings(**bad))
    assert math.isclose(XPosSettings().gamma, 0.4)
