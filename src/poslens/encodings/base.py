"""The three doors through which position can enter attention.

Shapes: B batch, L query positions, M key positions, H heads, D head width, E model width,
F rotary frequencies, O offsets. Offset = query position - key position.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

Kind = Literal["none", "additive", "multiplicative", "hybrid"]
Door = Literal["table", "rotation", "bias"]


@dataclass(frozen=True)
class Shape:
    """What an encoding may know of the model it serves.

    `max_length` bounds the positions of tables that are learned; `causal` tells bias encodings
    whether keys after the query are ever seen. `head_width` is the width of the queries and keys
    that `rotate` receives (for latent attention, the width of the rotary channel).
    """

    width: int
    heads: int
    head_width: int
    max_length: int
    causal: bool = False


@dataclass(frozen=True)
class NoSettings:
    """For encodings without anything to set."""


class Encoding(nn.Module):
    """A positional encoding: override the doors it opens, the others stay the identity.

    Subclasses state their algebra in `kind` and name their dataclass of settings in `Settings`.
    Positions are tensors of shape (L,), or (B, L) where they differ from row to row; they need not
    start at 0 nor be consecutive. The class itself, which opens no door, is NoPE.
    """

    kind: Kind = "none"
    Settings: ClassVar[type[Any]] = NoSettings

    def __init__(self, shape: Shape, settings: Any = None) -> None:
        super().__init__()
        self.shape = shape
        self.settings = self.Settings() if settings is None else settings

    def embed(self, x_BLE: Tensor, positions: Tensor) -> Tensor:
        """Door 1, the residual stream: token embeddings with position added."""
        return x_BLE

    def rotate(
        self, q_BHLD: Tensor, k_BHMD: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Door 2, queries and keys. Keys may have fewer heads than queries (shared keys)."""
        return q_BHLD, k_BHMD

    def bias(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """Door 3, the logits: a bias (H, L, M), or (B, H, L, M) for positions (B, L); or None."""
        return None

    def kernel(self, offsets_O: Tensor) -> Tensor | None:
        """The encoding as a function of offset alone, or None where it is not one.

        Additive: the bias, real (H, O). Multiplicative: the factor on each channel pair, complex
        (H, F, O). NoPE, tables and biases that depend on more than the offset: None.
        """
        return None


def doors(encoding: Encoding) -> frozenset[Door]:
    """Which doors an encoding opens, in any of its parts: `embed` is the door of tables."""
    parts = [part for part in encoding.children() if isinstance(part, Encoding)]
    if parts:
        return frozenset().union(*(doors(part) for part in parts))
    kind = type(encoding)
    opened: dict[Door, bool] = {
        "table": kind.embed is not Encoding.embed,
        "rotation": kind.rotate is not Encoding.rotate,
        "bias": kind.bias is not Encoding.bias,
    }
    return frozenset(door for door, is_open in opened.items() if is_open)


def pairwise_offsets(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Query position minus key position, (L, M) or (B, L, M)."""
    return query_positions[..., :, None] - key_positions[..., None, :]
