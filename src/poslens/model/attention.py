"""Multi-head attention with three doors for position, and what all layers of a forward pass share.

Notable:
- the encoding is handed in with the `Context`, so one attention serves every encoding;
- head outputs and their way into the residual stream are separate steps (`heads`, `write`):
  looking at heads and editing them needs no hooks;
- fused attention unless logits or positional gains are asked for;
- keys and values may come from a memory instead of the layer's own input.

Shapes: B batch, L query positions, M key positions, H heads, D head width, E model width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from poslens.encodings.base import Encoding, Shape, doors
from poslens.errors import InputError
from poslens.model.gained_bias import GainedBias


@dataclass(frozen=True)
class Context:
    """What every layer of one forward pass shares.

    `visible` is a boolean mask broadcastable to (B, H, L, M), True where a query may see a key, or
    None where all see all; `bias` is what the encoding adds to the logits, or None.
    `memory_BLE` is what keys and values are made from, None where that is the layer's own input.
    `encodings` holds one encoding per layer where they do not share one. `dropout` is the share of
    attention weights dropped, above 0 in training only.
    """

    encoding: Encoding
    positions: Tensor
    visible: Tensor | None
    bias: Tensor | None
    memory_BLE: Tensor | None = None
    encodings: tuple[Encoding, ...] = ()
    dropout: float = 0.0

    def at(self, layer: int) -> "Context":
        """The context of one layer: this one, unless every layer has an encoding of its own."""
        if not self.encodings:
            return self
        encoding = self.encodings[layer]
        return replace(self, encoding=encoding, bias=encoding.bias(self.positions, self.positions))

    @cached_property
    def mask(self) -> Tensor | None:
        """Bias and visibility as the one mask that fused attention takes.

        It has four dimensions: with three, kernels give up and hold the logits.
        """
        if self.bias is None or self.visible is None:
            mask = self.visible if self.bias is None else self.bias
        else:
            mask = self.bias.masked_fill(~self.visible, float("-inf"))
        return mask[None] if mask is not None and mask.dim() == 3 else mask

    @cached_property
    def table_BLE(self) -> Tensor:
        """What the encoding added to the embeddings that the memory is made of."""
        assert self.memory_BLE is not None
        return self.encoding.embed(torch.zeros_like(self.memory_BLE), self.positions)

    def repeat(self, times: int) -> "Context":
        """The context of `times` copies of the batch, stacked along its first dimension.

        The copies share the memory: what is made from it is made once (`copied`).
        """

        def stack(tensor: Tensor | None, unbatched: int) -> Tensor | None:
            if tensor is None or tensor.dim() == unbatched or tensor.shape[0] == 1:
                return tensor
            return tensor.repeat(times, *[1] * (tensor.dim() - 1))

        positions = stack(self.positions, 1)
        assert positions is not None
        return replace(
            self, positions=positions, visible=stack(self.visible, 2), bias=stack(self.bias, 3)
        )


@dataclass(frozen=True)
class Channel:
    """Head channels under one kernel: images of the parts of an attention input, not yet rotated.

    One tensor a part, queries (B, H, L, D) and keys (B, H, M, D), with size 1 where they do not
    vary: keys that all heads share, a part that is the same for all sequences or positions.
    `rotated` says whether the encoding's `rotate` acts here; the name is empty where a head has
    one channel.
    """

    name: str
    queries: tuple[Tensor, ...]
    keys: tuple[Tensor, ...]
    rotated: bool = True


class Attention(nn.Module):
    """What the two attention modules share: fused attention, logits, positional gain.

    A subclass gives `queries_keys_values` (with and without position), `write` and `scale`.
    """

    heads_count: int
    gain_H: nn.Parameter | None  # positional gains that are learned (`model.gains`)
    scale: float
    kernel_width: int  # of queries, keys and values alike: fused CPU kernels want one
    output: nn.Linear
    drops_weights = True  # whether dropout acts on attention weights

    def __init__(self, shape: Shape, encoding: Encoding, settings: Any = None) -> None:
        super().__init__()
        self.heads_count = shape.heads
        self.register_parameter("gain_H", None)

    @staticmethod
    def encoding_shape(shape: Shape, settings: Any = None) -> Shape:
        """The shape of the queries and keys that the encoding's `rotate` receives."""
        return shape

    def queries_keys_values(
        self, x_BLE: Tensor, context: Context, positioned: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, L, D), keys (B, H, M, D), values (B, H, M, D').

        `positioned=False` leaves the rotation out: every channel at angle 0.
        """
        raise NotImplementedError

    def images(self, parts: Sequence[Tensor], x_BLE: Tensor) -> list[Channel]:
        """Images of parts of x under the query and key projections, channel by channel.

        Linear in the parts: norms inside the projections divide by the statistics of x, and biases
        go to part 0. Parts that add up to x have images that add up to its queries and keys. A part
        is (B, L, E), with size 1 where it does not vary.
        """
        raise NotImplementedError

    def logits(
        self,
        x_BLE: Tensor,
        context: Context,
        gains_BH: Tensor | None = None,
        position_BLE: Tensor | None = None,
    ) -> Tensor:
        """Scores before the softmax, (B, H, L, M): scale and bias in, mask not.

        `gains_BH` interpolates between the logits without position (0) and with it (1):
        logits = without + gain (with - without), one gain per row and head. `position_BLE` is the
        part of x that is position where a table adds it to the residual stream: queries and keys
        are then without it, too (norms inside the projections keep the statistics of x). Gains that
        are learned come on top.
        """
        gains_BH = self._with_learned(gains_BH, len(x_BLE))
        queries, keys, _ = self._gained(x_BLE, context, gains_BH, position_BLE)
        logits = self.scale * queries @ keys.mT
        bias = _gained_bias(context, gains_BH)
        return logits if bias is None else logits + bias

    def heads(
        self,
        x_BLE: Tensor,
        context: Context,
        gains_BH: Tensor | None = None,
        position_BLE: Tensor | None = None,
    ) -> Tensor:
        """Outputs of the heads before the output projection, (B, H, L, D); gains as in `logits`."""
        gains_BH = self._with_learned(gains_BH, len(x_BLE))
        queries, keys, values = self._gained(x_BLE, context, gains_BH, position_BLE)
        if gains_BH is None or context.bias is None:
            return self._attend(queries, keys, values, context)
        if gains_BH.requires_grad and not context.bias.requires_grad:
            return self._attend(queries, keys, values, context, gains_BH)
        under = replace(context, bias=_gained_bias(context, gains_BH))
        return self._attend(queries, keys, values, under)

    def _with_learned(self, gains_BH: Tensor | None, rows: int) -> Tensor | None:
        if self.gain_H is None:
            return gains_BH
        return self.gain_H.expand(rows, -1) if gains_BH is None else gains_BH * self.gain_H

    def _gained(
        self,
        x_BLE: Tensor,
        context: Context,
        gains_BH: Tensor | None,
        position_BLE: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values whose logits, the bias aside, are those under the gains.

        (1 - gain) q0 k0 + gain q k is one product of queries and keys of twice the width, so fused
        attention serves gains, too, and its gradient by them. Where position is in the bias alone,
        q0 k0 is q k.
        """
        queries, keys, values = self.queries_keys_values(x_BLE, context)
        if gains_BH is None:
            return queries, keys, values
        gains = gains_BH[..., None, None]
        if position_BLE is None and "rotation" not in doors(context.encoding):
            return queries, keys, values
        if position_BLE is None:
            still_q, still_k, _ = self.queries_keys_values(x_BLE, context, positioned=False)
        else:
            table_BLE = None if context.memory_BLE is None else -context.table_BLE
            still_q, still_k = self._shifted(
                x_BLE, -position_BLE, context, table_BLE, positioned=False
            )
        queries = torch.cat([(1 - gains) * still_q, gains * queries], -1)
        keys = torch.cat([still_k.expand_as(keys), keys], -1)
        return queries, keys, values

    def heads_shifted(
        self,
        x_BLE: Tensor,
        shift_BLE: Tensor | None,
        context: Context,
        memory_shift_BLE: Tensor | None = None,
    ) -> Tensor:
        """Head outputs with queries and keys, not values, made from x + shift.

        Keys made from a memory are made from memory + memory shift instead. Norms inside the
        projections keep the statistics of x and memory.
        """
        if shift_BLE is None:
            return self.heads(x_BLE, context)
        queries, keys = self._shifted(x_BLE, shift_BLE, context, memory_shift_BLE)
        values = self.queries_keys_values(x_BLE, context)[2]
        return self._attend(queries, keys, values, context)

    def _shifted(
        self,
        x_BLE: Tensor,
        shift_BLE: Tensor,
        context: Context,
        memory_shift_BLE: Tensor | None,
        positioned: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys (B, H, L, D) made from x + shift, under the statistics of x."""
        asking = answering = self.images([x_BLE, shift_BLE], x_BLE)
        if context.memory_BLE is not None:
            assert memory_shift_BLE is not None
            answering = self.images([context.memory_BLE, memory_shift_BLE], context.memory_BLE)
        queries, keys = [], []
        for channel, other in zip(asking, answering, strict=True):
            q_BHLD = channel.queries[0] + channel.queries[1]
            k_BHMD = other.keys[0] + other.keys[1]
            if channel.rotated and positioned:
                positions = context.positions
                q_BHLD, k_BHMD = context.encoding.rotate(q_BHLD, k_BHMD, positions, positions)
            queries.append(q_BHLD)
            keys.append(k_BHMD.expand(-1, self.heads_count, -1, -1))
        return torch.cat(queries, -1), torch.cat(keys, -1)

    def _attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        context: Context,
        gains_BH: Tensor | None = None,
    ) -> Tensor:
        """Fused attention; with gains, the context's bias is under them."""
        width, wide = values.shape[-1], max(self.kernel_width, queries.shape[-1])
        queries, keys, values = (
            F.pad(part, (0, missing)) if (missing := wide - part.shape[-1]) else part
            for part in (queries, keys, values)
        )
        if gains_BH is not None:
            outputs: Tensor = GainedBias.apply(
                *(queries, keys, values, gains_BH, context.bias, context.visible, self.scale)
            )
            return outputs[..., :width]
        outputs = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=context.mask,
            dropout_p=context.dropout if self.drops_weights else 0.0,
            scale=self.scale,
        )
        return outputs[..., :width]

    def write(self, outputs_BHLD: Tensor, heads: list[int] | None = None) -> Tensor:
        """What head outputs add to the residual stream, (B, L, E).

        With `heads`, `outputs_BHLD` holds the outputs of these heads only and the constant of the
        output projection is left out, so that sums over disjoint sets of heads add up.
        """
        joined = outputs_BHLD.transpose(1, 2).flatten(2)
        if heads is None:
            return self.output(joined)
        weights_EHD = self.output.weight.unflatten(1, (self.heads_count, -1))
        return joined @ weights_EHD[:, heads].flatten(1).T

    def forward(self, x_BLE: Tensor, context: Context) -> Tensor:
        return self.write(self.heads(x_BLE, context))


class MultiHeadAttention(Attention):
    """Attention as in Vaswani et al. 2017, one joint projection for queries, keys and values."""

    def __init__(self, shape: Shape, encoding: Encoding, settings: Any = None) -> None:
        super().__init__(shape, encoding)
        self.scale = shape.head_width**-0.5
        self.kernel_width = shape.head_width
        self.input = nn.Linear(shape.width, 3 * shape.width)
        self.output = nn.Linear(shape.width, shape.width)

    def queries_keys_values(
        self, x_BLE: Tensor, context: Context, positioned: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        if context.memory_BLE is None:
            queries, keys, values = self._split(self.input(x_BLE), 3)
        else:
            width = x_BLE.shape[-1]
            weight, bias = self.input.weight, self.input.bias
            (queries,) = self._split(F.linear(x_BLE, weight[:width], bias[:width]), 1)
            memory = F.linear(context.memory_BLE, weight[width:], bias[width:])
            keys, values = self._split(memory, 2)
            if context.positions.dim() > 1:  # each row, copies too, has positions of its own
                keys = copied(keys, len(x_BLE))
        if positioned:
            queries, keys = context.encoding.rotate(
                queries, keys, context.positions, context.positions
            )
        return queries, copied(keys, len(x_BLE)), copied(values, len(x_BLE))

    def images(self, parts: Sequence[Tensor], x_BLE: Tensor) -> list[Channel]:
        both = 2 * x_BLE.shape[-1]
        queries, keys = [], []
        for number, part_BLE in enumerate(parts):
            bias = self.input.bias[:both] if number == 0 else None
            joint = F.linear(part_BLE, self.input.weight[:both], bias)
            joint = joint.unflatten(-1, (2, self.heads_count, -1)).permute(2, 0, 3, 1, 4)
            queries.append(joint[0])
            keys.append(joint[1])
        return [Channel("", tuple(queries), tuple(keys))]

    def _split(self, joint: Tensor, parts: int) -> Tensor:
        """Joint projections (B, L, parts E) by part and head, (parts, B, H, L, D)."""
        return joint.unflatten(-1, (parts, self.heads_count, -1)).permute(2, 0, 3, 1, 4)


def _gained_bias(context: Context, gains_BH: Tensor | None) -> Tensor | None:
    """The bias under the gains, (B, H, L, M); as it is without gains, None where there is none."""
    if gains_BH is None or context.bias is None:
        return context.bias
    return gains_BH[..., None, None] * context.bias


def copied(made: Tensor, rows: int) -> Tensor:
    """What was made from a memory, repeated for `rows` rows: copies of the batch that share it."""
    times = rows // len(made)
    return made if times == 1 else made.repeat(times, *[1] * (made.dim() - 1))


def head_width(width: int, heads: int) -> int:
    """Width of one head; InputError unless the heads divide the model width evenly."""
    if width % heads:
        raise InputError(
            f"width {width} is not divisible by {heads} heads; "
            f"use a multiple of {heads}, such as {max(heads, width - width % heads)}"
        )
    return width // heads
