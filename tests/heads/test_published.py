"""The published measurements against models whose weights were changed as that code changes them.

Shapes: A layers, H heads, N sequences, C classes.
"""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F

from poslens import results
from poslens.errors import InputError
from poslens.heads import published
from poslens.heads.estimates import Measured
from poslens.heads.published import (
    measure,
    published_measurements,
    training_data,
    zeroed_columns,
    zeroed_heads,
)
from poslens.model import ModelSettings, Transformer, TransformerSites, build
from poslens.tasks import Batch, Distance, Stream, held_out
from poslens.tasks.distance import DistanceSettings
from poslens.training import load_model, task_of, train
from poslens.training.settings import RunSettings, TrainingSettings

TASK = Distance(DistanceSettings(between=6, aside=3, words=20))
LAYERS, HEADS, SIZE, SEQUENCES = 3, 4, 8, 70
EVERY = list(range(HEADS))


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "ROWS", 240)  # batches of 40, and a last one of 30


def small(scheme: str, **switches: Any) -> Transformer:
    torch.manual_seed(0)
    settings = ModelSettings(LAYERS, HEADS, HEADS * SIZE, 48, **switches)
    return build(scheme, TASK, settings).eval()


def without(model: Transformer, removed: list[tuple[int, int]]) -> Transformer:
    """A copy without the output columns of these heads (layer, head)."""
    changed = copy.deepcopy(model)
    for layer, head in removed:
        weight_EI = changed.blocks[layer].attention.output.weight.data
        weight_EI[:, head * SIZE : (head + 1) * SIZE] = 0
    return changed


@torch.no_grad()
def losses(model: Transformer, data: Batch) -> np.ndarray:
    scores_NC = model(data.tokens_BL, data.lengths_B)
    return F.cross_entropy(scores_NC, data.labels_B, reduction="none").double().numpy()


