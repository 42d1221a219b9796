"""The study's released code as switches: against its forward pass written out, and one by one.

Shapes: B batch, L positions, H heads, D head width, E model width, R rotary width.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close as close

from poslens.encodings import ALiBi, ALiBiSettings, RoPE, RoPESettings, Shape, T5Bias, T5Settings
from poslens.errors import InputError
from poslens.model import PUBLISHED, STUDY, ModelSettings, Transformer, preset
from poslens.tasks import Batch

LONGEST, HEADS = 14, 4  # of the task and the models of `small`
Weights = dict[str, Tensor]


@pytest.fixture(scope="module")
def words(padded: Any) -> Batch:
    """Sequences padded as in data sets: with word 0."""
    batch: Batch = padded([7, 4, 9], 10)
    real_BL = torch.arange(10) < batch.lengths_B[:, None]
    return Batch(batch.tokens_BL * real_BL, batch.lengths_B, batch.labels_B)


def moved(model: Transformer) -> Transformer:
    """The model with every weight off its starting value: zero tables and unit norms show."""
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def published_model(small: Any, scheme: str) -> Transformer:
    own = preset(scheme)
    return moved(small(scheme, parts=own.parts, **own.model))


# The published forward pass, from the facts about it, one sequence at a time.


def layer_norm(x_LE: Tensor, weights: Weights, name: str) -> Tensor:
    centred = x_LE - x_LE.mean(-1, keepdim=True)
    spread = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def linear(x: Tensor, weights: Weights, name: str) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", torch.zeros(()))


def sines_then_cosines(length: int, width: int) -> Tensor:
    table = torch.zeros(length, width)
    for position in range(length):
        for f in range(width // 2):
            angle = position / 10_000 ** (2 * f / width)
            table[position, f] = math.sin(angle)
            table[position, width // 2 + f] = math.cos(angle)
    return table


def rotated(x_LD: Tensor) -> Tensor:
    """Channel pair (2f, 2f + 1) turned by position times 10000^(-2f/D)."""
    turned = torch.empty_like(x_LD)
    for position, x in enumerate(x_LD):
        for f in range(len(x) // 2):
            angle = position / 10_000 ** (2 * f / len(x))
            a, b = x[2 * f], x[2 * f + 1]
            turned[position, 2 * f] = a * math.cos(angle) - b * math.sin(angle)
            turned[position, 2 * f + 1] = a * math.sin(angle) + b * math.cos(angle)
    return turned


def stepped(x_LR: Tensor) -> Tensor:
    """The published step: its table of sines, then cosines, is cut by parity instead of by half."""
    length, width = x_LR.shape
    table = sines_then_cosines(length, width)
    sines, cosines = table[:, 0::2], table[:, 1::2]
    a, b = x_LR[:, 0::2], x_LR[:, 1::2]
    turned = torch.empty_like(x_LR)
    turned[:, 0::2] = a * cosines - b * sines
    turned[:, 1::2] = a * sines + b * cosines
    return turned


def logit_bias(weights: Weights, scheme: str, layer: int, head: int) -> Tensor:
    """(L, L): exp(-h/H) slopes, or this layer's table over exact offsets; else nothing."""
    offsets = torch.arange(LONGEST)[:, None] - torch.arange(LONGEST)
    if scheme == "alibi":
        return -math.exp(-head / HEADS) * offsets.abs()
    if scheme == "t5":
        name = f"upper_encodings.{layer - 1}" if layer else "encoding"
        return weights[f"{name}.table_KH"][offsets + LONGEST - 1, head]
    return torch.zeros(LONGEST, LONGEST)


