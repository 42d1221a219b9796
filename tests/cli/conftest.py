"""Commands run in this process, in a folder of their own."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from poslens.cli.main import main

# A run of 8 steps; what a command takes beside them stands first.
SMALL = (
    *("--profile", "smoke", "--layers", "1", "--heads", "2", "--width", "8", "--feedforward", "8"),
    *("--sequences", "128", "--batch", "16", "--set", "words=40"),
)
# Batches of seeds for as few examples as tests record.
BATCHES = ("--batches", "8", "16")


@dataclass(frozen=True)
class Done:
    """What a command left behind: exit code, output stream, error stream."""

    code: int | str | None
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of a refusal, which must be all there is."""
        assert self.code == 2, self
        assert self.out == "", self
        (line,) = self.err.splitlines()
        assert line.startswith("poslens: "), line
        assert "Traceback" not in line
        return line.removeprefix("poslens: ")


Poslens = Callable[..., Done]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def poslens(capsys: pytest.CaptureFixture[str]) -> Poslens:
    def run(*arguments: str | Path) -> Done:
        capsys.readouterr()
        code: int | str | None = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def small() -> tuple[str, ...]:
    return SMALL


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run trained with `SMALL`, with every table there is. Shared: tests take a copy."""
    path = tmp_path_factory.mktemp("trained") / "rope-distance-seed0"
    main(["train", "rope", *SMALL, "--out", str(path)])
    main(["ablate", str(path), "--sets"])
    main(["decompose", str(path)])
    main(["lengths", str(path)])
    main(["probe", str(path), "--sequences", "60"])
    main(["mechanism", str(path), "--sequences", "32"])
    main(["theory", str(path), *("--examples", "64", "--initialisations", "1"), *BATCHES])
    return path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run, in a folder of runs."""
    return Path(shutil.copytree(trained, tmp_path / "runs" / trained.name))
