"""The README: its code runs, and its numbers are those of the committed results."""

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from poslens.results import read

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_its_python_runs(block: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(block)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_its_sentences_quote_the_committed_results() -> None:
    """What the prose says in numbers, from the tables."""
    tables = read(ROOT / "results" / "quick")
    zeroed = {"target": "head", "method": "zero", "metric": "accuracy"}
    rope = tables.effects.filter(scheme="rope", task="distance", layer=0, **zeroed)
    largest = rope.filter(pl.col("head") >= 0)["effect"].max()
    assert f"costs more than {100 * largest:.1f} points" in README
    search = tables.necessity.filter(scheme="rope", task="distance", target="position")
    count, low, high = search.select("count", "count_low", "count_high").row(0)
    (heads,) = (
        tables.summary.filter(scheme="rope", task="distance").select("layers", "heads").rows()
    )
    words = (
        f"{count:.0f} of {heads[0] * heads[1]} heads ({low:.0f} to {high:.0f}, by greedy search)"
    )
    assert words in README
    taken = {"target": "position", "method": "none", "metric": "accuracy", "layer": -1}
    (all_of_it,) = tables.effects.filter(scheme="learned", task="distance", **taken)["effect"]
    assert f"from all queries and keys costs {100 * all_of_it:.1f} points" in README
    one = tables.concentration.filter(scheme="rope@1", task="distance", layer=0, target="position")
    assert set(one["verdict"]) == {"deposit"}


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target
