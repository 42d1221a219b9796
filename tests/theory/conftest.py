"""Small models in double precision and data for them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from poslens.model import ModelSettings, Transformer, build
from poslens.tasks import Distance
from poslens.tasks.distance import DistanceSettings

TASK = Distance(DistanceSettings(between=6, aside=3, words=20))  # up to 14 words


@pytest.fixture(scope="session")
def task() -> Distance:
    return TASK


@pytest.fixture(scope="session")
def exact() -> Callable[..., Transformer]:
    """`exact(scheme, parts, **sizes)`: a small model in float64, in evaluation mode, frozen."""

    def make(scheme: str, parts: Any = None, **sizes: Any) -> Transformer:
        torch.manual_seed(0)
        settings = {"layers": 2, "heads": 4, "width": 32, "feedforward": 48} | sizes
        model = build(scheme, TASK, ModelSettings(**settings), parts)
        return model.double().eval().requires_grad_(False)

    return make
