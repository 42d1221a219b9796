"""Profiles: every scheme on every task with the same budget, narrowed as asked."""

from pathlib import Path

import pytest

from poslens.errors import InputError
from poslens.experiments.local import Cell
from poslens.experiments.profiles import PROFILES, profile_named, select
from poslens.experiments.rates import Rates
from poslens.experiments.reproduce import check
from poslens.model import STUDY
from poslens.training import RunFolder


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_the_whole_grid_and_its_models_can_be_built(
    name: str, tmp_path: Path
) -> None:
    profile = profile_named(name)
    cells = profile.cells(Rates())
    more = {"standard": ("rope@2", "rope@4"), "small": ("rope@2",)}.get(name, ())
    assert profile.schemes == STUDY + more
    of_a_seed = 2 * len(profile.schemes)
    assert len({cell.name for cell in cells}) == of_a_seed * len(profile.seeds) == len(cells)
    check([Cell(cell, tmp_path) for cell in cells[:of_a_seed]], jobs=1, device="cpu")


@pytest.mark.parametrize("name", PROFILES)
def test_all_schemes_get_the_same_number_of_sequences(name: str) -> None:
    for task in ("distance", "count"):
        runs = [cell for cell in profile_named(name).cells(Rates()) if cell.task == task]
        budgets = {(run.training.sequences, run.training.evaluation) for run in runs}
        assert len(budgets) == 1
        assert len({run.model for run in runs}) == 1


def test_the_published_sizes() -> None:
    paper = profile_named("paper")
    assert (paper.model.layers, paper.model.heads, paper.model.width) == (6, 16, 256)
    assert paper.tasks["distance"] == {
        **{"between": 70, "aside": 25, "cut": 120, "fillers": "published"}
    }
    assert paper.training["distance"].fixed_set == 70_000
    assert paper.training["distance"].sequences == 100 * 70_000
    assert paper.training["count"].sequences == 100 * 35_000


def test_seeds_are_outermost() -> None:
    cells = profile_named("standard").cells(Rates())
    assert [cell.seed for cell in cells] == [0] * 22 + [1] * 22 + [2] * 22


def test_a_tuned_profile_takes_its_rates_from_the_table_and_another_does_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rates.csv"
    path.write_text(
        "scheme,task,learning_rate,accuracy,loss,sequences,seed\n"
        "rope,distance,0.0625,0.9,0.1,10,1000\n"
    )
    rates = Rates(path)
    assert (
        profile_named("quick").cell("rope", "distance", 0, rates).training.learning_rate == 0.0625
    )
    assert (
        profile_named("smoke").cell("rope", "distance", 0, rates).training.learning_rate != 0.0625
    )


def test_select_narrows_and_extends() -> None:
    chosen = select(profile_named("quick"), ("rope@2", "kerple"), ("count",), (4, 5))
    assert chosen.schemes == ("rope@2", "kerple")
    assert list(chosen.tasks) == ["count"]
    assert [run.name for run in chosen.cells(Rates())] == [
        *("rope@2-count-seed4", "kerple-count-seed4", "rope@2-count-seed5", "kerple-count-seed5"),
    ]
    assert select(profile_named("quick")) == profile_named("quick")


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"schemes": ("roep",)}, "unknown scheme 'roep'; did you mean: rope"),
        ({"schemes": ("rope+",)}, "unknown scheme 'rope\\+'"),
        ({"tasks": ("distanse",)}, "unknown task 'distanse': did you mean distance"),
        ({"seeds": (-1,)}, "seed -1 is negative; use 0 or more"),
        ({"seeds": (1, 1)}, "seeds name one twice: \\(1, 1\\); name each once"),
        ({"schemes": ("rope", "rope")}, "schemes name one twice"),
        ({"tasks": ("count", "count")}, "tasks name one twice"),
    ],
)
def test_what_cannot_be_selected_is_named(chosen: dict[str, tuple[str, ...]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        select(profile_named("quick"), **chosen)


def test_a_task_that_the_profile_does_not_set_is_named() -> None:
    narrow = select(profile_named("quick"), tasks=("count",))
    with pytest.raises(InputError, match="does not set task 'distance'; it has: count"):
        select(narrow, tasks=("distance",))


def test_an_unknown_profile_is_named() -> None:
    with pytest.raises(InputError, match="unknown profile 'quikc'; there are: smoke, small, quick"):
        profile_named("quikc")


def test_run_folders_of_a_profile_differ() -> None:
    names = [RunFolder(run.name).path for run in profile_named("standard").cells(Rates())]
    assert len(set(names)) == 66
