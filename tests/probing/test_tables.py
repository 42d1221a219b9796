"""A run's tables: every state, typed, the same each time, and what is refused."""

import json
from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from poslens import results
from poslens.errors import InputError
from poslens.model import ModelSettings, TransformerSites, build
from poslens.probing import measure, probe_run, streams
from poslens.probing.streams import filler_sequences
from poslens.results.schemas import PROBES, SUBSPACES
from poslens.tasks import Distance
from poslens.training import RunSettings, TrainingSettings, train

SEQUENCES = 60


@pytest.fixture(scope="module", params=["sinusoidal", "rope"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunSettings(
        str(request.param),
        "distance",
        task_settings={"between": 4, "aside": 3, "words": 12},
        model=ModelSettings(layers=2, heads=2, width=8, feedforward=8),
        training=TrainingSettings(64, 64, evaluations=1, validation=32, evaluation=50),
    )
    path = train(run, tmp_path_factory.mktemp("run") / "it").path
    probe_run(path, SEQUENCES)
    return path


def test_every_state_has_its_rows(folder: Path) -> None:
    tables = results.read(folder)
    probes, subspaces = tables.probes, tables.subspaces
    assert probes.columns == [*results.KEY, *PROBES]
    assert subspaces.columns == [*results.KEY, *SUBSPACES]
    keys = set(probes.select("state", "target", "score").rows())
    assert keys == {
        (state, target, score)
        for state in (0, 1, 2)
        for target in ("true", "shuffled")
        for score in ("r2", "error", "accuracy")
    }
    assert probes.height == len(keys)
    assert set(probes.select("positions", "fitted", "sequences").rows()) == {(12, 30, 30)}
    assert (probes["low"] <= probes["value"]).all()
    assert subspaces["state"].to_list() == [0, 1, 2]
    assert subspaces["sequences"].to_list() == [SEQUENCES] * 3


def test_angles_are_for_schemes_with_a_table_alone(folder: Path) -> None:
    rows = results.read(folder).subspaces
    assert rows["share"].is_not_nan().all()
    if rows["scheme"][0] == "rope":
        assert rows["mean_cos2"].is_nan().all()
        assert set(rows["dimensions"]) == {0}
        assert set(rows["reason"]) == {"no table: position is not added to the residual stream"}
        return
    assert rows["mean_cos2"][0] == pytest.approx(1)
    assert set(rows["reason"]) == {""}
    (components,) = set(rows["dimensions"])
    assert set(rows["null"]) == {components / 8}


def test_the_same_run_gives_the_same_bytes(folder: Path) -> None:
    names = ("probes.parquet", "subspaces.parquet")
    before = [(folder / name).read_bytes() for name in names]
    probe_run(folder, SEQUENCES)
    assert [(folder / name).read_bytes() for name in names] == before


def test_parts_of_a_forward_pass_change_nothing(
    small, task: Distance, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites, batch = TransformerSites(small("sinusoidal").double()), filler_sequences(task, 30)
    whole = measure(sites, batch, table=True)
    monkeypatch.setattr(streams, "ROWS", 7)
    parts = measure(sites, batch, table=True)
    for one, other in zip(whole, parts, strict=True):
        assert_frame_equal(pl.DataFrame(one), pl.DataFrame(other))


def test_a_table_that_is_large_is_read_and_keeps_its_subspace(task: Distance) -> None:
    """A table far larger than the words, and layers that hardly write."""
    torch.manual_seed(0)
    model = build("sinusoidal", task, ModelSettings(layers=2, heads=2, width=32, feedforward=8))
    with torch.no_grad():
        model.embedding.weight *= 0.1
        for block in model.blocks:
            for weight in (*block.attention.parameters(), *block.feedforward.parameters()):
                weight *= 0.1
    probes, subspaces = measure(TransformerSites(model), filler_sequences(task, 100), table=True)
    read = {(it["state"], it["target"], it["score"]): it["value"] for it in probes}
    for state in (0, 1, 2):
        assert read[state, "true", "r2"] > 0.97
        assert read[state, "true", "accuracy"] > 0.97
        assert abs(read[state, "shuffled", "r2"]) < 0.05
        assert float(str(subspaces[state]["mean_cos2"])) > 0.99
        assert float(str(subspaces[state]["share"])) > 0.9


def test_what_cannot_be_probed_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"19 sequences are too few .*; use 20 or more"):
        probe_run(folder, 19)
    with pytest.raises(InputError, match="device 'nonsense' is not there"):
        probe_run(folder, SEQUENCES, "nonsense")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="the run has not been trained"):
        probe_run(tmp_path, SEQUENCES)
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(InputError, match="holds no finished run; run its training again"):
        probe_run(tmp_path, SEQUENCES)
    assert not list(tmp_path.glob("*.parquet"))
