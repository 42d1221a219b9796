"""`poslens reproduce`: from nothing to a report; option before file before profile."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from poslens.claims import CLAIMS
from poslens.cli import reproduce as command
from poslens.errors import InputError
from poslens.experiments.profiles import Profile, profile_named
from poslens.experiments.rates import Rates

SMALL = """
schemes = ["rope", "nope"]
[tasks.count]
[model]
layers = 1
heads = 2
width = 8
[training]
sequences = 128
batch = 16
"""


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch, poslens: Callable) -> Callable[..., Any]:
    """The profile that a command line asks for, without running it."""
    asked: list[Any] = []

    def fake(profile: Profile, folder: Path, jobs: int, **rest: object) -> None:
        asked.append((profile, folder, jobs))
        raise InputError("enough")

    monkeypatch.setattr(command, "reproduce", fake)

    def run(*arguments: str) -> Any:
        assert poslens("reproduce", *arguments).line == "enough"
        return asked[-1]

    return run


def test_the_default_is_the_quick_profile(resolved: Callable) -> None:
    profile, folder, _ = resolved()
    assert (profile, folder) == (profile_named("quick"), Path("runs/quick"))


def test_a_file_comes_before_the_profile_and_an_option_before_both(resolved: Callable) -> None:
    Path("study.toml").write_text(
        """
        profile = "smoke"
        schemes = ["rope", "rope@2"]
        seeds = [4, 5]
        [tasks.count]
        most = 5
        [model]
        layers = 1
        [training]
        batch = 8
        """
    )
    smoke = profile_named("smoke")
    profile, folder, _ = resolved("--config", "study.toml")
    assert (profile.name, folder) == ("smoke", Path("runs/smoke"))
    assert (profile.schemes, profile.seeds) == (("rope", "rope@2"), (4, 5))
    assert profile.tasks == {"count": smoke.tasks["count"] | {"most": 5}}
    assert (profile.model.layers, profile.model.width) == (1, smoke.model.width)
    assert profile.training["count"].batch == 8
    assert profile.training["count"].sequences == smoke.training["count"].sequences

    profile, folder, jobs = resolved(
        *("--config", "study.toml", "--profile", "quick", "--schemes", "mla", "--seeds", "7"),
        *("--out", "there", "--jobs", "5"),
    )
    assert (profile.name, folder, jobs) == ("quick", Path("there"), 5)
    assert (profile.schemes, profile.seeds) == (("mla",), (7,))
    assert profile.tasks == {"count": profile_named("quick").tasks["count"] | {"most": 5}}
    assert (profile.model.layers, profile.model.width) == (1, 64)
    assert profile.training["count"].batch == 8


def test_a_rate_in_the_file_stands_in_for_the_tuned_ones(resolved: Callable) -> None:
    Path("study.toml").write_text("[training]\nlearning_rate = 0.5")
    profile, _, _ = resolved("--config", "study.toml")
    assert {cell.training.learning_rate for cell in profile.cells(Rates())} == {0.5}
    assert len(profile.cells(Rates())) == 18


def test_options_choose_schemes_tasks_and_seeds(resolved: Callable) -> None:
    profile, _, _ = resolved("--schemes", "rope", "mla", "--tasks", "distance", "--seeds", "0", "1")
    assert [cell.name for cell in profile.cells(Rates())] == [
        *("rope-distance-seed0", "mla-distance-seed0"),
        *("rope-distance-seed1", "mla-distance-seed1"),
    ]


def test_from_nothing_to_a_report_and_again(poslens: Callable, in_process: list[str]) -> None:
    Path("study.toml").write_text(SMALL)
    asked = ("reproduce", "--profile", "smoke", "--config", "study.toml", "--out", "out")
    done = poslens(*asked)
    assert done.code == 0
    assert in_process == ["rope-count-seed0", "nope-count-seed0"]
    assert done.err.splitlines() == ["[1/2] rope-count-seed0", "[2/2] nope-count-seed0"]
    *verdicts, report = done.out.splitlines()
    assert report == "report: out/report.html"
    assert [line.split("  ")[0] for line in verdicts] == [claim.id for claim in CLAIMS]
    page = Path("out/report.html").read_text()
    assert "RoPE" in page

    again = poslens(*asked, "--json")
    assert len(in_process) == 2  # kept
    assert again.err == "2 of 2 runs are finished and kept\n"
    told = json.loads(again.out)
    assert told["report"] == "out/report.html"
    assert [row["claim"] for row in told["ledger"]] == [claim.id for claim in CLAIMS]

    more = poslens(*asked, "--schemes", "rope", "mla", "nope")
    assert more.err.splitlines() == [
        "2 of 3 runs are finished and kept",
        "[3/3] mla-count-seed0",
    ]
    assert json.loads(Path("out/experiment.json").read_text())["schemes"] == ["rope", "nope", "mla"]
