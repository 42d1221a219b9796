"""The loop: the same from the same seed, the same data for every scheme, stops where it should."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import polars as pl
import pytest
import torch
from torch.nn import functional as F

from poslens.errors import InputError
from poslens.tasks import Batch, generator_for, held_out
from poslens.training import Progress, RunSettings, load_model, loop, task_of, train
from poslens.training.folder import read_lines

MakeRun = Callable[..., RunSettings]


def metrics(folder: Path) -> list[dict[str, float]]:
    return read_lines(folder / "metrics.jsonl")


def identity(path: Path) -> tuple[int, int]:
    """Changes when a file is written again."""
    return path.stat().st_ino, path.stat().st_mtime_ns


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """Every training batch, in order."""
    batches: list[Batch] = []
    step = loop.Trainer.train_step

    def spy(self: loop.Trainer, batch: Batch) -> float:
        batches.append(batch)
        return step(self, batch)

    monkeypatch.setattr(loop.Trainer, "train_step", spy)
    return batches


@pytest.mark.parametrize("scheme", ["rope", "mla"])
@pytest.mark.parametrize("fixed_set", [None, 48])
def test_the_same_seed_twice_gives_the_same_bytes(
    tmp_path: Path,
    tiny: MakeRun,
    same_results: Callable[[Path, Path], None],
    scheme: str,
    fixed_set: int | None,
) -> None:
    run = tiny(scheme, fixed_set=fixed_set)
    train(run, tmp_path / "a")
    torch.randn(100)  # the global generator has no say
    train(run, tmp_path / "b")
    same_results(tmp_path / "a", tmp_path / "b")


def test_another_seed_gives_other_metrics(tmp_path: Path, tiny: MakeRun) -> None:
    train(tiny(seed=0), tmp_path / "a")
    train(tiny(seed=1), tmp_path / "b")
    assert metrics(tmp_path / "a") != metrics(tmp_path / "b")


def test_training_leaves_the_global_generator_alone(tmp_path: Path, tiny: MakeRun) -> None:
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    train(tiny(), tmp_path / "a")
    assert torch.equal(torch.randn(3), expected)


@pytest.mark.parametrize("task", ["distance", "count"])
def test_the_same_seed_gives_every_scheme_the_same_sequences(
    tmp_path: Path, tiny: MakeRun, seen: list[Batch], task: str
) -> None:
    for scheme in ("rope", "nope", "mla"):
        train(tiny(scheme, task), tmp_path / scheme)
    assert len(seen) == 36
    for first, second, third in zip(seen[:12], seen[12:24], seen[24:], strict=True):
        for name in ("tokens_BL", "lengths_B", "labels_B"):
            assert torch.equal(getattr(first, name), getattr(second, name))
            assert torch.equal(getattr(first, name), getattr(third, name))
    assert not torch.equal(seen[0].labels_B, seen[1].labels_B)


def test_a_fixed_set_is_seen_whole_in_every_epoch_in_another_order(
    tmp_path: Path, tiny: MakeRun, seen: list[Batch]
) -> None:
    train(tiny(fixed_set=48), tmp_path / "run")
    epochs = [
        [tuple(row[row > 0].tolist()) for batch in seen[at : at + 3] for row in batch.tokens_BL]
        for at in (0, 3, 6, 9)
    ]
    assert len(set(epochs[0])) == 48
    for earlier, later in pairwise(epochs):
        assert set(earlier) == set(later)
        assert earlier != later


def test_a_fixed_set_that_cannot_be_had_is_refused_before_anything_is_written(
    tmp_path: Path, tiny: MakeRun
) -> None:
    one_sequence = {"between": 1, "aside": 1, "words": 3}
    run = replace(tiny(fixed_set=2, batch=1), task_settings=one_sequence)
    with pytest.raises(InputError, match="different sequences cannot be had"):
        train(run, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_files_of_a_finished_run(tmp_path: Path, tiny: MakeRun) -> None:
    run = tiny()
    folder = train(run, tmp_path / "run")
    assert folder.finished
    assert sorted(path.name for path in folder.path.iterdir()) == [
        *("config.json", "curve.parquet", "environment.json", "labels.parquet"),
        *("metrics.jsonl", "model.safetensors", "summary.parquet", "timings.jsonl"),
    ]
    rows = metrics(folder.path)
    assert [row["sequences"] for row in rows] == [48, 96, 144, 192]
    assert set(rows[0]) == {"sequences", "accuracy", "loss", "training_loss"}  # no clock values
    assert pl.read_parquet(folder.path / "curve.parquet").to_dicts() == rows
    environment = json.loads((folder.path / "environment.json").read_text())
    assert {"poslens", "torch", "python", "processor", "threads"} <= set(environment)
    assert environment["seconds"] > 0
    assert environment["peak_memory_bytes"] > 2**20


def test_the_summary_is_what_the_saved_model_does_on_held_out_data(
    tmp_path: Path, tiny: MakeRun
) -> None:
    run = tiny()
    train(run, tmp_path)
    model, read_back, task = load_model(tmp_path)
    assert read_back == run
    assert not model.training
    data = held_out(task, 64, run.seed)
    with torch.no_grad():
        scores_BC = model(data.tokens_BL, data.lengths_B)
    row = pl.read_parquet(tmp_path / "summary.parquet").row(0, named=True)
    right_B = scores_BC.argmax(-1) == data.labels_B
    assert row["accuracy"] == right_B.double().mean().item()
    assert row["loss"] == pytest.approx(F.cross_entropy(scores_BC, data.labels_B).item(), abs=1e-6)
    assert row["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert (row["sequences"], row["budget"], row["solved"]) == (192, 192, False)
    assert (row["baseline"], row["ceiling"]) == (task.baseline().value, 1.0)
    labels = pl.read_parquet(tmp_path / "labels.parquet")
    assert labels["label"].to_list() == [0, 1, 2, 3]
    assert labels["count"].to_list() == torch.bincount(data.labels_B, minlength=4).tolist()
    assert labels["correct"].sum() == int(right_B.sum())


def test_learning_curves_and_final_numbers_use_different_data(
    tmp_path: Path, tiny: MakeRun, seen: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny(validation=64, evaluation=64, batch=64, sequences=4 * 64)
    evaluate, data = loop.evaluate, []

    def spy(model: torch.nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        data.append(batch)
        return evaluate(model, batch)

    monkeypatch.setattr(loop, "evaluate", spy)
    train(run, tmp_path)
    *validation, evaluation = [batch.labels_B for batch in data]
    assert len(validation) == 4
    assert all(torch.equal(labels_B, validation[0]) for labels_B in validation)
    assert torch.equal(evaluation, held_out(task_of(run), 64, run.seed).labels_B)
    different = [validation[0], evaluation, *(batch.labels_B for batch in seen)]
    for one, other in combinations(different, 2):
        assert not torch.equal(one, other)


def test_training_stops_after_three_solved_evaluations_in_a_row(
    tmp_path: Path, tiny: MakeRun
) -> None:
    train(tiny(solved=1e-9), tmp_path)
    row = pl.read_parquet(tmp_path / "summary.parquet").row(0, named=True)
    assert (row["sequences"], row["budget"], row["solved"]) == (144, 192, True)
    assert len(metrics(tmp_path)) == 3


def test_two_solved_evaluations_and_a_relapse_do_not_stop_it(
    tmp_path: Path, tiny: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = iter([True, True, False, True, True, True, True])

    def evaluate(model: torch.nn.Module, data: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((len(data),), next(right)), torch.zeros(len(data))

    monkeypatch.setattr(loop, "evaluate", evaluate)
    train(tiny(evaluations=6), tmp_path)
    assert [row["accuracy"] for row in metrics(tmp_path)] == [1, 1, 0, 1, 1, 1]


def test_a_share_above_one_never_stops_early(tmp_path: Path, tiny: MakeRun) -> None:
    train(tiny("nope", "count", solved=1.01), tmp_path)
    assert len(metrics(tmp_path)) == 4


def test_training_learns(tmp_path: Path, tiny: MakeRun) -> None:
    """Counting up to 4 of 5 words is learnt within a few hundred steps."""
    run = tiny("nope", "count", sequences=300 * 32, batch=32, solved=2.0)
    rows = metrics(train(run, tmp_path).path)
    assert rows[-1]["accuracy"] > 0.9
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"]


def test_a_loss_that_is_not_finite_is_named(tmp_path: Path, tiny: MakeRun) -> None:
    with pytest.raises(InputError, match=r"rope-distance-seed0: the loss is (nan|inf) at step \d+"):
        train(tiny(learning_rate=1e38, clip=1e38, warmup=0.0), tmp_path)


@pytest.mark.parametrize("scheme", ["rope", "t5"])
def test_parts_by_length_give_the_gradient_of_the_whole_batch(tiny: MakeRun, scheme: str) -> None:
    run = tiny(scheme, clip=1e9)
    batch = task_of(run).sample(37, generator_for(0, "train"))
    losses, gradients = [], []
    for parts in (1, loop.LENGTH_GROUPS):
        trainer = loop.Trainer(run, torch.device("cpu"))
        trainer.model.double()
        trainer.parts = parts
        losses.append(trainer.train_step(batch))
        gradients.append([p.grad for p in trainer.model.parameters()])
    assert losses[0] == pytest.approx(losses[1], abs=1e-12)
    for whole, parts in zip(*gradients, strict=True):
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-10)


def test_the_loss_of_a_step_is_the_mean_cross_entropy_before_it(tiny: MakeRun) -> None:
    run = tiny()
    trainer = loop.Trainer(run, torch.device("cpu"))
    batch = task_of(run).sample(37, generator_for(0, "train"))
    with torch.no_grad():
        scores_BC = trainer.model(batch.tokens_BL, batch.lengths_B)
    expected = F.cross_entropy(scores_BC, batch.labels_B).item()
    assert trainer.train_step(batch) == pytest.approx(expected, abs=1e-5)


def test_parts_hold_every_row_once_from_short_to_long_with_little_padding(tiny: MakeRun) -> None:
    batch = task_of(tiny()).sample(37, generator_for(0, "train"))
    parts = loop.by_length(batch, 4)
    assert [len(part) for part in parts] == [10, 10, 10, 7]
    longest = 0
    for part in parts:
        assert int(part.lengths_B.min()) >= longest
        longest = int(part.lengths_B.max())
        assert part.tokens_BL.shape[1] == longest
    rows = sorted(tuple(row[row > 0].tolist()) for part in parts for row in part.tokens_BL)
    assert rows == sorted(tuple(row[row > 0].tolist()) for row in batch.tokens_BL)


def test_a_batch_of_equal_lengths_stays_whole(tiny: MakeRun) -> None:
    batch = task_of(tiny("rope", "count")).sample(9, generator_for(0, "train"))
    assert loop.by_length(batch, 4) == [batch]


def test_evaluation_does_not_depend_on_how_it_is_batched(
    tiny: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny()
    task = task_of(run)
    model = loop.initial_model(run, task).double().eval()
    data = held_out(task, 50, 0)
    whole_correct, whole_losses = loop.evaluate(model, data)
    monkeypatch.setattr(loop, "EVALUATION_BATCH", 7)
    correct, losses = loop.evaluate(model, data)
    assert torch.equal(correct, whole_correct)
    torch.testing.assert_close(losses, whole_losses, rtol=0, atol=1e-12)
    for n in (0, 17):  # in the data's order
        _, alone = loop.evaluate(model, data.rows(slice(n, n + 1)))
        torch.testing.assert_close(alone[0], losses[n], rtol=0, atol=1e-12)


def test_progress_is_reported_at_every_step(tmp_path: Path, tiny: MakeRun) -> None:
    said: list[Progress] = []
    train(tiny(), tmp_path, report=said.append)
    assert [(news.step, news.steps) for news in said] == [(step, 12) for step in range(1, 13)]
    assert all(math.isfinite(news.loss) and news.sequences_per_second > 0 for news in said)
    assert math.isnan(said[1].accuracy)  # not evaluated yet
    assert said[2].accuracy == metrics(tmp_path)[0]["accuracy"]


def test_a_finished_run_is_kept_and_another_refused(tmp_path: Path, tiny: MakeRun) -> None:
    train(tiny(), tmp_path)
    before = {path: identity(path) for path in tmp_path.iterdir()}
    said: list[Progress] = []
    train(tiny(), tmp_path, report=said.append)
    assert said == []
    with pytest.raises(InputError, match="holds another run"):
        train(replace(tiny(), seed=1), tmp_path)
    assert {path: identity(path) for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scheme": "roep"}, "unknown scheme 'roep'"),
        ({"task": "cuont"}, "unknown task 'cuont': did you mean count"),
        ({"task_settings": {"betwen": 3}}, "distance has no setting 'betwen'; it has: between"),
        ({"parts": {"rope": {"bas": 3}}}, "rope has no setting 'bas'; it has: base"),
        ({"parts": {"alibi": {}}}, "scheme 'rope' has no part 'alibi'"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(
    tmp_path: Path, tiny: MakeRun, change: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        train(replace(tiny(), **change), tmp_path / "run")
    assert not (tmp_path / "run").exists()
