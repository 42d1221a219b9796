"""Seeds against finite differences of the gain, and where they are undefined.

Shapes: B batch, A layers, H heads.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from poslens.encodings import ENCODINGS
from poslens.errors import InputError
from poslens.heads.position_part import position_part
from poslens.model import STUDY, Transformer, TransformerSites, build
from poslens.tasks import Batch, Distance, held_out
from poslens.theory.seeds import (
    BLOCK,
    fresh,
    positional_rms,
    record,
    seeds_and_losses,
)

MakeModel = Callable[..., Transformer]
SCHEMES = (
    *(name for name in ENCODINGS if name != "nope"),
    *("rope@1", "t5@2", "alibi+rope", "sinusoidal+rope", "sinusoidal+alibi", "mla"),
)


def losses_under(model: Transformer, task: Distance, batch: Batch, gains_BAH: Tensor) -> Tensor:
    """Losses (B) with these gains, attention written out: logits, mask, softmax, values."""
    sites, part = TransformerSites(model), position_part(model, task)
    state = sites.enter(batch)
    for layer, block in enumerate(model.blocks):
        x_BLE = block.attention_norm(state.x_BLE)
        attention, context = block.attention, state.context
        with_it = attention.logits(x_BLE, context)
        none_BH = torch.zeros_like(gains_BAH[:, layer])
        without = attention.logits(x_BLE, context, none_BH, part(state))
        logits = without + gains_BAH[:, layer, :, None, None] * (with_it - without)
        if context.visible is not None:
            logits = logits.masked_fill(~context.visible, float("-inf"))
        values = attention.queries_keys_values(x_BLE, context)[2]
        update_BLE = attention.write(logits.softmax(-1) @ values)
        if layer + 1 < len(model.blocks):
            state = sites.advance(state, update_BLE)
    scores_BC = sites.leave(state, update_BLE[None])[0]
    return F.cross_entropy(scores_BC, batch.labels_B, reduction="none")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_they_are_the_slopes_of_the_loss_by_each_heads_gain(
    scheme: str, exact: MakeModel, task: Distance
) -> None:
    """Central differences in float64, of every head of every layer, to 1e-6 of the largest."""
    # An untrained learned table is too small to be told from noise above the first layer.
    parts = {"learned": {"std": 0.5}} if scheme.startswith("learned") else None
    slopes_are_central_differences(exact(scheme, parts), task)


@pytest.mark.parametrize(
    ("scheme", "switches"),
    [
        ("rope", {"causal": True, "readout": "last"}),
        ("alibi", {"causal": True}),
        ("t5", {"bias_per_layer": True}),
        ("rope", {"memory_from_embeddings": True, "extra_table": "sinusoidal"}),
        ("alibi", {"mask_padding": False}),
        ("mla", {"memory_from_embeddings": True, "final_norm": False}),
    ],
)
def test_so_they_are_with_the_models_switches(
    scheme: str, switches: dict[str, Any], exact: MakeModel, task: Distance
) -> None:
    slopes_are_central_differences(exact(scheme, **switches), task)


def slopes_are_central_differences(model: Transformer, task: Distance) -> None:
    batch, step = held_out(task, 5, seed=3), 1e-4
    sites, part = TransformerSites(model), position_part(model, task)
    seeds_BAH, losses_B = seeds_and_losses(sites, part, batch)
    ones = torch.ones_like(seeds_BAH)
    torch.testing.assert_close(losses_B, losses_under(model, task, batch, ones), rtol=1e-12, atol=0)
    for layer in range(2):
        for head in range(4):
            moved = torch.zeros_like(ones)
            moved[:, layer, head] = step
            more, less = (losses_under(model, task, batch, ones + sign * moved) for sign in (1, -1))
            slopes_B = (more - less) / (2 * step)
            largest = float(seeds_BAH[:, layer].abs().max())
            assert largest > 1e-6
            torch.testing.assert_close(
                seeds_BAH[:, layer, head], -slopes_B, rtol=1e-6, atol=1e-6 * largest
            )


@pytest.mark.parametrize("scheme", ["rope", "alibi", "t5", "mla", "sinusoidal"])
def test_the_recorded_ones_are_those_of_each_example_alone(
    scheme: str, exact: MakeModel, task: Distance
) -> None:
    """However the data is cut and sorted, in its own order; float32 beside float64."""
    model = exact(scheme)
    sites, part = TransformerSites(model), position_part(model, task)
    data = held_out(task, 150, seed=1)
    alone = [seeds_and_losses(sites, part, data.rows(slice(n, n + 1)).trim()) for n in range(150)]
    found = record(sites, part, [data.rows(slice(0, 140)), data.rows(slice(140, 150))])
    np.testing.assert_allclose(
        found.seeds_NAH, torch.cat([seeds for seeds, _ in alone]), rtol=1e-5, atol=1e-9
    )
    np.testing.assert_allclose(found.losses_N, torch.cat([losses for _, losses in alone]), 1e-6)


def test_no_gradient_reaches_the_weights(task: Distance, exact: MakeModel) -> None:
    model = exact("t5").requires_grad_(True)
    seeds_and_losses(TransformerSites(model), position_part(model, task), held_out(task, 4, 0))
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("scheme", ["nope", "nope@2"])
def test_without_position_they_are_undefined_and_not_zero(
    scheme: str, exact: MakeModel, task: Distance
) -> None:
    model = exact(scheme)
    with pytest.raises(InputError, match="no position in its attention"):
        record(TransformerSites(model), position_part(model, task), [held_out(task, 4, 0)])


@pytest.mark.parametrize(("scheme", "having"), [("rope@1", 1), ("t5@3", 3), ("rope", 4)])
@pytest.mark.parametrize("double", [False, True])
def test_heads_without_position_have_none(
    scheme: str, having: int, double: bool, exact: MakeModel, task: Distance
) -> None:
    model = exact(scheme)
    model = model if double else model.float()
    found = record(TransformerSites(model), position_part(model, task), [held_out(task, 16, 0)])
    undefined_AH = np.isnan(found.seeds_NAH).all(0)
    assert (undefined_AH == np.isnan(found.seeds_NAH).any(0)).all()
    assert (undefined_AH == (found.rms_AH == 0)).all()
    assert undefined_AH.tolist() == [[False] * having + [True] * (4 - having)] * 2


def test_a_table_that_is_zero_gives_heads_nothing(exact: MakeModel, task: Distance) -> None:
    model = exact("learned", parts={"learned": {"std": 0.0}})
    sites, part = TransformerSites(model), position_part(model, task)
    assert not positional_rms(sites, part, held_out(task, 16, 0)).any()


@pytest.mark.parametrize(
    ("scheme", "having"), [("learned", [True, False]), ("sinusoidal", [True] * 2)]
)
def test_an_untrained_table_is_told_from_the_noise_of_its_mean(
    scheme: str, having: list[bool], task: Distance
) -> None:
    """Learned tables start small beside the words, and above the first layer are lost in noise."""
    torch.manual_seed(0)
    model = build(scheme, task).eval()
    sites, part = TransformerSites(model), position_part(model, task)
    found_AH = positional_rms(sites, part, held_out(task, 16, 0))
    assert (found_AH[:2] > 0).all(1).tolist() == having


@pytest.mark.parametrize("causal", [False, True])
def test_the_size_of_position_in_the_logits_is_that_of_the_bias(
    causal: bool, exact: MakeModel, task: Distance
) -> None:
    """ALiBi's positional part is its bias: row by row, over words alone."""
    model, data = exact("alibi", causal=causal), held_out(task, 7, seed=0)
    found_AH = positional_rms(TransformerSites(model), position_part(model, task), data)
    for head in range(4):
        squares = []
        for length in data.lengths_B.tolist():
            for i in range(length):
                seen = np.arange(i + 1 if causal else length)
                bias = -(2.0 ** (-2 * (head + 1))) * np.abs(i - seen)
                squares += list((bias - bias.mean()) ** 2)
        assert found_AH[:, head] == pytest.approx([np.mean(squares) ** 0.5] * 2, rel=1e-6)


def test_every_scheme_of_the_study_is_covered() -> None:
    assert {scheme for scheme in STUDY if scheme != "nope"} <= {*SCHEMES}


def test_fewer_sequences_are_the_first_of_more(task: Distance) -> None:
    few = list(fresh(task, 10, seed=4))
    many = list(fresh(task, BLOCK + 5, seed=4))
    assert [len(block) for block in many] == [BLOCK, 5]
    width = few[0].tokens_BL.shape[1]
    assert torch.equal(few[0].tokens_BL, many[0].tokens_BL[:10, :width])
    assert not torch.equal(many[1].labels_B, many[0].labels_B[:5])
    for purpose in ("evaluate", "validate", "reference"):
        assert not torch.equal(few[0].labels_B, held_out(task, 10, 4, purpose).labels_B)
    with pytest.raises(InputError, match="examples is 1; use 2 or more"):
        next(fresh(task, 1, seed=4))
