"""Multi-head latent attention (MLA) as in DeepSeek-V3 (arXiv 2412.19437, section 2.1.1).

Two paths in parallel in every head: a content channel without position, and a rotary channel
whose queries are per head and whose single key all heads share. Queries, and keys with values, go
through low-rank bottlenecks with an RMS norm.

Shapes: B batch, L query positions, M key positions, H heads, D content width, R rotary width,
E model width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from poslens.encodings.base import Encoding, Shape
from poslens.encodings.scaling import YaRNScaling, yarn_magnitude
from poslens.errors import InputError
from poslens.model.attention import Attention, Channel, Context, copied


@dataclass(frozen=True)
class LatentSettings:
    """Widths of latent attention; None is derived from the model's width E and head width D.

    The derived proportions are DeepSeek-V3's (content D, rotary D/2, values D), with bottlenecks of
    E/2, since its 1/5 and 1/14 leave nothing of a small model. `shared_rotary_query` gives all
    heads one rotary query instead of one each, as the study's code does.
    """

    query_rank: int | None = None
    key_value_rank: int | None = None
    content_width: int | None = None
    rotary_width: int | None = None
    value_width: int | None = None
    shared_rotary_query: bool = False

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

    drops_weights = False

    def __init__(
        self, shape: Shape, encoding: Encoding, settings: LatentSettings | None = None
    ) -> None:
        super().__init__(shape, encoding)
        settings = settings or LatentSettings()
        query_rank, latent_rank, self.content_width, self.rotary_width, self.value_width = (
            settings.resolve(shape)
        )
        self.latent_rank = latent_rank
        self.scale = (self.content_width + self.rotary_width) ** -0.5 * logit_factor(encoding)
        self.kernel_width = max(self.content_width + self.rotary_width, self.value_width)
        rotary_queries = 1 if settings.shared_rotary_query else shape.heads
        self.shared_rotary_query = settings.shared_rotary_query
        self.query_down = nn.Linear(shape.width, query_rank, bias=False)
        self.query_norm = nn.RMSNorm(query_rank, eps=1e-6)
        self.query_up = nn.Linear(
            query_rank,
            shape.heads * self.content_width + rotary_queries * self.rotary_width,
            bias=False,
        )
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
        query_content, query_rotary = self._channels(queries)

        memory_BLE = x_BLE if context.memory_BLE is None else context.memory_BLE
        latent, key_rotary = self.latent_down(memory_BLE).split(
            (self.latent_rank, self.rotary_width), -1
        )
        key_rotary = key_rotary[:, None]
        keys_values = self.latent_up(self.latent_norm(latent))
        if context.positions.dim() > 1:  # each row, copies too, has positions of its own
            key_rotary, keys_values = (
                copied(part, len(x_BLE)) for part in (key_rotary, keys_values)
            )
        keys_values = keys_values.unflatten(-1, (self.heads_count, -1)).transpose(1, 2)
        key_content, values = keys_values.split((self.content_width, self.value_width), -1)

        if positioned:
            query_rotary, key_rotary = context.encoding.rotate(
                query_rotary, key_rotary, context.positions, context.positions
            )
        query_rotary, key_rotary = (
            part.expand(-1, self.heads_count, -1, -1) for part in (query_rotary, key_rotary)
        )
        queries = torch.cat((query_content, query_rotary), -1)
        keys = torch.cat((key_content, key_rotary), -1)
        return queries, copied(keys, len(x_BLE)), copied(values, len(x_BLE))

    def _channels(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Content (B, H, L, D) and rotary queries (B, H or 1, L, R) of what `query_up` gives."""
        if self.shared_rotary_query:
            widths = (self.heads_count * self.content_width, self.rotary_width)
            content, rotary = queries.split(widths, -1)
            return content.unflatten(-1, (self.heads_count, -1)).transpose(1, 2), rotary[:, None]
        queries = queries.unflatten(-1, (self.heads_count, -1)).transpose(1, 2)
        content, rotary = queries.split((self.content_width, self.rotary_width), -1)
        return content, rotary

    def images(self, parts: Sequence[Tensor], x_BLE: Tensor) -> list[Channel]:
        """Two channels, `unrotated` (the content channel) and `rotary`, whose key heads share."""
        # One number a token: it may as well multiply what the up-projections give.
        query_factor = inverse_rms(self.query_down(x_BLE), self.query_norm)[:, None]
        latent = self.latent_down(x_BLE)[..., : self.latent_rank]
        key_factor = inverse_rms(latent, self.latent_norm)[:, None]
        unrotated, rotary = [], []
        for part_BLE in parts:
            queries = self.query_up(self.query_down(part_BLE) * self.query_norm.weight)
            query_content, query_rotary = self._channels(queries)

            latent, key_rotary = self.latent_down(part_BLE).split(
                (self.latent_rank, self.rotary_width), -1
            )
            keys_values = self.latent_up(latent * self.latent_norm.weight)
            keys_values = keys_values.unflatten(-1, (self.heads_count, -1)).transpose(1, 2)
            key_content = keys_values[..., : self.content_width]
            unrotated.append((query_factor * query_content, key_factor * key_content))
            query_rotary = query_rotary.expand(-1, self.heads_count, -1, -1)
            rotary.append((query_factor * query_rotary, key_rotary[:, None]))
        content, turning = (tuple(zip(*pairs, strict=True)) for pairs in (unrotated, rotary))
        return [
            Channel("unrotated", content[0], content[1], rotated=False),
            Channel("rotary", turning[0], turning[1]),
        ]


def inverse_rms(x: Tensor, norm: nn.RMSNorm) -> Tensor:
    """What an RMS norm multiplies x by, before its weight."""
    assert norm.eps is not None
    return (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
