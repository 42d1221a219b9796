import shutil
from pathlib import Path

import pytest

from poslens.report.provenance import facts, missing, missing_runs, read_provenance
from poslens.results import read


@pytest.fixture
def small(make, tmp_path: Path) -> Path:
    return make(tmp_path / "runs", schemes=("nope", "rope"), seeds=(0, 1))


def test_a_complete_folder_lacks_nothing(small: Path) -> None:
    assert missing(read(small), read_provenance(small)) == []


def test_facts_are_read_from_the_folder(small: Path) -> None:
    found = dict(facts(read(small), read_provenance(small)))
    assert found["Profile"] == "quick"
    assert found["Runs finished"] == "8 of 8"
    assert found["Seeds"] == "0 and 1"
    assert found["Budget"] == "64,000 sequences a run"
    assert found["Processor"] == "AMD EPYC 7B13"
    assert found["Software"] == "poslens 0.1.0, torch 2.13.0+cpu, python 3.11.7"
    assert found["Time"] == "6 min 4 s of training, runs added up"


def test_runs_never_started_are_missing(small: Path) -> None:
    shutil.rmtree(small / "rope-count-seed1")
    (sentence,) = missing(read(small), read_provenance(small))
    assert sentence == "Not finished: RoPE on count, seed 1."


def test_runs_under_way_are_missing(small: Path) -> None:
    (small / "nope-distance-seed0" / "summary.parquet").unlink()
    assert missing_runs(read(small), read_provenance(small)) == [("nope", "distance", 0)]


def test_without_an_experiment_the_grid_of_the_runs_is_taken_as_asked(small: Path) -> None:
    (small / "experiment.json").unlink()
    shutil.rmtree(small / "rope-count-seed1")
    tables, found = read(small), read_provenance(small)
    assert missing_runs(tables, found) == [("rope", "count", 1)]
    assert dict(facts(tables, found))["Profile"] == "custom"


def test_runs_without_ablation_are_named(small: Path) -> None:
    (small / "rope-count-seed1" / "effects.parquet").unlink()
    (sentence,) = missing(read(small), read_provenance(small))
    assert sentence == "No head ablation yet for RoPE on count, seed 1."


def test_damaged_notes_leave_facts_out(small: Path) -> None:
    for run in small.glob("*/environment.json"):
        run.write_text("{")
    assert "Processor" not in dict(facts(read(small), read_provenance(small)))