def multi_head_scores(weights: Weights, scheme: str, layers: int, words_L: Tensor) -> Tensor:
    """Class scores (C,) of a sequence padded with word 0 to the greatest length."""
    x_LE = weights["embedding.weight"][words_L]
    width = x_LE.shape[1]
    size = width // HEADS
    if scheme in ("sinusoidal", "rope", "sinusoidal+rope"):
        x_LE = x_LE + sines_then_cosines(LONGEST, width)
    if scheme == "learned":
        x_LE = x_LE + weights["encoding.table_PE"]
    memory_LE = x_LE
    turning = {"rope": HEADS, "sinusoidal+rope": HEADS, "rope@2": 2}.get(scheme, 0)
    for layer in range(layers):
        name = f"blocks.{layer}"
        joint, constant = (
            weights[f"{name}.attention.input.{kind}"].chunk(3) for kind in ("weight", "bias")
        )
        queries_LE = layer_norm(x_LE, weights, f"{name}.attention_norm") @ joint[0].T + constant[0]
        keys_LE, values_LE = (memory_LE @ joint[part].T + constant[part] for part in (1, 2))
        outputs = []
        for head in range(HEADS):
            own = slice(head * size, (head + 1) * size)
            q_LD, k_LD = queries_LE[:, own], keys_LE[:, own]
            if head < turning:
                q_LD, k_LD = rotated(q_LD), rotated(k_LD)
            logits_LL = q_LD @ k_LD.T / math.sqrt(size) + logit_bias(weights, scheme, layer, head)
            outputs.append(logits_LL.softmax(-1) @ values_LE[:, own])
        x_LE = x_LE + linear(torch.cat(outputs, -1), weights, f"{name}.attention.output")
        hidden = linear(
            layer_norm(x_LE, weights, f"{name}.feedforward_norm"), weights, f"{name}.feedforward.0"
        )
        x_LE = x_LE + linear(hidden.clamp(min=0), weights, f"{name}.feedforward.2")
    return linear(x_LE.mean(0), weights, "classifier")


def latent_scores(weights: Weights, model: Transformer, words_L: Tensor) -> Tensor:
    """Class scores (C,) of the published MLA on a sequence without padding."""
    length, attention = len(words_L), model.blocks[0].attention
    content, rotary, values = (
        attention.content_width,
        attention.rotary_width,
        attention.value_width,
    )
    x_LE = weights["embedding.weight"][words_L] + weights["encoding.first.table_PE"][:length]
    for layer in range(len(model.blocks)):
        name = f"blocks.{layer}"
        own = {
            key.removeprefix(f"{name}.attention."): value
            for key, value in weights.items()
            if key.startswith(f"{name}.attention.")
        }
        normed_LE = layer_norm(x_LE, weights, f"{name}.attention_norm")
        queries = rms_norm(normed_LE @ own["query_down.weight"].T, own["query_norm.weight"])
        queries = queries @ own["query_up.weight"].T
        shared_query_LR = stepped(queries[:, HEADS * content :])
        down = normed_LE @ own["latent_down.weight"].T
        shared_key_LR = stepped(down[:, -rotary:])
        latent = rms_norm(down[:, :-rotary], own["latent_norm.weight"])
        up = (latent @ own["latent_up.weight"].T).unflatten(-1, (HEADS, content + values))
        outputs = []
        for head in range(HEADS):
            q_LD = queries[:, head * content : (head + 1) * content]
            logits_LL = q_LD @ up[:, head, :content].T + shared_query_LR @ shared_key_LR.T
            weights_LL = (logits_LL / math.sqrt(content + rotary)).softmax(-1)
            outputs.append(weights_LL @ up[:, head, content:])
        x_LE = x_LE + torch.cat(outputs, -1) @ own["output.weight"].T
        hidden = linear(
            layer_norm(x_LE, weights, f"{name}.feedforward_norm"), weights, f"{name}.feedforward.0"
        )
        gelu = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
        x_LE = x_LE + linear(gelu, weights, f"{name}.feedforward.2")
    return linear(layer_norm(x_LE, weights, "final_norm").mean(0), weights, "classifier")


@pytest.mark.parametrize("scheme", [row.replace("@k", "@2") for row in PUBLISHED if row != "mla"])
def test_published_multi_head_models_are_the_published_forward_pass(
    scheme: str, small: Any, words: Batch
) -> None:
    model = published_model(small, scheme)
    scores_BC, weights = model(words.tokens_BL, words.lengths_B), model.state_dict()
    for row, tokens_L in enumerate(words.tokens_BL):
        padded_L = nn.functional.pad(tokens_L, (0, LONGEST - len(tokens_L)))
        expected = multi_head_scores(weights, scheme, len(model.blocks), padded_L)
        close(scores_BC[row], expected, rtol=1e-5, atol=1e-5)


def test_published_mla_is_the_published_forward_pass(small: Any, words: Batch) -> None:
    model = published_model(small, "mla")
    scores_BC = model(words.tokens_BL, words.lengths_B)
    for row, length in enumerate(words.lengths_B):
        expected = latent_scores(model.state_dict(), model, words.tokens_BL[row, :length])
        close(scores_BC[row], expected, rtol=1e-5, atol=1e-5)


