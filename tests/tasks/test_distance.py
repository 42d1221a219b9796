"""The distance task: what it draws, what its labels say, its length-only baseline, bad settings."""

from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from poslens.errors import InputError
from poslens.tasks.base import PAD
from poslens.tasks.data import generator_for
from poslens.tasks.distance import Distance, DistanceSettings

PUBLISHED = DistanceSettings(between=70, aside=25, cut=120, words=573, fillers="published")


def rows_of(batch):
    """Each sequence as a list of its real tokens, with its label."""
    for tokens, length, label in zip(
        batch.tokens_BL.tolist(), batch.lengths_B.tolist(), batch.labels_B.tolist(), strict=True
    ):
        assert all(token == PAD for token in tokens[length:])
        yield tokens[:length], label


def uniform(counts: torch.Tensor) -> bool:
    return stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_clean_labels_can_be_read_off():
    task = Distance(DistanceSettings(between=9, aside=4, words=12))
    batch = task.sample(2000, generator_for(0, "test"))
    for tokens, label in rows_of(batch):
        assert tokens.count(1) == tokens.count(2) == 1
        first, second = tokens.index(1), tokens.index(2)
        assert second - first == label + task.first_label
        assert 1 <= first <= 4
        assert 1 <= len(tokens) - second - 1 <= 4
        assert min(tokens) >= 1
        assert max(tokens) <= 12
    assert batch.tokens_BL.shape[1] == batch.lengths_B.max() <= task.max_length == 19


def test_sizes_are_uniform_and_fillers_too():
    task = Distance(DistanceSettings(between=9, aside=4, words=12))
    batch = task.sample(20_000, generator_for(1, "test"))
    before = (batch.tokens_BL == 1).long().argmax(dim=1)
    second = (batch.tokens_BL == 2).long().argmax(dim=1)
    after = batch.lengths_B - second - 1
    assert uniform(batch.labels_B.bincount(minlength=task.classes))
    assert uniform(before.bincount()[1:])
    assert uniform(after.bincount()[1:])
    assert uniform(batch.tokens_BL.flatten().bincount()[3:])


def test_tiny_clean_task_gives_every_sequence_its_probability():
    task = Distance(DistanceSettings(between=2, aside=2, cut=6, words=4))
    probability: Counter[tuple[int, ...]] = Counter()
    for before, between, after in product((1, 2), repeat=3):
        for fillers in product((3, 4), repeat=before + between + after):
            tokens = (*fillers[:before], 1, *fillers[before : before + between], 2)
            tokens = (*tokens, *fillers[before + between :])[:6]
            probability[tokens] += 0.125 * 0.5 ** len(fillers)
    draws = 40_000
    seen = Counter(tuple(row) for row, _ in rows_of(task.sample(draws, generator_for(2, "test"))))
    assert seen.keys() <= probability.keys()
    expected = [draws * p for p in probability.values()]
    assert stats.chisquare([seen[row] for row in probability], expected).pvalue > 1e-3


def test_published_fillers_are_distinct_within_a_segment_and_may_be_triggers():
    task = Distance(PUBLISHED)
    batch = task.sample(500, generator_for(3, "test"))
    second_copies = 0
    for tokens, label in rows_of(batch):
        between = label + 1
        candidates = [
            first
            for first in range(1, min(26, len(tokens)))
            if tokens[first] == 1
            and tokens[first + between + 1 : first + between + 2] == [2]
            and all(
                len(set(segment)) == len(segment)
                for segment in (
                    tokens[:first],
                    tokens[first + 1 : first + between + 1],
                    tokens[first + between + 2 :],
                )
            )
        ]
        assert candidates
        second_copies += tokens.count(1) + tokens.count(2) > 2
    assert 0.12 < second_copies / len(batch) < 0.28
    assert int(batch.lengths_B.max()) <= task.max_length == 120


def test_the_default_draws_neither_from_nor_into_the_global_generator():
    task = Distance()
    before = torch.get_rng_state()
    first = task.sample(8, generator_for(0, "train"))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(task.sample(8, generator_for(0, "train")).tokens_BL, first.tokens_BL)


@given(between=st.integers(1, 30), aside=st.integers(1, 30))
@settings(deadline=None, max_examples=30)
def test_baseline_without_a_cut_is_the_formula(between, aside):
    task = Distance(DistanceSettings(between=between, aside=aside))
    expected = (between + aside - 1) / (between * aside)
    assert task.baseline().value == pytest.approx(expected, abs=1e-12)
    assert task.chance == 1 / between


@given(between=st.integers(1, 8), aside=st.integers(1, 6), spare=st.integers(0, 7))
@settings(deadline=None, max_examples=30)
def test_baseline_with_a_cut_is_the_count_of_all_cases(between, aside, spare):
    cut = between + aside + 2 + spare
    best: Counter[int] = Counter()
    cases: Counter[tuple[int, int]] = Counter()
    for b, m, a in product(range(aside), range(between), range(aside)):
        cases[min(b + m + a + 5, cut), m] += 1
    for (length, _), count in cases.items():
        best[length] = max(best[length], count)
    exact = Fraction(sum(best.values()), between * aside * aside)
    task = Distance(DistanceSettings(between=between, aside=aside, cut=cut))
    assert task.baseline().value == pytest.approx(float(exact), abs=1e-12)
    assert task.baseline().standard_error == 0


def test_baseline_is_what_a_reader_of_lengths_scores():
    task = Distance(DistanceSettings(between=5, aside=3, cut=11, words=6))
    seen = task.sample(40_000, generator_for(4, "test"))
    fresh = task.sample(40_000, generator_for(5, "test"))
    cases = torch.zeros(12, 5).index_put_(
        (seen.lengths_B, seen.labels_B), torch.ones(len(seen)), accumulate=True
    )
    accuracy = (cases.argmax(dim=1)[fresh.lengths_B] == fresh.labels_B).double().mean().item()
    assert accuracy == pytest.approx(task.baseline().value, abs=0.01)


def test_published_numbers():
    task = Distance(PUBLISHED)
    assert task.classes == 70
    assert task.embeddings == 574
    assert task.baseline().value == pytest.approx(0.0537, abs=1e-4)
    assert Distance().baseline().value == pytest.approx(0.2083, abs=1e-4)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"between": 0}, "between must be a whole number of at least 1, not 0"),
        ({"aside": -3}, "aside must be a whole number of at least 1, not -3"),
        ({"words": 0}, "words must be a whole number of at least 1, not 0"),
        ({"cut": 0}, "cut must be a whole number of at least 1, not 0"),
        ({"between": 2.5}, "between must be a whole number of at least 1, not 2.5"),
        ({"words": 2}, "words=2 is too small: 2 triggers and a filler need at least 3"),
        ({"words": 19, "fillers": "published"}, r"words=19 .*between=20.* need at least 20"),
        (
            {"words": 1, "between": 1, "aside": 1, "fillers": "published"},
            r"words=1 is too small: 2 triggers .* at least 2",
        ),
        ({"cut": 27}, "cut=27 may lose a trigger: aside=6 and between=20 need at least 28"),
        ({"fillers": "dirty"}, "fillers must be 'clean' or 'published', not 'dirty'"),
    ],
)
def test_bad_settings_are_named(bad, message):
    with pytest.raises(InputError, match=message):
        Distance(DistanceSettings(**bad))


def test_smallest_settings_that_are_right():
    Distance(DistanceSettings(words=3, cut=28)).sample(4, generator_for(0, "test"))
    Distance(DistanceSettings(words=20, fillers="published")).sample(4, generator_for(0, "test"))
