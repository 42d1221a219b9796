"""Which engine runs a grid: `--engine`, `--address` and `--jobs`, for all that run grids."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from poslens.errors import InputError
from poslens.experiments.reproduce import Runner

Engine = Literal["local", "ray"]


@contextmanager
def engine(
    name: Engine, address: str | None, jobs: int | None
) -> Iterator[tuple[int, dict[str, Runner]]]:
    """How many cells at once, and what `reproduce` and `tune` want to be told of the engine.

    Ray is connected to for as long as the context lasts. Raises InputError where it is not
    installed, where no cluster answers, and for an address that nothing would use.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}; use 1 or more")
    if name == "local":
        if address is not None:
            raise InputError(f"--address {address} is for a cluster; add --engine ray")
        yield (os.cpu_count() or 1) if jobs is None else jobs, {}
        return
    try:
        from poslens.experiments import ray_engine
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise InputError(
            "--engine ray needs Ray, which is not installed; pip install 'poslens[cluster]'"
        ) from error
    with ray_engine.connected(address, jobs):
        yield ray_engine.cores() if jobs is None else jobs, {"runner": ray_engine.run_cells}
