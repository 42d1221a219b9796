"""Progress bars: step, loss, accuracy, speed and time left on a terminal, plain lines elsewhere."""

import io
import math
import sys
from pathlib import Path

import pytest

from poslens.cli.progress import Bars
from poslens.experiments.local import Cell, News
from poslens.training import Progress, RunSettings

CELLS = [Cell(RunSettings(scheme, "count"), Path(scheme)) for scheme in ("rope", "alibi", "mla")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with Bars() as bars:
        bars.start(CELLS, CELLS[1:])
        bars.news(News("alibi", Progress(10, 40, 1.2345, math.nan, 321.0)))
        bars.news(News("alibi", Progress(20, 40, 0.2345, 0.875, 321.4)))
        if stream.isatty():
            bars.progress.refresh()
        bars.news(News("alibi"))
        bars.news(News("mla"))
    return stream.getvalue()


def test_on_a_terminal_every_run_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = show(monkeypatch, Terminal())
    for words in ("all runs", "1/3", "3/3", "alibi", "20/40", "loss 0.234", "accuracy 0.875"):
        assert words in shown
    assert "321 seq/s" in shown
    assert ":" in shown.split("321 seq/s")[1]  # time left


def test_elsewhere_a_line_for_every_finished_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert show(monkeypatch, io.StringIO()).splitlines() == [
        *("1 of 3 runs are finished and kept", "[2/3] alibi", "[3/3] mla"),
    ]
