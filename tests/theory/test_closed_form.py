"""The seed worked out by hand equals the one that the code records."""

import numpy as np
import pytest
import torch
from torch import nn

from poslens.heads.edits import no_position_part
from poslens.model import ModelSettings, TransformerSites, build
from poslens.tasks import Batch, Distance
from poslens.tasks.distance import DistanceSettings
from poslens.theory.closed_form import rope_seed
from poslens.theory.seeds import seeds_and_losses


@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("tokens", [2, 3, 5])
def test_the_closed_form_is_the_codes(tokens: int, factor: float) -> None:
    """One frequency theta = 1 / factor; norm and feed-forward taken out; several sequences."""
    task = Distance(DistanceSettings(between=3, aside=1, words=9))
    parts = {"rope": {"scaling": {"kind": "linear", "factor": factor}}}
    torch.manual_seed(tokens)
    sizes = ModelSettings(layers=1, heads=1, width=2, feedforward=2, final_norm=False)
    model = build("rope", task, sizes, parts).double().eval().requires_grad_(False)
    block = model.blocks[0]
    block.attention_norm = nn.Identity()
    block.feedforward[2].weight.zero_()
    block.feedforward[2].bias.zero_()
    block.attention.input.bias.zero_()
    block.attention.output.bias.zero_()
    block.attention.input.weight.mul_(3)  # so that attention is far from even

    words_BL = torch.randint(1, task.embeddings, (6, tokens))
    labels_B = torch.arange(6) % task.classes
    batch = Batch(words_BL, torch.full((6,), tokens), labels_B)
    found, _ = seeds_and_losses(TransformerSites(model), no_position_part, batch)
    attention = block.attention
    query, key, value = attention.input.weight.numpy().reshape(3, 2, 2)
    maps = {
        **{"query": query, "key": key, "value": value, "output": attention.output.weight.numpy()},
        **{"classes": model.classifier.weight.numpy(), "constant": model.classifier.bias.numpy()},
    }
    expected = [
        rope_seed(model.embedding(words_BL[row]).numpy(), maps, 1 / factor, int(labels_B[row]))
        for row in range(6)
    ]
    assert max(map(abs, expected)) > 1e-4
    np.testing.assert_allclose(found[:, 0, 0], expected, rtol=1e-10, atol=1e-15)
