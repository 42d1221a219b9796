"""The counting task: what it draws, what its labels say, bad settings."""

from collections import Counter
from itertools import product
from math import comb, perm

import pytest
import torch
from scipy import stats

from poslens.errors import InputError
from poslens.tasks.count import Count, CountSettings
from poslens.tasks.data import generator_for


@pytest.mark.parametrize("fillers", ["clean", "published"])
def test_label_is_the_number_of_triggers(fillers):
    task = Count(CountSettings(fillers=fillers))
    batch = task.sample(300, generator_for(0, "test"))
    assert batch.tokens_BL.shape == (300, 120)
    assert (batch.lengths_B == 120).all()
    for tokens, label in zip(batch.tokens_BL.tolist(), batch.labels_B.tolist(), strict=True):
        others = [token for token in tokens if token > 30]
        assert len(tokens) - len(others) == label <= 100
        assert min(tokens) >= 1
        assert max(tokens) <= 573
        if fillers == "published":
            assert len(set(others)) == len(others)


def test_labels_and_places_are_uniform():
    task = Count(CountSettings(length=12, most=8, triggers=3, words=9))
    batch = task.sample(30_000, generator_for(1, "test"))
    assert stats.chisquare(batch.labels_B.bincount(minlength=9).numpy()).pvalue > 1e-3
    single = batch.tokens_BL[batch.labels_B == 1]
    places = (single <= 3).long().argmax(dim=1)
    assert stats.chisquare(places.bincount(minlength=12).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("fillers", ["clean", "published"])
def test_tiny_task_gives_every_sequence_its_probability(fillers):
    task = Count(CountSettings(length=3, most=2, triggers=2, words=5, fillers=fillers))
    probability = {}
    for tokens in product(range(1, 6), repeat=3):
        others = [token for token in tokens if token > 2]
        label = 3 - len(others)
        if label > 2 or (fillers == "published" and len(set(others)) < len(others)):
            continue
        filler_ways = 3 ** len(others) if fillers == "clean" else perm(3, len(others))
        probability[tokens] = 1 / (3 * comb(3, label) * 2**label * filler_ways)
    assert sum(probability.values()) == pytest.approx(1)
    draws = 40_000
    drawn = task.sample(draws, generator_for(2, "test")).tokens_BL.tolist()
    seen = Counter(tuple(tokens) for tokens in drawn)
    assert seen.keys() <= probability.keys()
    expected = [draws * p for p in probability.values()]
    assert stats.chisquare([seen[row] for row in probability], expected).pvalue > 1e-3


def test_bounds():
    task = Count()
    assert task.classes == 101
    assert task.embeddings == 574
    assert task.chance == task.baseline().value == 1 / 101
    assert task.ceiling().value == 1
    every = Count(CountSettings(length=4, most=4)).sample(200, generator_for(3, "test"))
    assert torch.equal(every.labels_B.unique(), torch.arange(5))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"length": 0}, "length must be a whole number of at least 1, not 0"),
        ({"most": -1}, "most must be a whole number of at least 1, not -1"),
        ({"triggers": 0}, "triggers must be a whole number of at least 1, not 0"),
        ({"words": -5}, "words must be a whole number of at least 1, not -5"),
        ({"most": 121}, "most=121 triggers do not fit into sequences of length=120"),
        ({"words": 30}, "words=30 is too small: triggers=30 and 1 different filler needs at least"),
        (
            {"words": 149, "fillers": "published"},
            "words=149 is too small: triggers=30 and 120 different fillers need at least 150",
        ),
        ({"fillers": "Clean"}, "fillers must be 'clean' or 'published', not 'Clean'"),
    ],
)
def test_bad_settings_are_named(bad, message):
    with pytest.raises(InputError, match=message):
        Count(CountSettings(**bad))


def test_smallest_settings_that_are_right():
    Count(CountSettings(words=31)).sample(4, generator_for(0, "test"))
    Count(CountSettings(words=150, fillers="published")).sample(4, generator_for(0, "test"))
