"""One switch at a time: every setting of a preset belongs to one, and only it differs."""

from dataclasses import asdict
from pathlib import Path

import pytest

from poslens import results
from poslens.claims import CLAIMS
from poslens.claims.corrections import STANDARD, matrix, overlaid, read_corrections
from poslens.claims.corrections import SWITCHES as WORDS
from poslens.errors import InputError
from poslens.experiments.corrections import corrections, run_corrections
from poslens.experiments.profiles import Profile, profile_named, select
from poslens.experiments.rates import Rates
from poslens.model import preset
from poslens.model.published import PUBLISHED, SWITCHES


def flat(values: dict[str, object], where: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in values.items():
        path = f"{where}{name}"
        found |= flat(value, f"{path}.") if isinstance(value, dict) else {path}
    return found


def test_every_setting_of_every_preset_belongs_to_one_switch() -> None:
    used = set()
    for name in PUBLISHED:
        own = preset(name.replace("@k", "@2"))
        whole = flat(asdict(own))
        alone = [flat(asdict(it)) for switch in SWITCHES if (it := own.only(switch))]
        assert set().union(*alone) == whole
        assert sum(map(len, alone)) == len(whole)
        used |= {switch for switch in SWITCHES if own.only(switch)}
    assert used == set(SWITCHES)


def test_every_switch_has_its_words_in_its_order() -> None:
    assert list(WORDS) == [*SWITCHES, "published"]


def test_only_what_a_switch_sets_differs_from_the_standard_run() -> None:
    small = profile_named("small")
    grid = corrections(small)
    assert list(grid) == ["standard", *SWITCHES, "published"]
    assert grid["slopes"].schemes == ("alibi",)
    assert grid["step"].schemes == ("mla",)
    assert grid["memory"].schemes == tuple(name for name in small.schemes if name != "mla")
    standard = {run.name: asdict(run) for run in small.cells(Rates())}
    for switch, paths in SWITCHES.items():
        for run in grid[switch].cells(Rates()):
            changed = differences(standard[run.name], asdict(run))
            wanted = {path.replace("task.", "task_settings.") for path in paths}
            assert changed
            assert changed <= wanted, (switch, run.name)
    names = {own.name for own in grid.values()}
    assert len(names) == len(grid)


def differences(old: object, new: object, where: str = "") -> set[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = old.keys() | new.keys()
        inner = (differences(old.get(k), new.get(k), f"{where}.{k}" if where else k) for k in keys)
        return set().union(*inner)
    if isinstance(new, dict):
        return differences({}, new, where)
    return set() if old == new else {where}


@pytest.fixture
def two(tiny: Profile) -> Profile:
    return select(tiny, ("rope", "mla"))


def test_runs_of_each_correction_and_their_ledger(
    two: Profile, tmp_path: Path, in_process: list[str]
) -> None:
    run_corrections(two, tmp_path, jobs=1)
    # standard, memory, table (2), fillers (2), query, step, padding, norm, dropout (2), ...
    assert len(in_process) == len(two.tasks) * sum(
        len(own.schemes) for own in corrections(two).values()
    )
    before = len(in_process)
    run_corrections(two, tmp_path, jobs=1)
    assert len(in_process) == before  # all kept
    found = read_corrections(tmp_path)
    assert next(iter(found)) == STANDARD
    assert list(found) == list(corrections(two))
    own = results.read(tmp_path / "memory")
    assert own.summary["scheme"].to_list() == ["rope"] * len(two.tasks)
    schemes = found["memory"].summary["scheme"].unique().to_list()
    assert sorted(schemes) == ["mla", "rope"]
    table = matrix(found, CLAIMS)
    assert table.height == len(found) * len(CLAIMS)
    assert set(table["verdict"]) <= {"not run", "inconclusive"}


@pytest.mark.slow
def test_where_a_switch_does_not_touch_a_scheme_it_is_the_standard_one(
    two: Profile, tmp_path: Path, in_process: list[str]
) -> None:
    run_corrections(select(two, ("rope", "mla")), tmp_path, jobs=1)
    standard, own = results.read(tmp_path / STANDARD), results.read(tmp_path / "step")
    together = overlaid(standard, own, ["mla"])
    assert together.effects.filter(scheme="mla").equals(own.effects)
    assert together.effects.filter(scheme="rope").equals(standard.effects.filter(scheme="rope"))
    # One that it touches and that is not finished is not passed off as standard.
    assert overlaid(standard, own, ["mla", "rope"]).effects.equals(own.effects)


def test_other_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no corrections \(no folder 'standard'\); give"):
        read_corrections(tmp_path)
