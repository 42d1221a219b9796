"""What may be handed over, how it is recognised, and one clear line where it cannot be judged."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import poslens
from poslens.certificate import certify
from poslens.certificate.check import check
from poslens.errors import InputError


def one_tensor(r: Any) -> Any:
    rotary = r.build(r.Spec(32))
    return lambda x, positions: rotary(x, x, positions)[0]


def with_values(r: Any) -> Any:
    rotary = r.build(r.Spec(32))
    return lambda q, k, v, positions: (*rotary(q, k, positions), v)


def length_first(r: Any) -> Any:
    """(batch, length, heads, width), positions (batch, length) only."""
    rotary = r.build(r.Spec(32))

    def turn(q: Tensor, k: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        if position_ids.shape != q.shape[:2]:
            raise ValueError("position_ids must be (batch, length)")
        q, k = rotary(q.transpose(1, 2), k.transpose(1, 2), position_ids)
        return q.transpose(1, 2), k.transpose(1, 2)

    return turn


def without_heads(r: Any) -> Any:
    """(length, width) only."""
    rotary = r.build(r.Spec(32))

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        if x.ndim != 2 or len(x) != len(positions):
            raise ValueError("x must be (length, width)")
        turned: Tensor = rotary(x[None, None], x[None, None], positions)[0][0, 0]
        return turned

    return turn


def shared_positions(r: Any) -> Any:
    """Positions (length,) only."""
    rotary = r.build(r.Spec(32))

    def turn(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        if positions.ndim != 1:
            raise ValueError("positions must be (length,)")
        return rotary(q, k, positions)

    return turn


def maker_and_apply(r: Any) -> Any:
    theta = 10_000.0 ** -(torch.arange(0, 32, 2) / 32)

    def make(positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = (positions[:, None] * theta).repeat_interleave(2, -1)
        return angles.cos(), angles.sin()

    def apply(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        turned = [x * cos + r.rotate(x, "interleaved") * sin for x in (q, k)]
        return turned[0], turned[1]

    return make, apply


def maker_of_a_length(r: Any) -> Any:
    make, apply = maker_and_apply(r)
    return lambda seq_len: make(torch.arange(seq_len)), apply


def by_offset(r: Any) -> Any:
    """(x, offset): consecutive positions from the offset on."""
    rotary = r.build(r.Spec(32))

    def turn(x: Tensor, offset: int = 0) -> Tensor:
        positions = torch.arange(x.shape[2]) + offset
        turned: Tensor = rotary(x, x, positions)[0]
        return turned

    return turn


def by_offset_length_first(r: Any) -> Any:
    rotary = r.build(r.Spec(32))

    def turn(q: Tensor, k: Tensor, start_pos: int) -> tuple[Tensor, Tensor]:
        positions = torch.arange(q.shape[1]) + start_pos
        q, k = rotary(q.transpose(1, 2), k.transpose(1, 2), positions)
        return q.transpose(1, 2), k.transpose(1, 2)

    return turn


class Strict(nn.Module):
    """bfloat16 and four heads only."""

    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> Any:
        if q.dtype != torch.bfloat16 or q.shape[1] != 4:
            raise TypeError("four heads in bfloat16 only")
        return self.rotary(q, k, positions)


@pytest.mark.parametrize(
    "make",
    [
        one_tensor, with_values, length_first, without_heads, shared_positions, by_offset,
        by_offset_length_first, maker_and_apply, maker_of_a_length,
        lambda r: Strict(r.build(r.Spec(32))),
    ],
)  # fmt: skip
def test_every_way_of_calling_is_found(rotaries: Any, make: Any) -> None:
    target = make(rotaries)
    heads = 4 if isinstance(target, Strict) else None
    certificate = check(target, head_dim=32, heads=heads, kind="rotary" if heads else None)
    assert certificate.kind == "rotary"
    assert certificate.exit_code == 0, [f for f in certificate.findings if f.verdict == "wrong"]
    assert certificate.recovered["base"] == pytest.approx(10_000.0, rel=1e-4)


def test_the_head_width_is_found_out(rotaries: Any) -> None:
    def strict(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        if q.shape[-1] != 80:
            raise ValueError("80 channels only")
        return rotaries.build(rotaries.Spec(80))(q, k, positions)

    assert check(strict).recovered["head_dim"] == 80


def test_kinds_are_told_apart() -> None:
    def bias(query_len: int, key_len: int) -> Tensor:
        i, j = torch.arange(key_len - query_len, key_len), torch.arange(key_len)
        return -0.5 * (i[:, None] - j).abs()[None].float()

    def by_positions(query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return -0.5 * (query_positions[:, None] - key_positions).abs()[None].float()

    def table(positions: Tensor) -> Tensor:
        return torch.stack([positions.float().sin(), positions.float().cos()], -1)

    assert [check(f).kind for f in (bias, by_positions)] == ["bias", "bias"]
    assert check(table).kind == "table"
    assert check(torch.randn(32, 8)).kind == "table"


class Attention(nn.Module):
    """A whole attention layer of one head, known by its outputs."""

    def __init__(self, rotary: Any, absolute: bool = False) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(64, 64), nn.Linear(64, 64)
        self.rotary, self.absolute = rotary, absolute

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        q, k = self.rotary(self.q(x)[:, None], self.k(x)[:, None], positions)
        k = k * positions[:, None] if self.absolute else k
        attended: Tensor = ((q @ k.mT / 8).softmax(-1) @ x[:, None])[:, 0]
        return attended


def test_an_attention_module_is_judged_by_its_outputs(rotaries: Any) -> None:
    torch.manual_seed(0)
    rotary = rotaries.build(rotaries.Spec(64))
    relative = check(Attention(rotary))
    assert (relative.kind, relative.verdict) == ("attention", "right")
    assert check(Attention(rotary, absolute=True)).verdict == "wrong"


def test_classes_are_built(tmp_path: Path, rotaries: Any) -> None:
    class Made(nn.Module):
        def __init__(self, head_dim: int, rope_theta: float) -> None:
            super().__init__()
            self.rotary = rotaries.build(rotaries.Spec(head_dim, base=rope_theta))

        def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> Any:
            return self.rotary(q, k, positions)

    found = check(Made, config={"rope_theta": 50_000.0, "head_dim": 48}, head_dim=48).recovered
    assert found["base"] == pytest.approx(50_000.0, rel=1e-4)
    with pytest.raises(InputError, match="a class that needs rope_theta"):
        check(Made)


def test_a_target_by_name_is_searched_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_rotary.py").write_text(
        "import torch\n"
        "def half_turn(x, positions):\n"
        "    theta = 1e4 ** -(torch.arange(0, 32, 2) / 32)\n"
        "    z = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())\n"
        "    turned = z * torch.polar(torch.ones(1), positions[..., None] * theta)\n"
        "    return torch.view_as_real(turned).flatten(-2).to(x.dtype)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    certificate = check("my_rotary:half_turn", head_dim=32)
    assert (certificate.target, certificate.verdict) == ("my_rotary:half_turn", "right")


def random(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return q + torch.randn_like(q), k


def in_place(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return q.mul_(2), k


def not_a_number(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return q / 0, k


def wrong_shape(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return q[..., :-1], k


def raising(q: Tensor, k: Tensor, positions: Tensor) -> Any:
    raise ValueError("no such thing\nas this")


def on_a_gpu(q: Tensor, k: Tensor, positions: Tensor) -> Any:
    return q.to("cuda"), k


def short(q: Tensor, k: Tensor, positions: Tensor) -> Any:
    if positions.max() > 4:
        raise IndexError("index out of range")
    return q, k


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        ("nowhere.at.all:f", {}, r"nowhere.at.all cannot be imported \(ModuleNotFoundError"),
        ("poslens.encodings:RoPEE", {}, "has no 'RoPEE'; it has: RoPE"),
        ("poslens.encodings", {}, "write package.module:name"),
        (random, {}, "random answers the same call differently"),
        (in_place, {}, "in_place changes its input in place"),
        (not_a_number, {}, "not_a_number returns NaN or infinity for ordinary input"),
        (wrong_shape, {}, r"shape \(3, 2, 5, 64\) came back as \(3, 2, 5, 63\)"),
        (raising, {}, r"raising could not be called \(ValueError: no such thing as this\)"),
        (short, {}, "can be asked for positions up to 4 only"),
        (random, {"head_dim": 63}, "the head width must be even and at least 2"),
        (random, {"heads": 0}, "number of heads must be at least 1"),
        (random, {"kind": "spiral"}, "unknown kind 'spiral'; one of: rotary, bias"),
        (3, {}, "3? ?is int|int is int"),
        (lambda x, cos, sin: x, {}, "applies cosines and sines that something else makes"),
        ((lambda a, b, c: a, lambda q, k, cos, sin: q), {}, r"takes \(x, positions\) or"),
        ((lambda p: p, lambda a, b, c: a), {}, r"must take \(q, k, cos, sin\)"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(target: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        check(target, **options)
    assert "\n" not in str(raised.value)


def test_changes_in_place_are_seen_in_either_order_of_axes() -> None:
    def turn(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        if q.shape[1] != len(positions):
            raise ValueError("(batch, length, heads, width)")
        return q.mul_(2), k

    with pytest.raises(InputError, match="changes its input in place"):
        check(turn)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_target_that_needs_a_gpu_says_so() -> None:
    with pytest.raises(InputError, match="on_a_gpu needs a GPU, and there is none here"):
        check(on_a_gpu)


def test_certify_is_for_test_suites(rotaries: Any) -> None:
    assert poslens.certify is certify
    assert certify(rotaries.build(rotaries.Spec(32)), head_dim=32).verdict == "right"
    with pytest.raises(AssertionError, match="keys are turned the other way") as raised:
        certify(rotaries.build(rotaries.Spec(32), key_sign=-1), head_dim=32)
    assert "how to mend it" in str(raised.value)


def test_importing_poslens_does_not_import_torch() -> None:
    import subprocess

    code = "import sys, poslens, poslens.certificate.finding; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
