"""Every rotary fault that is looked for, written for the test, at twenty random configurations."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from poslens.certificate import Certificate
from poslens.certificate.check import check

CONFIGURATIONS = range(20)


def plain(rotaries: Any, seed: int, **fixed: Any) -> Any:
    return rotaries.random_spec(seed, ("default", "linear"), table=torch.float32, **fixed)


def yarn(rotaries: Any, seed: int) -> Any:
    """YaRN whose ramp lies within the frequencies, so that each fault changes some."""
    spec = rotaries.random_spec(seed, ("yarn",), table=torch.float32, magnitude=None)
    return dataclasses.replace(spec, length=4096, rope={
        "rope_type": "yarn", "factor": max(spec.rope["factor"], 2.0),
        "original_max_position_embeddings": 4096,
    })  # fmt: skip


def half_split_over_interleaved(r: Any, seed: int) -> Any:
    spec = plain(r, seed, layout="half")
    return spec, r.build(spec, table_layout="interleaved"), {}


def interleaved_over_half_split(r: Any, seed: int) -> Any:
    spec = plain(r, seed, layout="interleaved")
    return spec, r.build(spec, table_layout="half"), {}


def partial_from_head_width(r: Any, seed: int) -> Any:
    spec = plain(r, seed, share=0.5, head_dim=64)
    exponents = torch.arange(0, spec.width, 2).float() / spec.head_dim
    theta = spec.base**-exponents / spec.rope.get("factor", 1.0)
    return spec, r.build(spec, theta=theta), {"expect": spec.config}


def positions_in_bfloat16(r: Any, seed: int) -> Any:
    spec = plain(r, seed)
    half = torch.bfloat16

    def read(positions: Tensor) -> Tensor:
        return positions.to(half).float()

    return spec, r.build(spec, read=read), {}


def frequencies_in_bfloat16(r: Any, seed: int) -> Any:
    spec = plain(r, seed)
    theta = spec.frequencies()[0].to(torch.bfloat16).float()
    return spec, r.build(spec, theta=theta), {}


def product_in_bfloat16(r: Any, seed: int) -> Any:
    spec = plain(r, seed)
    return (
        spec,
        r.build(spec, theta=spec.frequencies()[0].to(torch.bfloat16), positions_in=torch.bfloat16),
        {},
    )


def only_queries(r: Any, seed: int) -> Any:
    spec = plain(r, seed)
    return spec, r.build(spec, queries_only=True), {}


def different_layouts(r: Any, seed: int) -> Any:
    spec = plain(r, seed, layout="half")
    return spec, r.build(spec, key_layout="interleaved"), {}


def positions_one_apart(r: Any, seed: int) -> Any:
    spec = plain(r, seed)
    return spec, r.build(spec, key_shift=1), {}


def keys_the_other_way(r: Any, seed: int) -> Any:
    spec = plain(r, seed)
    return spec, r.build(spec, key_sign=-1), {}


def sine_negated(r: Any, seed: int) -> Any:
    spec = plain(r, seed, magnitude=None)
    return spec, r.build(spec, sign=-1.0), {"expect": spec.config}


def sine_and_cosine_exchanged(r: Any, seed: int) -> Any:
    spec = plain(r, seed)
    return spec, r.build(spec, exchange=True), {}


def rotated_twice(r: Any, seed: int) -> Any:
    spec = r.random_spec(seed, table=torch.float32)
    return spec, r.build(spec, times=2), {}


def stretched_and_rotated_twice(r: Any, seed: int) -> Any:
    spec = yarn(r, seed)
    return spec, r.build(spec, times=2), {"expect": spec.config}


def values_rotated(r: Any, seed: int) -> Any:
    spec = plain(r, seed)
    rotary = r.build(spec)

    def with_values(q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Any:
        return *rotary(q, k, positions), rotary(v, v, positions)[0]

    return spec, with_values, {}


def table_one_short(r: Any, seed: int) -> Any:
    spec = plain(r, seed)

    def read(positions: Tensor) -> Tensor:
        if positions.max() >= spec.length - 1:
            raise IndexError("index out of range")
        return positions

    return spec, r.build(spec, read=read), {"length": spec.length}


def table_clamped_one_short(r: Any, seed: int) -> Any:
    spec = plain(r, seed)
    return spec, r.build(spec, read=lambda p: p.clamp(max=spec.length - 2)), {}


def table_read_modulo_its_length(r: Any, seed: int) -> Any:
    spec = plain(r, seed)
    return spec, r.build(spec, read=lambda p: p % spec.length), {}


def magnitude_on_one_side(r: Any, seed: int) -> Any:
    spec = plain(r, seed, magnitude=1.1 + 0.02 * seed)
    return spec, r.build(spec, key_magnitude=1.0), {}


def yarn_on_the_ntk_changed_base(r: Any, seed: int) -> Any:
    spec = yarn(r, seed)
    stretched = spec.base * spec.rope["factor"] ** (spec.width / (spec.width - 2))
    theta = dataclasses.replace(spec, base=stretched).frequencies()[0]
    return spec, r.build(spec, theta=theta), {"expect": spec.config}


def yarn_by_clamped_positions(r: Any, seed: int) -> Any:
    spec = yarn(r, seed)
    plain_theta = dataclasses.replace(spec, rope={"rope_type": "default"}).frequencies()[0]

    def read(positions: Tensor) -> Tensor:
        return (positions / spec.rope["factor"]).clamp(max=float(spec.length))

    return spec, r.build(spec, theta=plain_theta, read=read), {}


def yarn_with_exchanged_bounds(r: Any, seed: int) -> Any:
    spec = yarn(r, seed)
    rope = {**spec.rope, "beta_fast": 1.0, "beta_slow": 32.0}
    theta = dataclasses.replace(spec, rope=rope).frequencies()[0]
    return spec, r.build(spec, theta=theta), {"expect": spec.config}


# Each with the family of the finding that must say so, and words in it that name the fault.
FAULTS: list[tuple[Any, str, str]] = [
    (
        half_split_over_interleaved,
        "rotary",
        "half-split rotation reads a table that is interleaved",
    ),
    (
        interleaved_over_half_split,
        "rotary",
        "interleaved rotation reads a table that is half-split",
    ),
    (partial_from_head_width, "expected", "frequencies come from the head width"),
    (positions_in_bfloat16, "precision", "positions are rounded to bfloat16"),
    (frequencies_in_bfloat16, "rotary", "frequencies are rounded to bfloat16"),
    (product_in_bfloat16, "rotary", "rounded to bfloat16|turning by a and then by b"),
    (only_queries, "rotary", "only queries are turned"),
    (different_layouts, "rotary", "queries and keys differ in layout"),
    (positions_one_apart, "rotary", "key positions run 1 ahead of the queries'"),
    (keys_the_other_way, "rotary", "keys are turned the other way"),
    (sine_negated, "expected", "pairs turn backwards"),
    (sine_and_cosine_exchanged, "rotary", "sine and cosine are exchanged"),
    (rotated_twice, "rotary", "rotation is applied twice"),
    (stretched_and_rotated_twice, "expected", "rotation is applied twice"),
    (values_rotated, "rotary", "values are changed as well"),
    (table_one_short, "use", "1 short of the trained length"),
    (table_clamped_one_short, "precision", "clamped to the end of a table"),
    (table_read_modulo_its_length, "precision", "is read modulo its length"),
    (magnitude_on_one_side, "rotary", "queries are multiplied by"),
    (yarn_on_the_ntk_changed_base, "expected", "YaRN is built on the NTK-changed base"),
    (yarn_by_clamped_positions, "precision", "clamped to the end of a table"),
    (yarn_with_exchanged_bounds, "expected", "YaRN's bounds are exchanged"),
]


def judged(rotaries: Any, fault: Any, seed: int) -> Certificate:
    spec, target, options = fault(rotaries, seed)
    # None of these needs queries of a half precision to show.
    single = (torch.float32,)
    return check(target, kind="rotary", head_dim=spec.head_dim, dtypes=single, **options)


@pytest.mark.parametrize(
    ("fault", "test", "words"), FAULTS, ids=lambda x: getattr(x, "__name__", "")
)
def test_every_fault_is_caught_and_named(rotaries: Any, fault: Any, test: str, words: str) -> None:
    for seed in CONFIGURATIONS:
        certificate = judged(rotaries, fault, seed)
        wrong = [finding for finding in certificate.findings if finding.verdict == "wrong"]
        assert certificate.exit_code == 1, f"configuration {seed}: {fault(rotaries, seed)[0]}"
        named = [
            finding for finding in wrong
            if finding.test == test and any(word in finding.what for word in words.split("|"))
        ]  # fmt: skip
        assert named, f"configuration {seed}: {[finding.what for finding in wrong]}"
        assert all(finding.meaning and finding.mend for finding in named)
