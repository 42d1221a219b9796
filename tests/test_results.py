"""The result tables: typed, written in one step, stacked over runs; damage is named."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from poslens import results
from poslens.errors import InputError

LABELS = [{"label": 0, "count": 3, "correct": 1}, {"label": 1, "count": 2, "correct": 2}]


def make_run(folder: Path, scheme: str = "rope", task: str = "distance", seed: int = 0) -> Path:
    """A finished run with as little as a run may have."""
    run = folder / f"{scheme}-{task}-seed{seed}"
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"scheme": scheme, "task": task, "seed": seed}))
    summary: dict[str, object] = dict.fromkeys(results.SUMMARY)
    results.write_table(run, "summary", [summary | {"accuracy": 0.5, "solved": False}])
    results.write_table(run, "labels", LABELS)
    return run


def test_tables_are_typed_even_when_empty(tmp_path: Path) -> None:
    for name, schema in results.RUN_TABLES.items():
        results.write_table(tmp_path, name, [])
        assert pl.read_parquet(tmp_path / f"{name}.parquet").schema == schema


def test_whole_numbers_become_the_type_of_their_column(tmp_path: Path) -> None:
    row = {"sequences": 8, "accuracy": 1, "loss": 0, "training_loss": 2}
    results.write_table(tmp_path, "curve", [row])
    table = pl.read_parquet(tmp_path / "curve.parquet")
    assert table.schema == results.CURVE
    assert table.to_dicts() == [row]


def test_a_value_of_the_wrong_type_is_refused_and_the_old_table_kept(tmp_path: Path) -> None:
    results.write_table(tmp_path, "labels", LABELS)
    with pytest.raises(pl.exceptions.PolarsError):
        results.write_table(tmp_path, "labels", [{"label": "two", "count": 1, "correct": 1}])
    assert pl.read_parquet(tmp_path / "labels.parquet").to_dicts() == LABELS


def test_a_write_cut_short_leaves_the_old_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.write_table(tmp_path, "labels", LABELS)

    def cut_short(self: pl.DataFrame, path: Path) -> None:
        path.write_bytes(b"PAR1 and no more")
        raise KeyboardInterrupt

    monkeypatch.setattr(pl.DataFrame, "write_parquet", cut_short)
    with pytest.raises(KeyboardInterrupt):
        results.write_table(tmp_path, "labels", [])
    assert pl.read_parquet(tmp_path / "labels.parquet").to_dicts() == LABELS


def test_read_stacks_runs_in_the_order_of_scheme_task_and_seed(tmp_path: Path) -> None:
    asked = [
        ("rope", "distance", 10),
        ("rope", "distance", 9),
        ("rope", "count", 0),
        ("mla", "x", 0),
    ]
    for scheme, task, seed in asked:
        make_run(tmp_path, scheme, task, seed)
    (tmp_path / "experiment.json").write_text("{}")
    tables = results.read(tmp_path)
    assert tables.summary.select("scheme", "task", "seed").rows() == sorted(asked)
    assert tables.labels.columns == ["scheme", "task", "seed", "label", "count", "correct"]
    assert tables.labels["label"].to_list() == [0, 1] * 4
    assert tables.effects.is_empty()
    assert tables.effects.schema == {**results.KEY, **results.EFFECTS}


def test_read_takes_a_run_itself(tmp_path: Path) -> None:
    run = make_run(tmp_path, "alibi", "count", 3)
    make_run(tmp_path, "rope")
    assert results.read(run).summary.select("scheme", "task", "seed").rows() == [
        ("alibi", "count", 3)
    ]


def test_a_run_without_summary_is_unfinished_and_left_out(tmp_path: Path) -> None:
    make_run(tmp_path, "rope")
    (make_run(tmp_path, "alibi") / "summary.parquet").unlink()
    tables = results.read(tmp_path)
    assert tables.summary["scheme"].to_list() == ["rope"]
    assert tables.labels["scheme"].unique().to_list() == ["rope"]


def test_tables_of_a_later_version_with_more_columns_are_read(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    table = pl.DataFrame(LABELS).select(pl.lit(7).alias("later"), pl.all().reverse())
    table.write_parquet(run / "labels.parquet")
    assert results.read(tmp_path).labels.columns == [*results.KEY, *results.LABELS]


def test_collected_runs_read_the_same_and_hold_no_weights(tmp_path: Path) -> None:
    for scheme, seed in (("rope", 1), ("alibi", 0), ("rope", 0)):
        run = make_run(tmp_path / "runs", scheme, "distance", seed)
        (run / "environment.json").write_text(json.dumps({"commit": f"{scheme}{seed}"}))
        (run / "model.safetensors").write_bytes(b"weights")
    (make_run(tmp_path / "runs", "t5") / "summary.parquet").unlink()  # unfinished
    (tmp_path / "runs" / "experiment.json").write_text('{"profile": "mine"}')
    out = tmp_path / "deep" / "kept"
    results.collect(tmp_path / "runs", out)
    before, after = results.read(tmp_path / "runs"), results.read(out)
    for name in results.RUN_TABLES:
        assert getattr(after, name).equals(getattr(before, name)), name
    described = results.described_runs(out)
    assert [results.run_key(it["config"]) for it in described] == [
        *(("alibi", "distance", 0), ("rope", "distance", 0), ("rope", "distance", 1)),
    ]
    assert [it["environment"]["commit"] for it in described] == ["alibi0", "rope0", "rope1"]
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    assert set(files) == {"summary.parquet", "labels.parquet", "runs.json", "experiment.json"}
    results.collect(tmp_path / "runs", out)  # again: the same bytes
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files


def test_collected_results_are_added_to(tmp_path: Path) -> None:
    """Runs that are there stay; a run that comes again replaces all of its tables."""
    asked = '{"schemes": ["%s"], "seeds": [%d]}'
    make_run(tmp_path / "first", "rope")
    make_run(tmp_path / "first", "alibi")
    (tmp_path / "first" / "experiment.json").write_text(asked % ("rope", 0))
    again = make_run(tmp_path / "second", "alibi")
    make_run(tmp_path / "second", "t5", seed=1)
    results.write_table(again, "labels", LABELS[:1])
    (tmp_path / "second" / "experiment.json").write_text(asked % ("t5", 1))
    out = tmp_path / "kept"
    results.collect(tmp_path / "first", out)
    results.collect(tmp_path / "second", out)
    kept = results.read(out)
    assert kept.summary["scheme"].to_list() == ["alibi", "rope", "t5"]
    assert kept.labels["scheme"].to_list() == ["alibi", "rope", "rope", "t5", "t5"]
    named = [results.run_key(it["config"])[::2] for it in results.described_runs(out)]
    assert named == [("alibi", 0), ("rope", 0), ("t5", 1)]
    experiment = json.loads((out / "experiment.json").read_text())
    assert experiment == {"schemes": ["rope", "t5"], "seeds": [0, 1]}


def test_a_folder_of_experiments_is_collected_part_by_part(tmp_path: Path) -> None:
    for name in ("standard", "memory"):
        make_run(tmp_path / "all" / name)
        (tmp_path / "all" / name / "experiment.json").write_text('{"schemes": ["rope"]}')
    results.collect(tmp_path / "all", tmp_path / "kept")
    for name in ("standard", "memory"):
        kept = results.read(tmp_path / "kept" / name)
        assert kept.summary.equals(results.read(tmp_path / "all" / name).summary)


def test_what_cannot_be_collected_is_named(tmp_path: Path) -> None:
    (make_run(tmp_path / "runs") / "summary.parquet").unlink()
    with pytest.raises(InputError, match="holds no finished run; train one first"):
        results.collect(tmp_path / "runs", tmp_path / "out")
    make_run(tmp_path / "runs", "alibi")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="holds something else than collected results; choose"):
        results.collect(tmp_path / "runs", tmp_path / "out")


def damage_bytes(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(200))


def cut_in_half(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other_columns(path: Path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(path)


def other_types(path: Path) -> None:
    pl.DataFrame([{"label": "x", "count": 1, "correct": 1}]).write_parquet(path)


@pytest.mark.parametrize("name", ["summary", "labels"])
@pytest.mark.parametrize("damage", [damage_bytes, cut_in_half, empty, other_columns])
def test_a_damaged_table_is_named(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    run = make_run(tmp_path)
    damage(run / f"{name}.parquet")
    assert_named(tmp_path, run, f"{name}.parquet")


def test_a_table_with_other_types_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    other_types(run / "labels.parquet")
    assert_named(tmp_path, run, "labels.parquet")


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"scheme": "rope"}', None])
def test_a_damaged_config_is_named(tmp_path: Path, text: str | None) -> None:
    run = make_run(tmp_path)
    if text is None:
        (run / "config.json").unlink()
    else:
        (run / "config.json").write_text(text)
    assert_named(tmp_path, run, "config.json")


def assert_named(folder: Path, run: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        results.read(folder)
    message = str(caught.value)
    assert message.startswith(f"{run / name} is damaged (")
    assert message.endswith(f"delete the folder {run} and run again")
    assert "\n" not in message


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing is no folder; give a run folder"):
        results.read(tmp_path / "missing")
