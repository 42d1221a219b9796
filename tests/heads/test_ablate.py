"""Ablating a run on disk: its tables, and the data behind them."""

import shutil
from pathlib import Path

import polars as pl
import pytest
import torch
import torch.nn.functional as F

from poslens import results
from poslens.errors import InputError
from poslens.heads import Edit, ablate_run, is_ablated
from poslens.model import ModelSettings
from poslens.tasks import data, generator_for, held_out
from poslens.training import load_model, train
from poslens.training.settings import RunSettings, TrainingSettings

LAYERS, HEADS, SEQUENCES = 2, 2, 100
TABLES = ("effects.parquet", "concentration.parquet")


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
    edits, metrics = (("head", "zero"), ("position", "none")), ("accuracy", "loss", "margin")
    places = [(-1, -1), *((layer, head) for layer in range(LAYERS) for head in range(-1, HEADS))]
    assert effects.select("target", "method", "metric", "layer", "head").rows() == [
        (*edit, metric, *place) for edit in edits for metric in metrics for place in places
    ]
    assert concentration.select("target", "method", "layer", "metric").rows() == [
        (*edit, layer, metric) for edit in edits for layer in range(LAYERS) for metric in metrics
    ]
    assert is_ablated(folder)


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
    last = tables.effects.filter(layer=1, head=1, target="head")
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
    assert set(drawn) == {(3, "evaluate"), (3, "reference")}  # and no training data
    after = [pl.read_parquet(folder / name) for name in TABLES]
    assert all(old.equals(new) for old, new in zip(before, after, strict=True))


def test_other_edits_are_added_and_the_same_replaced(folder: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(folder, tmp_path / "run"))
    before = results.read(run)
    mean = Edit("head", "mean")
    assert not is_ablated(run, [mean])
    for _ in range(2):
        assert ablate_run(run, edits=[mean]) == {}
        after = results.read(run)
        assert is_ablated(run, [mean, Edit()])
        for name in ("effects", "concentration"):
            old, new = getattr(before, name), getattr(after, name)
            kept = new.filter(pl.col("method") != "mean")
            assert kept.equals(old)
            assert new.height == old.height * 3 // 2


def test_sets_of_heads_have_tables(folder: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(folder, tmp_path / "run"))
    ablate_run(run, edits=[Edit("position", "none")], sets=True)
    tables = results.read(run)
    judged = SEQUENCES - SEQUENCES // 2
    for table in (tables.necessity, tables.sufficiency, tables.interactions):
        assert set(table["target"]) == {"position"}
        assert set(table["sequences"]) == {judged}
    first = tables.necessity.row(0, named=True)
    assert (first["step"], first["layer"], first["head"]) == (0, -1, -1)
    curves = tables.sufficiency
    assert curves.select("layer", "kept").rows() == [
        (layer, kept) for layer in range(LAYERS) for kept in range(HEADS + 1)
    ]
    # With all of a layer's heads kept nothing is edited.
    full = curves.filter(kept=HEADS)["accuracy"].to_list()
    assert full == [first["accuracy"]] * LAYERS
    pairs = tables.interactions.select("layer", "head", "other_layer", "other_head").rows()
    assert len(set(pairs)) == LAYERS * HEADS * (LAYERS * HEADS - 1) // 2


def test_position_that_a_scheme_does_not_have_is_undefined_and_not_zero(tmp_path: Path) -> None:
    run = RunSettings(
        "nope",
        "distance",
        task_settings={"between": 4, "aside": 2, "words": 12},
        model=ModelSettings(layers=LAYERS, heads=HEADS, width=16, feedforward=16),
        training=TrainingSettings(64, 64, evaluations=1, validation=32, evaluation=SEQUENCES),
    )
    folder = train(run, tmp_path / "nope").path
    assert list(ablate_run(folder)) == [Edit("position", "none")]
    tables = results.read(folder)
    assert set(tables.effects["target"]) == {"head"}
    position = tables.concentration.filter(target="position")
    assert position["verdict"].to_list() == ["undefined"] * LAYERS * 3
    assert position["lost"].is_nan().all()
    # Untrained, nothing can be lost either.
    assert set(tables.concentration.filter(target="head")["verdict"]) == {"undecidable"}
    assert is_ablated(folder)


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
