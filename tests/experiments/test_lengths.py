"""Runs on longer sequences: what stays, what changes, what cannot be."""

from pathlib import Path

import pytest
import torch

from poslens import results
from poslens.errors import InputError
from poslens.experiments.lengths import lengthen_run
from poslens.model import ModelSettings
from poslens.tasks import Count, Distance, generator_for, held_out
from poslens.tasks.base import PAD
from poslens.tasks.count import CountSettings
from poslens.tasks.distance import FIRST_TRIGGER, SECOND_TRIGGER, DistanceSettings
from poslens.training import RunSettings, TrainingSettings, train

TASKS = (
    Distance(DistanceSettings(between=4, aside=3, words=12)),
    Count(CountSettings(length=10, most=6, triggers=3, words=9)),
)


@pytest.mark.parametrize("extra", [0, 1, 7])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_longer_sequence_holds_the_old_one_among_fillers(
    task: Distance | Count, extra: int
) -> None:
    data = held_out(task, 200, seed=0)
    longer = task.lengthen(data, extra, generator_for(0, "lengthen"))
    assert torch.equal(longer.labels_B, data.labels_B)
    assert torch.equal(longer.lengths_B, data.lengths_B + extra)
    first_filler = 3 if task.name == "distance" else 4
    befores = set()
    for old, new, length in zip(
        data.tokens_BL.tolist(), longer.tokens_BL.tolist(), data.lengths_B.tolist(), strict=True
    ):
        old, new, padding = old[:length], new[: length + extra], new[length + extra :]
        assert set(padding) <= {PAD}
        assert PAD not in new
        places = [b for b in range(extra + 1) if new[b : b + length] == old]
        assert places
        befores |= {*places}
        around = new[: places[0]] + new[places[0] + length :]
        assert all(word >= first_filler for word in around)
    assert befores == set(range(extra + 1))
    if task.name == "distance":
        first, second = ((longer.tokens_BL == it).nonzero() for it in (FIRST_TRIGGER, 2))
        assert SECOND_TRIGGER == 2
        assert torch.equal(second[:, 1] - first[:, 1] - 2, data.labels_B)


@pytest.fixture(scope="module", params=["rope", "learned", "mla", "t5"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunSettings(
        str(request.param),
        "distance",
        task_settings={"between": 4, "aside": 3, "words": 12},
        model=ModelSettings(layers=1, heads=2, width=8, feedforward=8),
        training=TrainingSettings(64, 64, evaluations=1, validation=32, evaluation=50),
    )
    return train(run, tmp_path_factory.mktemp("run") / "it").path


def test_at_training_length_it_is_the_runs_own_accuracy(folder: Path) -> None:
    lengthen_run(folder)
    tables = results.read(folder)
    rows = tables.lengths
    assert rows["factor"].to_list() == [1, 2, 3, 4]
    assert rows["longest"].to_list() == [12, 24, 36, 48]
    assert rows["accuracy"][0] == tables.summary["accuracy"][0]
    assert rows["loss"][0] == pytest.approx(tables.summary["loss"][0])
    cannot = rows["scheme"][0] == "learned"
    assert rows["accuracy"].is_nan().to_list() == [False] + [cannot] * 3
    for reason in rows["reason"][1:]:
        assert ("is not in the learned table" in reason) == cannot


def test_no_filler_and_no_task_that_says_how() -> None:
    task = Distance(DistanceSettings(between=1, aside=1, words=2, fillers="published"))
    with pytest.raises(InputError, match="the vocabulary has no word that says nothing"):
        task.lengthen(held_out(task, 3, seed=0), 1, generator_for(0, "lengthen"))
    with pytest.raises(InputError, match="number of extra words must be a whole number of at"):
        TASKS[0].lengthen(held_out(TASKS[0], 3, seed=0), -1, generator_for(0, "lengthen"))
