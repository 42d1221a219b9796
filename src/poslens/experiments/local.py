"""The local runner: cells in worker processes of one thread each.

One process a cell: what a cell computes cannot depend on what ran before it in the same process, so
any number of workers gives the same results, and its peak memory is its own.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from poslens.errors import InputError
from poslens.heads import ablate_run, is_ablated
from poslens.training import Progress, RunFolder, RunSettings, train
from poslens.training.loop import Report

# A worker killed from outside (out of memory, say) is started again this often.
RETRIES = 2
STEPS_BETWEEN_REPORTS = 10


@dataclass(frozen=True)
class Cell:
    """A run and where it goes; `train_only` leaves the analyses out.

    `experiment` tells runs of the same name apart where several experiments are done together.
    """

    run: RunSettings
    path: Path
    train_only: bool = False
    experiment: str = ""

    @property
    def name(self) -> str:
        return f"{self.experiment}-{self.path.name}" if self.experiment else self.path.name

    @property
    def finished(self) -> bool:
        if not RunFolder(self.path).finished:
            return False
        return self.train_only or is_ablated(self.path)

    def complete(self, device: str, report: Report | None = None) -> None:
        """Train and ablate, doing only what the folder lacks."""
        train(self.run, self.path, device, report)
        if not self.finished:
            ablate_run(self.path, device)


@dataclass(frozen=True)
class News:
    """What a worker has to say: progress, a failure in words, or (neither) that it is done."""

    name: str
    progress: Progress | None = None
    failure: str | None = None


def run_cells(
    cells: list[Cell],
    jobs: int,
    device: str = "cpu",
    watch: Callable[[News], None] | None = None,
) -> None:
    """Complete all cells, `jobs` at a time; the first failure stops the rest.

    An interrupt ends the workers; what they had checkpointed is kept. Raises InputError for a
    cell's bad input or a worker that keeps being killed, RuntimeError for one that failed.
    """
    waiting = list(cells)
    workers: dict[Connection, tuple[BaseProcess, Cell]] = {}
    deaths = dict.fromkeys((cell.name for cell in cells), 0)
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                cell = waiting.pop(0)
                with _interrupts_later():
                    ours, worker = _start(cell, device)
                    workers[ours] = (worker, cell)
            for ready in wait(list(workers)):
                assert isinstance(ready, Connection)
                worker, cell = workers[ready]
                try:
                    news: News = ready.recv()
                except (EOFError, OSError):  # it ended without a word
                    worker.join()
                    del workers[ready]
                    assert worker.exitcode is not None
                    if worker.exitcode >= 0:  # not by a signal: the error is ours
                        raise RuntimeError(
                            f"the worker of {cell.name} failed; its error stands above"
                        ) from None
                    deaths[cell.name] += 1
                    if deaths[cell.name] > RETRIES:
                        raise InputError(
                            f"the worker of {cell.name} was killed {RETRIES + 1} times (signal "
                            f"{-worker.exitcode}); use fewer --jobs if memory is short, then "
                            "repeat the command: it continues"
                        ) from None
                    waiting.insert(0, cell)
                    continue
                if news.failure is not None:
                    raise InputError(news.failure)
                if news.progress is None:
                    worker.join()
                    del workers[ready]
                if watch is not None:
                    watch(news)
    finally:
        for worker, _ in workers.values():
            worker.terminate()
        for worker, _ in workers.values():
            worker.join()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back, here and for good in processes started here.

    The parent decides what an interrupt means, and none may hit a worker it does not know of yet.
    """
    resource_tracker.ensure_running()  # every start does, and starting it would undo the block
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _start(cell: Cell, device: str) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    arguments = (cell, device, theirs, os.getpid())
    worker = context.Process(target=_work, args=arguments, daemon=True)  # never outlives us
    worker.start()
    theirs.close()  # so that the worker's end is the only one, and its death closes the pipe
    return ours, worker


def _work(cell: Cell, device: str, pipe: Connection, parent: int) -> None:
    torch.set_num_threads(1)
    name = cell.name

    def tell(news: News) -> None:
        try:
            pipe.send(news)
        except BrokenPipeError:  # the parent was killed: nobody is left to tell
            os._exit(1)

    def report(progress: Progress) -> None:
        if os.getppid() != parent:  # the same, between two reports
            os._exit(1)
        if progress.step % STEPS_BETWEEN_REPORTS == 0 or progress.step == progress.steps:
            tell(News(name, progress))

    try:
        cell.complete(device, report)
    except (InputError, OSError) as error:
        tell(News(name, failure=str(error)))
    else:
        tell(News(name))
