"""The cluster runner: cells as Ray tasks, with the interface and the results of the local one.

The driver, the process that asks, is the only one that writes into the output folder, so nodes need
not share a file system. A worker gets the files the cell's folder holds, continues from them in a
folder of its own, and sends its files back at every checkpoint, after training and at the end. A
worker that dies therefore costs what it did since its last checkpoint, wherever it is tried again.

Ray (the extra `cluster`) is imported here and nowhere else: import this module late.
"""

import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from importlib.metadata import version
from pathlib import Path

import ray
import torch
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.queue import Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from poslens.errors import InputError
from poslens.experiments.local import RETRIES, STEPS_BETWEEN_REPORTS, Cell, News
from poslens.training import Progress, RunFolder
from poslens.training.folder import TRAIN_STATE, make_folder

SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_TO_STOP = 5.0
SECONDS_TO_CONNECT = 5.0
LOCAL = "local"
LOCAL_OBJECT_STORE = 256 * 2**20  # bytes: holds the files under way, which are few and small

Files = dict[str, bytes]
# What a worker says while it works: cell, attempt, and its files as they stand or its Progress.
# Plain values, so that the process that passes them on need not import torch.
Message = tuple[str, int, Files | tuple[float, ...]]


@contextmanager
def connected(address: str | None = None, jobs: int | None = None) -> Iterator[None]:
    """Be a driver of the Ray cluster at `address`, or of one started here and ended afterwards.

    `address` is host:port, ray://host:port or auto; without it the variable RAY_ADDRESS decides,
    and then this machine, with `jobs` workers at once. Raises InputError where no cluster answers.
    """
    address = address or os.environ.get("RAY_ADDRESS", LOCAL)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if address == LOCAL:
            ray.init(
                LOCAL,
                num_cpus=jobs,
                object_store_memory=LOCAL_OBJECT_STORE,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        else:
            knock(address)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"no Ray cluster at {address!r} ({reason}); start one with 'ray start --head', or "
            "leave --address out to use this machine"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def knock(address: str) -> None:
    """Raises OSError where nothing listens at host:port, which Ray would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_CONNECT).close()


def cores() -> int:
    """Processors of the cluster: as many cells can run at once."""
    return int(ray.cluster_resources().get("CPU", 1))


def run_cells(
    cells: list[Cell],
    jobs: int,
    device: str = "cpu",
    watch: Callable[[News], None] | None = None,
) -> None:
    """Complete all cells, at most `jobs` at a time; the first failure stops the rest.

    Needs a connection (`connected`). A cell takes one processor, and one GPU if `device` is cuda.
    An interrupt stops the workers; what they had sent is kept. Raises InputError for a cell's bad
    input, a cluster without GPU or a worker that keeps dying, RuntimeError for one that failed.
    """
    options = resources(device)
    waiting = list(cells)
    workers: dict[ray.ObjectRef, Cell] = {}
    attempts = dict.fromkeys((cell.name for cell in cells), 1)
    outbox = open_outbox()
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                cell = waiting.pop(0)
                RunFolder(cell.path).open(cell.run)
                worker = work.options(**options).remote(
                    cell, device, pack(cell.path), attempts[cell.name], outbox, software()
                )
                workers[worker] = cell
            ready, _ = ray.wait(list(workers), timeout=SECONDS_BETWEEN_LOOKS)
            running = {cell.name: cell for cell in workers.values()}
            for name, attempt, content in outbox.get_nowait_batch(outbox.qsize()):
                if name not in running or attempt != attempts[name]:
                    continue  # the last words of a worker that has been given up
                if isinstance(content, dict):
                    unpack(content, running[name].path)
                elif watch is not None:
                    watch(News(name, Progress(*content)))
            for worker in ready:
                cell = workers.pop(worker)
                files = answer(worker, cell)
                if files is None:
                    attempts[cell.name] += 1
                    if attempts[cell.name] > RETRIES + 1:
                        raise InputError(
                            f"the worker of {cell.name} died {RETRIES + 1} times; use fewer --jobs "
                            "if memory is short, then repeat the command: it continues"
                        )
                    waiting.insert(0, cell)
                    continue
                unpack(files, cell.path)
                if watch is not None:
                    watch(News(cell.name))
    except RayActorError as error:
        raise InputError(
            "the cluster lost the node that passes messages on; repeat the command: it continues"
        ) from error
    finally:
        stop(list(workers))
        outbox.shutdown(force=True)


def open_outbox() -> Queue:
    """What workers put their messages into; on the driver's node, whose end is our end anyway."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    return Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})


def resources(device: str) -> dict[str, int]:
    """What a task asks Ray for. Raises InputError for a device that no node has."""
    if device == "cpu":
        return {"num_gpus": 0}
    there = "cpu, cuda" if ray.cluster_resources().get("GPU", 0) >= 1 else "cpu"
    if device == "cuda" and "cuda" in there:
        return {"num_gpus": 1}
    raise InputError(f"device {device!r} is not there; this cluster has: {there}")


def answer(worker: ray.ObjectRef, cell: Cell) -> Files | None:
    """The files of a worker that is done; None where it died."""
    try:
        files: Files = ray.get(worker)
    except RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise error.cause from None
        raise RuntimeError(f"the worker of {cell.name} failed; its error stands above") from error
    except RayError:
        return None
    return files


def stop(workers: list[ray.ObjectRef]) -> None:
    """Interrupt workers so that they clear up after themselves; kill those that do not."""
    for worker in workers:
        ray.cancel(worker)
    if workers:
        _, left = ray.wait(workers, num_returns=len(workers), timeout=SECONDS_TO_STOP)
        for worker in left:
            ray.cancel(worker, force=True)


# One call a process: what a cell computes cannot depend on what ran before it in the same process.
# Tried again by us, not by Ray, so that a new attempt starts from the last checkpoint.
@ray.remote(num_cpus=1, max_calls=1, max_retries=0)
def work(cell: Cell, device: str, files: Files, attempt: int, outbox: Queue, wanted: str) -> Files:
    """Complete a cell, in a process of its own on some node; its files.

    Raises InputError for bad input, in the words of the driver's paths.
    """
    torch.set_num_threads(1)
    if software() != wanted:
        raise InputError(
            f"node {socket.gethostname()} has {software()}, this machine {wanted}; install the "
            "same on all, or results are not comparable"
        )
    with tempfile.TemporaryDirectory(prefix="poslens-") as scratch:
        here = replace(cell, path=Path(scratch) / cell.name)
        checkpoint = here.path / TRAIN_STATE
        unpack(files, here.path)
        sent = age(checkpoint)

        def say(content: Files | tuple[float, ...]) -> None:
            message: Message = (cell.name, attempt, content)
            outbox.put(message)

        def report(progress: Progress) -> None:
            nonlocal sent
            if progress.step % STEPS_BETWEEN_REPORTS == 0 or progress.step == progress.steps:
                say(astuple(progress))
            if age(checkpoint) != sent:
                sent = age(checkpoint)
                say(pack(here.path))

        try:
            replace(here, train_only=True).complete(device, report)
            if not here.finished:
                say(pack(here.path))
                here.complete(device)
        except (InputError, OSError) as error:
            raise InputError(str(error).replace(str(here.path), str(cell.path))) from None
        return pack(here.path)


def software() -> str:
    """What must be equal on all nodes; a build for other processors counts as the same."""
    return f"poslens {version('poslens')} and torch {torch.__version__.partition('+')[0]}"


def age(path: Path) -> int:
    """When a file was last written, in ns; 0 where there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0


def pack(folder: Path) -> Files:
    """The files of a run folder, without what a killed write left."""
    found = [path for path in folder.iterdir() if path.is_file() and path.suffix != ".tmp"]
    return {path.name: path.read_bytes() for path in found}


def unpack(files: Files, folder: Path) -> None:
    """Write files, each in one step, and drop a checkpoint that is no longer among them.

    In an order in which being killed anywhere leaves a run that can be continued: metrics before
    the checkpoint that counts on them, `summary`, the mark of a finished training, last.
    """
    make_folder(folder)
    last = ("config.json", "", TRAIN_STATE, "summary.parquet")
    for name in sorted(files, key=lambda name: last.index(name if name in last else "")):
        unfinished = folder / f"{name}.tmp"
        unfinished.write_bytes(files[name])
        unfinished.replace(folder / name)
    if TRAIN_STATE not in files:
        (folder / TRAIN_STATE).unlink(missing_ok=True)
