"""The seam for looking at heads and editing them: what every analysis may ask of a model.

A model, our own or a pretrained one, is a stack of layers whose heads write into a residual stream.
Analyses walk it as: `enter` a layer, take its `heads`' outputs, turn outputs into what they
`write`, and `leave` with changed writes for the scores. Prefix and attention are computed once,
however many variants leave.

Shapes: N variants, B batch, L positions, H heads, D head width, E model width, C classes.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from poslens.encodings.base import Door, doors
from poslens.errors import InputError
from poslens.model.attention import Context
from poslens.model.positions import PositionEdit
from poslens.model.transformer import Transformer
from poslens.tasks import Batch

# What a process takes beside what its tensors hold, as a factor: of memory in large pieces that
# come and go, C libraries keep a multiple.
ALLOCATOR = 4


@dataclass(frozen=True)
class State:
    """The residual stream (B, L, E) on its way into `layer`, and what that model's layers share."""

    layer: int
    x_BLE: Tensor
    context: Any
    lengths_B: Tensor


class Sites(Protocol):
    """What analyses may ask of a model. Layers and heads count from 0."""

    @property
    def layers(self) -> int: ...

    def heads_in(self, layer: int) -> int: ...

    def enter(self, batch: Batch, layer: int = 0) -> State:
        """The state before `layer`."""
        ...

    def heads(
        self,
        state: State,
        gains_BH: Tensor | None = None,
        position_BLE: Tensor | None = None,
    ) -> Tensor:
        """Outputs (B, H, L, D) of the layer's heads under the given positional gains.

        `position_BLE` is the part of the attention's input that is position, for tables. Raises
        InputError for gains where position enters neither table, queries, keys nor logits.
        """
        ...

    def logits(
        self,
        state: State,
        gains_BH: Tensor | None = None,
        position_BLE: Tensor | None = None,
    ) -> Tensor:
        """The layer's attention logits (B, H, L, M), gains as in `heads`.

        NaN where a query sees no key, and in the rows of queries that are padding.
        """
        ...

    def heads_told(self, state: State, edit: PositionEdit) -> Tensor:
        """Outputs (B, H, L, D) of the layer's heads with position edited in each; values untouched.

        Raises InputError where position enters by none of the doors that the edit is about.
        """
        ...

    def megabytes_per_row(self, length: int) -> float:
        """About what one batch row of a forward pass takes at this length."""
        ...

    def write(self, state: State, outputs_BHLD: Tensor, heads: list[int] | None = None) -> Tensor:
        """What head outputs add to the residual stream (B, L, E); linear in the outputs.

        With `heads`, the outputs are of these heads alone and constants are left out.
        """
        ...

    def advance(self, state: State, update_BLE: Tensor) -> State:
        """The state before the next layer, given what this layer's heads wrote."""
        ...

    def leave(self, state: State, updates_NBLE: Tensor) -> Tensor:
        """Scores (N, B, C) of N variants of what this layer's heads wrote."""
        ...


