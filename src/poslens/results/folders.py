"""Result tables on disk: one Parquet file a table in the folder of its run."""

import json
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path

import polars as pl

from poslens.errors import InputError
from poslens.results.schemas import KEY, RUN_TABLES, Schema, Tables

# Where `collected` keeps what the runs were; a folder with it holds stacked tables.
RUNS = "runs.json"


def write_table(folder: Path, name: str, rows: list[dict[str, object]]) -> None:
    """Write `rows` as `folder/name.parquet` in one step: a reader sees the old table or the new."""
    path = folder / f"{name}.parquet"
    unfinished = path.with_suffix(".parquet.tmp")
    pl.DataFrame(rows, schema=RUN_TABLES[name]).write_parquet(unfinished)
    unfinished.replace(path)


def update_table(
    folder: Path,
    name: str,
    rows: list[dict[str, object]],
    columns: tuple[str, ...],
    values: Collection[tuple[object, ...]],
) -> None:
    """Write `rows` in place of those whose `columns` have one of `values`; the others stay first.

    Raises InputError where the table that is there is damaged.
    """
    before = read_table(folder, name)
    kept = [] if before is None else before.to_dicts()
    kept = [row for row in kept if tuple(row[column] for column in columns) not in values]
    write_table(folder, name, [*kept, *rows])


def read_table(folder: Path, name: str) -> pl.DataFrame | None:
    """One table of one run, None where it is not there. Raises InputError where it is damaged."""
    path = folder / f"{name}.parquet"
    return _read_table(path, name) if path.exists() else None


def read(folder: Path) -> Tables:
    """Stack the tables of every run below `folder` (or of the run `folder` itself).

    A run without a `summary` table is unfinished and left out. Order: scheme, task, seed. Raises
    InputError where there is no such folder, and for damaged files, which it names.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; give a run folder or a folder of runs")
    if (folder / RUNS).exists():
        return _read_collected(folder)
    runs = [folder] if (folder / "config.json").exists() else sorted(folder.iterdir())
    frames: dict[str, list[pl.DataFrame]] = {name: [] for name in RUN_TABLES}
    for run in runs:
        if not (run / "summary.parquet").exists():
            continue
        key = _key(run / "config.json")
        for name in RUN_TABLES:
            table = read_table(run, name)
            if table is not None:
                frames[name].append(table.select(*key, pl.all()))
    empty = {name: pl.DataFrame(schema={**KEY, **schema}) for name, schema in RUN_TABLES.items()}
    stacked = {
        field.name: pl.concat([empty[field.name], *frames[field.name]]).sort(
            list(KEY), maintain_order=True
        )
        for field in fields(Tables)
    }
    return Tables(**stacked)


def _read_collected(folder: Path) -> Tables:
    found = {}
    for name, schema in RUN_TABLES.items():
        whole, path = {**KEY, **schema}, folder / f"{name}.parquet"
        found[name] = _read_frame(path, whole) if path.exists() else pl.DataFrame(schema=whole)
    return Tables(**found)


def _key(path: Path) -> list[pl.Expr]:
    """The columns that say which run it is, from its config.json."""
    try:
        config = json.loads(path.read_text())
        values = {column: config[column] for column in KEY}
        return [pl.lit(value, KEY[column]).alias(column) for column, value in values.items()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error


def _read_table(path: Path, name: str) -> pl.DataFrame:
    return _read_frame(path, RUN_TABLES[name])


def _read_frame(path: Path, schema: Schema) -> pl.DataFrame:
    try:
        return pl.read_parquet(path).select(list(schema)).cast(schema)  # type: ignore[arg-type]
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> InputError:
    reason = str(error).partition("\n")[0]
    training = path.stem in ("config", "summary", "curve", "labels")
    rest = f"the folder {path.parent}" if training else "it"
    return InputError(f"{path} is damaged ({reason}); delete {rest} and run again")
