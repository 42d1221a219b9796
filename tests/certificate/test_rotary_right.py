"""Rotary code that is right: recovered to 1e-4, and never called wrong."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from poslens.certificate import Certificate
from poslens.certificate.check import check

KINDS = ("default", "linear", "ntk", "yarn", "llama3", "proportional")
LAYOUTS = {"half": "half-split", "interleaved": "interleaved"}


def complaints(certificate: Certificate) -> list[str]:
    return [f.what for f in certificate.findings if f.verdict in ("wrong", "undecidable")]


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_random_correct_configurations_are_recovered(rotaries: Any, first: int) -> None:
    for seed in range(first, first + 25):
        spec = rotaries.random_spec(seed, KINDS)
        kind = spec.rope["rope_type"]
        certificate = check(rotaries.build(spec), head_dim=spec.head_dim)
        assert not complaints(certificate), f"{seed}: {spec}"
        found = certificate.recovered
        theta, magnitude = spec.frequencies()
        theta_F = theta[theta > 0].double().numpy()
        # What half-precision tables hide of a slow pair is far below 1e-4 of the fastest.
        np.testing.assert_allclose(found["frequencies"], theta_F, 1e-4, 1e-7, err_msg=str(spec))
        assert found["attention_factor"] == pytest.approx(magnitude, rel=1e-4), spec
        stretch = spec.rope["factor"] ** (spec.width / (spec.width - 2)) if kind == "ntk" else 1.0
        assert found["base"] == pytest.approx(spec.base * stretch, rel=1e-4), spec
        if "factor" in spec.rope and kind != "ntk":
            assert found["scaling"]["factor"] == pytest.approx(spec.rope["factor"], rel=1e-4), spec
        if kind in ("linear", "yarn", "llama3"):
            assert found["scaling"]["kind"] == kind, spec
        assert found["layout"] == LAYOUTS[spec.layout], spec
        assert found["rotated_width"] == spec.width, spec
        assert found["direction"] == 1


def test_ends_of_the_ramps_are_recovered(rotaries: Any) -> None:
    rope = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
    found = check(rotaries.build(rotaries.Spec(128, rope=rope)), head_dim=128).recovered["scaling"]
    assert (found["low"], found["high"]) == (20.0, 46.0)
    assert found["original_length"][0] <= 4096 <= found["original_length"][1]
    rope = {
        "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    }  # fmt: skip
    spec = rotaries.Spec(128, rope=rope, base=500_000.0)
    found = check(rotaries.build(spec), head_dim=128).recovered["scaling"]
    assert found["original_length"] == pytest.approx(8192, rel=1e-4)
    assert found["high_turns"] == pytest.approx(4, rel=1e-4)


def by_length(rotaries: Any, kind: str) -> Any:
    """Dynamic NTK or longrope with N = 1024, recomputed in every call, and its specification."""
    factors = np.linspace(1.0, 3.0, 16), np.linspace(2.0, 30.0, 16)
    rope: dict[str, Any] = {"rope_type": kind, "factor": 4.0}
    if kind == "longrope":
        rope |= {
            "short_factor": factors[0].tolist(), "long_factor": factors[1].tolist(),
            "original_max_position_embeddings": 1024,
        }  # fmt: skip
    spec = rotaries.Spec(32, rope=rope, length=1024)
    geometric = 10_000.0 ** -(np.arange(0, 32, 2) / 32)
    magnitude = 1.0 if kind == "dynamic" else float(np.sqrt(1 + np.log(4) / np.log(1024)))

    def rotary(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        length = int(positions.max()) + 1
        if kind == "longrope":
            theta = geometric / factors[length > 1024]
        else:
            stretch = max(4.0 * length / 1024 - 3.0, 1.0)
            theta = geometric * stretch ** -(np.arange(0, 32, 2) / 30)
        plain = dataclasses.replace(spec, rope={"rope_type": "default"}, magnitude=magnitude)
        fixed = rotaries.build(plain, theta=torch.tensor(theta).float())
        turned: tuple[Tensor, Tensor] = fixed(q, k, positions)
        return turned

    return spec, rotary


def test_dynamic_ntk_is_named_with_its_constants(rotaries: Any) -> None:
    spec, rotary = by_length(rotaries, "dynamic")
    certificate = check(rotary, head_dim=32, expect=spec.config)
    assert certificate.verdict == "unusual"
    found = certificate.recovered["by_length"]
    assert found["kind"] == "dynamic"
    assert found["factor"] == pytest.approx(4.0, rel=1e-4)
    assert found["original_length"] == pytest.approx(1024, rel=1e-4)
    assert any(finding.name == "cached keys" for finding in certificate.findings)


def test_longrope_is_named_with_its_switch(rotaries: Any) -> None:
    spec, rotary = by_length(rotaries, "longrope")
    certificate = check(rotary, head_dim=32, expect=spec.config)
    assert not complaints(certificate)
    assert certificate.recovered["scaling"]["kind"] == "longrope"
    assert certificate.recovered["by_length"]["switch"] == 1024
    np.testing.assert_allclose(
        certificate.recovered["by_length"]["factors"],
        np.linspace(2.0, 30.0, 16) / np.linspace(1.0, 3.0, 16), rtol=1e-4,
    )  # fmt: skip


def grouped(rotaries: Any, keys: int) -> Any:
    """Keys of fewer heads; with one, as latent attention shares it."""
    rotary = rotaries.build(rotaries.Spec(32))

    def turn(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        q, k = rotary(q, k[:, :keys], positions)
        return q, k.repeat_interleave(q.shape[1] // k.shape[1], 1)

    return turn


def permuting(rotaries: Any) -> Any:
    """DeepSeek-V3: interleaved channels in, half-split channels out."""
    rotary = rotaries.build(rotaries.Spec(32))

    def turn(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        q, k = (torch.cat([x[..., ::2], x[..., 1::2]], -1) for x in (q, k))
        turned: tuple[Tensor, Tensor] = rotary(q, k, positions)
        return turned

    return turn


def xpos(rotaries: Any, centred: bool) -> Any:
    rotary = rotaries.build(rotaries.Spec(32, layout="interleaved"))
    zeta = ((torch.arange(0, 32, 2) + 0.4 * 32) / (1.4 * 32)).repeat_interleave(2)

    def turn(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        centre = (int(positions.max()) + 1) // 2 if centred else 0
        size = zeta ** ((positions - centre) / 512)[..., None]
        size = size[:, None] if positions.ndim == 2 else size
        q, k = rotary(q, k, positions)
        return q * size, k / size

    return turn


PROPORTIONAL = {"rope_type": "proportional"}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    ("make", "verdict", "name"),
    [
        (lambda r: r.build(r.Spec(32, base=500_000.0)), "right", ""),
        (lambda r: r.build(r.Spec(32, layout="interleaved")), "right", ""),
        (lambda r: r.build(r.Spec(32, share=0.25)), "right", ""),
        (lambda r: r.build(r.Spec(32, share=0.25, rope=PROPORTIONAL)), "right", ""),
        (lambda r: r.build(r.Spec(32, rope=YARN)), "right", ""),
        (lambda r: grouped(r, 2), "right", ""),
        (lambda r: grouped(r, 1), "right", ""),
        (permuting, "unusual", "layout"),
        (lambda r: r.build(r.Spec(32), sign=-1.0), "unusual", "direction"),
        (lambda r: r.build(r.Spec(32), shift=1), "unusual", "position zero"),
        (lambda r: xpos(r, False), "unusual", "isometry"),
        (lambda r: xpos(r, True), "unusual", "isometry"),
        (lambda r: r.build(r.Spec(32), theta=torch.rand(16)), "unusual", "frequencies"),
        (lambda r: r.build(r.Spec(32), theta=torch.zeros(16)), "unusual", "pairs"),
    ],
    ids=[
        "base 500,000", "interleaved", "partial", "proportional", "yarn", "grouped keys",
        "one shared key", "DeepSeek-V3", "negative", "positions from 1", "xPos", "centred xPos",
        "free frequencies", "NoPE",
    ],
)  # fmt: skip
def test_no_false_alarm(rotaries: Any, make: Any, verdict: str, name: str) -> None:
    torch.manual_seed(0)
    certificate = check(make(rotaries), head_dim=32, heads=4)
    unusual = [f.name for f in certificate.findings if f.verdict != "right"]
    assert (certificate.verdict, certificate.exit_code) == (verdict, 0), unusual
    assert name in ("", *unusual)


def test_proportional_rotary_is_named(rotaries: Any) -> None:
    """Frequencies from the head width, paired across the head: p-RoPE, not a partial mistake."""
    spec = rotaries.Spec(64, share=0.5, rope={"rope_type": "proportional"})
    certificate = check(rotaries.build(spec), head_dim=64, expect=spec.config)
    assert certificate.verdict == "right"
    words = " ".join(finding.what for finding in certificate.findings)
    assert "proportional (p-RoPE)" in words
    assert "across the head" in words


def test_tables_of_half_precision_are_a_note(rotaries: Any) -> None:
    for table in (torch.bfloat16, torch.float16):
        spec = rotaries.Spec(32, table=table)
        certificate = check(rotaries.build(spec), head_dim=32)
        note = next(f for f in certificate.findings if f.name == "tables")
        assert certificate.verdict == note.verdict == "right"
        assert str(table).removeprefix("torch.") in note.what
