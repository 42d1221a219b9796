"""`poslens mechanism`: what it tells and writes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from poslens import results


def test_the_heads_that_cost_most_are_told(poslens: Callable, run: Path) -> None:
    done = poslens("mechanism", run, "--sequences", "32")
    assert done.code == 0, done.err
    heads = [line for line in done.out.splitlines() if not line.startswith("  ")]
    assert heads == [f"rope on distance, seed 0, {target}" for target in ("head", "position")]
    assert " first: " in done.out
    found = json.loads(poslens("mechanism", run, "--sequences", "32", "--json").out)
    tables = results.read(run)
    assert len(found["mechanism"]) == tables.mechanism.height > 0
    assert len(found["falls"]) == tables.falls.height > 0


def test_nothing_is_written_where_one_run_is_refused(poslens: Callable, run: Path) -> None:
    other = Path(shutil.copytree(run, run.parent / "rope-distance-seed1"))
    (other / "summary.parquet").unlink()
    (run / "mechanism.parquet").unlink()
    assert "holds no finished run" in poslens("mechanism", run.parent).line
    assert not (run / "mechanism.parquet").exists()
    assert "use 2 or more" in poslens("mechanism", run, "--sequences", "1").line
