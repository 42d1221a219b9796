"""Work on each run of a folder: in order, told, the same with any number of processes."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from poslens.cli.each import each
from poslens.errors import InputError


def name_of(folder: Path) -> str:
    return folder.name


def refuse(folder: Path) -> None:
    raise InputError(f"{folder.name} is wrong; give another")


def die(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


FOLDERS = [Path("c"), Path("a"), Path("b")]


def test_results_come_in_order_and_each_run_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert each(FOLDERS, name_of, jobs=1) == ["c", "a", "b"]
    assert capsys.readouterr().err.splitlines() == ["[1/3] c", "[2/3] a", "[3/3] b"]
    assert each([Path("x")], name_of, jobs=None) == ["x"]
    assert capsys.readouterr().err == ""  # one is no progress
    with pytest.raises(InputError, match="jobs is 0; use 1 or more"):
        each(FOLDERS, name_of, jobs=0)
    with pytest.raises(InputError, match="c is wrong"):
        each(FOLDERS, refuse, jobs=1)


@pytest.mark.slow
def test_processes_do_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert each(FOLDERS, name_of, jobs=2) == ["c", "a", "b"]
    assert len(capsys.readouterr().err.splitlines()) == 3
    with pytest.raises(InputError, match="is wrong; give another"):
        each(FOLDERS, refuse, jobs=2)
    with pytest.raises(InputError, match="a worker process was killed; use fewer --jobs"):
        each(FOLDERS, die, jobs=2)


CHANGED = ("effects", "lengths", "probes", "subspaces")


@pytest.mark.slow
def test_tables_do_not_depend_on_the_number_of_processes(
    poslens: Callable, run: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(run, run.parent / "other"))
    before = {name: (run / f"{name}.parquet").read_bytes() for name in CHANGED}
    probe = ("probe", run.parent, "--sequences", "60")
    for command in (("ablate", run.parent), ("lengths", run.parent), probe):
        done = poslens(*command, "--jobs", "2")
        assert done.code == 0, done.err
    for folder in (run, other):
        assert {name: (folder / f"{name}.parquet").read_bytes() for name in before} == before
