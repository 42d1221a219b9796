"""Ctrl-C and `kill -9` on `poslens reproduce`: no orphans, and the same command continues."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from poslens.training import RunFolder, train

pytestmark = pytest.mark.slow

# 1000 steps a run: seconds of training, with a first evaluation soon.
STUDY = """
schemes = ["rope", "alibi"]
[tasks.count]
[training]
sequences = 32000
evaluations = 30
solved = 2.0
"""
COMMAND = (
    *(sys.executable, "-m", "poslens.cli.main", "reproduce", "--profile", "smoke"),
    *("--config", "study.toml", "--out", "out", "--jobs", "2"),
)
RUNS = ("rope-count-seed0", "alibi-count-seed0")


def start() -> "subprocess.Popen[str]":
    """The command in a process group of its own, as a shell starts it."""
    Path("study.toml").write_text(STUDY)
    return subprocess.Popen(
        COMMAND, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def group_of(leader: int) -> list[int]:
    """The processes of a group that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = entry.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(group) == leader and state != "Z":
            found.append(int(entry.parent.name))
    return found


def training(run: str) -> bool:
    return (Path("out") / run / "metrics.jsonl").exists()


def press_ctrl_c(process: "subprocess.Popen[str]") -> None:
    """SIGINT to the whole group, as the terminal sends it; then all of it must be gone."""
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err == "poslens: interrupted; the same command continues where it stopped\n"
    wait_for(lambda: not group_of(process.pid), 10)


def test_ctrl_c_in_mid_training_and_the_same_command_again() -> None:
    process = start()
    wait_for(lambda: all(map(training, RUNS)))
    press_ctrl_c(process)
    assert not any(RunFolder(Path("out") / run).finished for run in RUNS)

    again = subprocess.run(COMMAND, text=True, capture_output=True, timeout=300)
    assert again.returncode == 0, again.stderr
    assert again.stdout.endswith("report: out/report.html\n")
    run = RunFolder(Path("out") / RUNS[0])
    train(run.settings(), "undisturbed")
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (run.path / name).read_bytes() == Path("undisturbed", name).read_bytes()


def test_ctrl_c_while_the_workers_start() -> None:
    """They are importing then, and must neither die of an interrupt nor say anything."""
    process = start()
    wait_for(lambda: len(group_of(process.pid)) >= 4)  # with multiprocessing's resource tracker
    time.sleep(0.5)
    for worker in group_of(process.pid):
        if worker != process.pid:
            os.kill(worker, signal.SIGINT)
    wait_for(lambda: process.poll() is not None or all(map(training, RUNS)))
    assert process.poll() is None
    press_ctrl_c(process)


def test_workers_do_not_outlive_a_killed_parent() -> None:
    process = start()
    wait_for(lambda: all(map(training, RUNS)))
    process.kill()
    _, err = process.communicate(timeout=60)  # ends when the workers have closed it too
    assert err == ""
    wait_for(lambda: not group_of(process.pid), 20)
    assert not any(RunFolder(Path("out") / run).finished for run in RUNS)
