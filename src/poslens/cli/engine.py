"""Which engine runs a grid: `--engine`, `--address` and `--jobs`, for all that run grids."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from poslens.errors import InputError

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Workers:
    """Who does the work."""

    jobs: int | None = None
    """Worker processes, one thread each [default: one a core]; results do not depend on it."""
    engine: Engine = "local"
    """local (processes here) or ray (a cluster; same results)."""
    address: str | None = None
    """Ray cluster: host:port, ray://host:port or auto [default: RAY_ADDRESS, else started here]."""
    device: str = "cpu"
    """cpu or cuda."""


@contextmanager
def engine(workers: Workers) -> Iterator[dict[str, Any]]:
    """What `reproduce`, `tune` and the like want to be told of the workers: jobs, device, runner.

    Ray is connected to for as long as the context lasts. Raises InputError where it is not
    installed, where no cluster answers, and for an address that nothing would use.
    """
    jobs, address = workers.jobs, workers.address
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}; use 1 or more")
    if workers.engine == "local":
        if address is not None:
            raise InputError(f"--address {address} is for a cluster; add --engine ray")
        yield {"jobs": (os.cpu_count() or 1) if jobs is None else jobs, "device": workers.device}
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
        yield {
            "jobs": ray_engine.cores() if jobs is None else jobs,
            "device": workers.device,
            "runner": ray_engine.run_cells,
        }
