"""The posterior over distances and the ceiling it gives, against brute force.

The brute force knows nothing of pairs and falling factorials: it runs through every outcome of the
generator and adds up what each sequence gets.
"""

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import permutations, product
from math import perm

import pytest
import torch
from scipy import stats

from poslens.tasks.base import Batch
from poslens.tasks.data import generator_for
from poslens.tasks.distance import Distance, DistanceSettings

TINY = [
    DistanceSettings(between=2, aside=1, words=4, fillers="published"),
    DistanceSettings(between=2, aside=2, words=4, fillers="published"),
    DistanceSettings(between=2, aside=2, words=5, fillers="published"),
    DistanceSettings(between=2, aside=1, cut=5, words=4, fillers="published"),
    DistanceSettings(between=2, aside=2, cut=6, words=4, fillers="published"),
    DistanceSettings(between=2, aside=2, cut=7, words=4, fillers="published"),
    DistanceSettings(between=3, aside=1, cut=6, words=4, fillers="published"),
]


def joint_probability(task):
    """{tokens: {label: probability}} over every outcome of the published generator, exact."""
    sizes = task.settings
    vocabulary = range(1, sizes.words + 1)
    sides = [p for n in range(1, sizes.aside + 1) for p in permutations(vocabulary, n)]
    middles = [p for n in range(1, sizes.between + 1) for p in permutations(vocabulary, n)]
    cases = sizes.aside**2 * sizes.between
    joint = defaultdict(Counter)
    for before, between, after in product(sides, middles, sides):
        ways = 1
        for segment in (before, between, after):
            ways *= perm(sizes.words, len(segment))
        tokens = (*before, 1, *between, 2, *after)[: sizes.cut]
        joint[tokens][len(between) - 1] += Fraction(1, cases * ways)
    assert sum(sum(labels.values()) for labels in joint.values()) == 1
    return joint


def as_batch(sequences):
    longest = max(len(tokens) for tokens in sequences)
    padded = [[*tokens, *[0] * (longest - len(tokens))] for tokens in sequences]
    lengths = torch.tensor([len(tokens) for tokens in sequences])
    return Batch(torch.tensor(padded), lengths, torch.zeros_like(lengths))


@pytest.mark.parametrize("sizes", TINY, ids=str)
def test_posterior_and_ceiling_equal_the_enumeration(sizes):
    task = Distance(sizes)
    joint = joint_probability(task)
    posterior = task.posterior(as_batch(list(joint)))
    expected = torch.tensor(
        [
            [float(labels[c] / sum(labels.values())) for c in range(task.classes)]
            for labels in joint.values()
        ],
        dtype=torch.float64,
    )
    torch.testing.assert_close(posterior, expected, rtol=0, atol=1e-12)

    bayes = float(sum(max(labels.values()) for labels in joint.values()))
    ceiling = task.ceiling()
    # One word aside and no cut: the length tells the distance.
    assert (bayes == 1) == (sizes.aside == 1 and sizes.cut is None)
    assert abs(ceiling.value - bayes) <= 3.5 * ceiling.standard_error + 1e-12


@pytest.mark.parametrize("sizes", [TINY[0], TINY[3]], ids=str)
def test_generator_draws_what_was_enumerated(sizes):
    task = Distance(sizes)
    probability = {
        (tokens, label): float(p)
        for tokens, labels in joint_probability(task).items()
        for label, p in labels.items()
    }
    draws = 60_000
    batch = task.sample(draws, generator_for(0, "test"))
    rows = zip(
        batch.tokens_BL.tolist(), batch.lengths_B.tolist(), batch.labels_B.tolist(), strict=True
    )
    seen = Counter((tuple(tokens[:length]), label) for tokens, length, label in rows)
    assert seen.keys() <= probability.keys()
    expected = [draws * p for p in probability.values()]
    assert stats.chisquare([seen[case] for case in probability], expected).pvalue > 1e-3


def slow_posterior(tokens, sizes):
    """Loops and exact fractions; the weight of a cut sequence is summed length by length."""
    weights = [Fraction(0)] * sizes.between
    for i, j in product(range(len(tokens)), repeat=2):
        if i > j or tokens[i] != 1 or tokens[j] != 2:
            continue
        segments = [tokens[:i], tokens[i + 1 : j], tokens[j + 1 :]]
        before, between, after = (len(segment) for segment in segments)
        if not (1 <= before <= sizes.aside and 1 <= between <= sizes.between):
            continue
        if any(len(set(segment)) < len(segment) for segment in segments):
            continue
        for full in range(1, sizes.aside + 1):
            if min(before + between + full + 2, sizes.cut) != len(tokens):
                continue
            unseen = perm(sizes.words - after, full - after)
            ways = perm(sizes.words, before) * perm(sizes.words, between)
            weights[between - 1] += Fraction(unseen, ways * perm(sizes.words, full))
    return [float(weight / sum(weights)) for weight in weights]


def test_posterior_of_long_sequences_equals_the_slow_one():
    # Few words, so that triggers among the fillers are common.
    sizes = DistanceSettings(between=70, aside=25, cut=99, words=75, fillers="published")
    task = Distance(sizes)
    batch = task.sample(300, generator_for(1, "test"))
    expected = torch.tensor(
        [
            slow_posterior(tokens[:length], sizes)
            for tokens, length in zip(
                batch.tokens_BL.tolist(), batch.lengths_B.tolist(), strict=True
            )
        ],
        dtype=torch.float64,
    )
    assert (batch.lengths_B == 99).any()
    assert ((expected > 0).sum(dim=1) > 1).sum() > 30
    torch.testing.assert_close(task.posterior(batch), expected, rtol=0, atol=1e-12)


def test_posterior_of_an_impossible_sequence_is_nan():
    task = Distance(TINY[0])
    assert task.posterior(as_batch([[3, 2, 3, 1, 3], [1, 2, 1, 2, 1]])).isnan().all()


def test_ceiling_at_published_size():
    task = Distance(DistanceSettings(between=70, aside=25, cut=120, fillers="published"))
    ceiling = task.ceiling()
    assert ceiling.value == pytest.approx(0.975, abs=0.005)
    assert 0 < ceiling.standard_error < 0.003
    assert task.ceiling() is ceiling


def test_ceiling_of_clean_fillers_is_one():
    assert Distance().ceiling().value == 1
    assert Distance().ceiling().standard_error == 0