class TransformerSites:
    """`Sites` of our own models."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    @property
    def layers(self) -> int:
        return len(self.model.blocks)

    def heads_in(self, layer: int) -> int:
        return self.model.settings.heads

    def enter(self, batch: Batch, layer: int = 0) -> State:
        check_layer(self, layer)
        x_BLE, context = self.model.embed(batch.tokens_BL, batch.lengths_B)
        for below, block in enumerate(self.model.blocks[:layer]):
            x_BLE = block(x_BLE, context.at(below))
        return State(layer, x_BLE, context.at(layer), batch.lengths_B)

    def heads(
        self,
        state: State,
        gains_BH: Tensor | None = None,
        position_BLE: Tensor | None = None,
    ) -> Tensor:
        if gains_BH is not None:
            self._require(position_BLE, ("rotation", "bias"))
        block = self._block(state)
        x_BLE = block.attention_norm(state.x_BLE)
        heads_BHLD: Tensor = block.attention.heads(x_BLE, state.context, gains_BH, position_BLE)
        return heads_BHLD

    def logits(
        self,
        state: State,
        gains_BH: Tensor | None = None,
        position_BLE: Tensor | None = None,
    ) -> Tensor:
        if gains_BH is not None:
            self._require(position_BLE, ("rotation", "bias"))
        block, context = self._block(state), state.context
        x_BLE = block.attention_norm(state.x_BLE)
        logits_BHLM: Tensor = block.attention.logits(x_BLE, context, gains_BH, position_BLE)
        if context.visible is not None:
            logits_BHLM = logits_BHLM.masked_fill(~context.visible, float("nan"))
        steps = torch.arange(x_BLE.shape[1], device=x_BLE.device)
        padding_BL = steps >= state.lengths_B[:, None]
        return logits_BHLM.masked_fill(padding_BL[:, None, :, None], float("nan"))

    def heads_told(self, state: State, edit: PositionEdit) -> Tensor:
        self._require(edit.position_BLE, edit.doors)
        block, context = self._block(state), state.context
        memory_shift_BLE = None
        if edit.position_BLE is not None and context.memory_BLE is not None:
            # A memory holds the table as it was added, whatever the layer.
            memory_shift_BLE = edit.shift(context.table_BLE)
        return block.attention.heads_shifted(
            block.attention_norm(state.x_BLE),
            edit.shift(edit.position_BLE),
            edit.context(context),
            memory_shift_BLE,
        )

    def megabytes_per_row(self, length: int) -> float:
        settings = self.model.settings
        if not settings.mask_padding:
            length = max(length, self.model.encoding.shape.max_length)
        # The stream, what heads write to it, their sum and its norm; and of the attention (what
        # linear maps give, what the kernel takes and gives) or the feed-forward (both maps, once
        # more with what is made from them), whichever is more.
        attention: Any = self.model.blocks[0].attention
        made = sum(map.out_features for map in attention.modules() if isinstance(map, nn.Linear))
        made += 4 * settings.heads * attention.kernel_width
        widths = 4 * settings.width + max(made, 2 * (settings.feedforward + settings.width))
        # Padding gives every row a mask of its own: the bias, and what is causal as bytes too.
        masks: float = settings.heads if "bias" in doors(self.model.encoding) else 0
        masks += 1.25 if settings.causal else 0
        return ALLOCATOR * 4 * (length * widths + length**2 * masks) / 2**20

    def write(self, state: State, outputs_BHLD: Tensor, heads: list[int] | None = None) -> Tensor:
        return self._block(state).attention.write(outputs_BHLD, heads)

    def advance(self, state: State, update_BLE: Tensor) -> State:
        x_BLE = self._block(state).after(state.x_BLE, update_BLE)
        layer = state.layer + 1
        context = state.context.at(layer) if layer < self.layers else state.context
        return replace(state, layer=layer, x_BLE=x_BLE, context=context)

    def leave(self, state: State, updates_NBLE: Tensor) -> Tensor:
        variants = len(updates_NBLE)
        # Variants ride as extra batch rows; the sum below also repeats the shared stream.
        x_RLE = self._block(state).after(state.x_BLE, updates_NBLE).flatten(0, 1)
        context: Context = state.context.repeat(variants)
        for layer in range(state.layer + 1, self.layers):
            x_RLE = self.model.blocks[layer](x_RLE, context.at(layer))
        scores = self.model.read(x_RLE, state.lengths_B.repeat(variants))
        return scores.unflatten(0, (variants, -1))

    def _block(self, state: State) -> Any:
        return self.model.blocks[state.layer]

    def _require(self, position_BLE: Tensor | None, asked: Collection[Door]) -> None:
        """Raises InputError where there is nothing to take: no position part and no such door."""
        if position_BLE is None and not doors(self.model.encoding) & {*asked} - {"table"}:
            raise InputError(
                "the scheme has no position in its attention that could be taken away; "
                "use one that has, such as rope, alibi or a table with its position part"
            )


def check_layer(sites: Sites, layer: int) -> None:
    """Raises InputError for a layer that the model does not have."""
    if not 0 <= layer < sites.layers:
        raise InputError(f"layer {layer} is out of range; the model has 0..{sites.layers - 1}")


def check_head(sites: Sites, layer: int, head: int) -> None:
    """Raises InputError for a layer or head that the model does not have."""
    check_layer(sites, layer)
    if not 0 <= head < sites.heads_in(layer):
        raise InputError(
            f"head {head} is out of range; layer {layer} has 0..{sites.heads_in(layer) - 1}"
        )
