"""`--engine` and `--address`: who runs a grid, and what is said where nobody can."""

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import poslens.experiments

SMOKE = ("--profile", "smoke", "--out", "out")


@pytest.fixture(params=["reproduce", "tune"])
def refused(request: pytest.FixtureRequest, poslens: Callable) -> Callable[..., str]:
    """The one line of a refusal, nothing written."""

    def run(*arguments: str) -> str:
        line: str = poslens(request.param, *SMOKE, *arguments).line
        assert not Path("out").exists()
        return line

    return run


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken and does not listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_an_unknown_engine(refused: Callable) -> None:
    assert "invalid choice 'dask' for argument '--engine'" in refused("--engine", "dask")


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_no_jobs_at_all(refused: Callable, engine: str) -> None:
    assert refused("--engine", engine, "--jobs", "-1") == "jobs is -1; use 1 or more"


def test_an_address_without_a_cluster_to_use_it(refused: Callable) -> None:
    assert refused("--address", "head:6379") == (
        "--address head:6379 is for a cluster; add --engine ray"
    )


def test_without_ray(refused: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "poslens.experiments.ray_engine", raising=False)
    monkeypatch.delattr(poslens.experiments, "ray_engine", raising=False)
    assert refused("--engine", "ray") == (
        "--engine ray needs Ray, which is not installed; pip install 'poslens[cluster]'"
    )


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_nobody_at_the_address(refused: Callable, closed_port: int, prefix: str) -> None:
    pytest.importorskip("ray")
    address = f"{prefix}127.0.0.1:{closed_port}"
    line = refused("--engine", "ray", "--address", address)
    assert line.startswith(f"no Ray cluster at '{address}' ([Errno 111] Connection refused);")
    assert "start one with 'ray start --head'" in line


def test_no_address_at_all(refused: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    assert "no Ray cluster at 'nonsense' (" in refused("--engine", "ray", "--address", "nonsense")
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere")  # what decides where no option does
    assert "no Ray cluster at 'elsewhere' (" in refused("--engine", "ray")
