"""`poslens decompose`: tables in every run, a page beside them, or one line and nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

WRITTEN = (
    *("covariances.parquet", "decomposition.parquet", "spectra.parquet", "symbols.parquet"),
    "terms.safetensors",
)


@pytest.fixture
def fresh(run: Path) -> Path:
    """A run not yet decomposed, in a folder of runs."""
    for name in (*WRITTEN, "decomposition.html"):
        (run / name).unlink(missing_ok=True)
    return run


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_folder_of_runs_gets_tables_and_a_page(poslens: Callable, fresh: Path) -> None:
    before = names(fresh.parent)
    done = poslens("decompose", fresh.parent)
    assert (done.code, done.err) == (0, "")
    new = {*(f"{fresh.name}/{name}" for name in WRITTEN), "decomposition.html"}
    assert names(fresh.parent) - before == new
    scheme, terms, page = done.out.splitlines()
    assert scheme.startswith("rope on distance, seed 0; heads measured: ")
    assert terms.startswith("  largest terms (share of variance within rows): content-content ")
    assert page == str(fresh.parent / "decomposition.html")


def test_a_run_gets_its_own_page(poslens: Callable, fresh: Path) -> None:
    assert poslens("decompose", fresh).out.splitlines()[-1] == str(fresh / "decomposition.html")
    assert (fresh / "decomposition.html").exists()


def test_as_json(poslens: Callable, fresh: Path) -> None:
    found = json.loads(poslens("decompose", fresh, "--json").out)
    assert set(found) == {"page", "decomposition", "terms", "spectra"}
    assert [(row["layer"], row["head"]) for row in found["decomposition"]] == [(0, 0), (0, 1)]
    assert found["terms"][0]["term"] == "content-content"
    assert len(found["spectra"]) == 2


def test_the_embedding_split_says_that_it_does_layer_0_alone(
    poslens: Callable, fresh: Path
) -> None:
    done = poslens("decompose", fresh, "--split", "embedding")
    assert done.code == 0
    assert done.out.startswith("layer 0 only: ")
    assert "embedding split ends with layer 0" in (fresh / "decomposition.html").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--split", "median"), "Expected one of ('mean', 'embedding')"),
        (("--device", "nonsense"), "device 'nonsense' is not there"),
        (("--sequences", "3"), "--sequences"),
    ],
)
def test_options_that_do_not_fit(
    poslens: Callable, fresh: Path, options: tuple[str, ...], words: str
) -> None:
    before = names(fresh.parent)
    assert words in poslens("decompose", fresh, *options).line
    assert names(fresh.parent) == before


def test_folders_without_runs(poslens: Callable, tmp_path: Path) -> None:
    Path("empty").mkdir()
    assert poslens("decompose", "empty").line.startswith("empty holds no runs; give a run folder")
    assert poslens("decompose", "missing").line.startswith("missing holds no runs")
    assert names(tmp_path) == {"empty"}


def test_one_untrained_run_among_others_leaves_all_as_they_were(
    poslens: Callable, fresh: Path
) -> None:
    last = Path(shutil.copytree(fresh, fresh.parent / "sinusoidal-distance-seed0"))
    (last / "model.safetensors").unlink()
    before = names(fresh.parent)
    line = poslens("decompose", fresh.parent).line
    assert line.startswith(f"{last / 'model.safetensors'} is missing: the run has not been trained")
    assert names(fresh.parent) == before