def near(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scheme", ["rope", "mla"])
@pytest.mark.parametrize("leaks", [False, True])
@pytest.mark.parametrize("memory", [False, True])
def test_the_loop_leaves_the_last_head_of_lower_layers_out(
    scheme: str, leaks: bool, memory: bool
) -> None:
    model, data = small(scheme, memory_from_embeddings=memory), held_out(TASK, SEQUENCES, 0)
    accuracy, loss = measure(TransformerSites(model), data, "loop", zeroed_heads, leaks)
    assert (accuracy.metric, loss.metric, loss.method) == ("accuracy", "loss", "loop")
    near(loss.intact_N, losses(model, data))
    for layer in range(LAYERS):
        left_out = [(below, HEADS - 1) for below in range(layer)] if leaks else []
        for head in EVERY:
            changed = without(model, [*left_out, (layer, head)])
            near(loss.heads_AHN[layer, head], losses(changed, data))
        whole = without(model, [*left_out, *((layer, head) for head in EVERY)])
        near(loss.layers_AN[layer], losses(whole, data))
        scores_NC = whole(data.tokens_BL, data.lengths_B)
        right_N = (scores_NC.argmax(-1) == data.labels_B).numpy()
        np.testing.assert_array_equal(accuracy.layers_AN[layer], right_N)


def test_a_leak_charges_a_lower_head_to_every_head_above() -> None:
    """A model whose every layer above the first writes nothing: all its heads are worth nothing."""
    model, data = small("rope"), held_out(TASK, SEQUENCES, 0)
    for block in model.blocks[1:]:
        block.attention.output.weight.data[:] = 0
    sites = TransformerSites(model)

    def effects(leaks: bool) -> np.ndarray:
        loss: Measured = measure(sites, data, "loop", zeroed_heads, leaks)[1]
        return (loss.heads_AHN - loss.intact_N)[:, :, 0]

    right, leaking = effects(False), effects(True)
    near(leaking[0], right[0])
    near(right[1:], np.zeros((LAYERS - 1, HEADS)))
    assert abs(right[0, -1]) > 1e-3
    near(leaking[1:], np.full((LAYERS - 1, HEADS), right[0, -1]))


@pytest.mark.parametrize("switches", [{}, {"extra_table": "learned", "dropout": 0.1}])
def test_columns_are_the_compressed_dimension(switches: dict[str, Any]) -> None:
    """Rank 16 is half of H D = 32: the first two heads cut into every head, the others nothing."""
    model, data = small("mla", **switches), held_out(TASK, SEQUENCES, 0)
    loss = measure(TransformerSites(model), data, "columns", zeroed_columns)[1]
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    for layer in range(LAYERS):
        for head in EVERY:
            changed = copy.deepcopy(model)
            attention = changed.blocks[layer].attention
            assert attention.query_up.weight.shape[1] == attention.latent_up.weight.shape[1] == 16
            for up in (attention.query_up, attention.latent_up):
                up.weight.data[:, head * SIZE : (head + 1) * SIZE] = 0
            near(loss.heads_AHN[layer, head], losses(changed, data))
            idle = np.abs(loss.heads_AHN[layer, head] - loss.intact_N).max() < 1e-6
            assert idle == (head >= 2)
    x_BLE, context = model.embed(data.tokens_BL, data.lengths_B)
    attention = copy.deepcopy(model.blocks[0].attention)
    intact = attention.heads(x_BLE, context)
    attention.latent_up.weight.data[:, :SIZE] = 0
    assert (attention.heads(x_BLE, context) - intact).abs().amax((0, 2, 3)).min() > 1e-3
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


@pytest.fixture(scope="module", params=["rope", "mla"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on a small fixed set."""
    run = RunSettings(
        str(request.param),
        "distance",
        seed=3,
        task_settings={"between": 4, "aside": 2, "words": 12},
        model=ModelSettings(layers=2, heads=2, width=16, feedforward=16),
        training=TrainingSettings(
            1280, 64, fixed_set=128, evaluations=1, validation=32, evaluation=30
        ),
    )
    return train(run, tmp_path_factory.mktemp("run")).path


def test_rows_are_those_of_the_effects_table(folder: Path) -> None:
    rows = published_measurements(folder)
    frame = pl.DataFrame(rows, schema=results.EFFECTS)
    methods = ["published loop", "published data"]
    if "mla" in folder.joinpath("config.json").read_text():
        methods.insert(0, "published columns")
    assert frame["method"].unique(maintain_order=True).to_list() == methods
    for method in methods:
        own = frame.filter(method=method)
        assert own.select("metric", "layer", "head").rows() == [
            (metric, layer, head)
            for metric in ("accuracy", "loss")
            for layer in range(2)
            for head in (-1, 0, 1)
        ]
        assert set(own["sequences"]) == {100 if method == "published data" else 30}


def test_published_data_are_training_and_test_sequences(folder: Path) -> None:
    model, run, task = load_model(folder)
    parts = [training_data(run, task, 20), held_out(task, 30, 3)]
    assert [len(part) for part in parts] == [70, 30]
    frame = pl.DataFrame(published_measurements(folder), schema=results.EFFECTS)
    own = frame.filter(method="published data", metric="loss", layer=1, head=0)
    near(own["intact"].to_numpy(), np.mean(losses(model, Batch.joined(parts))))
    weight_EI = model.blocks[1].attention.output.weight.data
    weight_EI[:, : weight_EI.shape[1] // 2] = 0
    after = np.mean(losses(model, Batch.joined(parts)))
    near(own["effect"].to_numpy(), after - own["intact"].to_numpy())


def test_training_data_were_trained_on_once_and_no_more_than_there_are() -> None:
    training = TrainingSettings(1280, 64, fixed_set=128, evaluation=300)
    tasks = {"between": 4, "aside": 2, "words": 12}
    run = RunSettings("rope", "distance", 3, tasks, training=training)
    task = task_of(run)
    stream = Stream(task, 64, 3, 128)
    assert len(training_data(run, task, steps=20)) == 128  # 700 are wanted
    assert len(training_data(run, task, steps=1)) == 64
    known = {tuple(row) for row in stream.fixed.tokens_BL.tolist()}  # type: ignore[union-attr]
    drawn = training_data(run, task, steps=20)
    missing = task.max_length - drawn.tokens_BL.shape[1]
    found = {tuple(row) for row in F.pad(drawn.tokens_BL, (0, missing)).tolist()}
    assert found == known
    fresh = RunSettings("rope", "distance", 3, tasks, training=TrainingSettings(1280, 64))
    assert len(training_data(fresh, task, steps=20)) == 1280
    first = Stream(task, 64, 3).batch(0)
    drawn = training_data(fresh, task, steps=1)
    assert torch.equal(drawn.labels_B, first.labels_B)


def test_folders_without_a_model_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json is missing"):
        published_measurements(tmp_path)
