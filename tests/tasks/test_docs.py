"""The example of docs/adding-a-task.md runs, and its numbers are right."""

import re
from pathlib import Path

import pytest
import torch

from poslens.errors import InputError
from poslens.tasks import TASKS, make_task
from poslens.tasks.data import Stream, generator_for

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-task.md"


@pytest.fixture
def example(monkeypatch):
    """The names that the page's code defines; its registration is undone afterwards."""
    monkeypatch.setitem(TASKS, "half", None)  # so that monkeypatch removes the entry at the end
    names = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def test_example_is_registered_and_labels_are_right(example, capsys):
    task = make_task("half")
    assert isinstance(task, example["Half"])
    batch = task.sample(3000, generator_for(0, "test"))
    for tokens, length, label in zip(
        batch.tokens_BL.tolist(), batch.lengths_B.tolist(), batch.labels_B.tolist(), strict=True
    ):
        assert tokens[:length].count(1) == 1
        assert all(tokens[:length])
        assert not any(tokens[length:])
        place = tokens.index(1)
        assert label == (0 if place < (length + 1) // 2 else 1)


def test_example_bounds_are_what_a_reader_scores(example):
    task = make_task("half", example["HalfSettings"](longest=5, words=4))
    batch = task.sample(40_000, generator_for(1, "test"))
    by_length = torch.stack(
        [batch.labels_B[batch.lengths_B == n].bincount(minlength=2).max() for n in range(1, 6)]
    )
    assert by_length.sum().item() / len(batch) == pytest.approx(task.baseline().value, abs=0.01)
    constant = batch.labels_B.bincount().max().item() / len(batch)
    assert constant == pytest.approx(task.chance, abs=0.01)
    assert task.ceiling().value == 1


def test_example_streams_and_refuses_bad_settings(example):
    stream = Stream(make_task("half"), 8, seed=0, size=40)
    assert len(stream.batch(11)) == 8
    with pytest.raises(InputError, match="words must be a whole number of at least 2, not 1"):
        make_task("half", example["HalfSettings"](words=1))