def test_every_scheme_of_the_study_has_a_preset_and_no_other(small: Any) -> None:
    for scheme in (*STUDY, "rope@2", "rope@13"):
        assert preset(scheme) is PUBLISHED[scheme if scheme in PUBLISHED else "rope@k"]
    assert {row.replace("@k", "@1") for row in PUBLISHED} == set(STUDY)
    for scheme in ("kerple", "alibi@1", "learned+rope"):
        with pytest.raises(InputError, match=f"no '{scheme.replace('+', '.')}', so there is no"):
            preset(scheme)
    with pytest.raises(InputError, match="unknown scheme 'ropes'; did you mean: rope"):
        preset("ropes")


def test_published_rope_is_absolute_and_rope(small: Any, words: Batch) -> None:
    models = [published_model(small, scheme) for scheme in ("rope", "sinusoidal+rope")]
    first, second = (model(words.tokens_BL, words.lengths_B) for model in models)
    assert torch.equal(first, second)


# One switch at a time.


def pair(small: Any, scheme: str, parts: Any = None, **switches: Any) -> list[Transformer]:
    """A standard model and one with switches on, with the same weights where both have them."""
    standard, switched = moved(small(scheme)), moved(small(scheme, parts=parts, **switches))
    switched.load_state_dict(standard.state_dict(), strict=False)
    return [standard, switched]


def scores(models: list[Transformer], batch: Batch) -> list[Tensor]:
    return [model(batch.tokens_BL, batch.lengths_B) for model in models]


@pytest.mark.parametrize("scheme", ["rope", "mla", "learned"])
def test_memory_makes_keys_and_values_and_leaves_queries(
    scheme: str, small: Any, words: Batch
) -> None:
    models = pair(small, scheme, memory_from_embeddings=True)
    assert models[0].state_dict().keys() == models[1].state_dict().keys()
    (input_BLE, plain), (_, memory) = (
        model.embed(words.tokens_BL, words.lengths_B) for model in models
    )
    x_BLE = torch.randn(3, 10, 32, generator=torch.Generator().manual_seed(1))
    attention = models[0].blocks[1].attention
    queries, keys, values = attention.queries_keys_values(x_BLE, memory)
    close(queries, attention.queries_keys_values(x_BLE, plain)[0])
    of_input = attention.queries_keys_values(input_BLE, plain)
    close((keys, values), of_input[1:])


def test_an_extra_table_is_that_of_the_scheme_with_it(small: Any, words: Batch) -> None:
    both = moved(small("sinusoidal+rope", parts={"sinusoidal": {"layout": "half"}}))
    table = moved(small("rope", extra_table="sinusoidal"))
    assert torch.equal(*scores([both, table], words))
    models = pair(small, "mla", extra_table="learned")
    rows_PE = models[1].encoding.first.table_PE
    assert (scores(models, words)[0] - scores(models, words)[1]).abs().max() > 1e-3
    rows_PE.data[:] = 0
    close(*scores(models, words))
    assert not small("mla", extra_table="learned").encoding.first.table_PE.any()
    models[1](words.tokens_BL, words.lengths_B).sum().backward()
    assert rows_PE.grad is not None
    assert rows_PE.grad[:9].abs().amax(-1).min() > 0


def test_published_slopes(small: Any, words: Batch) -> None:
    shape = Shape(width=256, heads=16, head_width=16, max_length=20)
    bias_HLL = ALiBi(shape, ALiBiSettings("published")).bias(*[torch.arange(20)] * 2)
    close(bias_HLL[:, 0, 1], -torch.exp(-torch.arange(16) / 16))
    assert bias_HLL[0, 0, 1] == -1
    assert math.exp(bias_HLL[15, 12, 2]) == pytest.approx(0.02, abs=2e-3)
    assert torch.equal(bias_HLL, bias_HLL.mT)
    models = pair(small, "alibi", {"alibi": {"slopes": "published"}})
    models[0].encoding.slopes_H = models[1].encoding.slopes_H
    assert torch.equal(*scores(models, words))


def test_exact_offsets_have_a_bias_each() -> None:
    shape = Shape(width=16, heads=2, head_width=8, max_length=9)
    encoding = T5Bias(shape, T5Settings(exact=True))
    assert encoding.table_KH.shape == (17, 2)
    offsets = torch.tensor([-30, *range(-8, 9), 30])
    kernel_HO = encoding.kernel(offsets)
    close(kernel_HO[:, 1:-1], encoding.table_KH.T)
    close(kernel_HO[:, [0, -1]], kernel_HO[:, [1, -2]])  # beyond the length: as its ends
    buckets = T5Bias(shape, T5Settings(buckets=8, max_distance=9)).kernel(offsets)
    assert len(buckets.unique(dim=1).T) < len(kernel_HO.unique(dim=1).T)


