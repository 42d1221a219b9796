"""`theory`: what it prints and writes; runs without seeds; bad input."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from poslens.results import read

FEW = ("--examples", "64", "--initialisations", "1", "--batches", "8", "16")
TABLES = ("seeds", "seed_batches", "margins")


def test_it_writes_the_tables_and_tells_them(poslens: Callable, run: Path) -> None:
    before = {name: (run / f"{name}.parquet").read_bytes() for name in TABLES}
    for name in TABLES:
        (run / f"{name}.parquet").unlink()
    found = json.loads(poslens("theory", run.parent, *FEW, "--json").out)
    assert {name: (run / f"{name}.parquet").read_bytes() for name in TABLES} == before
    assert tuple(found) == (*TABLES, "undefined")
    assert found["undefined"] == {}
    assert {(row["step"], row["initialisation"]) for row in found["seeds"]} == {
        *((0, 0), (0, 1), (8, 0))
    }
    words = poslens("theory", run, *FEW).out.splitlines()
    assert words[0] == "rope on distance, seed 0"
    top = max(row["ratio"] for row in found["seeds"] if row["step"] == 8)
    assert words[2].startswith(f"  step 8: largest mu/sigma {top:.3f} (at least ")
    assert words[3].startswith("  largest mu/sigma at other initialisations: ")


def test_runs_without_position_are_left_out_and_said(
    poslens: Callable, run: Path, small: tuple[str, ...]
) -> None:
    other = run.parent / "nope-distance-seed0"
    assert poslens("train", "nope", *small, "--out", other).code == 0
    line = poslens("theory", other, *FEW).line
    assert line.startswith(f"{other}: seeds are undefined: the scheme has no position in its")
    done = poslens("theory", run.parent, *FEW)
    assert done.code == 0
    left_out, *rest = done.out.splitlines()
    assert left_out.startswith("nope-distance-seed0: left out; seeds are undefined")
    assert rest[0] == "rope on distance, seed 0"
    assert not (other / "seeds.parquet").exists()


def test_steps_are_those_that_were_kept(
    poslens: Callable, run: Path, small: tuple[str, ...]
) -> None:
    other = run.parent / "alibi-distance-seed0"
    config = Path("kept.toml")
    config.write_text("[training]\nsnapshots = 3\n")
    assert poslens("train", "alibi", *small, "--config", config, "--out", other).code == 0
    assert json.loads((other / "config.json").read_text())["training"]["snapshots"] == 3
    assert poslens("theory", other, *FEW, "--steps", "4", "0").code == 0
    assert set(read(other).seeds["step"]) == {0, 4}
    line = poslens("theory", other, *FEW, "--steps", "3").line
    assert line == (
        f"{other} has no weights of step 3; it has those of 0, 2, 4, 8 "
        "(a new run with --snapshots 12 keeps more)"
    )
    # The same option of train, and a folder in which one run lacks the step.
    line = poslens("train", "alibi", *small, "--snapshots", "2", "--out", other).line
    assert "training.snapshots is 3 there, 2 here" in line
    before = (other / "seeds.parquet").read_bytes()
    assert "has no weights of step 4" in poslens("theory", run.parent, *FEW, "--steps", "4").line
    assert (other / "seeds.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--examples", "64"), "a batch of 4096 is larger than the 64 examples; use smaller"),
        (("--examples", "64", "--batches", "0"), "batches are (0,); give whole numbers from 1"),
        (("--examples", "0"), "examples is 0; use 4 or more"),
        ((*FEW, "--initialisations", "-1"), "initialisations is -1; use 0 or more"),
        ((*FEW, "--jobs", "0"), "jobs is 0; use 1 or more"),
        ((*FEW, "--device", "tpu"), "device 'tpu' is not there; this machine has: cpu"),
    ],
)
def test_what_cannot_be(poslens: Callable, run: Path, asked: tuple[str, ...], words: str) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert words in poslens("theory", run, *asked).line
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_runs_that_are_unfinished_damaged_or_missing(poslens: Callable, run: Path) -> None:
    assert "holds no runs" in poslens("theory", "missing", *FEW).line
    other = Path(shutil.copytree(run, run.with_name("other")))
    (other / "seeds.parquet").write_bytes(b"x")
    assert f"{other / 'seeds.parquet'} is damaged" in poslens("theory", other, *FEW).line
    (run / "summary.parquet").unlink()
    assert (
        f"{run} holds no finished run; run its training again" in poslens("theory", run, *FEW).line
    )
