"""Reading options: what decides defaults, what TOML and --set mean, errors in one line."""

import json
import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poslens.cli.options import (
    assignments,
    before_the_rest,
    one_line,
    override,
    print_json,
    read_file,
)
from poslens.errors import InputError
from poslens.training import TrainingSettings


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], {}),
        (["rope", "--profile", "smoke", "--seed", "1"], {"profile": "smoke"}),
        (["--profile=smoke"], {"profile": "smoke"}),
        (["--profile", "quick", "--profile", "smoke"], {"profile": "smoke"}),
        (["--profile"], {}),
        (["--prof", "smoke"], {}),
        (["--learning-rate", "1e-4"], {"learning-rate": "1e-4"}),
        (["--learning_rate", "1e-4"], {"learning-rate": "1e-4"}),
        (["--set", "between=3", "--profile", "smoke"], {"profile": "smoke"}),
    ],
)
def test_the_options_that_decide_the_others(arguments: list[str], found: dict[str, str]) -> None:
    assert before_the_rest(arguments, "profile", "learning-rate") == found


@pytest.mark.parametrize(
    ("items", "made"),
    [
        ((), {}),
        (("between=10", "fillers=published"), {"between": 10, "fillers": "published"}),
        (("rope.base=5e5",), {"rope": {"base": 5e5}}),
        (("rope.base=5", "rope.width=4"), {"rope": {"base": 5, "width": 4}}),
        (("rope.scaling.kind=yarn",), {"rope": {"scaling": {"kind": "yarn"}}}),
        (("flag=true", "name='a=b'", "list=[1, 2]"), {"flag": True, "name": "a=b", "list": [1, 2]}),
        (("between=",), {"between": ""}),
    ],
)
def test_assignments(items: tuple[str, ...], made: dict[str, object]) -> None:
    assert assignments(items) == made


@pytest.mark.parametrize("items", [("between",), ("=3",), ("rope=1", "rope.base=2")])
def test_assignments_that_make_no_sense(items: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="--set "):
        assignments(items)


PLAIN = """ Value error
 ------------------------------------------
  Error parsing training: batch is 0; use 1
  or more
  -----------------------------------------
  For full helptext, see poslens train --help
"""
BOXED = """╭─ Value error ──────────────────────────────╮
│ Error parsing --seed: no whole number: 'x' │
│ ────────────────────────────────────────── │
│ Argument helptext:                         │
│     --seed INT                             │
│ ────────────────────────────────────────── │
│ For full helptext, see poslens train       │
╰────────────────────────────────────────────╯
"""
CLOSE = """ Unrecognized options
 ---------------------
  Unrecognized options: --sed, 1
  --------------------
  Perhaps you meant:
      --seed INT
          Seed of data. (default: 0)
      --set [STR [STR ...]]
          Settings.
  --------------------
  For full helptext, run poslens train --help
"""


@pytest.mark.parametrize(
    ("box", "line"),
    [
        (PLAIN, "batch is 0; use 1 or more"),
        (BOXED, "--seed: no whole number: 'x'"),
        (CLOSE, "Unrecognized options: --sed, 1; perhaps --seed or --set"),
        ("", "the options do not fit"),
    ],
)
def test_a_boxed_message_becomes_one_line(box: str, line: str) -> None:
    assert one_line(box) == line


@dataclass(frozen=True)
class Wanted:
    name: str = "x"
    sizes: tuple[int, ...] = ()


def test_a_file_sets_what_it_names(tmp_path: pytest.TempPathFactory) -> None:
    path = tmp_path / "a.toml"
    path.write_text("sizes = [1, 2]")
    assert read_file(Wanted, str(path)) == Wanted(sizes=(1, 2))
    assert read_file(Wanted, None) == Wanted()


def test_override_keeps_the_rest() -> None:
    before = TrainingSettings(batch=16)
    after = override(before, {"learning_rate": 1, "fixed_set": 32}, "training")
    assert after == TrainingSettings(batch=16, learning_rate=1.0, fixed_set=32)
    assert isinstance(after.learning_rate, float)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(value=VALUES)
@settings(deadline=None, max_examples=50)
def test_whatever_is_printed_as_json_is_json(value: object) -> None:
    import contextlib
    import io

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    def defined(item: object) -> object:
        if isinstance(item, list):
            return [defined(inner) for inner in item]
        if isinstance(item, dict):
            return {key: defined(inner) for key, inner in item.items()}
        if isinstance(item, float) and math.isinf(item):
            return str(item)
        return None if isinstance(item, float) and math.isnan(item) else item

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        print_json(value)
    assert json.loads(printed.getvalue(), parse_constant=refuse) == defined(value)
