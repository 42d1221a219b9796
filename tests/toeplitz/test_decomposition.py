"""Terms against products written out, their sum against the model, known answers, refusals.

Shapes: B batch, L query positions, M key positions, H heads, D head width, E model width,
F rotary frequencies.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from poslens.encodings import Encoding
from poslens.errors import InputError
from poslens.model import Transformer, TransformerSites
from poslens.model.attention import Channel, MultiHeadAttention
from poslens.model.latent_attention import LatentAttention
from poslens.tasks import Batch
from poslens.toeplitz import (
    EmbeddingSplit,
    Head,
    MeanSplit,
    NotExact,
    counted_entries,
    decompose,
    halves,
    heads_of,
    layer_images,
    walk,
)
from poslens.toeplitz.splits import attention_input, frozen_norm

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
FOUR = ("content-content", "content-position", "position-content", "position-position")
SIX = (*FOUR, "bias", "constant-constant")


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def exact(model: Transformer, batch: Batch, split: Any) -> None:
    """Every head's terms are named, add up to the attention module's logits, and say how nearly."""
    states = list(walk(model, halves(batch)[1]))
    for layer, heads in groupby(decompose(model, batch, split), key=lambda head: head.layer):
        together, state = list(heads), states[layer]
        logits_BHLM = model.blocks[layer].attention.logits(
            attention_input(model, state), state.context
        )
        images = layer_images(together)
        assert tuple(images) == together[0].names
        every_KBHLM = torch.stack(list(images.values()))
        size_H = every_KBHLM.abs().sum(0).amax((0, 2, 3))
        gap_H = (every_KBHLM.sum(0) - logits_BHLM).abs().amax((0, 2, 3))
        assert (gap_H <= TOLERANCE[gap_H.dtype] * size_H).all()
        assert max(head.check() for head in together) <= TOLERANCE[gap_H.dtype]


def models(scheme: str, small: Any, trained: Any, causal: bool, seed: int) -> Iterator[Transformer]:
    yield small(scheme, seed=seed, causal=causal)
    yield trained(scheme, causal)


@pytest.mark.parametrize("causal", [False, True])
def test_terms_add_up_to_the_models_logits(
    scheme: str, causal: bool, small: Any, trained: Any, tokens: Any
) -> None:
    """Random and trained weights, both precisions, padding, all layers, both splits."""

    @settings(deadline=None, max_examples=3)
    @given(
        seed=st.integers(0, 2**31),
        lengths=st.lists(st.integers(2, 12), min_size=6, max_size=6),
        double=st.booleans(),
    )
    def check(seed: int, lengths: list[int], double: bool) -> None:
        batch = replace(tokens(6, seed=seed), lengths_B=torch.tensor([12, *lengths[1:]]))
        for model in models(scheme, small, trained, causal, seed % 7):
            model = copy.deepcopy(model).double() if double else model
            for split in ("mean", "embedding"):
                exact(model, batch, split)

    check()


SWITCHED: dict[str, tuple[str, dict[str, dict[str, Any]], dict[str, Any]]] = {
    "a table before latent attention": ("mla", {}, {"extra_table": "learned"}),
    "one rotary query for all heads": ("mla", {"mla": {"shared_rotary_query": True}}, {}),
    "biases of each layer's own": ("t5@2", {}, {"bias_per_layer": True}),
    "padding that counts as words": ("rope", {}, {"mask_padding": False}),
    "a step that is no rotation": ("mla", {"rope": {"step": "published"}}, {}),
    "pairs half a width apart": ("rope", {"rope": {"layout": "half", "width": 4}}, {}),
}


@pytest.mark.parametrize("name", SWITCHED)
def test_other_models_decompose_too(name: str, small: Any, padded: Batch) -> None:
    scheme, parts, sizes = SWITCHED[name]
    model = small(scheme, parts=parts, **sizes).double()
    for split in ("mean", "embedding"):
        exact(model, padded, split)


def test_names(scheme: str, small: Any, padded: Batch) -> None:
    head = next(decompose(small(scheme), padded))
    if scheme != "mla":
        assert head.names == SIX
        return
    channels = ("unrotated", "rotary")
    assert head.names == (
        *(f"{name} ({channel})" for name in FOUR for channel in channels),
        "bias",
        *(f"constant-constant ({channel})" for channel in channels),
    )


def heads_at(
    model: Transformer, batch: Batch, layer: int, kind: Any
) -> tuple[Any, Any, list[Head]]:
    fit, use = (list(walk(model, half))[layer] for half in halves(batch))
    split = kind.fit(model, fit)
    return use, split.parts(model, use), list(heads_of(model, use, split, counted_entries(use)))


@pytest.mark.parametrize("kind", [EmbeddingSplit, MeanSplit])
@pytest.mark.parametrize(
    "name", ["sinusoidal", "learned", "t5", "sinusoidal+rope", "xpos", "rope@1"]
)
def test_terms_are_what_they_are_called(kind: Any, name: str, small: Any, padded: Batch) -> None:
    """Each part sent through the weights by itself, turned, multiplied: multi-head attention."""
    model = small(name).double()
    layer = 0 if kind is EmbeddingSplit else 1
    with torch.no_grad():
        state, parts, heads = heads_at(model, padded, layer, kind)
    attention: MultiHeadAttention = model.blocks[layer].attention
    weight, bias = attention.input.weight, attention.input.bias

    def turned(part_BLE: Tensor, constant: bool) -> tuple[Tensor, Tensor]:
        images = [
            part_BLE.expand_as(state.x_BLE) @ weight[rows].T + constant * bias[rows]
            for rows in (slice(0, 32), slice(32, 64))
        ]
        q, k = (image.unflatten(-1, (4, 8)).transpose(1, 2) for image in images)
        return model.encoding.rotate(q, k, torch.arange(12), torch.arange(12))

    (q0, k0), (qc, kc), (qp, kp) = (
        turned(part, constant=number == 0) for number, part in enumerate(parts)
    )
    expected = {
        "content-content": (q0 + qc) @ (k0 + kc).mT - q0 @ k0.mT,
        "content-position": (q0 + qc) @ kp.mT,
        "position-content": qp @ (k0 + kc).mT,
        "position-position": qp @ kp.mT,
        "constant-constant": q0 @ k0.mT,
    }
    images = layer_images(heads)
    for term, matrices in expected.items():
        close(images[term], matrices / math.sqrt(8))
    biases = model.encoding.bias(torch.arange(12), torch.arange(12))
    close(images["bias"], torch.zeros_like(q0 @ k0.mT) + (0 if biases is None else biases))


@pytest.mark.parametrize("layer", [0, 1])
def test_latent_terms_are_under_their_own_kernels(layer: int, small: Any, padded: Batch) -> None:
    model = small("mla").double()
    with torch.no_grad():
        state, parts, heads = heads_at(model, padded, layer, MeanSplit)
    attention: LatentAttention = model.blocks[layer].attention
    x_BLE = attention_input(model, state)

    def rms(x: Tensor) -> Tensor:
        return (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    def images(part_BLE: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        part_BLE = part_BLE.expand_as(x_BLE)
        down, latent = attention.query_down, attention.latent_down
        rank = attention.latent_rank
        q = attention.query_up(down(part_BLE) * attention.query_norm.weight / rms(down(x_BLE)))
        q = q.unflatten(-1, (4, -1)).transpose(1, 2)
        k = attention.latent_up(
            latent(part_BLE)[..., :rank]
            * attention.latent_norm.weight
            / rms(latent(x_BLE)[..., :rank])
        )
        k = k.unflatten(-1, (4, -1)).transpose(1, 2)[..., :8]
        q_turned, k_turned = model.encoding.rotate(
            q[..., 8:], latent(part_BLE)[:, None, :, rank:], *[torch.arange(12)] * 2
        )
        return {"unrotated": (q[..., :8], k), "rotary": (q_turned, k_turned)}

    constant, content, position = (images(part) for part in parts)
    found = layer_images(heads)
    for channel in ("unrotated", "rotary"):
        (q0, k0), (qc, kc), (qp, kp) = constant[channel], content[channel], position[channel]
        scale = 1 / math.sqrt(12)
        close(found[f"constant-constant ({channel})"], scale * q0 @ k0.mT)
        close(found[f"content-position ({channel})"], scale * (q0 + qc) @ kp.mT)
        close(found[f"position-content ({channel})"], scale * qp @ (k0 + kc).mT)
        close(found[f"position-position ({channel})"], scale * qp @ kp.mT)
        both = scale * ((q0 + qc) @ (k0 + kc).mT - q0 @ k0.mT)
        close(found[f"content-content ({channel})"], both)


def test_embedding_terms_are_those_of_token_and_table(small: Any, padded: Batch) -> None:
    """The four products of the study for a table: token and row, each through the frozen norm."""
    model = small("learned").double()
    _, use = halves(padded)
    heads = list(decompose(model, padded, "embedding"))
    block, table_LE = model.blocks[0], model.encoding.table_PE[:12]
    words_BLE = model.embedding(use.tokens_BL)
    both = words_BLE + table_LE
    row_BLE = frozen_norm(block.attention_norm, table_LE.expand_as(both), both)
    q, k = (
        (row_BLE @ block.attention.input.weight[rows].T).unflatten(-1, (4, 8)).transpose(1, 2)
        for rows in (slice(0, 32), slice(32, 64))
    )
    close(layer_images(heads)["position-position"], q @ k.mT / math.sqrt(8))


@pytest.mark.parametrize("layer", [0, 1])
def test_what_position_adds(layer: int, scheme: str, small: Any, padded: Batch) -> None:
    """Logits less those at angle 0, without bias, without the table's part of queries and keys."""
    model = small(scheme).double()
    with torch.no_grad():
        state, parts, heads = heads_at(model, padded, layer, MeanSplit)
        attention, x_BLE = model.blocks[layer].attention, attention_input(model, state)
        if "sinusoidal" in scheme or scheme == "learned":
            x_BLE = x_BLE - parts.position
        q, k, _ = attention.queries_keys_values(x_BLE, state.context, positioned=False)
    for head in heads:
        if scheme == "nope":
            assert head.added is None
            continue
        assert head.added is not None
        added = head.added[0] @ head.added[1].mT
        added = added if head.bias_BLM is None else added + head.bias_BLM
        without = attention.scale * q[:, head.head] @ k[:, head.head].mT
        close(added, head.logits.matrix() - without)


