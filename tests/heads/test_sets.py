"""Sets of heads: known answers on a briefly trained model, and bad input.

Shapes: N sequences.
"""

import numpy as np
import pytest
import torch

from poslens.errors import InputError
from poslens.heads import Edit, Reference, measure
from poslens.heads.edits import reference_batch
from poslens.heads.sets import (
    _reached,
    all_heads,
    edited_answers,
    interactions,
    necessity,
    sufficiency,
)
from poslens.model import ModelSettings, TransformerSites
from poslens.tasks import Batch, held_out
from poslens.training import RunSettings, TrainingSettings, task_of
from poslens.training.loop import Trainer

RUN = RunSettings(
    "rope@1",
    "distance",
    task_settings={"between": 4, "aside": 2, "words": 12},
    model=ModelSettings(layers=2, heads=4, width=32, feedforward=48),
    training=TrainingSettings(sequences=19_200, batch=64, learning_rate=6e-3),
)
TAKE_POSITION = Edit("position", "none")


@pytest.fixture(scope="module")
def reference() -> Reference:
    """RoPE on head 0 alone: whatever the model learns, only its position can be taken."""
    torch.set_num_threads(1)
    trainer = Trainer(RUN, torch.device("cpu"))
    task = task_of(RUN)
    for step in range(300):
        trainer.train_step(task.sample(64, torch.Generator().manual_seed(step)))
    sites = TransformerSites(trainer.model.eval())
    return Reference(sites, reference_batch(task, torch.arange(5, 11), 200, seed=0))


@pytest.fixture(scope="module")
def data() -> Batch:
    return held_out(task_of(RUN), 600, seed=1)


def test_the_empty_set_is_intact_and_a_whole_layer_is_the_layer(
    reference: Reference, data: Batch
) -> None:
    layer_0 = [(0, head) for head in range(4)]
    found = edited_answers(data, Edit(), reference, [[], layer_0])
    expected = measure(data, Edit(), reference)["accuracy"]
    assert expected.intact_N.mean() > 0.5  # it has learnt: there is something to lose
    np.testing.assert_array_equal(found[0], expected.intact_N)
    np.testing.assert_array_equal(found[1], expected.layers_AN[0])


def test_the_one_head_with_position_is_necessary_and_the_only_one(
    reference: Reference, data: Batch
) -> None:
    found = necessity(data, TAKE_POSITION, reference, all_heads(reference.sites))
    assert {head for _, head in found.heads[: int(found.count.value)]} == {0}
    assert 1 <= found.count.value <= 2
    assert found.count.low <= found.count.value <= found.count.high
    assert found.accuracy_K[0] > found.accuracy_K[-1]
    assert found.accuracy_K[-1] == pytest.approx(found.floor, abs=0.05)


def test_keeping_all_heads_is_intact_and_keeping_none_the_whole_layer(
    reference: Reference, data: Batch
) -> None:
    curve = sufficiency(data, Edit(), reference, layer=1, order=[2, 0, 3, 1])
    expected = measure(data, Edit(), reference)["accuracy"]
    assert curve.accuracy_K[4].value == pytest.approx(expected.intact_N.mean())
    assert curve.accuracy_K[0].value == pytest.approx(expected.layers_AN[1].mean())
    assert all(point.low <= point.value <= point.high for point in curve.accuracy_K)


def test_interaction_is_what_two_cost_beyond_the_sum(reference: Reference, data: Batch) -> None:
    heads = [(0, 0), (0, 1), (1, 0)]
    right_VN = edited_answers(
        data, Edit(), reference, [[], [(0, 0)], [(1, 0)], [(0, 0), (1, 0)]]
    ).mean(1)
    fall = right_VN[0] - right_VN
    (pair,) = [
        it
        for it in interactions(data, Edit(), reference, heads)
        if (it.first, it.second) == ((0, 0), (1, 0))
    ]
    assert pair.together == pytest.approx(fall[3])
    assert pair.excess.value == pytest.approx(fall[3] - fall[1] - fall[2])
    assert pair.excess.low <= pair.excess.value <= pair.excess.high


def test_the_count_is_the_first_size_within_reach_of_the_floor() -> None:
    assert _reached(np.array([1.0, 0.9, 0.24, 0.2])) == 2  # limit 0.2 + 0.05 * 0.8
    assert _reached(np.array([1.0, 0.9, 0.25, 0.2])) == float("inf")
    assert np.isnan(_reached(np.array([0.2, 0.2])))  # nothing to lose


def test_bad_input_is_named(reference: Reference, data: Batch) -> None:
    with pytest.raises(InputError, match=r"head 4 is out of range; layer 1 has 0\.\.3"):
        edited_answers(data, Edit(), reference, [[(1, 4)]])
    with pytest.raises(InputError, match=r"layer 2 is out of range; the model has 0\.\.1"):
        edited_answers(data, Edit(), reference, [[(2, 0)]])
    with pytest.raises(InputError, match="candidate heads is empty"):
        necessity(data, Edit(), reference, [])
