"""Ablating a run on disk: its tables, and the data behind them."""

from pathlib import Path

import polars as pl
import pytest
import torch
import torch.nn.functional as F

from poslens import results
from poslens.errors import InputError
from poslens.heads import LAST_TABLE, ablate_run
from poslens.model import ModelSettings
from poslens.tasks import data, generator_for, held_out
from poslens.training import load_model, train
from poslens.training.settings import RunSettings, TrainingSettings

LAYERS, HEADS, SEQUENCES = 2, 2, 100
TABLES = ("effects.parquet", LAST_TABLE)


@pytest.fixture(scope="module", params=["rope", "mla"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run, trained and ablated."""
    run = RunSettings(
        str(request.param),
        "distance",
        seed=3,
        task_settings={"between": 4, "aside": 2, "words": 12},
        model=ModelSettings(layers=LAYERS, heads=HEADS, width=16, feedforward=16),
        training=TrainingSettings(1280, 64, evaluations=1, validation=32, evaluation=SEQUENCES),
    )
    folder = train(run, tmp_path_factory.mktemp("run")).path
    ablate_run(folder)
    return folder


def test_tables_have_their_schemas(folder: Path) -> None:
    effects, concentration = (pl.read_parquet(folder / name) for name in TABLES)
    assert effects.schema == results.EFFECTS
    assert concentration.schema == results.CONCENTRATION
    metrics, layers = ("accuracy", "loss"), range(LAYERS)
    assert effects.select("metric", "layer", "head").rows() == [
        (metric, layer, head) for metric in metrics for layer in layers for head in range(-1, HEADS)
    ]
    assert concentration.select("layer", "metric").rows() == [
        (layer, metric) for layer in layers for metric in metrics
    ]


def test_effects_are_those_of_the_stored_weights_on_the_evaluation_data(folder: Path) -> None:
    tables = results.read(folder)
    intact = dict(tables.effects.select("metric", "intact").unique().rows())
    assert intact["accuracy"] == tables.summary["accuracy"][0]
    assert intact["loss"] == pytest.approx(tables.summary["loss"][0], rel=1e-5)
    assert set(tables.effects["sequences"]) == {SEQUENCES}

    model, run, task = load_model(folder)
    weight = model.blocks[1].attention.output.weight.data
    weight[:, weight.shape[1] // HEADS :] = 0  # the second of two heads
    batch = held_out(task, SEQUENCES, run.seed)
    scores_NC = model(batch.tokens_BL, batch.lengths_B)
    accuracy = (scores_NC.argmax(-1) == batch.labels_B).double().mean().item()
    loss = F.cross_entropy(scores_NC, batch.labels_B).item()
    last = tables.effects.filter(layer=1, head=1)
    effect = dict(last.select("metric", "effect").rows())
    assert effect["accuracy"] == pytest.approx(intact["accuracy"] - accuracy)
    assert effect["loss"] == pytest.approx(loss - intact["loss"], abs=1e-5)
    assert abs(effect["loss"]) > 1e-4


def test_no_other_data_is_drawn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, str]] = []

    def spy(seed: int, purpose: str, step: int = 0) -> torch.Generator:
        drawn.append((seed, purpose))
        return generator_for(seed, purpose, step)

    monkeypatch.setattr(data, "generator_for", spy)
    before = [pl.read_parquet(folder / name) for name in TABLES]
    ablate_run(folder)
    assert set(drawn) == {(3, "evaluate"), (3, "reference")}
    after = [pl.read_parquet(folder / name) for name in TABLES]
    assert all(old.equals(new) for old, new in zip(before, after, strict=True))


def test_folders_without_a_model_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json is missing"):
        ablate_run(tmp_path)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(InputError, match="has not been trained; train it first"):
        ablate_run(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
        ablate_run(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
