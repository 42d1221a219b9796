"""When predictions were registered, and whether that was before their runs began.

Registering writes the time, and a digest of what was predicted, at the end of the file itself. It
shows what was forgotten or changed later, not what was forged: for proof against that, publish the
file.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from poslens.claims.base import Cell
from poslens.errors import InputError
from poslens.results import described_runs

Label = Literal[
    "registered before its runs began",
    "REGISTERED AFTER ITS RUNS BEGAN",
    "CHANGED SINCE IT WAS REGISTERED",
    "NOT REGISTERED",
    "registered, but when its runs began is not known",
]

TEMPLATE = """\
# Predictions, judged by the rules of "Your own predictions" in docs/definitions.md.
# Change these, register them (poslens claims new {file}), train, then score them
# (poslens claims score {file} DIR). Registered before the runs begin, they count as predicted.

[[prediction]]
id = "alibi-counts"
claim = "ALiBi counts better than RoPE."
metric = "accuracy"        # or loss, excess (accuracy above the baseline), sequences (to solve)
scheme = "alibi"
task = "count"
above = {{ scheme = "rope", by = 0.02 }}  # above or below: a number, another scheme, task or layer

[[prediction]]
id = "rope-spread"
claim = "No single first-layer head carries RoPE's accuracy on distance."
metric = "largest effect"  # or second effect, layer effect, top share, effective heads,
scheme = "rope"            # deposit index; or verdict, with equals = "..." or differs = "..."
task = "distance"
layer = 0
below = 0.45
"""


@dataclass(frozen=True)
class Registration:
    """What registering wrote: when, and the digest of the predictions as they stood."""

    time: datetime
    digest: str


@dataclass(frozen=True)
class Standing:
    """How a prediction stands to its runs; `began` is the earliest of their beginnings noted."""

    label: Label
    registered: datetime | None
    began: datetime | None

    @property
    def words(self) -> str:
        words: str = self.label
        if self.registered is not None:
            words += f"; registered on {minute(self.registered)}"
        if self.began is not None:
            words += f"; runs began on {minute(self.began)}"
        return words

    @property
    def row(self) -> dict[str, str | None]:
        """For JSON, times in ISO 8601."""
        times = {"registered": self.registered, "began": self.began}
        return {"standing": self.label} | {
            name: None if time is None else iso(time) for name, time in times.items()
        }


def iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")


def minute(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def digest(values: dict[str, Any]) -> str:
    """SHA-256 of a file's predictions; comments, spaces and the order of keys do not count."""
    plain = json.dumps(values["prediction"], sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()


def registration(values: dict[str, Any], where: str) -> Registration | None:
    """The registration in a file's values; None where there is none.

    Raises InputError where it is not as `register` writes it.
    """
    found = values.get("registered")
    if found is None:
        return None
    time, text = (found.get(key) if isinstance(found, dict) else None for key in ("time", "digest"))
    if not isinstance(time, datetime) or time.tzinfo is None or not isinstance(text, str):
        raise InputError(
            f"{where} has a damaged table [registered]; delete it and register anew with "
            f"'poslens claims new {where}'"
        )
    return Registration(time, text)


def register(path: Path, values: dict[str, Any]) -> Registration:
    """Add the registration of now to the file that holds `values`, in one step.

    A file that is registered as it stands keeps its registration. Raises InputError where it has
    changed since.
    """
    known = registration(values, str(path))
    made = Registration(_now(), digest(values))
    if known is not None:
        if known.digest == made.digest:
            return known
        raise InputError(
            f"{path} has changed since it was registered on {minute(known.time)}; delete its table "
            "[registered] to register it as it stands now"
        )
    text = path.read_text().rstrip("\n")
    line = f'time = {iso(made.time)}\ndigest = "{made.digest}"'
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_text(f"{text}\n\n[registered]  # by 'poslens claims new'\n{line}\n")
    unfinished.replace(path)
    return made


def standing(values: dict[str, Any], where: str, began: Iterable[datetime | None]) -> Standing:
    """How a file's registration stands to when the runs it is about began (None: not noted).

    Raises InputError where the registration is damaged.
    """
    found, times = registration(values, where), list(began)
    first = min((time for time in times if time is not None), default=None)
    label: Label = "registered before its runs began"
    if found is None:
        return Standing("NOT REGISTERED", None, first)
    if found.digest != digest(values):
        label = "CHANGED SINCE IT WAS REGISTERED"
    elif first is not None and first <= found.time:
        label = "REGISTERED AFTER ITS RUNS BEGAN"
    elif None in times:
        label = "registered, but when its runs began is not known"
    return Standing(label, found.time, first)


def beginnings(folder: Path) -> dict[Cell, list[datetime | None]]:
    """When each run of `folder` began, finished or not; None where it is not noted."""
    found: dict[Cell, list[datetime | None]] = {}
    for it in described_runs(folder):
        cell = Cell(it["config"]["scheme"], it["config"]["task"])
        found.setdefault(cell, []).append(_time(it["environment"]))
    return found


def _time(environment: dict[str, Any]) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(environment.get("started")))
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def _now() -> datetime:
    """The time in whole milliseconds, as files hold it."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
