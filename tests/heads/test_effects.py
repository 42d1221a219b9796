"""Zero ablation against models rebuilt with the heads' output columns at zero.

Shapes: A layers, H heads, N sequences.
"""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from poslens.heads import effects
from poslens.heads.effects import zero_ablation
from poslens.model import ModelSettings, Transformer, TransformerSites, build
from poslens.tasks import Batch, Distance, held_out
from poslens.tasks.distance import DistanceSettings

TASK = Distance(DistanceSettings(between=6, aside=3, words=20))
LAYERS, HEADS, SEQUENCES = 3, 4, 70


@torch.no_grad()
def rebuilt(
    model: Transformer, layer: int, heads: list[int], data: Batch
) -> tuple[np.ndarray, ...]:
    """Right or wrong (N,) and losses (N,) of a model built anew without these heads."""
    changed = copy.deepcopy(model)
    weight_EI = changed.blocks[layer].attention.output.weight
    size = weight_EI.shape[1] // HEADS
    for head in heads:
        weight_EI[:, head * size : (head + 1) * size] = 0
    scores_NC = changed(data.tokens_BL, data.lengths_B)
    losses_N = F.cross_entropy(scores_NC, data.labels_B, reduction="none")
    return (scores_NC.argmax(-1) == data.labels_B).numpy(), losses_N.numpy()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scheme", ["rope", "rope@1", "t5", "sinusoidal+rope", "mla"])
def test_it_is_the_model_without_the_heads_output_columns(
    scheme: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "ROWS", 100)  # batches of 20, and a last one of 10
    torch.manual_seed(0)
    settings = ModelSettings(layers=LAYERS, heads=HEADS, width=32, feedforward=48, causal=causal)
    parts = {"mla": {"value_width": 5}} if scheme == "mla" else {}
    model, data = build(scheme, TASK, settings, parts), held_out(TASK, SEQUENCES, seed=0)
    accuracy, loss = zero_ablation(TransformerSites(model), data)
    assert (accuracy.metric, loss.metric) == ("accuracy", "loss")
    assert (accuracy.target, accuracy.method) == ("head", "zero")
    assert loss.heads_AHN.shape == (LAYERS, HEADS, SEQUENCES)

    def same(right_N: np.ndarray, losses_N: np.ndarray, layer: int, heads: list[int]) -> None:
        expected = rebuilt(model, layer, heads, data)
        np.testing.assert_array_equal(right_N, expected[0])
        np.testing.assert_allclose(losses_N, expected[1], rtol=1e-5, atol=1e-5)

    every = list(range(HEADS))
    same(accuracy.intact_N, loss.intact_N, 0, [])
    for layer in range(LAYERS):
        same(accuracy.layers_AN[layer], loss.layers_AN[layer], layer, every)
        for head in every:
            same(accuracy.heads_AHN[layer, head], loss.heads_AHN[layer, head], layer, [head])
    change_AHN = np.abs(loss.heads_AHN - loss.intact_N)
    assert change_AHN.max(-1).min() > 1e-3  # no head is idle: the comparison could have failed
