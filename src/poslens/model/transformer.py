"""The standard model: a pre-norm Transformer that classifies a sequence.

Notable:
- padding is masked in attention and left out of the readout: it changes nothing;
- final norm before the readout; mean over real tokens, or the last real token;
- ReLU feed-forward of twice the width: the sizes of the study's released code, so that a
  difference from it is one of the switches, not one of taste;
- bidirectional or causal;
- what that code does otherwise is a switch each in `ModelSettings`, off by default
  (`poslens.model.published` has them all).

Shapes: B batch, L positions, H heads, E model width, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from poslens.encodings.base import Encoding, Shape
from poslens.errors import InputError
from poslens.model.attention import Attention, Context, head_width
from poslens.tasks.base import PAD

Readout = Literal["mean", "last"]
Activation = Literal["relu", "gelu"]
ExtraTable = Literal["none", "sinusoidal", "learned"]


@dataclass(frozen=True)
class ModelSettings:
    """Size and shape of the model, the same for every scheme, and how it differs from standard."""

    layers: int = 3
    """Attention and feed-forward, one after the other, this often."""
    heads: int = 8
    """Attention heads of a layer; they divide the width evenly."""
    width: int = 64
    """Of the residual stream."""
    feedforward: int = 128
    """Hidden units of a feed-forward."""
    causal: bool = False
    """Queries see no later keys."""
    readout: Readout = "mean"
    """The mean over the words, or the last word."""
    memory_from_embeddings: bool = False
    """Keys and values of every layer come from the input embeddings, without a norm."""
    extra_table: ExtraTable = "none"
    """A table of positions added to the input: half sines, half cosines, or learned from zero."""
    bias_per_layer: bool = False
    """Every layer learns its own biases (t5, kerple) instead of sharing them."""
    mask_padding: bool = True
    """Off: all sequences are padded to the task's greatest length, and padding counts as words."""
    final_norm: bool = True
    """A norm before the readout."""
    activation: Activation = "relu"
    """Of the feed-forward."""
    dropout: float = 0.0
    """In training: share dropped of attention weights (not mla's) and of sublayers' outputs."""

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "width", "feedforward"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; use 1 or more")
        for name, kinds in (
            ("readout", Readout),
            ("extra_table", ExtraTable),
            ("activation", Activation),
        ):
            if getattr(self, name) not in get_args(kinds):
                *others, last = (repr(kind) for kind in get_args(kinds))
                raise InputError(
                    f"{name} {getattr(self, name)!r} is unknown; use {', '.join(others)} or {last}"
                )
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout}; use a share from 0 to below 1")
        head_width(self.width, self.heads)

    def shape(self, max_length: int) -> Shape:
        """The attention shape of every layer, for sequences up to `max_length`."""
        width = head_width(self.width, self.heads)
        return Shape(self.width, self.heads, width, max_length, self.causal)


class Block(nn.Module):
    """One layer: attention, then feed-forward, each on a normalised copy of the residual stream."""

    def __init__(self, settings: ModelSettings, attention: Attention) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(settings.width)
        self.attention = attention
        self.feedforward_norm = nn.LayerNorm(settings.width)
        self.feedforward = nn.Sequential(
            nn.Linear(settings.width, settings.feedforward),
            nn.GELU() if settings.activation == "gelu" else nn.ReLU(),
            nn.Linear(settings.feedforward, settings.width),
        )
        self.dropout = nn.Dropout(settings.dropout) if settings.dropout else nn.Identity()

    def after(self, x_BLE: Tensor, update_BLE: Tensor) -> Tensor:
        """The layer's output, given what its attention adds to the residual stream."""
        x_BLE = x_BLE + self.dropout(update_BLE)
        return x_BLE + self.dropout(self.feedforward(self.feedforward_norm(x_BLE)))

    def forward(self, x_BLE: Tensor, context: Context) -> Tensor:
        return self.after(x_BLE, self.attention(self.attention_norm(x_BLE), context))


