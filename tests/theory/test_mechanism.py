"""Attention mass by hand, and heads lowered by degrees against the effects of the same heads."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from poslens import results
from poslens.errors import InputError
from poslens.heads import ablate_run
from poslens.model import ModelSettings
from poslens.tasks import Batch, make_task
from poslens.theory.falls import GAINS
from poslens.theory.mechanism import mass, mechanism_run, needed_words
from poslens.training import RunSettings, TrainingSettings, train

SIZE = ModelSettings(layers=2, heads=3, width=24, feedforward=24)
BRIEF = TrainingSettings(
    sequences=1024, batch=32, learning_rate=1e-2, validation=32, evaluation=96, evaluations=2
)
SIZES = {"distance": {"between": 4, "aside": 3, "words": 12}, "count": {"length": 9, "most": 5}}


def trained(folder: Path, scheme: str, task: str = "distance", causal: bool = False) -> Path:
    size = ModelSettings(**vars(SIZE) | {"causal": causal})
    run = RunSettings(scheme, task, task_settings=SIZES[task], model=size, training=BRIEF)
    return train(run, folder / run.name).path


def test_the_needed_words_are_those_that_are_no_fillers() -> None:
    task = make_task("distance")
    batch = Batch(torch.tensor([[5, 1, 7, 2, 9], [3, 1, 2, 4, 0]]), torch.tensor([5, 4]), None)
    expected = torch.tensor([[0, 1, 0, 1, 0], [0, 1, 1, 0, 0]]).bool()
    assert torch.equal(needed_words(task, batch), expected)


def test_mass_is_the_weight_on_the_other_needed_words() -> None:
    needed = torch.tensor([[True, False, True, True], [True, False, False, False]])
    logits = torch.zeros(2, 2, 4, 4)
    logits[0, 1, 0, 2] = math.log(5.0)  # of 8 parts 5 are on word 2, 1 each on the others
    found = mass(logits, needed)
    torch.testing.assert_close(found[0], torch.tensor([0.5, (6 / 8 + 0.5 + 0.5) / 3]))
    assert found[1].isnan().all()  # one needed word alone has no other
    # Causal: word 0 sees no other; word 2 sees word 0 of 3 keys, word 3 sees 0 and 2 of 4.
    past = logits.masked_fill(torch.ones(4, 4).triu(1).bool(), float("nan"))
    torch.testing.assert_close(mass(past, needed)[0], torch.full((2,), (1 / 3 + 2 / 4) / 2))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scheme", ["rope", "alibi", "sinusoidal", "mla"])
def test_taken_away_is_what_ablation_measures(tmp_path: Path, scheme: str, causal: bool) -> None:
    folder = trained(tmp_path, scheme, causal=causal)
    ablate_run(folder)
    mechanism_run(folder, sequences=96)
    tables = results.read(folder)
    assert tables.mechanism.height == 2 * 3 * 2 * len(GAINS)
    whole = tables.mechanism.filter(gain=1.0)
    assert whole["accuracy"].to_list() == pytest.approx([tables.summary["accuracy"][0]] * 12)
    for target, method in (("head", "zero"), ("position", "none")):
        gone = tables.mechanism.filter(gain=0.0, target=target)
        effects = tables.effects.filter(
            pl.col("head") >= 0, target=target, method=method, metric="accuracy"
        )
        both = gone.join(effects, on=["layer", "head"])
        assert both.height == 6
        assert (both["intact"] - both["effect"]).to_list() == pytest.approx(
            both["accuracy"].to_list()
        )
    own = tables.mechanism.filter(target="head").group_by("layer", "head")
    assert own.agg(pl.col("own_mass").n_unique())["own_mass"].max() == 1  # attention stays
    assert tables.mechanism.filter(layer=1)["above_mass"].is_nan().all()
    assert tables.mechanism.filter(layer=0)["above_mass"].is_not_nan().all()
    assert tables.falls.height == 12
    nothing = (pl.col("layer") == 1) & (pl.col("target") == "head")
    assert tables.falls.filter(nothing)["verdict"].to_list() == ["no mass"] * 3
    assert "no mass" not in tables.falls.filter(~nothing)["verdict"]


def test_an_untrained_head_attends_to_needed_words_by_chance(tmp_path: Path) -> None:
    folder = trained(tmp_path, "nope", "count")
    mechanism_run(folder, sequences=64)
    tables = results.read(folder)
    assert set(tables.mechanism["target"]) == {"head"}  # NoPE has no position to take
    assert tables.mechanism["own_mass"].is_between(0, 1).all()


def test_lowering_is_gradual(tmp_path: Path) -> None:
    """Mass of the head itself changes with its positional gain, step by step."""
    folder = trained(tmp_path, "rope")
    mechanism_run(folder, sequences=64)
    rows = results.read(folder).mechanism.filter(target="position", layer=0, head=0)
    assert rows["gain"].to_list() == list(GAINS)
    assert len(set(np.round(rows["own_mass"].to_numpy(), 9))) == len(GAINS)


def test_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = trained(tmp_path, "rope")
    with pytest.raises(InputError, match="sequences is 1; use 2 or more"):
        mechanism_run(folder, 1)
    kind = type(make_task("distance"))
    monkeypatch.setattr(kind, "filler_words", property(lambda self: range(1, self.embeddings)))
    with pytest.raises(InputError, match="does not say which words are fillers"):
        mechanism_run(folder, 64)
    assert not (folder / "mechanism.parquet").exists()
    (folder / "summary.parquet").unlink()
    with pytest.raises(InputError, match="holds no finished run"):
        mechanism_run(folder, 64)
