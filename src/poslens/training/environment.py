"""Where a run was made: versions, processor, commit, seconds and memory."""

import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, processor, threads and their float32 GEMM rate; the commit of a checkout."""
    accelerator = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "poslens": version("poslens"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gemm_gflops": round(gemm_rate(device) / 1e9, 1),
        "device": str(device),
        "accelerator": accelerator,
        "commit": commit(),
    }


def gemm_rate(device: torch.device, size: int = 768, repeats: int = 5) -> float:
    """float32 operations a second of a square matrix product here and now: the best of a few."""
    square = torch.ones(size, size, device=device)
    best = 0.0
    for _ in range(repeats):
        started = time.perf_counter()
        (square @ square).sum().item()  # item() waits for an accelerator to finish
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the checkout this package lies in; None for an installed wheel."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


class Usage:
    """Seconds since it was made (and `before`, in processes that were killed), peak memory."""

    def __init__(self, before: float = 0.0) -> None:
        self.started = time.monotonic() - before

    def so_far(self) -> dict[str, Any]:
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return {"seconds": round(time.monotonic() - self.started, 2), "peak_memory_bytes": peak}
