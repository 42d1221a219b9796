"""Models planted with a pattern, measured from end to end: what carries position must be found.

A planted model answers by adding up what its heads say for the right class. It is written to the
protocol alone, so it also shows that the engine asks no more of a model than `Sites` says.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from poslens.errors import InputError
from poslens.heads import Edit, Reference, measure
from poslens.heads.concentration import concentration_rows
from poslens.heads.estimates import estimate
from poslens.model import ModelSettings, State, TransformerSites, build
from poslens.model.positions import PositionEdit
from poslens.tasks import Batch, Distance, held_out
from poslens.tasks.distance import DistanceSettings

CLASSES, SEQUENCES, LAYERS = 10, 1200, 2
BASELINE = 0.1


@dataclass(frozen=True)
class Planted:
    """`content` and `position`: what each head of layer 0 says for the right class, by its content
    and by its position. Layer 1 says nothing. The right class must reach 1 against noise below 1.
    `stream` is what the residual stream says without any head. With `random`, what position adds is
    for or against the right class, from sequence to sequence.
    """

    content: tuple[float, ...]
    position: tuple[float, ...]
    stream: float = 0.0
    random: bool = False
    layers: int = LAYERS

    def heads_in(self, layer: int) -> int:
        return len(self.content)

    def enter(self, batch: Batch, layer: int = 0) -> State:
        noise_BC = batch.tokens_BL[:, :CLASSES].double() / 1000
        right_BC = torch.nn.functional.one_hot(batch.labels_B, CLASSES)
        x_BLE = (noise_BC + self.stream * right_BC)[:, None]
        sign_B1 = 2 * (batch.tokens_BL[:, :1] % 2) - 1 if self.random else 1
        says = (right_BC.double(), (sign_B1 * right_BC).double())
        return State(layer, x_BLE, says, batch.lengths_B)

    def _says(self, state: State, weights: tuple[float, ...], what: int) -> Tensor:
        weights_H = torch.tensor(weights if state.layer == 0 else (0.0,) * len(weights))
        return torch.einsum("h,bc->bhc", weights_H.double(), state.context[what])[:, :, None]

    def heads(
        self, state: State, gains_BH: Tensor | None = None, position_BLE: Tensor | None = None
    ) -> Tensor:
        return self._says(state, self.content, 0) + self._says(state, self.position, 1)

    def heads_told(self, state: State, edit: PositionEdit) -> Tensor:
        assert edit.method == "none"
        if not any(self.position):
            raise InputError("no position")
        return self._says(state, self.content, 0)

    def megabytes_per_row(self, length: int) -> float:
        return 0.1

    def write(self, state: State, outputs_BHLD: Tensor, heads: list[int] | None = None) -> Tensor:
        return outputs_BHLD.sum(1)

    def advance(self, state: State, update_BLE: Tensor) -> State:
        return replace(state, layer=state.layer + 1, x_BLE=state.x_BLE + update_BLE)

    def leave(self, state: State, updates_NBLE: Tensor) -> Tensor:
        return (state.x_BLE + updates_NBLE)[:, :, 0]


def data() -> Batch:
    generator = torch.Generator().manual_seed(0)
    tokens_BL = torch.randint(1000, (SEQUENCES, CLASSES), generator=generator)
    labels_B = torch.randint(CLASSES, (SEQUENCES,), generator=generator)
    return Batch(tokens_BL, torch.full((SEQUENCES,), CLASSES), labels_B)


def verdicts(sites: Any, edit: Edit) -> list[str]:
    batch = data()
    found = measure(batch, edit, Reference(sites, batch.rows(slice(0, 8))))
    rows = concentration_rows({metric: estimate(it) for metric, it in found.items()}, BASELINE)
    return [row["verdict"] for row in rows if row["metric"] == "accuracy"]


HEAD, POSITION = Edit("head", "zero"), Edit("position", "none")
QUIET = (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("planted", "of_heads", "of_position"),
    [
        # One head carries all, by its position.
        (Planted(QUIET, (0.0, 0.0, 1.2, 0.0)), "deposit", "deposit"),
        # Two heads, neither enough alone.
        (Planted(QUIET, (0.6, 0.0, 0.6, 0.0)), "spread", "spread"),
        # One head carries all, by its content; position says something else than the answer.
        (Planted((0.0, 1.5, 0.0, 0.0), (0.1, 0.1, 0.1, 0.1), random=True), "deposit", "none"),
        # A head for content and another for position: zeroing cannot tell, the gain can.
        (Planted((0.6, 0.0, 0.0, 0.0), (0.0, 0.0, 0.6, 0.0)), "spread", "deposit"),
        # Heads at random: the answer stands in the residual stream without them.
        (Planted(QUIET, (0.1, 0.1, 0.1, 0.1), stream=1.5, random=True), "none", "none"),
        # Nothing to lose.
        (Planted(QUIET, (0.0, 0.0, 0.05, 0.0)), "undecidable", "undecidable"),
    ],
)
def test_planted_patterns_are_found(planted: Planted, of_heads: str, of_position: str) -> None:
    assert verdicts(planted, HEAD)[0] == of_heads
    assert verdicts(planted, POSITION)[0] == of_position
    above = "undecidable" if of_heads == "undecidable" else "none"
    assert [verdicts(planted, edit)[1] for edit in (HEAD, POSITION)] == [above, above]


def test_an_untrained_model_is_undecidable_and_the_position_of_nope_undefined() -> None:
    task = Distance(DistanceSettings(between=6, aside=3, words=20))
    batch = held_out(task, 300, seed=0)
    settings = ModelSettings(layers=2, heads=4, width=32, feedforward=32)
    for scheme in ("nope", "rope"):
        torch.manual_seed(0)
        sites = TransformerSites(build(scheme, task, settings).eval())
        reference = Reference(sites, batch.rows(slice(0, 8)))
        found = measure(batch, HEAD, reference)
        rows = concentration_rows(
            {metric: estimate(it) for metric, it in found.items()}, task.baseline().value
        )
        assert {row["verdict"] for row in rows} == {"undecidable"}
        if scheme == "nope":
            with pytest.raises(InputError, match="no position in its attention"):
                measure(batch, POSITION, reference)
