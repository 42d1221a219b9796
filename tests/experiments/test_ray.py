"""Cells on a real Ray on this machine: the local engine's bytes, whatever dies on the way."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")

from poslens.errors import InputError  # noqa: E402
from poslens.experiments import local, ray_engine  # noqa: E402
from poslens.experiments.local import RETRIES, Cell, News  # noqa: E402
from poslens.experiments.profiles import Profile  # noqa: E402
from poslens.experiments.rates import Rates  # noqa: E402
from poslens.training import Progress, RunFolder, RunSettings, loop, task_of, train  # noqa: E402
from poslens.training.folder import TRAIN_STATE  # noqa: E402
from poslens.training.loop import initial_model  # noqa: E402

pytestmark = pytest.mark.slow

TABLES = ("summary", "curve", "labels", "effects", "concentration")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A Ray of two processors, connected to; its address."""
    with ray_engine.connected(None, 2):
        yield ray.get_runtime_context().gcs_address


def cells_of(profile: Profile, folder: Path, steps: int = 4) -> list[Cell]:
    def longer(run: RunSettings) -> RunSettings:
        return replace(run, training=replace(run.training, sequences=16 * steps))

    runs = [longer(run) for run in profile.cells(Rates()) if run.task == "distance"]
    return [Cell(run, folder / run.name) for run in runs]


