"""Positional gains that are learned with the model: to start, tie or hold them otherwise.

A head's gain blends its logits without position (0) and with it (1). Left to learn, it moves in
the direction of its seed, -dLoss/dgain (AdamW sets how far), so these settings intervene in what
the study says makes the leading head.

Shapes: H heads.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from poslens.encodings.base import Encoding, doors
from poslens.errors import InputError
from poslens.model.attention import Attention
from poslens.settings import convert


@dataclass(frozen=True)
class GainSettings:
    """Every head learns its positional gain, from 1, but for what is set here.

    head: the head of `layer` that starts otherwise, at `start`; None: every head starts at 1.
    fixed: that head's gain is not learned; with start 0 its position stays off.
    tied: share of the training budget during which the heads of a layer learn one gain together.
    """

    layer: int = 0
    head: int | None = None
    start: float = 1.0
    fixed: bool = False
    tied: float = 0.0


def gain_settings(parts: dict[str, dict[str, Any]]) -> GainSettings | None:
    """Those of a scheme's parts, None where no gains are learned. InputError for unknown ones."""
    return convert(GainSettings, parts["gain"], "gain") if "gain" in parts else None


def learn_gains(settings: GainSettings, attentions: list[Attention], encoding: Encoding) -> None:
    """Give every layer gains to learn.

    Raises InputError where position does not enter by queries, keys or logits alone, and for a head
    that is not there, a start that is not finite or a share outside 0..1.
    """
    opened = doors(encoding)
    if not opened or "table" in opened:
        raise InputError(
            "gains are learned where position enters by queries, keys or logits alone; use a "
            "scheme such as rope, alibi, t5 or mla"
        )
    heads = attentions[0].heads_count
    if not 0 <= settings.layer < len(attentions):
        raise InputError(f"gain.layer is {settings.layer}; use 0..{len(attentions) - 1}")
    if settings.head is not None and not 0 <= settings.head < heads:
        raise InputError(f"gain.head is {settings.head}; use 0..{heads - 1}")
    if settings.head is None and (settings.fixed or settings.start != 1):
        raise InputError("gain.start and gain.fixed are of one head; give gain.head")
    if not math.isfinite(settings.start):
        raise InputError(f"gain.start is {settings.start}; use a finite number")
    if not 0 <= settings.tied <= 1:
        raise InputError(f"gain.tied is {settings.tied}; use a share from 0 to 1")
    for layer, attention in enumerate(attentions):
        gain_H = torch.ones(heads)
        if settings.head is not None and layer == settings.layer:
            gain_H[settings.head] = settings.start
        attention.gain_H = nn.Parameter(gain_H)


def constrain(settings: GainSettings, attentions: list[Attention], done: float) -> None:
    """Change the gains' gradients as the settings ask, after a share `done` of the budget."""
    for layer, attention in enumerate(attentions):
        assert attention.gain_H is not None
        gradient_H = attention.gain_H.grad
        assert gradient_H is not None
        if done < settings.tied:
            gradient_H.fill_(gradient_H.mean())
        if settings.fixed and layer == settings.layer:
            gradient_H[settings.head] = 0
