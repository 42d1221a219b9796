"""Small models of every scheme with weights that are nowhere special, and batches for them.

Shapes: B batch, L positions.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from poslens.model import STUDY, ModelSettings, Transformer, build
from poslens.tasks import Batch, Distance
from poslens.tasks.distance import DistanceSettings
from poslens.toeplitz import iid_batch

TASK = Distance(DistanceSettings(between=6, aside=3, words=20))  # up to 14 words
SIZES: dict[str, Any] = {"layers": 2, "heads": 4, "width": 32, "feedforward": 48}
SCHEMES = (*STUDY, "kerple", "xpos", "fire", "p-rope", "alibi+rope", "t5@2")
LENGTHS = [12, 7, 9, 12, 12, 5, 8, 11]


@pytest.fixture(scope="session", params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def small() -> Callable[..., Transformer]:
    """`small(scheme, seed, parts, **sizes)`: a small model, every weight moved off its start."""

    def make(
        scheme: str,
        seed: int = 0,
        parts: dict[str, dict[str, Any]] | None = None,
        **sizes: Any,
    ) -> Transformer:
        torch.manual_seed(seed)
        model = build(scheme, TASK, ModelSettings(**SIZES | sizes), parts).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.3 * torch.randn_like(weight)
        return model

    return make


@pytest.fixture(scope="session")
def trained() -> Callable[..., Transformer]:
    """`trained(scheme, causal)`: the same after some steps on the distance task."""

    @lru_cache
    def make(scheme: str, causal: bool = False) -> Transformer:
        torch.manual_seed(1)
        model = build(scheme, TASK, ModelSettings(**SIZES, causal=causal))
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        generator = torch.Generator().manual_seed(1)
        for _ in range(12):
            batch = TASK.sample(64, generator)
            loss = F.cross_entropy(model(batch.tokens_BL, batch.lengths_B), batch.labels_B)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model.eval()

    return make


@pytest.fixture(scope="session")
def tokens() -> Callable[..., Batch]:
    """`tokens(sequences, length, seed)`: independent tokens, as long as asked."""

    def make(sequences: int = 8, length: int = 12, seed: int = 0) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        return iid_batch(TASK.embeddings, sequences, length, generator)

    return make


@pytest.fixture(scope="session")
def padded(tokens: Callable[..., Batch]) -> Batch:
    """Eight sequences of different lengths; the first half has the longest too."""
    return Batch(tokens().tokens_BL, torch.tensor(LENGTHS), tokens().labels_B)
