"""Tables: sinusoidal ones recognised with their parameters, free ones named, faults caught."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from poslens.certificate.finding import SEVERITY, Finding
from poslens.certificate.table import judge_table
from poslens.encodings.base import Shape
from poslens.encodings.sinusoidal import Sinusoidal, SinusoidalSettings
from poslens.errors import InputError

Row = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Config:
    """One sinusoidal table, computed in float32 as most code does."""

    width: int
    length: int
    base: float
    layout: str
    dtype: torch.dtype = torch.float32
    amplitude: float = 1.0

    def frequencies(self) -> Tensor:
        return self.base ** -(torch.arange(0, self.width, 2).float() / self.width)

    def waves(self, phases_PF: Tensor) -> Tensor:
        both = [phases_PF.sin(), phases_PF.cos()]
        table = torch.cat(both, -1) if self.layout == "half" else torch.stack(both, -1).flatten(-2)
        return (self.amplitude * table).to(self.dtype)

    def __call__(self, positions: Tensor) -> Tensor:
        return self.waves(positions.float()[:, None] * self.frequencies())

    def table(self) -> Tensor:
        return self(torch.arange(self.length))


def random_config(seed: int) -> Config:
    rng = np.random.default_rng(seed)
    dtypes = (torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64)
    return Config(
        width=2 * int(rng.integers(2, 97)),
        length=int(rng.integers(300, 1200)),
        base=float(rng.choice([10_000.0, 500_000.0, 1_000.0, rng.uniform(500, 50_000)])),
        layout=str(rng.choice(["interleaved", "half"])),
        dtype=dtypes[int(rng.integers(len(dtypes)))],
    )


def verdict(findings: list[Finding]) -> str:
    return max((it.verdict for it in findings), key=SEVERITY.index)


def wrong(findings: list[Finding]) -> str:
    return "; ".join(it.what for it in findings if it.verdict == "wrong")


@pytest.mark.parametrize("seed", range(40))
def test_a_sinusoidal_table_is_right_and_its_parameters_are_recovered(seed: int) -> None:
    config = random_config(seed)
    findings, recovered, _ = judge_table(config.table())
    assert verdict(findings) == "right", findings
    assert recovered["kind"] == "sinusoidal"
    assert recovered["layout"] == config.layout
    assert recovered["offset"] == pytest.approx(0, abs=1e-3)
    assert recovered["amplitude"] == pytest.approx(1, rel=1e-3)
    if config.dtype in (torch.float32, torch.float64):
        assert recovered["base"] == pytest.approx(config.base, rel=1e-4)
        assert recovered["frequencies"] == pytest.approx(config.frequencies().tolist(), rel=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_a_function_is_judged_at_far_positions_too(seed: int) -> None:
    findings, recovered, _ = judge_table(replace(random_config(seed), dtype=torch.float32))
    assert verdict(findings) == "right"
    assert recovered["length"] is None
    assert "phases at 1,000,000" in [it.name for it in findings]


def rounded(low: torch.dtype, what: str) -> Callable[[Config], Tensor]:
    """A fault: positions, frequencies, phases or the base rounded to a low precision."""

    def held(x: Tensor, name: str) -> Tensor:
        return x.to(low).float() if what == name else x

    def make(config: Config) -> Tensor:
        base = float(held(torch.tensor(10_000.0), "base"))
        config = replace(config, base=base, dtype=torch.float32)
        positions = held(torch.arange(config.length).float(), "positions")
        frequencies = held(config.frequencies(), "frequencies")
        return config.waves(held(positions[:, None] * frequencies, "phases"))

    return make


FAULTS: dict[str, tuple[Callable[[Config], Any], str]] = {
    "base in bfloat16": (rounded(torch.bfloat16, "base"), "9984: 10,000 rounded to bfloat16"),
    "frequencies in bfloat16": (
        rounded(torch.bfloat16, "frequencies"),
        "frequencies are rounded to bfloat16",
    ),
    "positions in bfloat16": (
        rounded(torch.bfloat16, "positions"),
        "positions are rounded to bfloat16",
    ),
    "phases in bfloat16": (rounded(torch.bfloat16, "phases"), "rounded to bfloat16"),
    "frequencies in float16": (
        rounded(torch.float16, "frequencies"),
        "frequencies are rounded to float16",
    ),
    "phases in float16": (rounded(torch.float16, "phases"), "rounded to float16"),
    "first row at 1": (lambda it: it(torch.arange(1, it.length)), "row 0 holds position 1"),
    "first row at -1": (lambda it: it(torch.arange(-1, it.length)), "row 0 holds position -1"),
    "read modulo its length": (
        lambda it: it(torch.arange(it.length) % (it.length // 2 - 3)),
        "the table is read modulo its length",
    ),
    "clamped at its end": (
        lambda it: it(torch.arange(it.length).clamp(max=it.length // 2)),
        "positions beyond the last are clamped",
    ),
    "a row of NaN": (
        lambda it: it.table().index_fill(0, torch.tensor([7]), math.nan),
        "1 rows hold NaN or infinity, row 7 first",
    ),
    "positions counted along the input": (
        lambda it: lambda positions: it(torch.arange(len(positions))),
        "does not read the positions it is given",
    ),
}


# The commonest in 20 configurations each, the others in a few.
COMMON = ("base in bfloat16", "positions in bfloat16", "first row at 1", "first row at -1")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught_and_named(name: str) -> None:
    make, words = FAULTS[name]
    for seed in range(20) if name in COMMON else range(0, 20, 3):
        findings, _, _ = judge_table(make(random_config(seed)))
        assert words in wrong(findings), (seed, findings)


def test_positions_in_float16_are_caught_where_a_function_goes_far_enough() -> None:
    config = Config(64, 4096, 10_000.0, "half")
    findings, _, _ = judge_table(lambda positions: config(positions.half().float()))
    assert "positions are rounded to float16" in wrong(findings)


def test_storing_a_right_table_in_low_precision_is_a_note() -> None:
    findings, _, _ = judge_table(Config(64, 600, 10_000.0, "half", torch.bfloat16).table())
    assert verdict(findings) == "right"
    (note,) = (it for it in findings if it.name == "storage")
    assert note.what.startswith("stored in bfloat16")


UNUSUAL: dict[str, tuple[Callable[[], Any], str]] = {
    "cosine first": (
        lambda: Config(32, 400, 10_000.0, "half").table().roll(16, -1),
        "cosine first",
    ),
    "sines negated": (
        lambda: Config(32, 400, 10_000.0, "half").table() * torch.tensor([-1.0] * 16 + [1.0] * 16),
        "sines negated",
    ),
    "fairseq's start": (
        lambda: Config(32, 400, 10_000.0, "half")(torch.arange(2, 400)),
        "row 0 holds position 2",
    ),
    "half positions": (
        lambda: Config(32, 400, 10_000.0, "half")(torch.arange(400) + 0.5),
        "row 0 holds position 0.5",
    ),
    "scaled": (lambda: 32**0.5 * Config(32, 400, 1e4, "half").table(), "the root of the width"),
    "interpolated": (
        lambda: Config(32, 400, 10_000.0, "half")(torch.arange(400) / 4),
        "positions are multiplied by 0.25",
    ),
    "tensor2tensor's spacing": (
        lambda: Config(32, 400, 10_000.0, "half").waves(
            torch.arange(400.0)[:, None] * 10_000.0 ** -(torch.arange(16) / 15)
        ),
        "base 10,000, exponents f/(pairs - 1)",
    ),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_named(name: str) -> None:
    make, words = UNUSUAL[name]
    findings, _, _ = judge_table(make())
    assert verdict(findings) == "unusual"
    assert words in "; ".join(it.what for it in findings if it.verdict == "unusual")


@pytest.mark.parametrize("seed", range(20))
def test_a_learned_table_is_free_and_right(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    length, width = 20 + 13 * seed, 8 + seed
    findings, recovered, _ = judge_table(torch.randn(length, width, generator=rng))
    assert verdict(findings) == "right"
    assert (recovered["kind"], recovered["length"], recovered["width"]) == ("free", length, width)


def test_the_length_of_a_module_is_found() -> None:
    findings, recovered, _ = judge_table(nn.Embedding(777, 12))
    assert verdict(findings) == "right"
    assert recovered["length"] == 777


def test_a_learned_table_read_modulo_its_length_is_wrong() -> None:
    findings, _, _ = judge_table(torch.randn(50, 8)[torch.arange(120) % 50])
    assert "rows repeat after 50" in wrong(findings)


def test_two_equal_rows_are_wrong_and_rows_of_zeros_are_padding() -> None:
    table = torch.randn(30, 8)
    table[4] = table[9]
    assert "2 rows equal another, row 4 first" in wrong(judge_table(table)[0])
    table[4], table[9] = 0.0, 0.0
    assert verdict(judge_table(table)[0]) == "right"


def test_a_channel_that_pads_an_odd_width_is_left_out() -> None:
    config = Config(32, 400, 10_000.0, "half")
    findings, recovered, _ = judge_table(lambda p: nn.functional.pad(config(p), (0, 1)))
    assert verdict(findings) == "right"
    assert (recovered["width"], recovered["base"]) == (33, 10_000.0)


def test_rows_kept_for_padding_are_no_part_of_a_sinusoidal_table() -> None:
    table = Config(32, 400, 10_000.0, "half").table()
    table[1] = 0.0
    findings, recovered, _ = judge_table(table)
    assert verdict(findings) == "right"
    assert (recovered["kind"], recovered["offset"]) == ("sinusoidal", 0)


def test_a_table_before_training_cannot_be_judged() -> None:
    findings, _, _ = judge_table(torch.zeros(16, 4))
    assert verdict(findings) == "undecidable"


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_own_encodings_pass(layout: str) -> None:
    shape = Shape(width=48, heads=4, head_width=12, max_length=512)
    encoding = Sinusoidal(shape, SinusoidalSettings(layout=layout))  # type: ignore[arg-type]

    def rows(positions: Tensor) -> Tensor:
        return encoding.embed(torch.zeros(1, len(positions), 48), positions)

    findings, recovered, _ = judge_table(rows)
    assert verdict(findings) == "right"
    assert (recovered["layout"], recovered["base"]) == (layout, 10_000.0)


def test_products_of_rows_are_toeplitz_for_a_sinusoidal_table_only() -> None:
    _, recovered, curves = judge_table(torch.randn(64, 8))
    assert recovered["gram_toeplitz_share"] < 0.5
    spread = np.subtract(curves["gram"]["bands"]["largest"], curves["gram"]["bands"]["smallest"])
    assert spread.max() > 1
    curve = judge_table(Config(32, 200, 10_000.0, "half").table())[2]["gram"]
    spread = np.subtract(curve["bands"]["largest"], curve["bands"]["smallest"])
    assert spread.max() < 1e-3


def test_configured_values_are_compared_one_by_one() -> None:
    table = Config(32, 400, 10_000.0, "half").table()
    expected = {"base": 500_000.0, "width": 32, "length": 400, "layout": "half"}
    findings, _, _ = judge_table(table, expected)
    assert wrong(findings) == "base is 10000.0; the configuration says 500000.0"
    assert sum(it.test == "expected" for it in findings) == 4


def test_a_table_may_be_longer_than_configured_but_not_shorter() -> None:
    config = Config(32, 400, 10_000.0, "half")
    for table in (config.table(), config):
        assert verdict(judge_table(table, {"length": 300})[0]) == "right"
    findings, _, _ = judge_table(config.table(), {"length": 512})
    assert wrong(findings) == "length is 400; the configuration says 512"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (torch.randn(3, 4, 5), "shape (3, 4, 5); expected (length, width)"),
        (torch.arange(12).reshape(3, 4), "expected floating-point values"),
        ("table", "got str"),
        (lambda positions: torch.randn(len(positions), 4), "another each time"),
        (lambda positions: torch.randn(4), "expected (1, width)"),
        (lambda positions: None, "is NoneType"),
        (lambda positions: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_bad_input_is_one_clear_line(table: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        judge_table(table)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
