"""Where a run was made."""

import subprocess
import time

import pytest
import torch

from poslens.training import environment as module
from poslens.training.environment import Usage, commit, environment, processor


def test_the_environment_names_versions_and_machine() -> None:
    found = environment(torch.device("cpu"))
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert (found["device"], found["accelerator"]) == ("cpu", None)
    assert found["processor"] == processor() != ""


def test_no_commit_is_told_where_git_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", fail)
    assert commit() is None


def test_no_commit_is_told_outside_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "__file__", "/usr/lib/python3/site-packages/poslens/training/e.py")
    assert commit() is None


def test_seconds_count_on_from_those_of_killed_processes() -> None:
    usage, continued = Usage(), Usage(before=100.0)
    time.sleep(0.02)
    assert 0.02 <= usage.so_far()["seconds"] < 50
    assert 100.02 <= continued.so_far()["seconds"] < 150
