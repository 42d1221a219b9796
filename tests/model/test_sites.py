"""The seam: walking a model layer by layer, leaving it with variants, removing position.

Shapes: N variants, B batch, L positions, H heads, E model width.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close as close

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
    model, batch = small(scheme, layers=3, causal=causal), padded(LENGTHS, 11)
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
    model, batch = small(scheme, causal=causal, layers=3), padded(lengths, 10)
    sites = TransformerSites(model)
    state = sites.enter(batch)
    if per_row:
        positions_BL = torch.arange(10) + torch.tensor([4, 0, 1])[: len(lengths), None]
        x_BLE, context = model.embed(batch.tokens_BL, batch.lengths_B, positions_BL)
        state = replace(state, x_BLE=x_BLE, context=context)
    updates_NBLE = torch.randn(5, *state.x_BLE.shape)
    scores_NBC = sites.leave(state, updates_NBLE)
    for update_BLE, scores_BC in zip(updates_NBLE, scores_NBC, strict=True):
        close(sites.leave(state, update_BLE[None])[0], scores_BC)
        after = sites.advance(state, update_BLE)
        x_BLE = after.x_BLE
        for block in model.blocks[1:]:
            x_BLE = block(x_BLE, after.context)
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


@pytest.mark.parametrize("name", ["nope", "sinusoidal", "learned", "nope@2", "sinusoidal+learned"])
def test_gains_of_schemes_without_position_in_the_logits_are_refused(
    name: str, small: Any, padded: Any
) -> None:
    sites = TransformerSites(small(name))
    state = sites.enter(padded(LENGTHS))
    assert sites.heads(state).shape == (3, 4, 9, 8)
    with pytest.raises(InputError, match="no position in queries, keys or logits"):
        sites.heads(state, ZEROS)


@pytest.mark.parametrize("layer", [-1, 2])
def test_layers_out_of_range_are_named(layer: int, small: Any, padded: Any) -> None:
    with pytest.raises(InputError, match=rf"layer {layer} is out of range; the model has 0\.\.1"):
        TransformerSites(small("rope")).enter(padded(LENGTHS), layer)
