"""Small models of every scheme, and batches whose padding holds words that must not matter."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from poslens.model import STUDY, ModelSettings, Transformer, build
from poslens.tasks import Batch, Distance
from poslens.tasks.distance import DistanceSettings

TASK = Distance(DistanceSettings(between=6, aside=3, words=20))  # up to 14 words, 6 classes
SIZES = {"layers": 2, "heads": 4, "width": 32, "feedforward": 48}
MULTI_HEAD = (
    *(scheme for scheme in STUDY if scheme != "mla"),
    *("kerple", "t5@2", "rope@3", "alibi+rope"),
)


@pytest.fixture(scope="session", params=MULTI_HEAD)
def multi_head_scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session", params=(*MULTI_HEAD, "mla"))
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def small() -> Callable[..., Transformer]:
    """`small(scheme, seed, parts, **sizes)`: a small model, initialised from the seed."""

    def make(
        scheme: str,
        seed: int = 0,
        parts: dict[str, dict[str, Any]] | None = None,
        **sizes: Any,
    ) -> Transformer:
        torch.manual_seed(seed)
        return build(scheme, TASK, ModelSettings(**SIZES | sizes), parts)

    return make


@pytest.fixture(scope="session")
def padded() -> Callable[..., Batch]:
    """`padded(lengths, columns, seed)`: random words everywhere, also where padding stands."""

    def make(lengths: list[int], columns: int = 0, seed: int = 0) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        shape = (len(lengths), max(columns, *lengths))
        tokens_BL = torch.randint(0, TASK.embeddings, shape, generator=generator)
        labels_B = torch.randint(0, TASK.classes, (len(lengths),), generator=generator)
        return Batch(tokens_BL, torch.tensor(lengths), labels_B)

    return make
