"""How rotary code is used: padding, caches, tables that end, positions in low precision."""

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from poslens.certificate import Certificate, Finding
from poslens.certificate.check import check


def finding(certificate: Certificate, name: str) -> Finding:
    return next(found for found in certificate.findings if found.name == name)


def test_positions_that_are_ignored(rotaries: Any) -> None:
    rotary = rotaries.build(rotaries.Spec(32))

    def counting(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return rotary(q, k, torch.arange(q.shape[2]))

    certificate = check(counting, head_dim=32)
    assert certificate.verdict == "wrong"
    assert "the positions given are ignored" in finding(certificate, "offsets").what


def test_rows_that_all_take_the_first_row_s_positions(rotaries: Any) -> None:
    rotary = rotaries.build(rotaries.Spec(32))

    def first_row(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return rotary(q, k, positions[-1] if positions.ndim == 2 else positions)

    certificate = check(first_row, head_dim=32)
    assert finding(certificate, "left padding").verdict == "wrong"


def test_positions_shared_by_rows_are_a_note(rotaries: Any) -> None:
    rotary = rotaries.build(rotaries.Spec(32))

    def shared(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        assert positions.ndim == 1
        return rotary(q, k, positions)

    padding = finding(check(shared, head_dim=32), "left padding")
    assert padding.verdict == "right"
    assert "shared by all rows" in padding.what


def test_a_function_that_cannot_turn_one_token(rotaries: Any) -> None:
    rotary = rotaries.build(rotaries.Spec(32))

    def whole_only(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        if q.shape[2] == 1:
            raise ValueError("more than one token")
        return rotary(q, k, positions)

    assert finding(check(whole_only, head_dim=32), "cached decoding").verdict == "wrong"


@pytest.mark.parametrize(("count", "verdict"), [(4096, "right"), (4095, "unusual")])
def test_a_table_that_ends(rotaries: Any, count: int, verdict: str) -> None:
    def read(positions: Tensor) -> Tensor:
        return torch.arange(count)[positions]

    certificate = check(rotaries.build(rotaries.Spec(32), read=read), head_dim=32)
    beyond = finding(certificate, "beyond trained length")
    assert (beyond.verdict, beyond.numbers["positions"]) == (verdict, count)
    assert check(
        rotaries.build(rotaries.Spec(32), read=read), head_dim=32, length=count + 1
    ).verdict == "wrong"  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_phases_in_the_precision_of_the_queries(rotaries: Any, dtype: torch.dtype) -> None:
    """Right in float32, wrong in the precision that models are served in."""
    rotary = rotaries.build(rotaries.Spec(32))

    def careless(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return rotary(q, k, positions.to(q.dtype).nan_to_num(posinf=0.0))

    certificate = check(careless, head_dim=32)
    assert finding(certificate, "float32").verdict == "right"
    name = str(dtype).removeprefix("torch.")
    assert finding(certificate, name).verdict == "wrong"
    assert check(careless, head_dim=32, dtypes=(torch.float32,)).verdict == "right"


def test_the_error_curve_stays_below_its_tolerance(rotaries: Any) -> None:
    curve = check(rotaries.build(rotaries.Spec(64)), head_dim=64).curves["error"]
    assert curve["x"][-1] == 1_000_000
    assert {131_071, 131_072} <= set(curve["x"])
    tolerance = curve["bands"]["float32 tolerance"]
    assert all(e <= t for e, t in zip(curve["lines"]["float32"], tolerance, strict=True))


def test_the_kernel_is_one_curve_where_it_is_relative(rotaries: Any) -> None:
    right = check(rotaries.build(rotaries.Spec(32)), head_dim=32).curves["kernel"]
    lines = [torch.tensor(line) for line in right["lines"].values()]
    assert all(torch.allclose(lines[0], line, atol=1e-4) for line in lines)
    bent = check(rotaries.build(rotaries.Spec(32), table_layout="interleaved"), head_dim=32)
    lines = [torch.tensor(line) for line in bent.curves["kernel"]["lines"].values()]
    assert not torch.allclose(lines[0], lines[1], atol=1e-2)
    assert bent.recovered["toeplitz_share"] < 0.99


def test_a_function_that_is_not_linear_cannot_be_judged(rotaries: Any) -> None:
    rotary = rotaries.build(rotaries.Spec(32))

    def normed(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return rotary(q / q.norm(dim=-1, keepdim=True).clamp(min=1e-6), k, positions)

    certificate = check(normed, head_dim=32)
    assert (certificate.verdict, certificate.exit_code) == ("undecidable", 2)
    assert finding(certificate, "linear").mend == "Hand over the rotary step alone."


def test_a_check_takes_less_than_two_seconds(rotaries: Any) -> None:
    target = rotaries.build(rotaries.Spec(128))
    check(target, head_dim=128)
    started = time.process_time()
    check(target, head_dim=128, expect=rotaries.Spec(128).config)
    assert time.process_time() - started < 2


def test_heads_that_turn_otherwise_are_named(rotaries: Any) -> None:
    rotary = rotaries.build(rotaries.Spec(32))

    def first_head(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        turned = rotary(q, k, positions)
        return tuple(
            torch.cat([y[:, :1], x[:, 1:]], 1) for x, y in zip((q, k), turned, strict=True)
        )

    certificate = check(first_head, head_dim=32, heads=4)
    assert finding(certificate, "all heads").numbers["heads"] == [1, 2, 3]
    assert certificate.verdict == "unusual"


def test_a_rotation_in_another_basis_is_unusual(rotaries: Any) -> None:
    rotary = rotaries.build(rotaries.Spec(32))
    basis = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(0)))[0]

    def turned(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return tuple(x @ basis.mT for x in rotary(q @ basis, k @ basis, positions))

    certificate = check(turned, head_dim=32)
    assert finding(certificate, "pairs").verdict == certificate.verdict == "unusual"


def test_channels_that_are_scaled_by_position_are_wrong() -> None:
    def scaled(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return q * (1 + positions[..., None]), k

    certificate = check(scaled, head_dim=32)
    assert "channels are scaled by position" in finding(certificate, "pairs").what
    assert certificate.verdict == "wrong"


def test_a_rotation_that_slices_its_table_by_parity() -> None:
    """The step of a published latent-attention layer: frequencies mix, norms change."""

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[..., None] * 10_000.0 ** -(torch.arange(0, 32, 2) / 32)
        table = torch.cat([angles.sin(), angles.cos()], -1)
        sin, cos = table[..., ::2], table[..., 1::2]
        first, second = x[..., ::2], x[..., 1::2]
        turned = [first * cos - second * sin, first * sin + second * cos]
        return torch.stack(turned, -1).flatten(-2)

    def rotary(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return turn(q, positions), turn(k, positions)

    certificate = check(rotary, head_dim=32)
    assert finding(certificate, "isometry").verdict == "wrong"
    assert certificate.recovered["toeplitz_share"] < 0.9
