"""Many runs' results as one folder of a few small files, to be kept and read like the runs."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from poslens.errors import InputError
from poslens.results.folders import RUNS, read
from poslens.results.schemas import KEY, RUN_TABLES

EXPERIMENT = "experiment.json"


def collect(folder: Path, out: Path) -> None:
    """Keep the results of the finished runs below `folder` in `out`, without weights and clocks.

    Writes a Parquet file for each table that is not empty, `runs.json` (configuration and
    environment of each run) and experiment.json. Runs that `out` holds already stay, unless the
    folder has them too: then all their tables are the folder's. A folder of experiments (as
    `poslens corrections` makes) becomes one of collected experiments. Raises InputError as `read`
    does, where no run is finished, and where `out` holds something else.
    """
    if parts := sorted(path.parent for path in folder.glob(f"*/{EXPERIMENT}")):
        for part in parts:
            collect(part, out / part.name)
        return
    tables = read(folder)
    if tables.summary.is_empty():
        raise InputError(f"{folder} holds no finished run; train one first")
    if out.exists() and any(out.iterdir()) and not (out / RUNS).exists():
        raise InputError(f"{out} holds something else than collected results; choose another")
    out.mkdir(parents=True, exist_ok=True)
    new = tables.summary.select(*KEY)
    before = read(out) if (out / RUNS).exists() else None
    earlier = [] if before is None else described_runs(out)
    finished = set(new.rows())
    kept = [it for it in described_runs(folder) if run_key(it["config"]) in finished]
    kept += [it for it in earlier if run_key(it["config"]) not in finished]
    kept.sort(key=lambda it: run_key(it["config"]))
    for name in RUN_TABLES:
        table, path = getattr(tables, name), out / f"{name}.parquet"
        if before is not None:
            others = getattr(before, name).join(new, on=list(KEY), how="anti")
            table = pl.concat([others, table]).sort(list(KEY), maintain_order=True)
        if table.is_empty():
            path.unlink(missing_ok=True)
        else:
            table.write_parquet(path)
    _write(out / RUNS, kept)
    asked, there = read_object(folder / EXPERIMENT), read_object(out / EXPERIMENT)
    for name in ("schemes", "seeds"):
        if name in asked:
            known = there.get(name, [])
            asked[name] = known + [item for item in asked[name] if item not in known]
    if asked:
        _write(out / EXPERIMENT, asked)


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def described_runs(folder: Path) -> list[dict[str, dict[str, Any]]]:
    """`config` and `environment` of each run below a folder, what cannot be read left out."""
    if (folder / RUNS).exists():
        found: list[dict[str, dict[str, Any]]] = json.loads((folder / RUNS).read_text())
        return found
    runs = [folder] if (folder / "config.json").exists() else sorted(folder.iterdir())
    described = [
        {name: read_object(run / f"{name}.json") for name in ("config", "environment")}
        for run in runs
    ]
    return [it for it in described if set(KEY) <= set(it["config"])]


def run_key(config: dict[str, Any]) -> tuple[str, str, int]:
    """Scheme, task and seed of a run."""
    return config["scheme"], config["task"], config["seed"]


def read_object(path: Path) -> dict[str, Any]:
    """A file's JSON object; empty where there is none, or none that can be read."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
