"""`list`, `data`, `ablate`, `tune` and `report`: what they print and what they write."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from poslens.claims import CLAIMS
from poslens.encodings import ENCODINGS
from poslens.experiments import corrections as grid
from poslens.experiments.profiles import PROFILES
from poslens.experiments.rates import COLUMNS, NEAR_BEST
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


ABLATION = ("effects", "concentration", "necessity", "sufficiency", "interactions")


def test_ablate_writes_the_tables_and_tells_them(poslens: Callable, run: Path) -> None:
    tables = {name: run / f"{name}.parquet" for name in ABLATION}
    before = {name: path.read_bytes() for name, path in tables.items()}
    for path in tables.values():
        path.unlink()
    found = json.loads(poslens("ablate", run.parent, "--sets", "--json").out)
    assert {name: path.read_bytes() for name, path in tables.items()} == before
    assert tuple(found) == ABLATION
    effects = found["effects"]
    assert {(row["scheme"], row["task"], row["seed"]) for row in effects} == {
        ("rope", "distance", 0)
    }
    # every head of the model, one layer of two heads as a whole, and each of them
    heads = {(row["target"], row["method"], row["metric"], row["head"]) for row in effects}
    assert heads == {
        (*edit, metric, head)
        for edit in (("head", "zero"), ("position", "none"))
        for metric in ("accuracy", "loss", "margin")
        for head in (-1, 0, 1)
    }
    words = poslens("ablate", run, "--sets").out.splitlines()
    assert words[0] == "rope on distance, seed 0"
    assert words[1].startswith("  head zero; by layer: ")
    zeroed = [row for row in effects if row["target"] == "head" and row["metric"] == "accuracy"]
    best = max(row["effect"] for row in zeroed if row["head"] >= 0)
    assert f": accuracy falls by {best:.3f} [" in words[2]
    # A run of a few steps has nothing to lose.
    needed = "heads needed to lose what can be lost: undecidable, there is nothing to lose"
    assert [line.strip() for line in words].count(needed) == 2


def test_ablate_keeps_what_other_edits_found(poslens: Callable, run: Path) -> None:
    before = pl.read_parquet(run / "effects.parquet")
    assert poslens("ablate", run, "--methods", "resample", "--draws", "1").code == 0
    after = pl.read_parquet(run / "effects.parquet")
    assert after.head(before.height).equals(before)
    added = after.tail(after.height - before.height)
    assert set(added.select("target", "method").rows()) == {
        ("head", "resample"),
        ("position", "resample"),
    }


def test_what_is_measured_in_part_is_told_and_not_written(poslens: Callable, run: Path) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    asked = ("ablate", run, "--targets", "head", "--metrics", "accuracy")
    done = poslens(*asked, "--heads", "1", "--layers", "0")
    *told, last = done.out.splitlines()
    assert [line.split(": ")[1] for line in told] == [
        *("every head of the model, head zero", "layer 0 whole, head zero"),
        "layer 0 head 1, head zero",
    ]
    assert last.startswith("told, not written")
    other = json.loads(poslens(*asked, "--seed", "7", "--json").out)["effects"]
    own = pl.read_parquet(run / "effects.parquet").filter(metric="accuracy", target="head")
    assert [row["head"] for row in other] == own["head"].to_list()
    assert [row["intact"] for row in other] != own["intact"].to_list()
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_published_measurements_stand_beside_the_right_one(poslens: Callable, run: Path) -> None:
    done = poslens("ablate", run, "--targets", "head", "--published")
    assert "  published loop: furthest off in layer 0 head " in done.out
    effects = pl.read_parquet(run / "effects.parquet")
    assert set(effects.filter(target="head")["method"]) == {
        *("zero", "published loop", "published data")
    }


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
    assert len(in_process) == 4  # kept
    assert [list(row) for row in rows] == [list(COLUMNS)] * 4
    table = pl.DataFrame(rows)
    level = table.filter(pl.col("accuracy") >= pl.col("accuracy").max() - NEAR_BEST).sort("loss")
    assert float(best.split()[2]) == level["learning_rate"][0]


def test_report_says_where_it_is(poslens: Callable, run: Path) -> None:
    done = poslens("report", run.parent)
    assert (done.code, done.out) == (0, f"{run.parent / 'report.html'}\n")
    assert (run.parent / "report.html").stat().st_size > 10_000
    told = json.loads(poslens("report", run.parent, "--json").out)
    assert told == {"report": str(run.parent / "report.html")}


def test_lengths_tells_accuracy_by_length(poslens: Callable, run: Path) -> None:
    path = run / "lengths.parquet"
    before = path.read_bytes()
    path.unlink()
    rows = json.loads(poslens("lengths", run.parent, "--json").out)
    assert path.read_bytes() == before
    assert [row["factor"] for row in rows] == [1, 2, 3, 4]
    path.unlink()
    assert poslens("lengths", run, "--factors", "3").code == 0
    out = poslens("lengths", run, "--factors", "1").out  # beside what is there
    first, third = (rows[index]["accuracy"] for index in (0, 2))
    assert out == f"rope on distance, seed 0: accuracy 1x {first:.3f}, 3x {third:.3f}\n"
    assert "factors are (0,)" in poslens("lengths", run, "--factors", "0").line


def test_corrections_tell_the_claims_under_each_switch(
    poslens: Callable, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = grid.corrections
    monkeypatch.setattr(
        grid,
        "corrections",
        lambda profile: {
            name: own for name, own in every(profile).items() if name in ("standard", "slopes")
        },
    )
    asked = ("corrections", "--profile", "smoke", "--schemes", "alibi", "--tasks", "distance")
    done = poslens(*asked, "--out", "c")
    assert done.code == 0, done.err
    assert in_process == ["standard-alibi-distance-seed0", "slopes-alibi-distance-seed0"]
    heading, standard, slopes, path, page = done.out.splitlines()
    assert heading.split()[:3] == ["correction", "C1", "C2"]
    assert (standard.split()[0], slopes.split()[0]) == ("standard", "slopes")
    assert (path, page) == ("c/corrections.csv", "c/corrections.html")
    rows = json.loads(poslens(*asked, "--out", "c", "--json").out)
    assert len(in_process) == 2  # kept
    assert pl.read_csv(path)["verdict"].to_list() == [row["verdict"] for row in rows]
    assert "the study's code has no 'kerple'" in poslens(*asked[:4], "kerple").line


def test_interventions_are_told_and_kept(poslens: Callable, in_process: list[str]) -> None:
    asked = ("interventions", "--profile", "smoke", "--seeds", "3", "--out", "i")
    done = poslens(*asked)
    assert done.code == 0, done.err
    names = [f"{name}-rope-distance-seed3" for name in ("lower", "higher", "tied", "off")]
    assert in_process == ["rope-distance-seed3", *names, "bases-rope-bases-distance-seed3"]
    *lines, path = done.out.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("control", "lower", "higher", "tied", "off", "bases")
    ]
    rows = json.loads(poslens(*asked, "--json").out)
    assert len(in_process) == 6  # kept
    Path("i.toml").write_text('profile = "smoke"\nseeds = [3]\n[model]\nheads = 2\n')
    line = poslens("interventions", "--config", "i.toml", "--out", "i").line
    assert "model.heads is 4 there, 2 here" in line
    assert pl.read_csv(path)["leader"].to_list() == [row["leader"] for row in rows]


def test_collected_results_give_the_same_report(poslens: Callable, run: Path) -> None:
    done = poslens("collect", run.parent, "--out", "kept")
    assert (done.code, done.out) == (0, "kept\n")
    for folder in (run.parent, Path("kept")):
        assert poslens("report", folder).code == 0
    assert Path("kept/summary.md").read_text() == (run.parent / "summary.md").read_text()
    assert Path("kept/report.html").read_text() == (run.parent / "report.html").read_text()
    Path("other").mkdir()
    (Path("other") / "mine").write_text("")
    assert "choose another" in poslens("collect", run.parent, "--out", "other").line


def test_seeds_of_a_scheme_are_told_together(poslens: Callable, run: Path) -> None:
    other = Path(shutil.copytree(run, run.parent / "rope-distance-seed1"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"seed": 1}))
    done = poslens("ablate", run.parent, "--jobs", "1", "--targets", "head")
    assert done.err.splitlines() == ["[1/2] rope-distance-seed0", "[2/2] rope-distance-seed1"]
    assert "rope on distance, first layer, head zero, 2 seeds: undecidable 2" in done.out


def test_edits_of_one_run_are_told_as_they_are_measured(poslens: Callable, run: Path) -> None:
    done = poslens("ablate", run)
    assert done.err.splitlines() == ["measured: head zero", "measured: position none"]