class Transformer(nn.Module):
    """Token embedding, blocks, final norm, readout. Build it with `poslens.model.schemes.build`.

    `encoding` serves all layers, or layer 0 alone where `upper_encodings` holds the others'.
    """

    def __init__(
        self,
        settings: ModelSettings,
        encoding: Encoding,
        attentions: list[Attention],
        embeddings: int,
        classes: int,
        upper_encodings: Sequence[Encoding] = (),
    ) -> None:
        super().__init__()
        self.settings = settings
        self.encoding = encoding
        self.upper_encodings = nn.ModuleList(upper_encodings)
        self.embedding = nn.Embedding(embeddings, settings.width)
        self.blocks = nn.ModuleList(Block(settings, attention) for attention in attentions)
        self.final_norm = nn.LayerNorm(settings.width) if settings.final_norm else nn.Identity()
        self.classifier = nn.Linear(settings.width, classes)

    @property
    def attentions(self) -> list[Attention]:
        """The attention of each layer."""
        found = [block.attention for block in self.blocks]
        return [attention for attention in found if isinstance(attention, Attention)]

    def embed(
        self, tokens_BL: Tensor, lengths_B: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Context]:
        """The residual stream before the first layer, and what all layers share.

        `positions` defaults to 0..L-1; (L,) or (B, L). Unmasked padding fills L up to the task's
        greatest length first, so that a sequence's scores do not depend on its batch.
        """
        settings = self.settings
        if not settings.mask_padding:
            missing = max(0, self.encoding.shape.max_length - tokens_BL.shape[1])
            tokens_BL = F.pad(tokens_BL, (0, missing), value=PAD)
            if positions is not None:
                beyond = torch.arange(1, missing + 1, device=positions.device)
                positions = torch.cat((positions, positions[..., -1:] + beyond), -1)
        length = tokens_BL.shape[1]
        steps = torch.arange(length, device=tokens_BL.device)
        if positions is None:
            positions = steps
        visible = None
        if settings.mask_padding and int(lengths_B.min()) < length:
            visible = (steps < lengths_B[:, None])[:, None, None, :]
        if settings.causal:
            past = steps[:, None] >= steps
            visible = past[None, None] if visible is None else visible & past
        x_BLE = self.encoding.embed(self.embedding(tokens_BL), positions)
        return x_BLE, Context(
            self.encoding,
            positions,
            visible,
            self.encoding.bias(positions, positions),
            memory_BLE=x_BLE if settings.memory_from_embeddings else None,
            encodings=self._encodings(),
            dropout=settings.dropout if self.training else 0.0,
        )

    def read(self, x_BLE: Tensor, lengths_B: Tensor) -> Tensor:
        """Class scores (B, C) from the residual stream after the last layer."""
        x_BLE = self.final_norm(x_BLE)
        steps = torch.arange(x_BLE.shape[1], device=x_BLE.device)
        if self.settings.readout == "last":
            pooled = x_BLE[torch.arange(len(x_BLE), device=x_BLE.device), lengths_B - 1]
        elif not self.settings.mask_padding:
            pooled = x_BLE.mean(1)
        else:
            real = (steps < lengths_B[:, None]).to(x_BLE.dtype)
            pooled = torch.einsum("ble,bl->be", x_BLE, real / lengths_B[:, None])
        return self.classifier(pooled)

    def forward(
        self, tokens_BL: Tensor, lengths_B: Tensor, positions: Tensor | None = None
    ) -> Tensor:
        """Class scores (B, C)."""
        x_BLE, context = self.embed(tokens_BL, lengths_B, positions)
        for layer, block in enumerate(self.blocks):
            x_BLE = block(x_BLE, context.at(layer))
        return self.read(x_BLE, lengths_B)

    def _encodings(self) -> tuple[Encoding, ...]:
        """One encoding per layer; empty where the layers share one."""
        uppers = [upper for upper in self.upper_encodings if isinstance(upper, Encoding)]
        return (self.encoding, *uppers) if uppers else ()