@pytest.mark.parametrize("scheme", ["t5", "t5@2", "sinusoidal+t5", "kerple", "fire"])
def test_biases_per_layer(scheme: str, small: Any, words: Batch) -> None:
    shared, own = pair(small, scheme, bias_per_layer=True)
    assert own.upper_encodings[0] is not own.encoding
    assert (scores([shared, own], words)[0] - scores([shared, own], words)[1]).abs().max() > 1e-4
    own.upper_encodings[0].load_state_dict(own.encoding.state_dict())
    close(*scores([shared, own], words))
    scores([own], words)[0].sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in own.upper_encodings.parameters())


@pytest.mark.parametrize(
    ("scheme", "table"),
    [("rope", "none"), ("alibi", "none"), ("learned", "none"), ("mla", "none"), ("t5", "learned")],
)
def test_biases_per_layer_need_learned_biases(scheme: str, table: str, small: Any) -> None:
    with pytest.raises(InputError, match=f"such as t5; '{scheme}' with extra_table '{table}' is"):
        small(scheme, bias_per_layer=True, extra_table=table)


def test_one_rotary_query_is_as_many_equal_ones(small: Any, words: Batch) -> None:
    many, one = pair_of_queries = [
        moved(small("mla", parts={"mla": {"shared_rotary_query": shared}}))
        for shared in (False, True)
    ]
    weights = one.state_dict()
    for layer, block in enumerate(many.blocks):
        attention, name = block.attention, f"blocks.{layer}.attention.query_up.weight"
        content, rotary_RE = weights[name].split([HEADS * attention.content_width, 4])
        per_head = content.unflatten(0, (HEADS, -1))
        weights[name] = torch.cat((per_head, rotary_RE.expand(HEADS, -1, -1)), 1).flatten(0, 1)
    many.load_state_dict(weights)
    close(*scores(pair_of_queries, words))
    x_BLE, context = one.embed(words.tokens_BL, words.lengths_B)
    whole, parts = one.blocks[0].attention, [0.3 * x_BLE, 0.7 * x_BLE]
    queries, keys, _ = whole.queries_keys_values(x_BLE, context, positioned=False)
    images = whole.images(parts, x_BLE)
    close(torch.cat([sum(channel.queries) for channel in images], -1), queries)
    close(sum(images[1].keys).expand(-1, HEADS, -1, -1), keys[..., -4:])


def constant_content(step: str, pairs: int) -> tuple[Tensor, Tensor]:
    """Logits (N, L, L) and norm factors (N, L) of random content, the same at all 128 positions."""
    shape = Shape(width=16, heads=1, head_width=16, max_length=128)
    encoding, positions = RoPE(shape, RoPESettings(step=step)), torch.arange(128)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, pairs, 1, 1, 16, generator=generator, dtype=torch.float64)
    length = (pairs, 1, 128, 16)
    turned_q, turned_k = encoding.rotate(q.expand(length), k.expand(length), positions, positions)
    return (turned_q @ turned_k.mT)[:, 0], (turned_q.norm(dim=-1) / q.norm(dim=-1))[:, 0]


def toeplitz_shares(logits_NLL: Tensor) -> Tensor:
    """1 - ||S - P(S)||^2 / ||S - mean S||^2 of each, P the mean along each diagonal."""
    steps = torch.arange(logits_NLL.shape[-1])
    diagonal_LL = steps[:, None] - steps + len(steps) - 1
    sums = logits_NLL.new_zeros(len(logits_NLL), 2 * len(steps) - 1)
    sums.index_add_(1, diagonal_LL.flatten(), logits_NLL.flatten(1))
    means = sums / diagonal_LL.flatten().bincount()
    left = (logits_NLL - means[:, diagonal_LL]).square().sum((1, 2))
    return 1 - left / (logits_NLL - logits_NLL.mean((1, 2), keepdim=True)).square().sum((1, 2))


