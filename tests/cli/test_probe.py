"""`poslens probe`: two tables in every run, told in words, or one line and nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

WRITTEN = ("probes.parquet", "subspaces.parquet")
SIZE = ("--sequences", "60")


@pytest.fixture
def fresh(run: Path) -> Path:
    """A run not yet probed, in a folder of runs."""
    for name in WRITTEN:
        (run / name).unlink()
    return run


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_folder_of_runs_gets_its_tables(poslens: Callable, run: Path) -> None:
    expected = {name: (run / name).read_bytes() for name in WRITTEN}
    for name in WRITTEN:
        (run / name).unlink()
    before = names(run.parent)
    done = poslens("probe", run.parent, *SIZE)
    assert (done.code, done.err) == (0, "")
    assert names(run.parent) - before == {f"{run.name}/{name}" for name in WRITTEN}
    assert {name: (run / name).read_bytes() for name in WRITTEN} == expected
    (line,) = done.out.splitlines()  # rope has no table, so there are no angles to tell
    read = pl.read_parquet(run / "probes.parquet").filter(target="true", score="r2")["value"]
    told = " ".join(f"{value:.3f}" for value in read)
    assert line.startswith(f"rope on distance, seed 0: R2 of position by layers passed {told}; ")
    assert line.split("read from: ")[1] in ("none", "0", "1")


def test_json_has_the_tables_and_where_position_appears(poslens: Callable, run: Path) -> None:
    found = json.loads(poslens("probe", run, *SIZE, "--json").out)
    assert list(found) == ["probes", "subspaces", "appears"]
    assert [row["state"] for row in found["subspaces"]] == [0, 1]
    assert {row["mean_cos2"] for row in found["subspaces"]} == {None}
    (row,) = found["appears"]
    assert row["states"] == 2


def test_a_table_has_its_angles_told(
    poslens: Callable, tmp_path: Path, small: tuple[str, ...]
) -> None:
    assert poslens("train", "sinusoidal", *small, "--out", "table").code == 0
    done = poslens("probe", "table", *SIZE)
    first, second = done.out.splitlines()
    assert first.endswith("read from: 0")
    assert second.startswith("  mean cos2 with the input's position subspace (")
    assert second.split(": ")[1].split()[0] == "1.000"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sequences", "19"), "19 sequences are too few to fit a probe on one half and score"),
        (("--sequences", "-1"), "-1 sequences are too few"),
        (("--device", "nonsense"), "device 'nonsense' is not there"),
        (("--jobs", "0"), "jobs is 0; use 1 or more"),
        (("--split", "mean"), "--split"),
    ],
)
def test_options_that_do_not_fit(
    poslens: Callable, fresh: Path, options: tuple[str, ...], words: str
) -> None:
    before = names(fresh.parent)
    assert words in poslens("probe", fresh, *options).line
    assert names(fresh.parent) == before


def test_folders_without_runs(poslens: Callable, tmp_path: Path) -> None:
    Path("empty").mkdir()
    assert poslens("probe", "empty").line.startswith("empty holds no runs; give a run folder")
    assert poslens("probe", "missing").line.startswith("missing holds no runs")
    assert names(tmp_path) == {"empty"}


def test_one_unfinished_run_among_others_leaves_all_as_they_were(
    poslens: Callable, fresh: Path
) -> None:
    last = Path(shutil.copytree(fresh, fresh.parent / "sinusoidal-distance-seed0"))
    (last / "summary.parquet").unlink()
    before = names(fresh.parent)
    line = poslens("probe", fresh.parent, *SIZE).line
    assert line == f"{last} holds no finished run; run its training again to the end"
    assert names(fresh.parent) == before
