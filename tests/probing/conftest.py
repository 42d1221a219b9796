"""Small models with weights that are nowhere special, and streams with position planted in them.

Shapes: B batch, L positions, E model width.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from poslens.model import ModelSettings, Transformer, build
from poslens.tasks import Distance
from poslens.tasks.distance import DistanceSettings

TASK = Distance(DistanceSettings(between=6, aside=3, words=20))  # up to 14 words


@pytest.fixture(scope="session")
def task() -> Distance:
    return TASK


@pytest.fixture(scope="session")
def small() -> Callable[..., Transformer]:
    """`small(scheme, **sizes)`: a small model, every weight moved off its start."""

    def make(scheme: str, seed: int = 0, **sizes: Any) -> Transformer:
        torch.manual_seed(seed)
        settings = {"layers": 2, "heads": 4, "width": 32, "feedforward": 48} | sizes
        model = build(scheme, TASK, ModelSettings(**settings)).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.3 * torch.randn_like(weight)
        return model

    return make


@pytest.fixture(scope="session")
def planted() -> Callable[..., Tensor]:
    """`planted(size)`: standard normal content and, along one direction, size times position."""

    def make(
        size: float, sequences: int = 600, length: int = 12, width: int = 16, seed: int = 0
    ) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        x_BLE = torch.randn(sequences, length, width, generator=generator)
        direction_E = torch.nn.functional.normalize(torch.ones(width), dim=0)
        return x_BLE + size * torch.arange(length)[:, None] * direction_E

    return make
