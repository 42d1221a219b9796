"""The memory budget holds: what measuring allocates, at its peak, stays under it.

Shapes: B batch, L positions.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from poslens.heads import Edit, Effort, Reference, measure
from poslens.model import ModelSettings, TransformerSites, build
from poslens.model.sites import ALLOCATOR
from poslens.tasks import Batch, Distance
from poslens.tasks.distance import DistanceSettings

TASK = Distance(DistanceSettings(between=70, aside=28, words=200))
HEADS = 8


def peak_megabytes(call: Callable[[], object]) -> float:
    """The most that tensors held at once during the call, by torch's own count."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    results = profiled.profiler.kineto_results.events()
    changes = [(it.start_ns(), it.nbytes()) for it in results if it.name() == "[memory]"]
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most / 2**20


def peak_of_budget(
    scheme: str,
    edit: Edit,
    heads: list[int] | None = None,
    length: int = 128,
    padded: bool = True,
    parts: dict[str, Any] | None = None,
    **switches: Any,
) -> float:
    """Peak as a share of the budget, which has room for two sequences with all their variants."""
    torch.manual_seed(0)
    task = TASK
    if length > task.max_length:
        task = Distance(DistanceSettings(between=length - 58, aside=28, words=1500))
    settings = ModelSettings(**{"layers": 2, "heads": HEADS, "width": 64} | switches)
    model = build(scheme, task, settings, parts or {}).eval()
    sites = TransformerSites(model)
    lengths_B = torch.full((12,), length)
    if padded:  # all differ, so that every batch pads
        lengths_B -= torch.arange(12)
    data = Batch(torch.randint(3, 50, (12, length)), lengths_B, torch.zeros(12, dtype=torch.long))
    reference = Reference(sites, data)
    budget = 2 * (HEADS + 3) * sites.megabytes_per_row(length)
    effort = Effort(megabytes=budget, draws=1)
    # Once before, for what is made once: the reference's outputs, the libraries' own buffers.
    measure(data.rows(slice(0, 1)), edit, reference, effort, heads=heads)
    return peak_megabytes(lambda: measure(data, edit, reference, effort, heads=heads)) / budget


@pytest.mark.parametrize("heads", [None, [3]])
@pytest.mark.parametrize("edit", [Edit("head", "mean"), Edit("position", "resample")], ids=str)
@pytest.mark.parametrize("scheme", ["rope", "alibi", "t5", "mla"])
def test_what_is_held_stays_under_the_budget(
    scheme: str, edit: Edit, heads: list[int] | None
) -> None:
    share = peak_of_budget(scheme, edit, heads)
    assert 0.2 < ALLOCATOR * share < 1  # and is not overstated beyond use


@pytest.mark.parametrize(
    ("scheme", "given"),
    [
        ("alibi", {"length": 256}),
        ("t5", {"causal": True}),
        ("rope", {"causal": True, "length": 256}),
        ("t5", {"bias_per_layer": True}),
        ("rope", {"memory_from_embeddings": True}),
        ("mla", {"memory_from_embeddings": True}),
        ("rope", {"mask_padding": False, "length": 60}),
        ("rope", {"feedforward": 512}),
        ("rope", {"feedforward": 16}),
        ("mla", {"parts": {"mla": {"value_width": 40}}}),
        ("mla", {"parts": {"mla": {"content_width": 30, "key_value_rank": 100}}}),
    ],
    ids=str,
)
def test_so_it_does_for_other_models(scheme: str, given: dict[str, Any]) -> None:
    share = peak_of_budget(scheme, Edit(), **given)
    assert 0.2 < ALLOCATOR * share < 1


def test_a_bias_without_padding_is_one_for_all_rows_and_logits_are_not_held() -> None:
    padded = peak_of_budget("alibi", Edit(), length=256)
    alike = peak_of_budget("alibi", Edit(), length=256, padded=False)
    assert alike < padded / 2
