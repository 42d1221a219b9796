"""Ablating a run on disk: its tables, and the data behind them."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

from poslens import results
from poslens.errors import InputError
from poslens.heads import LAST_TABLE, ablate_run
from poslens.model import ModelSettings
from poslens.tasks import data, generator_for, held_out
from poslens.training import load_model, train
from poslens.training.settings import RunSettings, TrainingSettings

LAYERS, HEADS, SEQUENCES = 2, 2, 100


def trained(folder: Path, scheme: str) -> Path:
    """A short run with weights large enough for heads to matter."""
    run = RunSettings(
        scheme,
        "distance",
        seed=3,
        task_settings={"between": 4, "aside": 2, "words": 12},
        model=ModelSettings(layers=LAYERS, heads=HEADS, width=16, feedforward=16),
        training=TrainingSettings(
            sequences=3200, batch=64, evaluations=2, validation=32, evaluation=SEQUENCES
        ),
    )
    return train(run, folder).path


@pytest.fixture(scope="module", params=["rope", "mla"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = trained(tmp_path_factory.mktemp("runs") / str(request.param), request.param)
    ablate_run(folder)
    return folder


def test_tables_have_their_schemas(folder: Path) -> None:
    assert LAST_TABLE == "concentration.parquet"
    effects = pl.read_parquet(folder / "effects.parquet")
    concentration = pl.read_parquet(folder / LAST_TABLE)
    assert effects.schema == results.EFFECTS
    assert concentration.schema == results.CONCENTRATION
    places = effects.select("metric", "layer", "head").rows()
    assert places == [
        (metric, layer, head)
        for metric in ("accuracy", "loss")
        for layer in range(LAYERS)
        for head in range(-1, HEADS)
    ]
    assert sorted(concentration.select("layer", "metric").rows()) == [
        (layer, metric) for layer in range(LAYERS) for metric in ("accuracy", "loss")
    ]
    tables = results.read(folder)
    assert len(tables.effects) == len(effects)
    assert set(tables.effects["seed"]) == {3}


def test_effects_are_those_of_the_stored_weights_on_the_runs_evaluation_data(
    folder: Path, tmp_path: Path
) -> None:
    tables = results.read(folder)
    intact = dict(tables.effects.select("metric", "intact").unique().rows())
    assert intact["accuracy"] == tables.summary["accuracy"][0]
    assert intact["loss"] == pytest.approx(tables.summary["loss"][0], rel=1e-5)
    assert set(tables.effects["sequences"]) == {SEQUENCES}

    # The stored weights with one head's columns at zero, scored from scratch.
    weights = load_file(folder / "model.safetensors")
    output = weights["blocks.1.attention.output.weight"]
    output[:, output.shape[1] // HEADS :] = 0
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file(weights, tmp_path / "model.safetensors", metadata={"notes": "{}"})
    model, run, task = load_model(tmp_path)
    batch = held_out(task, SEQUENCES, run.seed)
    scores_BC = model(batch.tokens_BL, batch.lengths_B)
    loss = torch.nn.functional.cross_entropy(scores_BC, batch.labels_B).item()
    accuracy = (scores_BC.argmax(-1) == batch.labels_B).double().mean().item()
    last = tables.effects.filter(layer=1, head=HEADS - 1)
    effect = dict(last.select("metric", "effect").rows())
    assert effect["accuracy"] == pytest.approx(intact["accuracy"] - accuracy)
    assert effect["loss"] == pytest.approx(loss - intact["loss"], abs=1e-5)
    assert abs(effect["loss"]) > 1e-3


def test_no_other_data_is_drawn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, str]] = []

    def spy(seed: int, purpose: str, step: int = 0) -> torch.Generator:
        drawn.append((seed, purpose))
        return generator_for(seed, purpose, step)

    monkeypatch.setattr(data, "generator_for", spy)
    before = [pl.read_parquet(folder / f"{name}.parquet") for name in ("effects", "concentration")]
    ablate_run(folder)
    assert drawn == [(3, "evaluate")]
    for old, name in zip(before, ("effects", "concentration"), strict=True):
        assert old.equals(pl.read_parquet(folder / f"{name}.parquet"), null_equal=True)


def test_folders_without_a_model_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="config.json is missing"):
        ablate_run(tmp_path)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(InputError, match="has not been trained; train it first"):
        ablate_run(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="model.safetensors is damaged"):
        ablate_run(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    assert np.isfinite(pl.read_parquet(folder / "effects.parquet")["effect"].to_numpy()).all()
