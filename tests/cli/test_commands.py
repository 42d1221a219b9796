"""`list`, `data`, `ablate`, `tune` and `report`: what they print and what they write."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from poslens.claims import CLAIMS
from poslens.encodings import ENCODINGS
from poslens.experiments.profiles import PROFILES
from poslens.experiments.rates import COLUMNS
from poslens.model import STUDY
from poslens.settings import make_settings
from poslens.tasks import TASKS, generator_for, make_task, to_frame


def test_list_names_all_there_is(poslens: Callable) -> None:
    sections = json.loads(poslens("list", "--json").out)
    assert {section: list(rows) for section, rows in sections.items()} == {
        "schemes": list(STUDY),
        "encodings": list(ENCODINGS),
        "tasks": list(TASKS),
        "profiles": list(PROFILES),
        "claims": [claim.id for claim in CLAIMS],
    }
    assert "between=20" in sections["tasks"]["distance"]
    assert sections["schemes"]["rope@1"].startswith("rope on 1 head, ")
    assert "MISSING" not in json.dumps(sections)


def test_list_in_words_shows_the_same(poslens: Callable) -> None:
    sections = json.loads(poslens("list", "--json").out)
    words = poslens("list").out
    for rows in sections.values():
        for name, text in rows.items():
            assert f"  {name:<17}{text}\n" in words


@pytest.mark.parametrize("name", ["distance", "count"])
def test_data_writes_what_the_task_makes(poslens: Callable, name: str) -> None:
    facts = json.loads(
        poslens("data", name, "--size", "50", "--seed", "3", "--set", "words=90", "--json").out
    )
    assert facts["file"] == f"{name}-seed3.parquet"
    task = make_task(name, make_settings(TASKS[name].Settings, {"words": 90}, name))
    expected = to_frame(task.sample(50, generator_for(3, "data")), task)
    table = pl.read_parquet(facts["file"])
    assert table.equals(expected)
    assert table.columns == ["tokens", "length", "label"]
    assert (facts["sequences"], facts["classes"]) == (50, task.classes)
    assert (facts["chance"], facts["baseline"]) == (task.chance, task.baseline().value)
    assert [path.name for path in Path().iterdir()] == [facts["file"]]


def test_data_of_a_seed_is_the_same_every_time(poslens: Callable) -> None:
    for out in ("deep/er/a.parquet", "b.parquet"):
        done = poslens("data", "distance", "--size", "20", "--out", out)
        assert done.out.startswith(f"{out}: 20 sequences of distance, 20 classes, up to 34 words;")
    poslens("data", "distance", "--size", "20", "--out", "c.parquet", "--seed", "1")
    first, second, other = (Path(n) for n in ("deep/er/a.parquet", "b.parquet", "c.parquet"))
    assert first.read_bytes() == second.read_bytes() != other.read_bytes()


def test_ablate_writes_the_tables_and_tells_them(poslens: Callable, run: Path) -> None:
    tables = {name: run / f"{name}.parquet" for name in ("effects", "concentration")}
    before = {name: path.read_bytes() for name, path in tables.items()}
    for path in tables.values():
        path.unlink()
    effects = json.loads(poslens("ablate", run.parent, "--json").out)
    assert {name: path.read_bytes() for name, path in tables.items()} == before
    assert {(row["scheme"], row["task"], row["seed"]) for row in effects} == {
        ("rope", "distance", 0)
    }
    # one layer of two heads and the layer as a whole, in accuracy and in loss
    assert [(row["metric"], row["head"]) for row in effects] == [
        (metric, head) for metric in ("accuracy", "loss") for head in (-1, 0, 1)
    ]
    words = poslens("ablate", run).out
    assert words.startswith("rope on distance, seed 0; by layer: ")
    best = max(row["effect"] for row in effects if row["metric"] == "accuracy" and row["head"] >= 0)
    assert f": accuracy falls by {best:.3f} [" in words.splitlines()[1]


def test_tune_prints_the_best_rates_and_its_table(
    poslens: Callable, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("tune", "--profile", "smoke", "--schemes", "rope", "--tasks", "count", "--out", "t")
    done = poslens(*asked)
    assert done.code == 0
    assert len(in_process) == 4
    heading, best, path = done.out.splitlines()
    assert heading.split() == ["scheme", "task", "best", "rate", "accuracy"]
    assert best.split()[:2] == ["rope", "count"]
    assert path == "t/learning_rates.csv"
    rows = json.loads(poslens(*asked, "--json").out)
    assert len(in_process) == 3  # kept
    assert [list(row) for row in rows] == [list(COLUMNS)] * 3
    rates = pl.DataFrame(rows).sort("accuracy", "loss", descending=[True, False])
    assert float(best.split()[2]) == rates["learning_rate"][0]


def test_report_says_where_it_is(poslens: Callable, run: Path) -> None:
    done = poslens("report", run.parent)
    assert (done.code, done.out) == (0, f"{run.parent / 'report.html'}\n")
    assert (run.parent / "report.html").stat().st_size > 10_000
    told = json.loads(poslens("report", run.parent, "--json").out)
    assert told == {"report": str(run.parent / "report.html")}
