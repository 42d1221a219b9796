"""Worker processes: as many as asked, restarted when killed, gone when stopped.

Every worker imports torch anew, which takes seconds: the tests start few.
"""

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from poslens.errors import InputError
from poslens.experiments.local import RETRIES, Cell, News, run_cells
from poslens.experiments.profiles import Profile
from poslens.experiments.rates import Rates
from poslens.training import RunSettings, train

TABLES = ("summary", "curve", "labels", "effects", "concentration")


def cells_of(profile: Profile, folder: Path, steps: int = 4) -> list[Cell]:
    def longer(run: RunSettings) -> RunSettings:
        return replace(run, training=replace(run.training, sequences=16 * steps))

    runs = [longer(run) for run in profile.cells(Rates()) if run.task == "distance"]
    return [Cell(run, folder / run.name) for run in runs]


def kill_worker() -> None:
    (worker,) = multiprocessing.active_children()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)


def same(first: Path, second: Path) -> None:
    names = [f"{table}.parquet" for table in TABLES]
    for name in ("metrics.jsonl", "model.safetensors", *names):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_a_cell_is_finished_with_its_last_table(tmp_path: Path, tiny: Profile) -> None:
    (cell, _) = cells_of(tiny, tmp_path)
    assert not cell.finished
    train(cell.run, cell.path)
    assert not cell.finished
    assert replace(cell, train_only=True).finished
    cell.complete("cpu")
    assert cell.finished


def test_a_killed_worker_is_started_again_and_leaves_no_trace(
    tmp_path: Path, tiny: Profile
) -> None:
    (cell, _) = cells_of(tiny, tmp_path / "a", steps=60)
    heard: list[News] = []

    def watch(news: News) -> None:
        if not heard:
            assert news.progress is not None
            kill_worker()
        heard.append(news)

    run_cells([cell], jobs=1, watch=watch)
    assert heard[-1] == News(cell.name)
    steps = [news.progress.step for news in heard if news.progress is not None]
    assert steps.count(10) == 2  # twice from the start: it died before the first checkpoint
    undisturbed = Cell(cell.run, tmp_path / "b")
    undisturbed.complete("cpu")
    same(cell.path, undisturbed.path)


@pytest.mark.slow
def test_a_failing_cell_is_told_in_words_and_stops_the_others(
    tmp_path: Path, tiny: Profile
) -> None:
    good, bad = cells_of(tiny, tmp_path, steps=1_000_000)
    (tmp_path / "file").write_text("")
    bad = replace(bad, path=tmp_path / "file" / "run")
    with pytest.raises(InputError, match=r"cannot make .*file/run \(Not a directory\)"):
        run_cells([good, bad], jobs=2)
    assert multiprocessing.active_children() == []
    assert not good.finished


@pytest.mark.slow
def test_one_job_and_two_give_the_same_results(tmp_path: Path, tiny: Profile) -> None:
    one, two = cells_of(tiny, tmp_path / "1"), cells_of(tiny, tmp_path / "2")
    run_cells(one, jobs=1)
    run_cells(two, jobs=2)
    for first, second in zip(one, two, strict=True):
        assert first.finished
        same(first.path, second.path)


@pytest.mark.slow
def test_a_worker_that_keeps_being_killed_is_named(tmp_path: Path, tiny: Profile) -> None:
    (cell, _) = cells_of(tiny, tmp_path, steps=1_000_000)
    kills = 0

    def watch(news: News) -> None:
        nonlocal kills
        if news.progress is not None and news.progress.step == 10:
            kill_worker()
            kills += 1

    with pytest.raises(InputError, match=f"{cell.name} was killed 3 times .signal 9.; use fewer"):
        run_cells([cell], jobs=1, watch=watch)
    assert kills == RETRIES + 1


def test_an_error_of_ours_is_not_tried_again(
    tmp_path: Path, tiny: Profile, capfd: pytest.CaptureFixture[str]
) -> None:
    (cell, _) = cells_of(tiny, tmp_path)
    broken = replace(cell, run=None)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=f"the worker of {cell.name} failed"):
        run_cells([broken], jobs=1)
    assert capfd.readouterr().err.count("Traceback") == 1


@pytest.mark.slow
def test_no_more_workers_than_jobs(tmp_path: Path, tiny: Profile) -> None:
    cells = cells_of(tiny, tmp_path) + cells_of(tiny, tmp_path / "more")
    most = 0

    def watch(news: News) -> None:
        nonlocal most
        most = max(most, len(multiprocessing.active_children()))

    run_cells(cells, jobs=2, watch=watch)
    assert all(cell.finished for cell in cells)
    assert most <= 2
