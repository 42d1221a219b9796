"""Generators by purpose, streams by step, fixed sets, frames."""

from itertools import pairwise

import polars as pl
import pytest
import torch

from poslens.errors import InputError
from poslens.tasks import make_task
from poslens.tasks.count import Count, CountSettings
from poslens.tasks.data import Stream, generator_for, held_out, to_frame
from poslens.tasks.distance import Distance, DistanceSettings


def same(first, second) -> bool:
    return (
        torch.equal(first.tokens_BL, second.tokens_BL)
        and torch.equal(first.lengths_B, second.lengths_B)
        and torch.equal(first.labels_B, second.labels_B)
    )


def test_generators_depend_on_all_their_arguments_and_nothing_else():
    def draw(*arguments):
        return tuple(torch.rand(4, generator=generator_for(*arguments)).tolist())

    assert draw(3, "train", 7) == draw(3, "train", 7)
    assert draw(3, "train") == draw(3, "train", 0)
    purposes = ("train", "evaluate", "ablate-reference", "order", "init", "tune")
    drawn = [draw(s, purpose, step) for s in (0, 1) for purpose in purposes for step in range(50)]
    assert len(set(drawn)) == len(drawn) == 600


def test_steps_of_one_purpose_never_share_a_state():
    seeds = {generator_for(0, "train", step).initial_seed() for step in range(50_000)}
    assert len(seeds) == 50_000
    assert max(seeds) < 2**32  # all that torch's CPU generator keeps


def test_neighbouring_generators_are_uncorrelated():
    rows = torch.stack(
        [torch.rand(500, generator=generator_for(0, "train", step)) for step in range(60)]
    )
    correlation = torch.corrcoef(rows).fill_diagonal_(0)
    assert correlation.abs().max() < 5 / 500**0.5


@pytest.mark.parametrize("name", ["distance", "count"])
@pytest.mark.parametrize("size", [None, 100])
def test_streams_are_reached_by_step(name, size):
    one = Stream(make_task(name), 16, seed=5, size=size)
    in_order = [one.batch(step) for step in range(14)]
    other = Stream(make_task(name), 16, seed=5, size=size)
    for step in (13, 2, 7, 0, 6):
        assert same(other.batch(step), in_order[step])
    assert all(len(batch) == 16 for batch in in_order)
    assert not any(same(a, b) for a, b in pairwise(in_order))
    assert not same(Stream(make_task(name), 16, seed=6, size=size).batch(0), in_order[0])


def test_epochs_are_permutations_without_the_incomplete_batch():
    task = Count(CountSettings(length=30, most=20))
    stream = Stream(task, 16, seed=1, size=100)
    fixed = {tuple(row) for row in stream.fixed.tokens_BL.tolist()}
    assert len(fixed) == 100
    epochs = [
        [
            tuple(row)
            for step in range(6 * e, 6 * e + 6)
            for row in stream.batch(step).tokens_BL.tolist()
        ]
        for e in range(3)
    ]
    for rows in epochs:
        assert len(set(rows)) == len(rows) == 96
        assert set(rows) <= fixed
    assert epochs[0] != epochs[1]
    assert set(epochs[0]) | set(epochs[1]) | set(epochs[2]) == fixed


def test_fixed_set_keeps_tokens_with_their_labels():
    task = Distance(DistanceSettings(between=6, aside=2, words=5))
    stream = Stream(task, 20, seed=2, size=60)
    for step in range(6):
        batch = stream.batch(step)
        assert batch.tokens_BL.shape[1] == batch.lengths_B.max()
        distance = (batch.tokens_BL == 2).long().argmax(1) - (batch.tokens_BL == 1).long().argmax(1)
        assert torch.equal(distance, batch.labels_B + 2)
        assert torch.equal((batch.tokens_BL > 0).sum(dim=1), batch.lengths_B)


def test_a_fixed_set_may_be_all_there_is_but_not_more():
    # One word between, one aside, two fillers: 2 * 2 * 2 sequences.
    task = Distance(DistanceSettings(between=1, aside=1, words=4))
    every = Stream(task, 8, seed=0, size=8).batch(0).tokens_BL.tolist()
    assert len({tuple(row) for row in every}) == 8
    message = "size=9 different sequences cannot be had: distance .* gave only 8"
    with pytest.raises(InputError, match=message):
        Stream(task, 8, seed=0, size=9)


@pytest.mark.parametrize(
    ("batch_size", "size", "message"),
    [
        (0, None, "batch_size must be a whole number of at least 1, not 0"),
        (-4, 10, "batch_size must be a whole number of at least 1, not -4"),
        (4, 0, "size must be a whole number of at least 1, not 0"),
        (11, 10, "batch_size=11 is larger than the set of size=10 .* at most 10"),
    ],
)
def test_bad_sizes_are_named(batch_size, size, message):
    with pytest.raises(InputError, match=message):
        Stream(make_task("distance"), batch_size, seed=0, size=size)


def test_held_out_data_are_their_own():
    task = make_task("distance")
    held = held_out(task, 64, seed=3)
    assert same(held, held_out(make_task("distance"), 64, seed=3))
    assert not same(held, Stream(task, 64, seed=3).batch(0))
    assert not same(held, held_out(task, 64, seed=4))
    with pytest.raises(InputError, match=r"number of held-out sequences must be .* not 0"):
        held_out(task, 0, seed=3)


def test_frame_holds_unpadded_tokens_and_labels_in_their_unit(tmp_path):
    task = make_task("distance")
    batch = held_out(task, 50, seed=0)
    to_frame(batch, task).write_parquet(tmp_path / "data.parquet")
    frame = pl.read_parquet(tmp_path / "data.parquet")
    assert frame.schema == {"tokens": pl.List(pl.Int64), "length": pl.Int64, "label": pl.Int64}
    for index, (tokens, length, label) in enumerate(frame.iter_rows()):
        assert len(tokens) == length == batch.lengths_B[index]
        assert tokens == batch.tokens_BL[index, :length].tolist()
        assert tokens.index(2) - tokens.index(1) == label