def test_the_published_step_is_no_rotation() -> None:
    logits_NLL, factors_NL = constant_content("published", pairs=1000)
    assert toeplitz_shares(logits_NLL[:200]).mean() == pytest.approx(0.3, abs=0.03)
    ends = torch.tensor([0.0005, 0.9995], dtype=torch.float64)
    low, high = factors_NL.flatten().quantile(ends).tolist()
    assert (low, high) == (pytest.approx(0.5, abs=0.07), pytest.approx(1.3, abs=0.05))
    logits_NLL, factors_NL = constant_content("rotation", pairs=20)
    assert toeplitz_shares(logits_NLL).min() > 1 - 1e-9
    close(factors_NL, torch.ones_like(factors_NL))


def test_the_published_step_mixes_frequencies_and_has_no_kernel() -> None:
    shape = Shape(width=8, heads=1, head_width=8, max_length=9)
    encoding = RoPE(shape, RoPESettings(step="published"))
    assert encoding.kernel(torch.arange(3)) is None
    ones, positions = torch.ones(1, 1, 5, 8), torch.arange(5)
    turned_LD = encoding.rotate(ones, ones, positions, positions)[0][0, 0]
    close(turned_LD, stepped(ones[0, 0]))
    assert not turned_LD[0, :4].any()  # at position 0 half of the channels are lost
    # Two channels have one frequency, and a table of one sine and one cosine: a rotation.
    two = Shape(width=2, heads=1, head_width=2, max_length=9)
    x = torch.randn(1, 1, 9, 2)
    first, second = (
        RoPE(two, RoPESettings(step=step)).rotate(x, x, torch.arange(9), torch.arange(9))
        for step in ("published", "rotation")  # type: ignore[arg-type]
    )
    close(first, second)


@pytest.mark.parametrize("scheme", ["alibi", "rope", "learned"])
@pytest.mark.parametrize("causal", [False, True])
def test_unmasked_padding_is_words(scheme: str, causal: bool, small: Any, words: Batch) -> None:
    masked, unmasked = (
        moved(small(scheme, causal=causal)),
        moved(small(scheme, causal=causal, mask_padding=False)),
    )
    whole_BL = nn.functional.pad(words.tokens_BL, (0, LONGEST - 10))
    expected = masked(whole_BL, torch.full((3,), LONGEST))
    close(unmasked(words.tokens_BL, words.lengths_B), expected)
    assert (masked(words.tokens_BL, words.lengths_B) - expected).abs().max() > 1e-3
    for row in range(3):  # whatever else is in the batch
        alone = words.rows(slice(row, row + 1)).trim()
        close(unmasked(alone.tokens_BL, alone.lengths_B), expected[row : row + 1])
    close(unmasked(words.tokens_BL, words.lengths_B, torch.arange(10)), expected)


def test_no_final_norm_is_the_mean_of_the_stream(small: Any, words: Batch) -> None:
    models = pair(small, "rope", final_norm=False)
    gone = models[0].state_dict().keys() - models[1].state_dict().keys()
    assert gone == {"final_norm.weight", "final_norm.bias"}
    models[0].final_norm = nn.Identity()
    assert torch.equal(*scores(models, words))


def test_gelu(small: Any, words: Batch) -> None:
    models = pair(small, "rope", activation="gelu")
    for block in models[0].blocks:
        block.feedforward[1] = nn.GELU()
    assert torch.equal(*scores(models, words))


def test_dropout_acts_in_training_only(small: Any, words: Batch) -> None:
    for scheme in ("rope", "mla"):
        models = pair(small, scheme, dropout=0.5)
        assert torch.equal(*scores(models, words))
        model = models[1].train()
        first, second = scores([model, model], words)
        assert (first - second).abs().max() > 1e-2
        x_BLE, context = model.embed(words.tokens_BL, words.lengths_B)
        one, other = (model.blocks[0].attention.heads(x_BLE, context) for _ in range(2))
        assert torch.equal(one, other) == (scheme == "mla")  # whose weights are not dropped


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"extra_table": "rope"}, "extra_table 'rope' is unknown; use 'none', 'sinusoidal' or"),
        ({"activation": "silu"}, "activation 'silu' is unknown; use 'relu' or 'gelu'"),
        ({"dropout": 1.0}, "dropout is 1.0; use a share from 0 to below 1"),
        ({"dropout": -0.1}, "dropout is -0.1; use a share"),
    ],
)
def test_switches_that_make_no_sense_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModelSettings(**values)


def test_a_table_the_scheme_has_is_not_added_again(small: Any) -> None:
    for scheme, table in (("sinusoidal+rope", "sinusoidal"), ("learned", "learned")):
        with pytest.raises(InputError, match=f"has the table '{table}' already"):
            small(scheme, extra_table=table)
