"""A run on disk: one folder, every file written in one step, damage named.

config.json        what was asked, resolved
metrics.jsonl      one line per evaluation, no clock values: equal for equal runs
timings.jsonl      the clock values of the same evaluations
train_state.safetensors   the last checkpoint; gone once the run is finished
model.safetensors  the trained weights
snapshots/step-N.safetensors   weights along the way, where settings ask for them
environment.json   when it began; at the end versions, processor, commit, seconds, peak memory
*.parquet          result tables (`poslens.results`); `summary` is written last
"""

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from poslens.errors import InputError
from poslens.training.settings import RunSettings

TRAIN_STATE = "train_state.safetensors"
MODEL = "model.safetensors"
SNAPSHOTS = "snapshots"
ENVIRONMENT = "environment.json"


class RunFolder:
    """Access to the files of one run."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def finished(self) -> bool:
        return (self.path / "summary.parquet").exists() and (self.path / MODEL).exists()

    def open(self, run: RunSettings) -> None:
        """Make the folder, or check that the one that is there holds the same run.

        Raises InputError where it holds another run, is no run folder, or cannot be written.
        """
        self.check(run)
        make_folder(self.path)
        if not (self.path / "config.json").exists():
            write_text(self.path / "config.json", json.dumps(to_json(run), indent=2) + "\n")
        if not (self.path / ENVIRONMENT).exists():
            self.note(started=datetime.now(UTC).isoformat(timespec="milliseconds"))

    def note(self, **facts: Any) -> None:
        """Add to environment.json. Raises InputError where what is there is damaged."""
        path = self.path / ENVIRONMENT
        known = read_json(path) if path.exists() else {}
        write_text(path, json.dumps(known | facts, indent=2) + "\n")

    def check(self, run: RunSettings) -> None:
        """Raises InputError where the folder holds another run or is no run folder."""
        if (self.path / "config.json").exists():
            # Resolved: a folder older than a setting has its default.
            difference = first_difference(to_json(self.settings()), to_json(run))
            if difference:
                raise InputError(
                    f"{self.path} holds another run ({difference}); "
                    "choose another folder or delete this one"
                )
        elif holds_files(self.path):
            raise InputError(
                f"{self.path} exists and is not a run folder; choose a folder that is new or empty"
            )

    def config(self) -> dict[str, Any]:
        """config.json as it stands. Raises InputError where it is missing or damaged."""
        return read_json(self.path / "config.json")

    def settings(self) -> RunSettings:
        """The run's settings. Raises InputError where config.json is damaged."""
        return RunSettings.from_json(self.config(), self.path / "config.json")

    def save_tensors(self, name: str, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
        """Write tensors and JSON notes as one safetensors file, in one step."""
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".tmp")
        contiguous = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
        save_file(contiguous, unfinished, metadata={"notes": json.dumps(notes)})
        unfinished.replace(path)

    def load_tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and notes back. Raises InputError where the file is missing or damaged."""
        path = self.path / name
        if not path.exists():
            raise InputError(f"{path} is missing: the run has not been trained; train it first")
        try:
            with safe_open(path, framework="pt") as stored:
                notes = json.loads(stored.metadata()["notes"])
                return {key: stored.get_tensor(key) for key in stored.keys()}, notes  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise InputError(
                f"{path} is damaged ({error}); delete the folder {self.path} and run again"
            ) from error

    def snapshots(self) -> list[int]:
        """The steps whose weights were kept, in order."""
        names = [path.stem for path in (self.path / SNAPSHOTS).glob("step-*.safetensors")]
        return sorted(int(name.removeprefix("step-")) for name in names)


def snapshot_name(step: int) -> str:
    """Where a run folder keeps the weights after so many steps."""
    return f"{SNAPSHOTS}/step-{step}.safetensors"


def to_json(run: RunSettings) -> dict[str, Any]:
    """The run's settings as JSON would read them back: tuples become lists."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(run)))
    return plain


def first_difference(found: Any, asked: Any, where: str = "") -> str | None:
    """Where two JSON values differ first, in words, or None."""
    if isinstance(found, dict) and isinstance(asked, dict):
        for key in [*found, *(key for key in asked if key not in found)]:
            inner = f"{where}.{key}" if where else key
            if difference := first_difference(found.get(key), asked.get(key), inner):
                return difference
        return None
    return None if found == asked else f"{where} is {found!r} there, {asked!r} here"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises InputError where it is missing or damaged."""
    try:
        value = json.loads(path.read_text())
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; give a folder that poslens has made") from error
    except ValueError as error:
        raise InputError(
            f"{path} is damaged ({error}); delete the folder {path.parent} and run again"
        ) from error
    return value


def holds_files(path: Path) -> bool:
    """Whether there is anything at `path` but an empty folder, or what a killed write left."""
    if not path.is_dir():
        return path.exists()
    return any(entry.suffix != ".tmp" for entry in path.iterdir())


def make_folder(path: Path) -> None:
    """Make a folder that can be written to. Raises InputError where that is not allowed."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        allowed = os.access(path, os.W_OK)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot make {path} ({reason}); choose another folder") from error
    if not allowed:
        raise InputError(f"no permission to write to {path}; choose another folder")


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step: a reader sees the old one or the new one."""
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(text)
    unfinished.replace(path)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file. Raises InputError where it is missing or damaged."""
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("a line is no JSON object")
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; delete {path.parent} and run again") from error
    except ValueError as error:
        raise InputError(
            f"{path} is damaged ({error}); delete the folder {path.parent} and run again"
        ) from error
    return rows


def cut_back(path: Path, size: int) -> None:
    """Cut a JSON-lines file back to the `size` bytes it had at a checkpoint.

    Raises InputError where it has lost some of them or they are damaged.
    """
    found = path.stat().st_size if path.exists() else 0
    if found < size:
        raise InputError(
            f"{path} is damaged ({found} of {size} bytes are left); delete the folder "
            f"{path.parent} and run again"
        )
    if found:
        os.truncate(path, size)
        read_lines(path)


def pick_device(name: str) -> torch.device:
    """The device of that name. Raises InputError where this torch does not have it."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"{device.type} is not supported")
    except (RuntimeError, AssertionError) as error:
        there = "cpu, cuda" if torch.cuda.is_available() else "cpu"
        raise InputError(f"device {name!r} is not there; this machine has: {there}") from error
    return device


def runs_below(path: Path) -> list[Path]:
    """The run itself, or the runs directly below a folder. Raises InputError where none are."""
    if (path / "config.json").exists():
        return [path]
    found = sorted(entry.parent for entry in path.glob("*/config.json"))
    if not found:
        raise InputError(f"{path} holds no runs; give a run folder or a folder of runs")
    return found
