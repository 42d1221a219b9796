"""Progress bars: one a run under way, one for the grid."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from poslens.experiments.local import Cell, News
from poslens.experiments.reproduce import Watch
from poslens.training import Progress as RunProgress


class Bars(Watch):
    """Bars on the error stream: steps, loss, accuracy, sequences/s and time left.

    Where that is no terminal, a line for every finished run instead.
    """

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not sys.stderr.isatty(),
        )
        self.rows: dict[str, TaskID] = {}
        self.grid: TaskID | None = None
        self.total = self.done = 0

    def __enter__(self) -> "Bars":
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def start(self, cells: list[Cell], missing: list[Cell]) -> None:
        self.total, self.done = len(cells), len(cells) - len(missing)
        if self.done:
            self.console.print(f"{self.done} of {self.total} runs are finished and kept")
        if self.grid is not None:
            self.progress.remove_task(self.grid)
        self.grid = self.progress.add_task(
            "all runs", total=self.total, completed=self.done, state=""
        )

    def news(self, news: News) -> None:
        if news.progress is not None:
            self.run(news.name, news.progress)
            return
        self.done += 1
        if news.name in self.rows:
            self.progress.remove_task(self.rows.pop(news.name))
        if self.grid is not None:
            self.progress.update(self.grid, completed=self.done)
        if self.progress.disable:
            self.console.print(f"[{self.done}/{self.total}] {news.name}", markup=False)

    def run(self, name: str, progress: RunProgress) -> None:
        """Show where one run stands."""
        if name not in self.rows:
            self.rows[name] = self.progress.add_task(name, total=progress.steps, state="")
        self.progress.update(
            self.rows[name],
            completed=progress.step,
            state=f"loss {progress.loss:.3f}  accuracy {progress.accuracy:.3f}  "
            f"{progress.sequences_per_second:.0f} seq/s",
        )
