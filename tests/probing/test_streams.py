"""Sequences without content, and the residual stream in every state."""

from collections.abc import Callable
from typing import cast

import pytest
import torch

from poslens.errors import InputError
from poslens.model import State, TransformerSites
from poslens.model.sites import Sites
from poslens.probing import filler_sequences, residual_streams, streams
from poslens.tasks import Batch, Count, Distance
from poslens.tasks.count import CountSettings
from poslens.tasks.distance import DistanceSettings


@pytest.mark.parametrize("scheme", ["nope", "sinusoidal+rope", "alibi", "mla"])
@pytest.mark.parametrize("causal", [False, True])
def test_states_are_those_of_a_forward_pass(
    small: Callable, task: Distance, scheme: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "ROWS", 5)  # parts that do not divide the batch
    model = small(scheme, layers=3, causal=causal)
    batch = filler_sequences(task, 12)
    states = list(residual_streams(TransformerSites(model), batch))
    assert len(states) == 4
    with torch.no_grad():
        x_BLE, context = model.embed(batch.tokens_BL, batch.lengths_B)
        for layer, block in enumerate(model.blocks):
            torch.testing.assert_close(states[layer], x_BLE)
            x_BLE = block(x_BLE, context.at(layer))
        torch.testing.assert_close(states[3], x_BLE)
        torch.testing.assert_close(
            model.read(states[3], batch.lengths_B), model(batch.tokens_BL, batch.lengths_B)
        )


def test_no_layer_is_needed_to_read_the_input(small: Callable, task: Distance) -> None:
    model = small("learned")
    batch = filler_sequences(task, 3)
    state = next(iter(residual_streams(TransformerSites(model), batch)))
    words_BLE = model.embedding(batch.tokens_BL)
    table_BLE = model.encoding.embed(torch.zeros_like(words_BLE), torch.arange(14))
    torch.testing.assert_close(state, words_BLE + table_BLE)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (Distance(DistanceSettings(between=4, aside=3, words=9)), range(3, 10)),
        (Distance(DistanceSettings(4, 3, words=9, fillers="published")), range(3, 10)),
        (Count(CountSettings(length=10, most=6, triggers=4, words=9)), range(5, 10)),
    ],
    ids=["distance", "published", "count"],
)
def test_fillers_are_independent_and_no_triggers(made: Distance | Count, words: range) -> None:
    assert made.filler_words == words
    batch = filler_sequences(made, 4000)
    assert batch.tokens_BL.shape == (4000, made.max_length)
    assert set(batch.lengths_B.tolist()) == {made.max_length}
    for tokens in batch.tokens_BL.T:  # every word as often at each position
        counts = tokens.bincount(minlength=10)[words.start :]
        expected = 4000 / len(words)
        assert tokens.min() >= words.start
        assert ((counts - expected) ** 2 / expected).sum() < 35
    assert torch.equal(batch.tokens_BL, filler_sequences(made, 4000).tokens_BL)
    assert filler_sequences(made, 2, length=5).tokens_BL.shape == (2, 5)


def test_a_task_without_fillers_is_refused() -> None:
    bare = Distance(DistanceSettings(between=1, aside=1, words=2, fillers="published"))
    with pytest.raises(InputError, match="the vocabulary of this distance task has no fillers"):
        filler_sequences(bare, 20)


class Steps:
    """The least that can be probed: each layer writes one more along the first channel."""

    layers = 2

    def enter(self, batch: Batch, layer: int = 0) -> State:
        x_BLE = torch.zeros(*batch.tokens_BL.shape, 3)
        return State(layer, x_BLE, None, batch.lengths_B)

    def heads(self, state: State) -> torch.Tensor:
        return torch.ones(len(state.x_BLE), 1, state.x_BLE.shape[1], 1)

    def write(self, state: State, outputs_BHLD: torch.Tensor) -> torch.Tensor:
        return outputs_BHLD.squeeze(1) * torch.tensor([1.0, 0.0, 0.0])

    def advance(self, state: State, update_BLE: torch.Tensor) -> State:
        return State(state.layer + 1, state.x_BLE + update_BLE, None, state.lengths_B)


def test_whatever_implements_the_seam_can_be_probed(task: Distance) -> None:
    states = list(residual_streams(cast(Sites, Steps()), filler_sequences(task, 5)))
    assert [state[4, 13].tolist() for state in states] == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]
