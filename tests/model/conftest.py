"""Small models of every scheme, and batches whose padding holds words that must not matter."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from poslens.model import PUBLISHED, STUDY, ModelSettings, Transformer, build, preset
from poslens.tasks import Batch, Distance
from poslens.tasks.distance import DistanceSettings

TASK = Distance(DistanceSettings(between=6, aside=3, words=20))  # up to 14 words, 6 classes
SIZES = {"layers": 2, "heads": 4, "width": 32, "feedforward": 48}
MULTI_HEAD = (
    *(scheme for scheme in STUDY if scheme != "mla"),
    *("kerple", "t5@2", "rope@3", "alibi+rope"),
)


# Every switch of the published model alone, then the presets: scheme, parts, model settings.
VARIANTS: dict[str, tuple[str, dict[str, dict[str, Any]], dict[str, Any]]] = {
    **{
        f"{scheme}, memory": (scheme, {}, {"memory_from_embeddings": True})
        for scheme in ("rope", "rope@1", "learned", "t5", "mla")
    },
    "rope, sinusoidal table": ("rope", {}, {"extra_table": "sinusoidal"}),
    "mla, learned table": ("mla", {}, {"extra_table": "learned"}),
    "t5@2, own biases": ("t5@2", {}, {"bias_per_layer": True}),
    "alibi, padding": ("alibi", {}, {"mask_padding": False}),
    "nope, no final norm": ("nope", {}, {"final_norm": False}),
    "nope, gelu": ("nope", {}, {"activation": "gelu"}),
    "alibi, slopes": ("alibi", {"alibi": {"slopes": "published"}}, {}),
    "t5, exact": ("t5", {"t5": {"exact": True}}, {}),
    "rope, step": ("rope", {"rope": {"step": "published"}}, {}),
    "mla, one rotary query": ("mla", {"mla": {"shared_rotary_query": True}}, {}),
    **{
        f"{name}, published": (name, preset(name).parts, preset(name).model)
        for name in (row.replace("@k", "@2") for row in PUBLISHED)
    },
}


@pytest.fixture(scope="session", params=VARIANTS)
def variant(request: pytest.FixtureRequest, small: Callable[..., Transformer]) -> Any:
    """`variant(**sizes)`: a small model with one switch of the published model, or all of them."""
    scheme, parts, switches = VARIANTS[request.param]

    def make(**sizes: Any) -> Transformer:
        return small(scheme, parts=parts, **switches | sizes).eval()

    return make


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