def same(first: Path, second: Path) -> None:
    assert {path.name for path in first.iterdir()} == {path.name for path in second.iterdir()}
    names = [f"{table}.parquet" for table in TABLES]
    for name in ("config.json", "metrics.jsonl", "model.safetensors", *names):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def busy() -> list[int]:
    """The workers of this machine's Ray that are at a cell."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().startswith(b"ray::work"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def wait_for(condition: Callable[[], bool], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_results_are_those_of_the_local_engine(cluster: str, tmp_path: Path, tiny: Profile) -> None:
    here, there = cells_of(tiny, tmp_path / "local"), cells_of(tiny, tmp_path / "ray")
    local.run_cells(here, jobs=2)
    heard: list[News] = []
    ray_engine.run_cells(there, jobs=2, watch=heard.append)
    for first, second in zip(here, there, strict=True):
        assert second.finished
        same(first.path, second.path)
        assert [news.progress.step for news in heard if news.name == first.name and news.progress]
        assert heard.count(News(first.name)) == 1


def test_a_killed_worker_is_tried_again_with_the_same_result(
    cluster: str, tmp_path: Path, tiny: Profile
) -> None:
    (cell, _) = cells_of(tiny, tmp_path / "a", steps=400)
    heard: list[News] = []

    def watch(news: News) -> None:
        if not heard:
            (worker,) = busy()
            os.kill(worker, signal.SIGKILL)
        heard.append(news)

    ray_engine.run_cells([cell], jobs=1, watch=watch)
    assert heard[-1] == News(cell.name)
    steps = [news.progress.step for news in heard if news.progress is not None]
    assert steps.count(10) == 2  # twice from the start: it died before the first checkpoint
    undisturbed = Cell(cell.run, tmp_path / "b")
    undisturbed.complete("cpu")
    same(cell.path, undisturbed.path)


def test_a_worker_that_keeps_being_killed_is_named(
    cluster: str, tmp_path: Path, tiny: Profile
) -> None:
    (cell, _) = cells_of(tiny, tmp_path, steps=1_000_000)
    kills = 0

    def watch(news: News) -> None:
        nonlocal kills
        if news.progress is not None and news.progress.step == 10:
            (worker,) = busy()
            os.kill(worker, signal.SIGKILL)
            kills += 1

    with pytest.raises(InputError, match=f"{cell.name} died 3 times; use fewer --jobs"):
        ray_engine.run_cells([cell], jobs=1, watch=watch)
    assert kills == RETRIES + 1
    assert not cell.finished


def test_a_worker_continues_from_what_the_folder_holds(
    cluster: str, tmp_path: Path, tiny: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell, _) = cells_of(tiny, tmp_path / "a", steps=400)

    class Killed(BaseException): ...

    def report(progress: Progress) -> None:
        if progress.step == 300:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        with pytest.raises(Killed):
            train(cell.run, cell.path, report=report)
    assert (cell.path / TRAIN_STATE).exists()
    heard: list[News] = []
    ray_engine.run_cells([cell], jobs=1, watch=heard.append)
    assert heard[0].progress is not None
    assert heard[0].progress.step == 300
    undisturbed = Cell(cell.run, tmp_path / "b")
    undisturbed.complete("cpu")
    same(cell.path, undisturbed.path)


class Outbox:
    """Keeps what is put into it."""

    def __init__(self) -> None:
        self.messages: list[ray_engine.Message] = []

    def put(self, message: ray_engine.Message) -> None:
        self.messages.append(message)


def test_every_checkpoint_comes_back_and_can_be_continued(
    tmp_path: Path, tiny: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell, _) = cells_of(tiny, tmp_path / "driver", steps=20)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    outbox = Outbox()
    software = ray_engine.software()
    files = ray_engine.work._function(cell, "cpu", {}, 1, outbox, software)
    assert not cell.path.exists()  # only the driver writes there
    ray_engine.unpack(files, tmp_path / "whole")
    sent = [content for _, _, content in outbox.messages if isinstance(content, dict)]
    *checkpoints, trained = sent
    assert len(checkpoints) == 19  # the one after the last step has no report to follow
    assert "effects.parquet" not in trained
    for number in (0, 8, 18):
        folder = tmp_path / f"from{number}"
        for content in sent[: number + 1]:
            ray_engine.unpack(content, folder)
        assert not RunFolder(folder).finished
        Cell(cell.run, folder).complete("cpu")
        same(folder, tmp_path / "whole")
    ray_engine.unpack(trained, folder)
    assert RunFolder(folder).finished
    assert not (folder / TRAIN_STATE).exists()


def test_a_driver_killed_between_two_files_can_be_continued(
    tmp_path: Path, tiny: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell, _) = cells_of(tiny, tmp_path / "driver", steps=20)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    outbox = Outbox()
    final = ray_engine.work._function(cell, "cpu", {}, 1, outbox, ray_engine.software())
    sent = [content for _, _, content in outbox.messages if isinstance(content, dict)]
    ray_engine.unpack(final, tmp_path / "whole")

    class Killed(BaseException): ...

    replace_file = Path.replace
    for written in range(len(final)):
        left = written

        def dying(self: Path, target: Path) -> Path:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return replace_file(self, target)

        folder = tmp_path / f"killed{written}"
        ray_engine.unpack(sent[10], folder)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", dying)
            with pytest.raises(Killed):
                ray_engine.unpack(final, folder)
        Cell(cell.run, folder).complete("cpu")
        ray_engine.unpack(ray_engine.pack(folder), folder)
        for name in ("metrics.jsonl", "model.safetensors", "summary.parquet", "effects.parquet"):
            assert (folder / name).read_bytes() == final[name], (written, name)


def test_other_software_on_a_node_is_refused(tmp_path: Path, tiny: Profile) -> None:
    (cell, _) = cells_of(tiny, tmp_path)
    with pytest.raises(InputError, match=r"has poslens .* and torch .*, this machine poslens 0\.0"):
        ray_engine.work._function(cell, "cpu", {}, 1, Outbox(), "poslens 0.0 and torch 1.0")


def test_a_failing_cell_is_told_in_words_and_stops_the_others(
    cluster: str, tmp_path: Path, tiny: Profile
) -> None:
    good, bad = cells_of(tiny, tmp_path, steps=1_000_000)
    RunFolder(bad.path).open(bad.run)
    (bad.path / TRAIN_STATE).write_bytes(b"no checkpoint")
    before = set(Path(tempfile.gettempdir()).glob("poslens-*"))
    with pytest.raises(InputError) as caught:
        ray_engine.run_cells([good, bad], jobs=2)
    assert str(caught.value).startswith(f"{bad.path / TRAIN_STATE} is damaged")
    assert str(caught.value).endswith(f"delete the folder {bad.path} and run again")
    wait_for(lambda: not busy(), 20)
    assert set(Path(tempfile.gettempdir()).glob("poslens-*")) <= before
    assert not good.finished


def test_an_error_of_ours_is_not_tried_again(cluster: str, tmp_path: Path, tiny: Profile) -> None:
    (cell, _) = cells_of(tiny, tmp_path)
    folder, model = RunFolder(cell.path), initial_model(cell.run, task_of(cell.run))
    folder.open(cell.run)
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    folder.save_tensors(TRAIN_STATE, tensors, {})  # no checkpoint is like that
    with pytest.raises(RuntimeError, match=f"the worker of {cell.name} failed") as caught:
        ray_engine.run_cells([cell], jobs=1)
    assert "KeyError" in str(caught.value.__cause__)


def test_no_more_workers_than_jobs(cluster: str, tmp_path: Path, tiny: Profile) -> None:
    cells = cells_of(tiny, tmp_path, steps=400)
    most = 0

    def watch(news: News) -> None:
        nonlocal most
        most = max(most, len(busy()))

    ray_engine.run_cells(cells, jobs=1, watch=watch)
    assert all(cell.finished for cell in cells)
    assert most == 1


def test_a_device_that_no_node_has(cluster: str, tmp_path: Path, tiny: Profile) -> None:
    for device in ("cuda", "tpu"):
        with pytest.raises(InputError, match=f"device '{device}' is not there; this cluster has: "):
            ray_engine.run_cells(cells_of(tiny, tmp_path), jobs=1, device=device)
    assert list(tmp_path.iterdir()) == []


STUDY = """
schemes = ["rope", "alibi"]
[tasks.count]
[training]
sequences = 16000
evaluations = 30
solved = 2.0
"""
COMMAND = (
    *(sys.executable, "-m", "poslens.cli.main", "reproduce", "--profile", "smoke"),
    *("--config", "study.toml", "--out", "out", "--engine", "ray"),
)


def test_a_running_cluster_is_used_by_its_address(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY.replace("16000", "640"))
    command = (*COMMAND, "--address", cluster, "--schemes", "rope")
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "[1/1] rope-count-seed0\n")
    assert done.stdout.endswith("report: out/report.html\n")
    assert ray.is_initialized()  # the cluster is not ours to end


def test_the_documents_example(cluster: str, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.S)
    for said, run in (
        ('"auto"', f'"{cluster}"'),
        ("import profile_named", "import profile_named, select"),
        ('profile_named("standard")', 'select(profile_named("smoke"), ("rope",), ("count",))'),
    ):
        assert example.count(said) == 1
        example = example.replace(said, run)
    command = (sys.executable, "-c", example)
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert RunFolder(tmp_path / "runs/standard/rope-count-seed0").finished


def test_ctrl_c_stops_the_workers_and_the_same_command_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(STUDY)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "RAY_TMPDIR": "/tmp"}
    command = (*COMMAND, "--jobs", "1")
    process = subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    first, second = (RunFolder(Path("out") / f"{name}-count-seed0") for name in ("rope", "alibi"))
    wait_for(lambda: bool(list(scratch.glob("*/alibi-count-seed0/metrics.jsonl"))))
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines() == [
        "[1/2] rope-count-seed0",
        "poslens: interrupted; the same command continues where it stopped",
    ]
    assert list(scratch.glob("poslens-*")) == []
    assert first.finished
    assert not second.finished
    kept = first.path.joinpath("summary.parquet").stat().st_ino

    again = subprocess.run(command, text=True, capture_output=True, timeout=300)
    assert again.returncode == 0, again.stderr
    assert again.stderr.splitlines() == [
        "1 of 2 runs are finished and kept",
        "[2/2] alibi-count-seed0",
    ]
    assert first.path.joinpath("summary.parquet").stat().st_ino == kept
    train(second.settings(), "undisturbed")
    for name in ("metrics.jsonl", "model.safetensors", "summary.parquet"):
        assert (second.path / name).read_bytes() == Path("undisturbed", name).read_bytes()
