"""One piece of work on each run of a folder, several at once."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

from poslens.errors import InputError

Result = TypeVar("Result")


def each(folders: list[Path], work: Callable[[Path], Result], jobs: int | None) -> list[Result]:
    """What `work` gives for each folder, in their order; a line for each on the error stream.

    Several are done in processes of one thread, `jobs` at once (None: one a core), and `work` must
    then be picklable; one is done here. The first failure stops the rest, and so does an interrupt.
    Raises InputError for jobs below 1 and for processes that are killed.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}; use 1 or more")
    if len(folders) == 1 or jobs == 1:
        _one_thread()
        return [_told(work(folder), folder, n, folders) for n, folder in enumerate(folders, 1)]
    done: dict[Path, Result] = {}
    pool = ProcessPoolExecutor(
        min(jobs or os.cpu_count() or 1, len(folders)),
        multiprocessing.get_context("spawn"),
        initializer=_begin,
    )
    try:
        waiting = {pool.submit(work, folder): folder for folder in folders}
        for number, future in enumerate(as_completed(waiting), 1):
            folder = waiting[future]
            done[folder] = _told(future.result(), folder, number, folders)
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process was killed; use fewer --jobs if memory is short, then repeat"
        ) from error
    except BaseException:
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return [done[folder] for folder in folders]


def _told(result: Result, folder: Path, number: int, folders: list[Path]) -> Result:
    if len(folders) > 1:
        print(f"[{number}/{len(folders)}] {folder.name}", file=sys.stderr)
    return result


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    _one_thread()


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
