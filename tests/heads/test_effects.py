"""Effects against models rebuilt with the heads' output columns at zero, and against plain walks.

Shapes: A layers, H heads, N sequences.
"""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from poslens.errors import InputError
from poslens.heads import Edit, Effort, Reference, measure
from poslens.heads.edits import reference_batch
from poslens.heads.effects import Walk
from poslens.heads.stopping import DISCORDANT, LOOK
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


def reference_of(model: Transformer) -> Reference:
    sites = TransformerSites(model)
    every_length = torch.arange(5, 15)
    batch = reference_batch(TASK, every_length, 200, seed=0)
    return Reference(sites, batch, model.settings.causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scheme", ["rope", "rope@1", "t5", "sinusoidal+rope", "mla"])
def test_zeroing_is_the_model_without_the_heads_output_columns(scheme: str, causal: bool) -> None:
    torch.manual_seed(0)
    settings = ModelSettings(layers=LAYERS, heads=HEADS, width=32, feedforward=48, causal=causal)
    parts = {"mla": {"value_width": 5}} if scheme == "mla" else {}
    model, data = build(scheme, TASK, settings, parts), held_out(TASK, SEQUENCES, seed=0)
    sites = TransformerSites(model)
    effort = Effort(megabytes=20 * sites.megabytes_per_row(data.tokens_BL.shape[1]))
    found = measure(data, Edit(), reference_of(model), effort)
    accuracy, loss = found["accuracy"], found["loss"]
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


EDITS = [
    Edit("head", "zero"),
    Edit("head", "mean"),
    Edit("head", "resample"),
    Edit("position", "none"),
    Edit("position", "mean"),
    Edit("position", "resample"),
]


def small(scheme: str, layers: int = 2, **switches: bool) -> Transformer:
    torch.manual_seed(0)
    settings = ModelSettings(layers=layers, heads=HEADS, width=32, feedforward=48, **switches)
    return build(scheme, TASK, settings).eval()


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.target}-{edit.method}")
@pytest.mark.parametrize("scheme", ["rope", "alibi", "mla"])
@pytest.mark.parametrize("switches", [{}, {"memory_from_embeddings": True}], ids=["", "memory"])
@torch.no_grad()
def test_sharing_prefix_and_attention_equals_the_plain_walk(
    scheme: str, edit: Edit, switches: dict[str, bool]
) -> None:
    model, data = small(scheme, **switches), held_out(TASK, 60, seed=0)
    reference = reference_of(model)
    found = measure(data, edit, reference, Effort(draws=1))
    labels = data.labels_B

    def plain(heads: list[tuple[int, int]] | None) -> np.ndarray:
        scores = Walk(data, edit, reference).scores(heads)
        return F.cross_entropy(scores.double(), labels, reduction="none").numpy()

    np.testing.assert_allclose(found["loss"].intact_N, plain([]), atol=1e-5)
    assert found["loss"].model_N is not None
    np.testing.assert_allclose(found["loss"].model_N, plain(None), atol=1e-5)
    for layer in range(2):
        every = [(layer, head) for head in range(HEADS)]
        np.testing.assert_allclose(found["loss"].layers_AN[layer], plain(every), atol=1e-5)
        for _, head in every:
            expected = plain([(layer, head)])
            np.testing.assert_allclose(found["loss"].heads_AHN[layer, head], expected, atol=1e-5)
    assert np.abs(found["loss"].heads_AHN - found["loss"].intact_N).max() > 1e-3


def test_the_margin_is_the_right_score_over_the_next_and_right_answers_have_it_above_zero() -> None:
    model, data = small("rope"), held_out(TASK, 60, seed=0)
    found = measure(data, Edit(), reference_of(model))
    assert ((found["margin"].intact_N > 0) == found["accuracy"].intact_N).all()


@torch.no_grad()
def test_the_mean_of_a_constant_head_changes_nothing() -> None:
    model = small("rope")
    projection = model.blocks[1].attention.input
    rows = slice(2 * 32 + 8, 2 * 32 + 16)  # values of head 1
    projection.weight[rows] = 0  # its values no longer depend on the token
    found = measure(
        held_out(TASK, 60, seed=0),
        Edit("head", "mean"),
        reference_of(model),
    )
    change_HN = np.abs(found["loss"].heads_AHN[1] - found["loss"].intact_N)
    assert change_HN[1].max() < 1e-5 < 1e-3 < change_HN[0].max()