def test_a_dropped_term_raises(scheme: str, small: Any, padded: Batch) -> None:
    model = small(scheme)
    for split in ("mean", "embedding"):
        head = next(decompose(model, padded, split))
        for name in head.made:
            if name == "bias":
                less = replace(head, bias_BLM=None)
            else:
                kept = {term: of for term, of in head.products.items() if term != name}
                less = replace(head, products=kept)
            for call in (less.check, less.images):
                with pytest.raises(NotExact, match="layer 0, head 0 miss its logits by"):
                    call()


def test_images_that_are_not_the_modules_raise(
    small: Any, padded: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def images(self: Any, parts: Any, x_BLE: Tensor) -> list[Channel]:
        (channel,) = true(self, parts, x_BLE)
        return [replace(channel, queries=tuple(1.001 * q for q in channel.queries))]

    true = MultiHeadAttention.images
    monkeypatch.setattr(MultiHeadAttention, "images", images)
    with pytest.raises(NotExact):
        next(decompose(small("rope"), padded)).check()


def test_an_error_within_tolerance_is_told_from_one_above(small: Any, padded: Batch) -> None:
    """The check takes the terms' size from some rows; where that leaves doubt, from all."""
    head = next(decompose(small("t5").double(), padded, "embedding"))
    size = sum(image.abs() for image in head.images().values()).max()
    assert head.bias_BLM is not None
    for factor, raises in ((0.9, False), (1.1, True)):
        off = head.bias_BLM.clone()
        off[0, 3, 5] += factor * 1e-10 * size
        moved = replace(head, bias_BLM=off)
        if raises:
            with pytest.raises(NotExact):
                moved.check()
        else:
            assert moved.check() == pytest.approx(0.9e-10, rel=1e-2)


@pytest.mark.parametrize("name", ["rope", "xpos", "p-rope", "sinusoidal+rope", "rope@1", "mla"])
def test_frequencies_add_up_to_their_term(name: str, small: Any, padded: Batch) -> None:
    model = small(name).double()
    for head in decompose(model, padded):
        images = head.images()
        if name == "rope@1" and head.head:
            assert head.turning == ()
            with pytest.raises(InputError, match="has them in: nothing"):
                head.at_frequency("content-content", 0)
            continue
        frequencies = range(len(head.pairs.turned))
        assert len(frequencies) == {"p-rope": 3, "mla": 2}.get(name, 4)
        for term in head.turning:
            parts = [head.at_frequency(term, f) for f in (*frequencies, None)]
            close(torch.stack(parts).sum(0), images[term])
    with pytest.raises(InputError, match="no frequencies in 'bias'; it has them in: content-con"):
        next(decompose(small("rope"), padded)).at_frequency("bias", 0)


def flat(model: Transformer) -> Transformer:
    """Every token the same: content is constant."""
    with torch.no_grad():
        model.embedding.weight[:] = model.embedding.weight[1]
    return model


def test_rope_on_constant_content_is_a_sum_of_cosines(small: Any, tokens: Any) -> None:
    model = flat(small("rope").double())
    theta_F = 10_000.0 ** -(torch.arange(4, dtype=torch.float64) / 4)
    offset_LM = torch.arange(12)[:, None] - torch.arange(12)
    for head in decompose(model, tokens(), layers=[0]):
        images = head.images()
        for name in (*FOUR, "bias"):
            assert float(images[name].abs().max()) < 1e-12
        state = TransformerSites(model).enter(tokens(2))
        attention = model.blocks[0].attention
        q, k, _ = attention.queries_keys_values(
            attention_input(model, state), state.context, positioned=False
        )
        q_F, k_F = (
            torch.view_as_complex(x[0, head.head, 0].detach().unflatten(-1, (4, 2))) for x in (q, k)
        )
        pair_F = q_F * k_F.conj() / math.sqrt(8)
        for f in range(4):
            cosine = pair_F[f].abs() * torch.cos(offset_LM * theta_F[f] + pair_F[f].angle())
            close(head.at_frequency("constant-constant", f), cosine.expand(4, -1, -1))


@pytest.mark.parametrize("causal", [False, True])
def test_positional_terms_of_nope_are_noise_unless_causal(
    causal: bool, small: Any, tokens: Any
) -> None:
    """p_t of n sequences has 1/n of the content's variance if no position is in the stream."""

    def position(sequences: int) -> float:
        found = 0.0
        for head in decompose(small("nope", causal=causal), tokens(sequences), layers=[1]):
            images = head.images()
            found += float(images["position-position"].var() / images["content-content"].var())
        return found / 4

    few, many = position(40), position(4000)
    # Noise squared falls as 1/n^2, to a ten-thousandth; implicit position stays.
    assert (many / few < 1e-3) != causal
    assert many > 0


def test_half_precision_is_taken_in_float32(small: Any, padded: Batch) -> None:
    model = small("rope").bfloat16()
    found, expected = (
        layer_images(list(decompose(one, padded, layers=[1])))
        for one in (model, small("rope").bfloat16().float())
    )
    assert model.embedding.weight.dtype == torch.bfloat16
    for name in SIX:
        assert found[name].dtype == torch.float32
        assert torch.equal(found[name], expected[name])


def test_layers_are_walked_once_and_in_order(small: Any, padded: Batch) -> None:
    model = small("rope", layers=3)
    places = [(head.layer, head.head) for head in decompose(model, padded, layers=[2, 0])]
    assert places == [(layer, head) for layer in (0, 2) for head in range(4)]
    assert {head.layer for head in decompose(model, padded)} == {0, 1, 2}
    assert {head.layer for head in decompose(model, padded, "embedding")} == {0}


def test_entries_that_count(small: Any, padded: Batch, tokens: Any) -> None:
    real_BL = torch.arange(12) < halves(padded)[1].lengths_B[:, None]
    past_LM = torch.ones(12, 12).tril().bool()
    both_BLM = real_BL[:, :, None] & real_BL[:, None, :]

    def entries(batch: Batch, causal: bool) -> Tensor | None:
        return next(decompose(small("rope", causal=causal), batch)).entries_BLM

    def same(found: Tensor | None, expected: Tensor) -> bool:
        return found is not None and torch.equal(found, expected)

    assert entries(tokens(), causal=False) is None
    assert same(entries(tokens(), causal=True), past_LM[None])
    assert same(entries(padded, causal=False), both_BLM)
    assert same(entries(padded, causal=True), both_BLM & past_LM)


class Mixing(Encoding):
    """A rotation that is none: four channels are mixed by a matrix that depends on position."""

    kind = "multiplicative"

    def rotate(
        self, q_BHLD: Tensor, k_BHMD: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        def mixed(x: Tensor, positions: Tensor) -> Tensor:
            turned = x[..., :4].roll(1, -1) * (0.1 * positions[..., None])
            return torch.cat([x[..., :4] + turned, x[..., 4:]], -1)

        return mixed(q_BHLD, query_positions), mixed(k_BHMD, key_positions)


def test_any_linear_rotation_will_do(small: Any, padded: Batch) -> None:
    model = small("rope").double()
    model.encoding = Mixing(model.encoding.shape)
    for head in decompose(model, padded):
        images = head.images()
        assert head.pairs.turned == ((0, 1, 2, 3),)
        assert head.pairs.still == (4, 5, 6, 7)
        parts = head.at_frequency("content-content", 0), head.at_frequency("content-content", None)
        close(sum(parts), images["content-content"])


def spoilt(model: Transformer, name: str) -> Transformer:
    with torch.no_grad():
        dict(model.named_parameters())[name].view(-1)[0] = math.nan
    return model


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, b: decompose(s("rope"), b, "embedding", [1]), "ends with layer 0, got layer 1"),
        (lambda s, b: decompose(s("rope"), b, layers=[2]), r"out of range; the model has 0\.\.1"),
        (lambda s, b: decompose(s("rope"), b, layers=[-1]), "layer -1 is out of range"),
        (
            lambda s, b: decompose(s("rope"), replace(b, tokens_BL=b.tokens_BL[:, :1])),
            "sequences of one position have a single offset",
        ),
        (
            lambda s, b: decompose(s("rope"), replace(b, lengths_B=b.lengths_B - 5)),
            "sequence 5 is padding only, so its rows see no key; leave it out",
        ),
        (
            lambda s, b: decompose(spoilt(s("rope"), "blocks.1.attention.input.weight"), b),
            "layer 1: attention.input.weight holds NaN",
        ),
        (
            lambda s, b: decompose(spoilt(s("kerple"), "encoding.log_r1_H"), b),
            "encoding: log_r1_H holds NaN",
        ),
        (
            lambda s, b: decompose(spoilt(s("rope"), "embedding.weight"), b),
            "embedding: weight holds NaN",
        ),
        (lambda s, b: decompose(s("rope"), b.rows(slice(1))), "got 1 sequence, give 2 or more"),
        (
            lambda s, b: decompose(s("rope", memory_from_embeddings=True), b),
            "keys of this model come from the embeddings",
        ),
    ],
)
def test_refusals_say_why(
    call: Callable[..., Iterator[Head]], message: str, small: Any, padded: Batch
) -> None:
    with pytest.raises(InputError, match=message) as raised:
        next(call(small, padded))
    assert "\n" not in str(raised.value)


def test_nan_above_the_layers_asked_for_does_not_matter(small: Any, padded: Batch) -> None:
    model = spoilt(small("rope"), "blocks.1.attention.input.weight")
    assert len(list(decompose(model, padded, layers=[0]))) == 4
