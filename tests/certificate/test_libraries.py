"""Ready-made modules, recognised without adapter code."""

import importlib
from typing import Any

import pytest
import torch
from transformers import GPTJConfig

from poslens.certificate.check import check
from poslens.certificate.targets import Options
from poslens.certificate.transformers_modules import built
from poslens.encodings import ALiBi, RoPE, RoPESettings, Shape, Sinusoidal
from poslens.errors import InputError

FAMILIES = """
    llama mistral qwen2 qwen3 gemma gemma3 gemma4 gpt_neox gptj phi phi3 stablelm falcon cohere
    olmo2 deepseek_v2 deepseek_v3 deepseek_v4 glm glm4_moe gpt_oss llama4 modernbert qwen3_vl
    apertus
""".split()  # noqa: SIM905
# Channels come out in another order than they went in, as the model has it.
PERMUTING = {"deepseek_v3"}


def classes(family: str, word: str) -> list[type[Any]]:
    """Text modules of a family whose class name holds the word."""
    file = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    return [
        kind for name, kind in vars(file).items()
        if isinstance(kind, type) and word in name and "Vision" not in name
        and kind.__module__ == file.__name__
    ]  # fmt: skip


def test_rotary_classes_of_transformers_meet_their_own_configurations() -> None:
    assert len(FAMILIES) >= 15
    for family in FAMILIES:
        found = classes(family, "RotaryEmbedding")
        assert found, family
        for kind in found:
            module = built(kind, kind.__name__, Options())
            config = getattr(module, "config", None) or GPTJConfig()
            for layer_type in getattr(module, "layer_types", None) or [None]:
                certificate = check(module, expect=config, layer_type=layer_type)
                bad = [(f.name, f.what) for f in certificate.findings if f.verdict != "right"]
                allowed = [] if family not in PERMUTING else ["layout"]
                assert [name for name, _ in bad] == allowed, (kind.__name__, layer_type, bad)
                compared = [f for f in certificate.findings if f.test == "expected"]
                assert any(f.name == "frequencies" for f in compared), (kind.__name__, bad)


@pytest.mark.parametrize(
    ("family", "word", "verdict"),
    [
        ("llama", "LlamaAttention", "right"),
        ("mistral", "MistralAttention", "right"),  # grouped keys
        ("phi", "PhiAttention", "right"),  # partial, split by the attention
        ("gpt_neox", "GPTNeoXAttention", "right"),  # one joint projection
        ("glm", "GlmAttention", "right"),  # partial and interleaved
        ("deepseek_v3", "DeepseekV3Attention", "unusual"),  # latent, and permuted
        ("llama4", "Llama4TextAttention", "undecidable"),  # normed after
    ],
)
def test_attention_modules_of_transformers(family: str, word: str, verdict: str) -> None:
    (kind,) = classes(family, word)
    certificate = check(kind)
    assert (certificate.kind, certificate.verdict) == ("attention", verdict)


def test_modules_of_others_in_the_style_of_transformers() -> None:
    """A port: subclasses in another file, one of which turns queries and keys twice."""
    from transformers.models.llama import modeling_llama as llama

    class PortedRotaryEmbedding(llama.LlamaRotaryEmbedding):
        pass

    class PortedAttention(llama.LlamaAttention):
        def forward(self, hidden_states: Any, position_embeddings: Any, **more: Any) -> Any:
            original = llama.apply_rotary_pos_emb

            def twice(q: Any, k: Any, cos: Any, sin: Any) -> Any:
                return original(*original(q, k, cos, sin), cos, sin)

            llama.apply_rotary_pos_emb = twice
            try:
                return super().forward(hidden_states, position_embeddings, **more)
            finally:
                llama.apply_rotary_pos_emb = original

    config = llama.LlamaConfig(hidden_size=128, num_attention_heads=4)
    assert check(PortedRotaryEmbedding(config), expect=config).verdict == "right"
    certificate = check(PortedAttention(config, 0))
    assert certificate.verdict == "wrong"
    assert any("applied twice" in finding.what for finding in certificate.findings)


def test_x_transformers() -> None:
    library = pytest.importorskip("x_transformers.x_transformers")
    partial = check(library.RotaryEmbedding(32), head_dim=64)
    assert partial.verdict == "right"
    assert partial.recovered["rotated_width"] == 32
    assert check(library.RotaryEmbedding(64, use_xpos=True)).verdict == "unusual"
    scaled = check(library.RotaryEmbedding(64, interpolation_factor=4.0)).recovered["scaling"]
    assert scaled["factor"] == pytest.approx(4.0, rel=1e-4)
    stretched = check(library.RotaryEmbedding(64, base_rescale_factor=4.0)).recovered["scaling"]
    assert (stretched["kind"], stretched["factor"]) == ("ntk", 4.0)
    assert check(library.AlibiPositionalBias(8)).kind == "bias"
    some = check(library.AlibiPositionalBias(4, 8))  # 4 of 8 heads are biased
    assert (some.verdict, some.kind) == ("unusual", "bias")
    assert check(library.ScaledSinusoidalEmbedding(64)).kind == "table"


def test_rotary_embedding_torch() -> None:
    """Version 0.9 makes positions in the precision of the queries, which rounds them."""
    library = pytest.importorskip("rotary_embedding_torch")
    single = (torch.float32,)
    module = library.RotaryEmbedding(32)
    assert check(module, dtypes=single).verdict == "right"
    assert check(library.RotaryEmbedding, head_dim=64, dtypes=single).verdict == "right"
    assert check(library.RotaryEmbedding(32, use_xpos=True), dtypes=single).verdict == "unusual"
    rounded = check(module, dtypes=(torch.bfloat16,))
    assert any("positions are rounded to bfloat16" in f.what for f in rounded.findings)
    before = library.RotaryEmbedding(32, seq_before_head_dim=True)
    assert check(before, heads=2, dtypes=single).verdict == "right"


def test_our_own_encodings() -> None:
    shape = Shape(width=64, heads=4, head_width=16, max_length=256)
    half = check(RoPE(shape, RoPESettings(base=500_000.0, width=8, layout="half")))
    assert half.verdict == "right"
    assert half.recovered["base"] == pytest.approx(500_000.0, rel=1e-6)
    assert half.recovered["layout"] == "half-split"
    assert (check(ALiBi(shape)).kind, check(Sinusoidal(shape)).kind) == ("bias", "table")
    assert check("poslens.encodings:RoPE", head_dim=32).recovered["head_dim"] == 32


def test_biases_and_tables_of_transformers() -> None:
    bloom = check("transformers.models.bloom.modeling_bloom:build_alibi_tensor", heads=8)
    assert (bloom.kind, bloom.exit_code) == ("bias", 0)
    mpt = check("transformers.models.mpt.modeling_mpt:build_mpt_alibi_tensor", heads=8)
    assert (mpt.kind, mpt.exit_code) == ("bias", 0)
    torch.manual_seed(0)
    t5 = check("transformers.models.t5.modeling_t5:T5Attention", causal=False)
    assert (t5.kind, t5.exit_code) == ("bias", 0)
    assert check(torch.nn.Embedding(32, 16)).kind == "table"


def test_a_rotary_function_of_transformers_alone_has_no_frequencies() -> None:
    with pytest.raises(InputError, match="hand over that class"):
        check("transformers.models.llama.modeling_llama:apply_rotary_pos_emb")
    pair = "transformers.models.llama.modeling_llama:LlamaRotaryEmbedding,apply_rotary_pos_emb"
    assert check(pair).verdict == "right"