@pytest.mark.parametrize("method", ["zero", "resample"])
def test_some_layers_and_heads_are_what_they_are_among_all(method: str) -> None:
    model, data = small("rope", layers=3), held_out(TASK, 60, seed=0)
    reference, edit = reference_of(model), Edit("head", method)
    every = measure(data, edit, reference)["loss"]
    some = measure(data, edit, reference, layers={2, 1}, heads=[3, 0, 3])["loss"]
    assert (some.layers, some.heads) == ((1, 2), (0, 3))
    assert (every.layers, every.heads) == ((0, 1, 2), (0, 1, 2, 3))
    expected = every.heads_AHN[1:][:, [0, 3]]
    np.testing.assert_allclose(some.heads_AHN, expected, atol=1e-5)
    np.testing.assert_allclose(some.layers_AN, every.layers_AN[1:], atol=1e-5)
    np.testing.assert_allclose(some.intact_N, every.intact_N, atol=1e-5)
    np.testing.assert_allclose(some.model_N, every.model_N, atol=1e-5)
    first = measure(data, edit, reference, layers=[0])["loss"]  # nothing above it is walked
    np.testing.assert_allclose(first.intact_N, every.intact_N, atol=1e-5)
    assert np.ptp(every.heads_AHN, axis=(0, 1)).max() > 1e-3


def test_layers_and_heads_that_are_not_there_are_named() -> None:
    model, data = small("rope"), held_out(TASK, 8, seed=0)
    reference = reference_of(model)
    for layers, heads, message in (
        ([0, 2], None, r"layer 2 is out of range; the model has 0\.\.1"),
        ([-1], [0], r"layer -1 is out of range"),
        (None, [4], r"head 4 is out of range; layer 0 has 0\.\.3"),
        ([1], [-1], r"head -1 is out of range; layer 1"),
        ([], None, "set of layers to measure is empty"),
        (None, [], "set of heads to measure is empty"),
    ):
        with pytest.raises(InputError, match=message):
            measure(data, Edit(), reference, layers=layers, heads=heads)


def test_draws_are_averaged_and_differ() -> None:
    model, data = small("rope"), held_out(TASK, 60, seed=0)
    reference = reference_of(model)
    edit = Edit("head", "resample")
    one = measure(data, edit, reference, Effort(draws=1))["loss"].heads_AHN
    three = measure(data, edit, reference, Effort(draws=3))["loss"].heads_AHN
    assert np.abs(one - three).max() > 1e-3


@pytest.mark.parametrize("target", ["head", "position"])
def test_draws_do_not_depend_on_how_the_data_is_cut(target: str) -> None:
    model, data = small("rope"), held_out(TASK, 60, seed=0)
    reference, edit = reference_of(model), Edit(target, "resample")
    whole, pieces = (
        measure(data, edit, reference, Effort(megabytes=budget))["loss"] for budget in (64, 0.5)
    )
    np.testing.assert_allclose(whole.heads_AHN, pieces.heads_AHN, atol=1e-5)
    np.testing.assert_allclose(whole.model_N, pieces.model_N, atol=1e-5)
    assert (whole.heads_AHN != whole.intact_N).any()


@torch.no_grad()
def test_a_walk_can_be_walked_again() -> None:
    model, data = small("rope"), held_out(TASK, 20, seed=0)
    for edit in (Edit(), Edit("head", "resample"), Edit("position", "resample")):
        reference = reference_of(model)
        again = Walk(data, edit, reference)
        for heads in ([], [(1, 0)], [(0, 1), (1, 2)], None, [(1, 0)], []):
            fresh = Walk(data, edit, reference).scores(heads)
            torch.testing.assert_close(again.scores(heads), fresh)
        torch.testing.assert_close(again.scores([]), model(data.tokens_BL, data.lengths_B))


@torch.no_grad()
def test_early_stopping_waits_for_its_first_look_and_keeps_a_prefix() -> None:
    model, data = small("rope"), held_out(TASK, 1500, seed=0)
    for block in model.blocks:
        block.attention.output.weight.mul_(10)  # heads matter
    reference = reference_of(model)
    whole = measure(data, Edit(), reference)["accuracy"]
    # Batches of any size stop at the same look.
    for effort in (Effort(precision=0.2), Effort(megabytes=2, precision=0.2)):
        short = measure(data, Edit(), reference, effort)["accuracy"]
        seen = len(short.intact_N)
        assert seen == LOOK
        assert (short.heads_AHN != short.intact_N)[..., : seen // 2].sum(-1).max() >= DISCORDANT
        np.testing.assert_array_equal(short.heads_AHN, whole.heads_AHN[..., :seen])
    never = measure(data, Edit(), reference, Effort(precision=1e-6))["accuracy"]
    assert len(never.intact_N) == 1500


def test_bad_input_is_named() -> None:
    model, data = small("rope"), held_out(TASK, 60, seed=0)
    sites = TransformerSites(model)
    with pytest.raises(InputError, match="no method 'zero'; it has: none, mean, resample"):
        Edit("position", "zero")
    with pytest.raises(InputError, match=r"too small for one variant .* give at least"):
        measure(data, Edit(), reference_of(model), Effort(megabytes=1e-4))
    with pytest.raises(InputError, match="no position"):
        measure(data, Edit("position", "none"), reference_of(small("nope")))
    few = Reference(sites, held_out(TASK, 1, 0, "reference"))
    with pytest.raises(InputError, match="no reference sequence has"):
        measure(data, Edit("head", "resample"), few)
    with pytest.raises(InputError, match="reference sequences none has 40 words"):
        reference_batch(TASK, torch.tensor([40]), 10, seed=0)
