"""The part of attention's input that a table put there, layer by layer."""

import pytest
import torch

from poslens.heads import Edit, Reference
from poslens.heads.edits import no_position_part
from poslens.heads.position_part import position_part
from poslens.model import ModelSettings, Transformer, TransformerSites, build
from poslens.tasks import Distance, held_out
from poslens.tasks.distance import DistanceSettings

TASK = Distance(DistanceSettings(between=6, aside=3, words=20))
DATA = held_out(TASK, 12, seed=0)


def small(scheme: str, **switches: bool) -> Transformer:
    torch.manual_seed(0)
    settings = ModelSettings(layers=2, heads=4, width=32, feedforward=48, **switches)
    return build(scheme, TASK, settings).eval()


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "sinusoidal+rope"])
@torch.no_grad()
def test_the_first_layers_logits_without_position_are_those_of_content_alone(scheme: str) -> None:
    """Content-only queries and keys under the norm's frozen statistics; values untouched."""
    model = small(scheme)
    sites = TransformerSites(model)
    state, block = sites.enter(DATA), model.blocks[0]
    reference = Reference(sites, DATA, part=position_part(model, TASK))
    told = reference.replacement(Edit("position", "none"), state, sites.heads(state))

    norm, tokens_BLE = block.attention_norm, model.embedding(DATA.tokens_BL)
    deviation = (state.x_BLE.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
    centred_BLE = tokens_BLE - tokens_BLE.mean(-1, keepdim=True)
    content_BLE = centred_BLE / deviation * norm.weight + norm.bias
    queries, keys, _ = block.attention.queries_keys_values(
        content_BLE, state.context, positioned=False
    )
    values = block.attention.queries_keys_values(norm(state.x_BLE), state.context)[2]
    logits = block.attention.scale * queries @ keys.mT
    logits = logits.masked_fill(~state.context.visible, float("-inf"))
    torch.testing.assert_close(told, logits.softmax(-1) @ values, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_above_it_is_the_mean_at_each_position() -> None:
    model = small("sinusoidal")
    sites = TransformerSites(model)
    part_1LE = position_part(model, TASK)(sites.enter(DATA, 1))
    assert part_1LE.shape == (1, DATA.tokens_BL.shape[1], 32)
    # Without heads, layer 1 holds the same table: what is position there must look like it.
    for block in model.blocks:
        block.attention.output.weight.zero_()
    state = sites.enter(DATA, 1)
    found = position_part(model, TASK)(state)[0]
    first = position_part(model, TASK)(sites.enter(DATA))
    expected = first.mean(0) - first.mean((0, 1))
    cosine = torch.nn.functional.cosine_similarity(found.flatten(), expected.flatten(), dim=0)
    assert cosine > 0.9


@pytest.mark.parametrize("scheme", ["nope", "rope", "alibi", "mla"])
def test_schemes_without_a_table_added_none(scheme: str) -> None:
    assert position_part(small(scheme), TASK) is no_position_part


@torch.no_grad()
def test_it_serves_models_whose_keys_come_from_the_embeddings() -> None:
    model = small("sinusoidal+rope", memory_from_embeddings=True)
    sites = TransformerSites(model)
    reference = Reference(sites, DATA, part=position_part(model, TASK))
    for layer in range(2):
        state = sites.enter(DATA, layer)
        intact = sites.heads(state)
        for target in ("position", "table", "rotation"):
            told = reference.replacement(Edit(target, "none"), state, intact)
            assert told.shape == intact.shape
            assert (told - intact).abs().max() > 1e-4
