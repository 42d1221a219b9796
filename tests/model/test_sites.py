"""The seam: walking a model layer by layer, leaving it with variants, removing position.

Shapes: N variants, B batch, L positions, H heads, E model width.
"""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close as close

from poslens.encodings import Encoding
from poslens.errors import InputError
from poslens.model import Transformer, TransformerSites
from poslens.tasks import Batch

LENGTHS = [7, 4, 9]
ZEROS = torch.zeros(3, 4)  # gains


def walk(model: Transformer, batch: Batch, gains_BH: Tensor | None = None) -> Tensor:
    """Scores of the model walked through `sites`, all layers under the same gains."""
    sites = TransformerSites(model)
    state = sites.enter(batch)
    for _ in range(sites.layers - 1):
        state = sites.advance(state, sites.write(state, sites.heads(state, gains_BH)))
    return sites.leave(state, sites.write(state, sites.heads(state, gains_BH))[None])[0]


@pytest.mark.parametrize("causal", [False, True])
def test_intact_scores_are_the_models(scheme: str, causal: bool, small: Any, padded: Any) -> None:
    intact_scores_are_the_models(small(scheme, layers=3, causal=causal), padded(LENGTHS, 11))


@pytest.mark.parametrize("causal", [False, True])
def test_intact_scores_are_the_models_with_published_switches(
    variant: Any, causal: bool, padded: Any
) -> None:
    intact_scores_are_the_models(variant(layers=3, causal=causal), padded(LENGTHS, 11))


def intact_scores_are_the_models(model: Transformer, batch: Batch) -> None:
    sites, expected = TransformerSites(model), model(batch.tokens_BL, batch.lengths_B)
    assert (sites.layers, sites.heads_in(2)) == (3, 4)
    close(walk(model, batch), expected)
    state = sites.enter(batch)
    for layer in range(3):
        entered = sites.enter(batch, layer)
        assert entered.layer == state.layer == layer
        close(entered.x_BLE, state.x_BLE)
        update_BLE = sites.write(state, sites.heads(state))
        close(sites.leave(entered, update_BLE[None])[0], expected)
        state = sites.advance(state, update_BLE)


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[7, 4, 9], [9], [10, 10]])
def test_many_variants_leave_as_each_would_alone(
    scheme: str, lengths: list[int], causal: bool, per_row: bool, small: Any, padded: Any
) -> None:
    starts = [4, 0, 1] if per_row else None
    variants_leave_as_each_alone(
        small(scheme, causal=causal, layers=3), padded(lengths, 10), starts
    )


@pytest.mark.parametrize("per_row", [False, True])
def test_many_variants_leave_as_each_would_alone_with_published_switches(
    variant: Any, per_row: bool, padded: Any
) -> None:
    # Positions stay below 14, the rows of a learned table, where padding fills up to 14 words.
    starts = [0, 0, 0] if per_row else None
    variants_leave_as_each_alone(variant(layers=3), padded([7, 4, 9], 10), starts)


def variants_leave_as_each_alone(
    model: Transformer, batch: Batch, starts: list[int] | None
) -> None:
    sites = TransformerSites(model)
    state = sites.enter(batch)
    if starts is not None:
        positions_BL = torch.arange(10) + torch.tensor(starts)[: len(batch), None]
        x_BLE, context = model.embed(batch.tokens_BL, batch.lengths_B, positions_BL)
        state = replace(state, x_BLE=x_BLE, context=context)
    updates_NBLE = torch.randn(5, *state.x_BLE.shape)
    scores_NBC = sites.leave(state, updates_NBLE)
    for update_BLE, scores_BC in zip(updates_NBLE, scores_NBC, strict=True):
        close(sites.leave(state, update_BLE[None])[0], scores_BC)
        after = sites.advance(state, update_BLE)
        x_BLE = after.x_BLE
        for layer, block in list(enumerate(model.blocks))[1:]:
            x_BLE = block(x_BLE, after.context.at(layer))
        close(model.read(x_BLE, after.lengths_B), scores_BC)


WITHOUT = {
    **dict.fromkeys(("rope", "rope@1", "rope@3", "t5", "t5@2", "alibi", "kerple"), "nope"),
    "alibi+rope": "nope",
    "sinusoidal+rope": "sinusoidal",
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", WITHOUT)
def test_no_gain_is_the_same_weights_without_the_encoding(
    name: str, causal: bool, small: Any, padded: Any
) -> None:
    model, without = small(name, causal=causal), small(WITHOUT[name], causal=causal)
    without.load_state_dict(
        {key: value for key, value in model.state_dict().items() if "encoding" not in key}
    )
    batch = padded(LENGTHS, 11)
    intact = model(batch.tokens_BL, batch.lengths_B)
    removed = walk(model, batch, ZEROS)
    close(removed, without(batch.tokens_BL, batch.lengths_B))
    assert (removed - intact).abs().max() > 1e-4
    close(walk(model, batch, 1 - ZEROS), intact)


@pytest.mark.parametrize("switches", [{}, {"memory_from_embeddings": True, "final_norm": False}])
@pytest.mark.parametrize(
    ("name", "parts", "own"),
    [
        ("rope", {}, {"extra_table": "sinusoidal"}),
        ("rope@2", {"rope": {"step": "published"}}, {"mask_padding": False}),
        ("t5", {"t5": {"exact": True}}, {"bias_per_layer": True}),
        ("alibi", {"alibi": {"slopes": "published"}}, {"mask_padding": False}),
        ("mla", {"rope": {"step": "published"}}, {"extra_table": "learned"}),
        ("mla", {"mla": {"shared_rotary_query": True}}, {}),
    ],
)
def test_no_gain_is_no_encoding_in_published_models(
    name: str,
    parts: dict[str, Any],
    own: dict[str, Any],
    switches: dict[str, Any],
    small: Any,
    padded: Any,
) -> None:
    model, batch = small(name, parts=parts, **own | switches), padded(LENGTHS, 11)
    intact, removed = model(batch.tokens_BL, batch.lengths_B), walk(model, batch, ZEROS)
    assert (removed - intact).abs().max() > 1e-4
    close(walk(model, batch, 1 - ZEROS), intact)
    without, nothing = copy.deepcopy(model), Encoding(model.encoding.shape)
    if "extra_table" in own:  # which stays
        without.encoding.second = nothing
    else:
        without.encoding = nothing
    without.upper_encodings = torch.nn.ModuleList()
    close(removed, without(batch.tokens_BL, batch.lengths_B))


@pytest.mark.parametrize("name", ["nope", "sinusoidal", "learned", "nope@2", "sinusoidal+learned"])
def test_gains_of_schemes_without_position_in_the_logits_are_refused(
    name: str, small: Any, padded: Any
) -> None:
    sites = TransformerSites(small(name))
    state = sites.enter(padded(LENGTHS))
    assert sites.heads(state).shape == (3, 4, 9, 8)
    with pytest.raises(InputError, match="no position in its attention"):
        sites.heads(state, ZEROS)


@pytest.mark.parametrize("layer", [-1, 2])
def test_layers_out_of_range_are_named(layer: int, small: Any, padded: Any) -> None:
    with pytest.raises(InputError, match=rf"layer {layer} is out of range; the model has 0\.\.1"):
        TransformerSites(small("rope")).enter(padded(LENGTHS), layer)
