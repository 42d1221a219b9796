"""`poslens claims`: an example, a registration, a verdict with its mark."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from poslens.claims import predictions

SECTION = (Path(__file__).parents[2] / "docs" / "definitions.md").read_text()
SECTION = SECTION.split("## Your own predictions\n")[1]

MINE = """
[[prediction]]
id = "above-chance"
claim = "RoPE is above chance."
metric = "accuracy"
scheme = "rope"
task = "distance"
above = 0.0
"""


def test_the_documents_example(poslens: Callable, in_process: list[str]) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", SECTION, re.S)
    (commands,) = re.findall(r"```console\n(.*?)```", SECTION, re.S)
    Path("mine.toml").write_text(example)
    for line in commands.splitlines():
        done = poslens(*shlex.split(line.removeprefix("$ poslens ")))
        assert done.code == 0, done.err
    assert len(in_process) == 4
    first, _, mark, second, *_ = done.out.splitlines()
    assert first.startswith("alibi-counts    inconclusive")
    assert second.startswith("rope-spread     inconclusive")
    assert mark.startswith("  registered before its runs began; registered on 20")
    (row, _) = json.loads(poslens("claims", "score", "mine.toml", "runs/mine", "--json").out)
    assert row["claim"] == "alibi-counts"
    assert row["standing"] == "registered before its runs began"
    assert row["registered"] < row["began"]
    assert len(row["numbers"]) == 2


def test_new_writes_an_example_then_registers_it(poslens: Callable) -> None:
    first = poslens("claims", "new", "there/mine.toml")
    assert first.out.startswith("there/mine.toml: an example; change it, then register it")
    example = Path("there/mine.toml").read_text()
    assert "poslens claims new there/mine.toml" in example
    second = poslens("claims", "new", "there/mine.toml")
    assert "alibi-counts and rope-spread registered on 20" in second.out
    registered = Path("there/mine.toml").read_text()
    assert registered.startswith(example)
    third = json.loads(poslens("claims", "new", "there/mine.toml", "--json").out)
    assert third["registered"] in registered  # it keeps its time
    assert Path("there/mine.toml").read_text() == registered


def test_one_registered_after_its_runs_began_is_marked(poslens: Callable, run: Path) -> None:
    Path("mine.toml").write_text(MINE)
    score = ("claims", "score", "mine.toml", run)
    assert "NOT REGISTERED; runs began on 20" in poslens(*score).out
    poslens("claims", "new", "mine.toml")
    done = poslens(*score)
    assert done.code == 0  # the mark is no error, and changes no verdict
    assert done.out.startswith("above-chance    inconclusive, leaning reproduced    RoPE is above")
    assert "REGISTERED AFTER ITS RUNS BEGAN" in done.out
    Path("mine.toml").write_text(Path("mine.toml").read_text().replace("0.0", "0.1"))
    assert "CHANGED SINCE IT WAS REGISTERED" in poslens(*score).out
    line = poslens("claims", "new", "mine.toml").line
    assert line.startswith("mine.toml has changed since it was registered on")


def test_scoring_leaves_files_alone(poslens: Callable, run: Path) -> None:
    Path("mine.toml").write_text(MINE)
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    poslens("claims", "score", "mine.toml", run.parent)
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('"accuracy"', '"acuracy"'), "prediction 1 has metric 'acuracy'; use one of: accuracy"),
        (('"rope"', '"rpoe"'), "prediction 'above-chance': unknown scheme 'rpoe'; did you mean"),
        (('"distance"', '"distanse"'), "prediction 'above-chance': unknown task 'distanse': did"),
        (("above = 0.0", 'above = { scheme = "mlaa" }'), "unknown scheme 'mlaa'; did you mean"),
        (("above = 0.0", ""), "prediction 1 has no comparison; give one of: above, below"),
        (("[[prediction]]", "[[prediction]"), "mine.toml is no TOML file"),
    ],
)
def test_bad_files(poslens: Callable, run: Path, change: tuple[str, str], words: str) -> None:
    bad = MINE.replace(*change)
    Path("mine.toml").write_text(bad)
    assert words in poslens("claims", "new", "mine.toml").line
    assert Path("mine.toml").read_text() == bad
    assert words in poslens("claims", "score", "mine.toml", run).line


def test_bad_input(poslens: Callable, run: Path) -> None:
    assert poslens("claims").line == "claims takes 'new FILE' or 'score FILE DIR'"
    assert poslens("claims", "nwe").line.endswith("or 'score FILE DIR', not 'nwe'")
    assert "mine.toml is missing" in poslens("claims", "score", "mine.toml", run).line
    Path("mine.toml").write_text(MINE)
    assert "see 'poslens claims score --help'" in poslens("claims", "score", "mine.toml").line
    line = poslens("claims", "score", "mine.toml", "nowhere").line
    assert line == "nowhere holds no runs; give a run folder or a folder of runs"
    assert "is no TOML file" in poslens("claims", "new", run).line
    layer = MINE.replace('"accuracy"', '"largest effect"\nlayer = 7')
    Path("mine.toml").write_text(layer)
    line = poslens("claims", "score", "mine.toml", run).line
    assert line.endswith("on RoPE on distance, layer 7, but these runs have layers 0 to 0")


@pytest.mark.parametrize("command", ["new", "score"])
def test_help_of_both(poslens: Callable, command: str) -> None:
    done = poslens("claims", command, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: poslens claims {command}")


def test_the_example_names_every_metric() -> None:
    from poslens.claims.registration import TEMPLATE

    for metric in (*predictions.COLUMNS, "accuracy", "loss", "excess", "sequences"):
        assert metric in TEMPLATE
