"""The ways of removing a head, or of taking position from it: what its output is replaced by.

Shapes: B batch, L positions, H heads, D head width, E model width, R reference sequences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from poslens.encodings.base import Door
from poslens.errors import InputError
from poslens.model import Sites, State
from poslens.model.positions import PositionEdit, offset_weights, permuted
from poslens.tasks import Batch, Task, generator_for, held_out

Target = Literal["head", "position", "table", "rotation", "bias"]
Method = Literal["zero", "none", "mean", "resample"]
METHODS: dict[str, tuple[str, ...]] = {
    "head": ("zero", "mean", "resample"),
    "position": ("none", "mean", "resample"),
    "table": ("none", "resample"),
    "rotation": ("none", "mean", "resample"),
    "bias": ("none", "mean", "resample"),
}
DOORS: dict[str, tuple[Door, ...]] = {
    "position": ("table", "rotation", "bias"),
    "table": ("table",),
    "rotation": ("rotation",),
    "bias": ("bias",),
}
MOST_DRAWS = 64
# Gives the part of a layer's attention input that is position, (B or 1, L, E); None where the
# encoding adds nothing to the residual stream.
PositionPart = Callable[[State], Tensor | None]


@dataclass(frozen=True)
class Edit:
    """What is done to a head.

    Target *head* replaces its output: by zero, by its mean over real positions of the reference
    set, or by its output at the same position in another sequence of equal length. Target
    *position* leaves the head and takes its position: gain 0 (none), its kernel's mean over offsets
    (mean), or positions permuted within the sequence (resample). *table*, *rotation* and *bias* do
    so at one door of a hybrid alone.
    Raises InputError for a method that the target does not have.
    """

    target: Target = "head"
    method: str = "zero"

    def __post_init__(self) -> None:
        if self.target not in get_args(Target):
            raise InputError(f"unknown target {self.target!r}; use one of: {', '.join(METHODS)}")
        if self.method not in METHODS[self.target]:
            raise InputError(
                f"target {self.target!r} has no method {self.method!r}; "
                f"it has: {', '.join(METHODS[self.target])}"
            )

    @property
    def random(self) -> bool:
        """Whether its effect is averaged over draws."""
        return self.method == "resample"


def no_position_part(state: State) -> Tensor | None:
    """For encodings that add nothing to the residual stream."""
    return None


def reference_batch(task: Task, lengths_B: Tensor, size: int, seed: int) -> Batch:
    """`size` sequences for edits to replace from, and more until every length asked for is there.

    Raises InputError where the task hardly ever gives one of the lengths.
    """
    batch = held_out(task, size, seed, "reference")
    for step in range(1, MOST_DRAWS + 1):
        have = batch.lengths_B.unique()
        missing = [n for n in lengths_B.unique().tolist() if n not in have]
        if not missing:
            return batch
        more = task.sample(size, generator_for(seed, "reference", step))
        wanted = torch.isin(more.lengths_B, torch.tensor(missing))
        batch = Batch.joined([batch, more.rows(wanted)])
    raise InputError(
        f"in {MOST_DRAWS * size} reference sequences none has {missing[0]} words; "
        "use a larger reference set"
    )


@dataclass(frozen=True)
class Reference:
    """Sequences that edits take their replacements from; never those that effects are measured on.

    Head outputs of every layer are computed on first use and kept. `part` finds the position in a
    layer's attention input. Draws follow from `seed`.
    """

    sites: Sites
    batch: Batch
    causal: bool = False
    part: PositionPart = no_position_part
    seed: int = 0
    _means: dict[int, Tensor] = field(default_factory=dict)

    def replacement(
        self,
        edit: Edit,
        state: State,
        outputs_BHLD: Tensor,
        draw: int = 0,
        numbers: Sequence[int] | None = None,
    ) -> Tensor:
        """What each head's output is replaced by if that head alone is edited, (B, H, L, D).

        Random choices follow from `draw` and each sequence's number in the data (`numbers`, by
        default from 0 on): they do not depend on how the data is cut into batches.
        """
        numbers = range(len(outputs_BHLD)) if numbers is None else numbers
        if edit.target != "head":
            return self.sites.heads_told(state, self._position_edit(edit, state, draw, numbers))
        if edit.method == "zero":
            return torch.zeros_like(outputs_BHLD)
        if edit.method == "mean":
            return self._mean(state.layer)[:, None].expand_as(outputs_BHLD)
        donors_B = self._donors(state, draw, numbers)
        length = outputs_BHLD.shape[2]
        return self._outputs[state.layer][donors_B, :, :length]

    @cached_property
    def _outputs(self) -> list[Tensor]:
        """Head outputs (R, H, L, D) of every layer."""
        state, outputs = self.sites.enter(self.batch), []
        for layer in range(self.sites.layers):
            outputs.append(self.sites.heads(state))
            if layer + 1 < self.sites.layers:
                state = self.sites.advance(state, self.sites.write(state, outputs[-1]))
        return outputs

    def _mean(self, layer: int) -> Tensor:
        """Each head's mean output over real positions, (H, D)."""
        if layer not in self._means:
            outputs_RHLD = self._outputs[layer]
            steps = torch.arange(outputs_RHLD.shape[2], device=outputs_RHLD.device)
            real_RL = (steps < self.batch.lengths_B[:, None]).to(outputs_RHLD.dtype)
            total_HD = torch.einsum("rhld,rl->hd", outputs_RHLD, real_RL)
            self._means[layer] = total_HD / real_RL.sum()
        return self._means[layer]

    def _generators(self, what: str, draw: int, numbers: Sequence[int]) -> list[torch.Generator]:
        """One for each of the sequences with these numbers."""
        return [generator_for(self.seed, f"{what}-{draw}", number) for number in numbers]

    def _donors(self, state: State, draw: int, numbers: Sequence[int]) -> Tensor:
        """For each row a reference sequence of its length, drawn anew in every draw."""
        generators = self._generators("donors", draw, numbers)
        donors_B = torch.empty_like(state.lengths_B)
        for length in state.lengths_B.unique():
            rows = (state.lengths_B == length).nonzero().flatten()
            pool = (self.batch.lengths_B == length).nonzero().flatten()
            if not len(pool):
                raise InputError(
                    f"no reference sequence has {int(length)} words; use a larger reference set"
                )
            picks = [
                torch.randint(len(pool), (), generator=generators[row]) for row in rows.tolist()
            ]
            donors_B[rows] = pool[torch.stack(picks).to(pool.device)]
        return donors_B

    def _position_edit(
        self, edit: Edit, state: State, draw: int, numbers: Sequence[int]
    ) -> PositionEdit:
        doors = DOORS[edit.target]
        part = self.part(state) if "table" in doors else None
        if edit.method == "none":
            return PositionEdit("none", position_BLE=part, doors=doors)
        if edit.method == "mean":
            offsets_O, weights_O = self._weights
            return PositionEdit("mean", offsets_O, weights_O, position_BLE=part, doors=doors)
        generators = self._generators(f"positions-{state.layer}", draw, numbers)
        order_BL = permuted(state.lengths_B, state.x_BLE.shape[1], generators)
        return PositionEdit("resample", order_BL=order_BL, position_BLE=part, doors=doors)

    @cached_property
    def _weights(self) -> tuple[Tensor, Tensor]:
        return offset_weights(self.batch.lengths_B, self.causal)
