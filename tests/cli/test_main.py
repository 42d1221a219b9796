"""The entry point: quick to help, one line for what went wrong."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import pytest

from poslens.cli import list as list_command
from poslens.cli.main import COMMANDS
from poslens.errors import InputError

HELP = "from poslens.cli.main import main; main(['--help'])"


def test_help_comes_within_a_second() -> None:
    seconds = []
    for _ in range(3):
        started = time.monotonic()
        subprocess.run([sys.executable, "-c", HELP], check=True, capture_output=True)
        seconds.append(time.monotonic() - started)
    assert statistics.median(seconds) < 1.5  # alone it takes a twentieth of that


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'polars', 'numpy', 'scipy', 'tyro', 'rich', 'matplotlib', 'plotly'}"
    code = f"import sys; {HELP}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",)])
def test_help_names_every_command(poslens: Callable, arguments: tuple[str, ...]) -> None:
    done = poslens(*arguments)
    assert (done.code, done.err) == (0, "")
    for name, what in COMMANDS.items():
        assert f"  {name:<13}{what}\n" in done.out
    assert "poslens reproduce --profile smoke" in done.out


def test_version(poslens: Callable) -> None:
    assert poslens("--version").out == f"poslens {version('poslens')}\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("trian", "unknown command 'trian'; did you mean: train?"),
        ("reprodcue", "unknown command 'reprodcue'; did you mean: reproduce?"),
        ("xyz", f"unknown command 'xyz'; did you mean: {', '.join(COMMANDS)}?"),
        ("--profile", "unknown command '--profile'"),
    ],
)
def test_an_unknown_command_is_named_with_what_is_close(
    poslens: Callable, name: str, words: str
) -> None:
    assert words in poslens(name).line


def stops(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(arguments: list[str]) -> None:
        raise error

    monkeypatch.setattr(list_command, "run", run)


def test_bad_input_is_one_line_and_code_2(
    poslens: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops(monkeypatch, InputError("what was wrong; what would be right"))
    assert poslens("list").line == "what was wrong; what would be right"


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied", "/there/file"),
        OSError(28, "No space left on device"),
    ],
)
def test_an_error_of_the_system_is_one_line(
    poslens: Callable, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    stops(monkeypatch, error)
    line = poslens("list").line
    assert error.strerror in line
    assert str(error.filename or "") in line


def test_an_interrupt_is_one_line_and_code_130(
    poslens: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops(monkeypatch, KeyboardInterrupt())
    done = poslens("list")
    assert done.code == 130
    assert done.err.splitlines() == [
        "poslens: interrupted; the same command continues where it stopped"
    ]


def test_our_own_errors_are_not_hidden(poslens: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    stops(monkeypatch, ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        poslens("list")


def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    command = [sys.executable, "-m", "poslens.cli.main", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
