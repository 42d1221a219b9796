"""What is found against a configuration: both spellings, and the constant that differs by name."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from poslens.certificate.check import check
from poslens.certificate.configs import expected_rotary
from poslens.errors import InputError

FACTORS = {
    "short_factor": np.linspace(1.0, 3.0, 32).tolist(),
    "long_factor": np.linspace(2.0, 40.0, 32).tolist(),
}
ROPES: list[dict[str, Any]] = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    {
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 1024,
        "mscale": 0.7, "mscale_all_dim": 0.3, "beta_fast": 16, "truncate": False,
    },
    {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 1024, **FACTORS},
    {
        "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 1024,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    },
    {"rope_type": "proportional", "partial_rotary_factor": 0.25},
]  # fmt: skip
SIZES = {"hidden_size": 256, "num_attention_heads": 4, "max_position_embeddings": 4096}


def config(rope: dict[str, Any]) -> LlamaConfig:
    return LlamaConfig(**SIZES, rope_parameters={**rope, "rope_theta": 50_000.0})


def wrong(certificate: Any) -> dict[str, str]:
    return {f.name: f.what for f in certificate.findings if f.verdict == "wrong"}


@pytest.mark.parametrize("rope", ROPES, ids=lambda rope: rope["rope_type"])
def test_every_scaling_of_transformers_meets_its_own_configuration(rope: dict[str, Any]) -> None:
    certificate = check(LlamaRotaryEmbedding(config(rope)), expect=config(rope))
    assert not wrong(certificate)
    compared = [f for f in certificate.findings if f.test == "expected"]
    assert {"rotated width", "frequencies", "attention factor"} <= {f.name for f in compared}
    if rope["rope_type"] in ("dynamic", "longrope"):
        assert any(f.name == "length" for f in compared)


@pytest.mark.parametrize("rope", ROPES[3:5] + ROPES[6:], ids=lambda rope: rope["rope_type"])
def test_expected_frequencies_are_those_of_transformers(rope: dict[str, Any]) -> None:
    theirs, magnitude = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config(rope))
    ours, factor = expected_rotary(config(rope)).frequencies(64)
    np.testing.assert_allclose(ours, theirs[theirs > 0].numpy(), rtol=1e-5)
    assert factor == pytest.approx(magnitude)


OLD = {
    "default": {"rope_theta": 50_000.0},
    "linear": {"rope_theta": 50_000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "yarn": {
        "rope_theta": 50_000.0,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", OLD)
def test_both_spellings_mean_the_same(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**SIZES, **OLD[kind]}))
    new = next(rope for rope in ROPES if rope["rope_type"] == kind)
    assert expected_rotary(path).frequencies(64)[0] == pytest.approx(
        expected_rotary(config(new)).frequencies(64)[0]
    )


def test_what_a_file_leaves_out_is_the_family_s(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "glm", "hidden_size": 256, "head_dim": 64}))
    expected = expected_rotary(path)
    assert (expected.head_dim, 2 * expected.count, expected.base) == (64, 32, 10_000.0)


def test_layer_types_have_parameters_of_their_own() -> None:
    ropes = {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    values = {"head_dim": 64, "rope_parameters": ropes}
    assert expected_rotary(values, "sliding_attention").base == 1e4
    assert expected_rotary(values, "full_attention").frequencies(64)[0][0] == pytest.approx(1 / 8)
    with pytest.raises(InputError, match="full_attention, sliding_attention"):
        expected_rotary(values, "chunked_attention")


def differing(rotaries: Any, rope: dict[str, Any], changes: dict[str, Any]) -> dict[str, str]:
    """What is wrong with code for `rope`, with changes to its specification."""
    spec = rotaries.Spec(64, rope=rope, base=50_000.0, length=4096)
    other = dataclasses.replace(spec, **changes)
    return wrong(check(rotaries.build(other), head_dim=64, expect=spec.config))


YARN = ROPES[3]
LLAMA3 = ROPES[6]


@pytest.mark.parametrize(
    ("rope", "changes", "name", "words"),
    [
        (ROPES[0], {"base": 10_000.0}, "frequencies", "base (rope_theta) is 10,000; the conf"),
        (ROPES[0], {"share": 0.5}, "rotated width", "32 channels turn; the configuration asks"),
        (YARN, {"rope": ROPES[0]}, "frequencies", "the scaling (yarn) is not applied"),
        (YARN, {"rope": ROPES[0]}, "attention factor", "1.13863 that the configuration implies is"),
        (YARN, {"rope": {**YARN, "factor": 8.0}}, "frequencies", "the factor is 8; the conf"),
        (YARN, {"rope": ROPES[1]}, "frequencies", "all frequencies are divided by 4 (linear)"),
        (YARN, {"rope": {**YARN, "truncate": False}}, "frequencies", "not rounded to whole pairs"),
        (
            YARN, {"rope": {**YARN, "original_max_position_embeddings": 4096}}, "frequencies",
            "computed for max_position_embeddings, 4,096, instead of the original length 1,024",
        ),
        (YARN, {"rope": {"rope_type": "ntk", "factor": 4.0}}, "frequencies", "NTK-aware scaling"),
        (YARN, {"magnitude": 1.1386294361**2}, "attention factor", "is the square of the con"),
        (YARN, {"magnitude": 1.05}, "attention factor", "attention factor 1.05; the configuration"),
        (LLAMA3, {"rope": ROPES[0]}, "frequencies", "the scaling (llama3) is not applied"),
        (
            LLAMA3, {"rope": {**LLAMA3, "original_max_position_embeddings": 4096}}, "frequencies",
            "computed for max_position_embeddings",
        ),
    ],
)  # fmt: skip
def test_the_constant_that_differs_is_named(
    rotaries: Any, rope: dict[str, Any], changes: dict[str, Any], name: str, words: str
) -> None:
    assert words in differing(rotaries, rope, changes)[name]


def test_frequencies_that_should_follow_the_length_but_do_not(rotaries: Any) -> None:
    spec = rotaries.Spec(64, rope=ROPES[2], base=50_000.0)
    plain = dataclasses.replace(spec, rope=ROPES[0])
    found = wrong(check(rotaries.build(plain), head_dim=64, expect=spec.config))
    assert "use the frequencies of short ones" in found["length"]
    turned = LlamaRotaryEmbedding(config(ROPES[2]))
    assert "change with the length" in wrong(check(turned, expect=config(ROPES[0])))["length"]


def test_a_layout_that_is_configured_is_compared(rotaries: Any) -> None:
    spec = rotaries.Spec(64, base=50_000.0)
    found = check(
        rotaries.build(spec), head_dim=64, expect={**spec.config, "rope_interleave": True}
    )
    assert "the configuration says interleaved" in wrong(found)["layout"]


def test_what_is_unusual_alone_is_right_as_configured() -> None:
    """An attention factor of DeepSeek's making, which nothing else implies."""
    module = LlamaRotaryEmbedding(config(ROPES[4]))
    assert check(module).verdict == "unusual"
    assert check(module, expect=config(ROPES[4])).verdict == "right"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"head_dim": 64, "rope_scaling": {"type": "magic"}}, "'magic' is none of: default"),
        ({"head_dim": 64, "rope_scaling": {"type": "linear"}}, "'linear' needs 'factor'"),
        ({"rope_theta": 1e4, "num_attention_heads": 4}, "no head_dim"),
        ("nowhere/config.json", "is missing; give a config.json that is there"),
        (3, "a configuration is a path"),
    ],
)
def test_configurations_that_say_too_little(values: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        expected_rotary(values)


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{")
    with pytest.raises(InputError, match="is no JSON file"):
        expected_rotary(path)
    path.write_text("[]")
    with pytest.raises(InputError, match="must hold a JSON object"):
        expected_rotary(path)


def test_head_width_may_come_from_the_target() -> None:
    assert expected_rotary({"rope_theta": 1e4}, head_dim=32).frequencies(1)[0].shape == (16,)
    assert torch.is_tensor(torch.tensor(expected_rotary({"head_dim": 8}).frequencies(1)[0]))
