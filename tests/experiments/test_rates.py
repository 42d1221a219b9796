"""The table of learning rates: the best of each scheme and task, relatives, damage."""

from pathlib import Path

import pytest

from poslens.errors import InputError
from poslens.experiments.rates import COLUMNS, COMMITTED, Rates
from poslens.training import TrainingSettings

HEADER = ",".join(COLUMNS)


def table(path: Path, *rows: str) -> Rates:
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return Rates(path)


def test_the_committed_table_can_be_read() -> None:
    assert list(Rates(COMMITTED).table.columns) == list(COLUMNS)


def test_of_level_accuracies_the_lowest_loss_wins(tmp_path: Path) -> None:
    level = ("rope,distance,0.001,1.0,0.4,10,1000", "rope,distance,0.003,0.9971,0.1,10,1000")
    assert table(tmp_path / "r.csv", *level).best("rope", "distance") == 0.003
    lower = "rope,distance,0.006,0.9969,0.01,10,1000"
    assert table(tmp_path / "s.csv", *level, lower).best("rope", "distance") == 0.003


def test_highest_accuracy_wins_then_lowest_loss(tmp_path: Path) -> None:
    rates = table(
        tmp_path / "r.csv",
        "rope,distance,0.001,0.8,0.1,10,1000",
        "rope,distance,0.003,0.9,0.3,10,1000",
        "rope,distance,0.006,0.9,0.2,10,1000",
        "rope,count,0.001,0.99,0.01,10,1000",
        "alibi,distance,0.01,0.99,0.01,10,1000",
    )
    assert rates.best("rope", "distance") == 0.006
    assert rates.best("rope", "count") == 0.001
    assert rates.row("rope", "distance", 0.003)["loss"] == 0.3


def test_a_scheme_on_some_heads_borrows_from_its_nearest_relative(tmp_path: Path) -> None:
    rows = ["rope,distance,0.001,0.9,0.1,10,1000", "rope@1,distance,0.003,0.8,0.1,10,1000"]
    rates = table(tmp_path / "r.csv", *rows)
    assert rates.best("rope@1", "distance") == 0.003
    assert rates.best("rope@2", "distance") == 0.003
    assert rates.best("rope", "distance") == 0.001
    assert table(tmp_path / "s.csv", rows[0]).best("rope@2", "distance") == 0.001


def test_a_scheme_without_relatives_gets_the_default(tmp_path: Path) -> None:
    rates = table(tmp_path / "r.csv", "rope@1,distance,0.5,0.9,0.1,10,1000")
    default = TrainingSettings().learning_rate
    assert rates.best("alibi", "distance") == default
    assert rates.best("rope", "distance") == default  # all heads borrow from no part of them
    assert rates.best("rope@1", "count") == default


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no table of learning rates"),
        (bytes(range(256)), "is no table of learning rates"),
        (b"a,b\n1,2\n", "lacks scheme, task, learning_rate, accuracy, loss, sequences, seed"),
        (b"scheme,task,accuracy,loss,sequences,seed\n", "lacks learning_rate"),
        (f"{HEADER}\nrope,distance,high,1,1,1,1\n".encode(), "is no table of learning rates"),
        (None, "is no table of learning rates"),
    ],
)
def test_what_is_no_such_table_is_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "rates.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        Rates(path)
    message = str(caught.value)
    assert f"{path} {words}" in message
    assert message.endswith("make one with 'poslens tune'")
    assert "\n" not in message
