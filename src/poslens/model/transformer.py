"""The standard model: a pre-norm Transformer that classifies a sequence.

Notable:
- padding is masked in attention and left out of the readout: it changes nothing;
- final norm before the readout; mean over real tokens, or the last real token;
- ReLU feed-forward of twice the width, no dropout: the sizes of the study's released code, so that
  a difference from it is one of the switches, not one of taste;
- bidirectional or causal.

Shapes: B batch, L positions, H heads, E model width, C classes.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from poslens.encodings.base import Encoding, Shape
from poslens.errors import InputError
from poslens.model.attention import Attention, Context, head_width


@dataclass(frozen=True)
class ModelSettings:
    """Size and shape of the model, the same for every scheme."""

    layers: int = 3
    heads: int = 8
    width: int = 64
    feedforward: int = 128
    causal: bool = False
    readout: Literal["mean", "last"] = "mean"

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "width", "feedforward"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; use 1 or more")
        if self.readout not in ("mean", "last"):
            raise InputError(f"readout {self.readout!r} is unknown; use 'mean' or 'last'")
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
            nn.ReLU(),
            nn.Linear(settings.feedforward, settings.width),
        )

    def heads(self, x_BLE: Tensor, context: Context, gains_BH: Tensor | None = None) -> Tensor:
        return self.attention.heads(self.attention_norm(x_BLE), context, gains_BH)

    def after(self, x_BLE: Tensor, update_BLE: Tensor) -> Tensor:
        """The layer's output, given what its attention adds to the residual stream."""
        x_BLE = x_BLE + update_BLE
        return x_BLE + self.feedforward(self.feedforward_norm(x_BLE))

    def forward(self, x_BLE: Tensor, context: Context) -> Tensor:
        return self.after(x_BLE, self.attention(self.attention_norm(x_BLE), context))


class Transformer(nn.Module):
    """Token embedding, blocks, final norm, readout. Build it with `poslens.model.schemes.build`."""

    def __init__(
        self,
        settings: ModelSettings,
        encoding: Encoding,
        attentions: list[Attention],
        embeddings: int,
        classes: int,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.encoding = encoding
        self.embedding = nn.Embedding(embeddings, settings.width)
        self.blocks = nn.ModuleList(Block(settings, attention) for attention in attentions)
        self.final_norm = nn.LayerNorm(settings.width)
        self.classifier = nn.Linear(settings.width, classes)

    def embed(
        self, tokens_BL: Tensor, lengths_B: Tensor, positions: Tensor | None = None
    ) -> tuple[Tensor, Context]:
        """The residual stream before the first layer, and what all layers share.

        `positions` defaults to 0..L-1; (L,) or (B, L).
        """
        length = tokens_BL.shape[1]
        steps = torch.arange(length, device=tokens_BL.device)
        if positions is None:
            positions = steps
        visible = None
        if int(lengths_B.min()) < length:
            visible = (steps < lengths_B[:, None])[:, None, None, :]
        if self.settings.causal:
            past = steps[:, None] >= steps
            visible = past[None, None] if visible is None else visible & past
        x_BLE = self.encoding.embed(self.embedding(tokens_BL), positions)
        return x_BLE, Context(
            self.encoding, positions, visible, self.encoding.bias(positions, positions)
        )

    def read(self, x_BLE: Tensor, lengths_B: Tensor) -> Tensor:
        """Class scores (B, C) from the residual stream after the last layer."""
        x_BLE = self.final_norm(x_BLE)
        steps = torch.arange(x_BLE.shape[1], device=x_BLE.device)
        if self.settings.readout == "last":
            pooled = x_BLE[torch.arange(len(x_BLE), device=x_BLE.device), lengths_B - 1]
        else:
            real = (steps < lengths_B[:, None]).to(x_BLE.dtype)
            pooled = torch.einsum("ble,bl->be", x_BLE, real / lengths_B[:, None])
        return self.classifier(pooled)

    def forward(
        self, tokens_BL: Tensor, lengths_B: Tensor, positions: Tensor | None = None
    ) -> Tensor:
        """Class scores (B, C)."""
        x_BLE, context = self.embed(tokens_BL, lengths_B, positions)
        for block in self.blocks:
            x_BLE = block(x_BLE, context)
        return self.read(x_BLE, lengths_B)
