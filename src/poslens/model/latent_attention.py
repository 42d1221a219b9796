"""Multi-head latent attention (MLA) as in DeepSeek-V3 (arXiv 2412.19437, section 2.1.1).

Two paths in parallel in every head: a content channel without position, and a rotary channel
whose queries are per head and whose single key all heads share. Queries, and keys with values, go
through low-rank bottlenecks with an RMS norm.

Shapes: B batch, L query positions, M key positions, H heads, D content width, R rotary width,
E model width, N parts of an input.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from poslens.encodings.base import Encoding, Shape
from poslens.encodings.scaling import YaRNScaling, yarn_magnitude
from poslens.errors import InputError
from poslens.model.attention import Attention, Channel, Context


@dataclass(frozen=True)
class LatentSettings:
    """Widths of latent attention; None is derived from the model's width E and head width D.

    The derived proportions are DeepSeek-V3's (content D, rotary D/2, values D), with bottlenecks of
    E/2, since its 1/5 and 1/14 leave nothing of a small model.
    """

    query_rank: int | None = None
    key_value_rank: int | None = None
    content_width: int | None = None
    rotary_width: int | None = None
    value_width: int | None = None

    def resolve(self, shape: Shape) -> tuple[int, int, int, int, int]:
        """All five widths as numbers. Raises InputError for a width below 1."""
        widths = (
            given(self.query_rank, max(1, shape.width // 2)),
            given(self.key_value_rank, max(1, shape.width // 2)),
            given(self.content_width, shape.head_width),
            given(self.rotary_width, max(2, 2 * (shape.head_width // 4))),
            given(self.value_width, shape.head_width),
        )
        if min(widths) < 1:
            raise InputError(f"latent attention has a width of {min(widths)}; use 1 or more")
        return widths


def logit_factor(encoding: Encoding) -> float:
    """DeepSeek's squared magnitude on all logits under YaRN with `mscale_all_dim`; else 1."""
    scaling = getattr(encoding.settings, "scaling", None)
    if not isinstance(scaling, YaRNScaling) or scaling.mscale_all_dim is None:
        return 1.0
    return yarn_magnitude(scaling.factor, scaling.mscale_all_dim) ** 2


def given(value: int | None, default: int) -> int:
    return default if value is None else value


class LatentAttention(Attention):
    """MLA; the encoding it is given turns the rotary channel only."""

    def __init__(
        self, shape: Shape, encoding: Encoding, settings: LatentSettings | None = None
    ) -> None:
        super().__init__(shape, encoding)
        query_rank, latent_rank, self.content_width, self.rotary_width, self.value_width = (
            settings or LatentSettings()
        ).resolve(shape)
        self.latent_rank = latent_rank
        self.scale = (self.content_width + self.rotary_width) ** -0.5 * logit_factor(encoding)
        per_head = self.content_width + self.rotary_width
        self.query_down = nn.Linear(shape.width, query_rank, bias=False)
        self.query_norm = nn.RMSNorm(query_rank, eps=1e-6)
        self.query_up = nn.Linear(query_rank, shape.heads * per_head, bias=False)
        self.latent_down = nn.Linear(shape.width, latent_rank + self.rotary_width, bias=False)
        self.latent_norm = nn.RMSNorm(latent_rank, eps=1e-6)
        self.latent_up = nn.Linear(
            latent_rank, shape.heads * (self.content_width + self.value_width), bias=False
        )
        self.output = nn.Linear(shape.heads * self.value_width, shape.width, bias=False)

    @staticmethod
    def encoding_shape(shape: Shape, settings: LatentSettings | None = None) -> Shape:
        """The rotary channel's shape, which is all the encoding sees."""
        rotary_width = (settings or LatentSettings()).resolve(shape)[3]
        return Shape(shape.width, shape.heads, rotary_width, shape.max_length, shape.causal)

    def queries_keys_values(
        self, x_BLE: Tensor, context: Context, positioned: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        queries = self.query_up(self.query_norm(self.query_down(x_BLE)))
        queries = queries.unflatten(-1, (self.heads_count, -1)).transpose(1, 2)
        query_content, query_rotary = queries.split((self.content_width, self.rotary_width), -1)

        latent, key_rotary = self.latent_down(x_BLE).split(
            (self.latent_rank, self.rotary_width), -1
        )
        key_rotary = key_rotary[:, None]
        keys_values = self.latent_up(self.latent_norm(latent))
        keys_values = keys_values.unflatten(-1, (self.heads_count, -1)).transpose(1, 2)
        key_content, values = keys_values.split((self.content_width, self.value_width), -1)

        if positioned:
            query_rotary, key_rotary = context.encoding.rotate(
                query_rotary, key_rotary, context.positions, context.positions
            )
        queries = torch.cat((query_content, query_rotary), -1)
        shared = key_rotary.expand(-1, self.heads_count, -1, -1)
        return queries, torch.cat((key_content, shared), -1), values

    def images(self, parts_NBLE: Tensor, x_BLE: Tensor) -> list[Channel]:
        """Two channels, `unrotated` (the content channel) and `rotary`, whose key heads share."""

        def frozen(part: Tensor, whole: Tensor, norm: nn.RMSNorm) -> Tensor:
            assert norm.eps is not None
            return part * norm.weight * (whole.square().mean(-1, keepdim=True) + norm.eps).rsqrt()

        queries = frozen(self.query_down(parts_NBLE), self.query_down(x_BLE), self.query_norm)
        queries = self.query_up(queries).unflatten(-1, (self.heads_count, -1)).transpose(2, 3)
        query_content, query_rotary = queries.split((self.content_width, self.rotary_width), -1)

        latent, key_rotary = self.latent_down(parts_NBLE).split(
            (self.latent_rank, self.rotary_width), -1
        )
        whole = self.latent_down(x_BLE)[..., : self.latent_rank]
        keys_values = self.latent_up(frozen(latent, whole, self.latent_norm))
        keys_values = keys_values.unflatten(-1, (self.heads_count, -1)).transpose(2, 3)
        return [
            Channel("unrotated", query_content, keys_values[..., : self.content_width], False),
            Channel("rotary", query_rotary, key_rotary[:, :, None]),
        ]
