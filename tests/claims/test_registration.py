"""When predictions were registered, against when their runs began."""

import json
import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from poslens.claims import registration
from poslens.claims.base import Cell
from poslens.claims.predictions import read_predictions
from poslens.claims.registration import beginnings, digest, register, standing
from poslens.errors import InputError

PAGE = (Path(__file__).parents[2] / "docs" / "definitions.md").read_text()
SECTION = PAGE.split("## Your own predictions\n")[1]


def written(folder: Path, text: str = registration.TEMPLATE) -> Path:
    path = folder / "mine.toml"
    path.write_text(text.format(file="mine.toml"))
    return path


def values_of(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())


def test_the_example_is_a_file_of_predictions(tmp_path: Path) -> None:
    values = values_of(written(tmp_path))
    assert [it.id for it in read_predictions(values, "mine.toml")] == [
        "alibi-counts",
        "rope-spread",
    ]


def test_registering_adds_time_and_digest_and_nothing_else(tmp_path: Path) -> None:
    path = written(tmp_path)
    text, before = path.read_text(), datetime.now(UTC)
    made = register(path, values_of(path))
    assert path.read_text().startswith(text.rstrip("\n") + "\n\n[registered]")
    values = values_of(path)
    assert before - timedelta(milliseconds=1) <= values["registered"]["time"] <= datetime.now(UTC)
    assert values["registered"] == {"time": made.time, "digest": made.digest}
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.toml"]
    registered = path.read_text()
    assert register(path, values) == made  # once is enough
    assert path.read_text() == registered


def test_a_changed_prediction_is_seen_and_a_changed_comment_is_not(tmp_path: Path) -> None:
    path = written(tmp_path)
    register(path, values_of(path))
    text = path.read_text()
    path.write_text(f"# a comment\n{text.replace('by = 0.02', 'by=0.02')}")
    assert standing(values_of(path), "mine.toml", []).label == "registered before its runs began"
    path.write_text(text.replace("by = 0.02", "by = 0.01"))
    found = standing(values_of(path), "mine.toml", [])
    assert found.label == "CHANGED SINCE IT WAS REGISTERED"
    with pytest.raises(
        InputError, match=r"mine.toml has changed since it was registered on 20\d\d"
    ):
        register(path, values_of(path))


@pytest.mark.parametrize(
    "table",
    [
        "registered = 3",
        "[registered]",
        "[registered]\ntime = 2026-01-01T00:00:00\ndigest = ''",
        "[registered]\ntime = 2026-01-01T00:00:00Z",
    ],
)
def test_a_damaged_registration_is_named(table: str) -> None:
    values = tomllib.loads(table) | {"prediction": []}
    with pytest.raises(InputError, match=r"mine.toml has a damaged table \[registered\]; delete"):
        standing(values, "mine.toml", [])


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EARLIER, LATER = NOW - timedelta(hours=1), NOW + timedelta(hours=1)


@pytest.mark.parametrize(
    ("began", "label"),
    [
        ([], "registered before its runs began"),
        ([LATER, LATER], "registered before its runs began"),
        ([LATER, EARLIER], "REGISTERED AFTER ITS RUNS BEGAN"),
        ([NOW], "REGISTERED AFTER ITS RUNS BEGAN"),
        ([None, EARLIER], "REGISTERED AFTER ITS RUNS BEGAN"),
        ([LATER, None], "registered, but when its runs began is not known"),
    ],
)
def test_before_or_after_its_runs_began(began: list[datetime | None], label: str) -> None:
    values: dict[str, Any] = {"prediction": [{"id": "it"}]}
    assert standing(values, "mine.toml", began).label == "NOT REGISTERED"
    values["registered"] = {"time": NOW, "digest": digest(values)}
    found = standing(values, "mine.toml", began)
    assert found.label == label
    known = [time for time in began if time is not None]
    assert found.row == {
        "standing": label,
        "registered": "2026-03-01T12:00:00.000+00:00",
        "began": min(known).isoformat(timespec="milliseconds") if known else None,
    }
    assert "registered on 2026-03-01 12:00 UTC" in found.words


def test_beginnings_are_those_of_all_runs_finished_or_not(tmp_path: Path) -> None:
    def run(name: str, scheme: str, environment: str | None) -> None:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(
            json.dumps({"scheme": scheme, "task": "count", "seed": 0})
        )
        if environment is not None:
            (folder / "environment.json").write_text(environment)

    run("a", "rope", json.dumps({"started": NOW.isoformat()}))
    run("b", "rope", json.dumps({"started": LATER.isoformat(), "torch": "2.13"}))
    run("c", "rope", None)
    run("d", "alibi", "{")
    run("e", "alibi", json.dumps({"started": "2026-03-01T12:00:00"}))  # no time zone
    run("f", "alibi", json.dumps({"torch": "2.13"}))
    (tmp_path / "figures").mkdir()
    (tmp_path / "experiment.json").write_text("{}")
    assert beginnings(tmp_path) == {
        Cell("rope", "count"): [NOW, LATER, None],
        Cell("alibi", "count"): [None, None, None],
    }
    assert beginnings(tmp_path / "a") == {Cell("rope", "count"): [NOW]}


def test_every_mark_is_explained() -> None:
    for label in get_args(registration.Label):
        assert re.search(rf"^\| {re.escape(label)} \| ", SECTION, re.M)
