"""Splits of what enters attention into constant, content and position.

The input of attention, after its norm, is written as the sum of three parts:

- *position*, p: what is known from the position alone;
- *constant*: what is the same for every token and position (the norm's shift, mean content);
- *content*: the rest.

Two ways to tell position from content. The *embedding* split takes the table's row for p and the
token embedding for c; it ends with layer 0, above which attention has mixed both. The *mean* split
serves any layer: p_t is the mean over sequences of x_t minus the grand mean. It is fitted on some
sequences and used on others, so that it does not explain noise. Its p is position only if every
position holds the same distribution of content: fit it on independent tokens (`iid_batch`); on task
data p also says where content tends to stand.

Shapes: B batch, L positions, E model width.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from poslens.errors import InputError
from poslens.model import State, Transformer, TransformerSites
from poslens.model.transformer import Block
from poslens.tasks import Batch
from poslens.tasks.base import PAD

SplitName = Literal["mean", "embedding"]


class Split(Protocol):
    """A split fitted to one layer."""

    @property
    def layer(self) -> int: ...

    def parts(self, model: Transformer, state: State) -> "Parts":
        """The parts whose sum is the attention's input."""
        ...


class Parts(NamedTuple):
    """An attention input taken apart: each (B, L, E), with size 1 where it does not vary."""

    constant: Tensor
    content: Tensor
    position: Tensor


@dataclass(frozen=True)
class EmbeddingSplit:
    """c = token embedding, p = row of the encoding's table (0 where there is none); layer 0 only.

    Content is linear in c and position in p, with the norm's statistics frozen at those of c + p:
    both are divided by the standard deviation of c + p, through which content still carries some
    position and position some content. The constant is the norm's shift and `mean_E`, the mean of
    c so normalised over the tokens it was fitted on.
    """

    mean_E: Tensor
    layer: int = 0

    @classmethod
    def fit(cls, model: Transformer, state: State) -> "EmbeddingSplit":
        """Raises InputError above layer 0."""
        if state.layer > 0:
            raise InputError(
                f"the embedding split ends with layer 0, got layer {state.layer}: above it the "
                "layers below have mixed content and position; use the mean split"
            )
        content_BLE, _ = cls._normed(model, state)
        return cls(content_BLE[real_tokens(state)].double().mean(0).to(content_BLE.dtype))

    def parts(self, model: Transformer, state: State) -> Parts:
        _check_layer(self.layer, state)
        content_BLE, position_BLE = self._normed(model, state)
        constant_E = self.mean_E + layer_of(model, state).attention_norm.bias
        return Parts(constant_E[None, None], content_BLE - self.mean_E, position_BLE)

    @staticmethod
    def _normed(model: Transformer, state: State) -> tuple[Tensor, Tensor]:
        """c and p, each put through the norm as if alone, but for the statistics of c + p."""
        norm = layer_of(model, state).attention_norm
        none_BLE = torch.zeros_like(state.x_BLE)
        table_BLE = state.context.encoding.embed(none_BLE, state.context.positions)
        return (
            frozen_norm(norm, state.x_BLE - table_BLE, state.x_BLE),
            frozen_norm(norm, table_BLE, state.x_BLE),
        )


@dataclass(frozen=True)
class MeanSplit:
    """p_t = mean over sequences of x_t, minus the grand mean; x is taken after the norm.

    `mean_E`, the grand mean over real tokens, is the constant; `position_LE` holds p_t, and
    `counts_L` how many sequences each is the mean of. With n of them p_t carries the noise of a
    mean of n: a variance of about 1/n of the content's.
    """

    layer: int
    mean_E: Tensor
    position_LE: Tensor
    counts_L: Tensor

    @classmethod
    def fit(cls, model: Transformer, state: State) -> "MeanSplit":
        return cls(state.layer, *position_means(attention_input(model, state), real_tokens(state)))

    def parts(self, model: Transformer, state: State) -> Parts:
        """Raises InputError for a real token at a position that the split has not seen."""
        _check_layer(self.layer, state)
        x_BLE, length = attention_input(model, state), state.x_BLE.shape[1]
        used = int(state.lengths_B.max())
        seen = int((self.counts_L > 0).sum())  # sequences are padded on the right
        if used > seen:
            raise InputError(
                f"the mean split was fitted on {seen} positions and is asked for {used}; fit it on "
                "sequences as long as those it is used on"
            )
        missing = max(0, length - len(self.position_LE))  # columns that hold only padding
        position_LE = F.pad(self.position_LE[:length], (0, 0, 0, missing))
        content_BLE = x_BLE - self.mean_E - position_LE
        return Parts(self.mean_E[None, None], content_BLE, position_LE[None])

    def explains(self, model: Transformer, state: State) -> float:
        """Share of the variance of attention's input that p explains, on sequences not fitted on.

        1 - sum ||x - mean - p||^2 / sum ||x - mean||^2 over real tokens. Where position is not in
        the residual stream it is about -1/n, n the number of sequences fitted on, since p is then
        noise.
        """
        _, content_BLE, position_BLE = self.parts(model, state)
        left_B, whole_B = squares(content_BLE, position_BLE, real_tokens(state))
        return (1 - left_B.sum() / whole_B.sum()).item()


class PositionMeans(NamedTuple):
    """Grand mean (E,), p_t (L, E), and how many sequences each p_t is the mean of (L,)."""

    mean_E: Tensor
    position_LE: Tensor
    counts_L: Tensor


def position_means(x_BLE: Tensor, real_BL: Tensor) -> PositionMeans:
    """Grand mean of x over real tokens, and p_t = mean over sequences of x_t minus it.

    p_t is 0 where no sequence has a token. Sums are in float64.
    """
    counts_L = real_BL.sum(0)
    sums_LE = torch.einsum("ble,bl->le", x_BLE, real_BL.to(x_BLE.dtype)).double()
    mean_E = sums_LE.sum(0) / counts_L.sum()
    position_LE = sums_LE / counts_L.clamp_min(1)[:, None] - mean_E
    position_LE[counts_L == 0] = 0
    return PositionMeans(mean_E.to(x_BLE.dtype), position_LE.to(x_BLE.dtype), counts_L)


def squares(content_BLE: Tensor, position_BLE: Tensor, real_BL: Tensor) -> tuple[Tensor, Tensor]:
    """Over each sequence's real tokens ||content||^2, and ||content + position||^2; (B,) each."""
    left_BL, whole_BL = (
        x_BLE.double().square().sum(-1) * real_BL
        for x_BLE in (content_BLE, content_BLE + position_BLE)
    )
    return left_BL.sum(-1), whole_BL.sum(-1)


SPLITS: dict[SplitName, type[EmbeddingSplit] | type[MeanSplit]] = {
    "mean": MeanSplit,
    "embedding": EmbeddingSplit,
}


def attention_input(model: Transformer, state: State) -> Tensor:
    """What the layer's attention receives, (B, L, E): the residual stream after its norm."""
    x_BLE: Tensor = layer_of(model, state).attention_norm(state.x_BLE)
    return x_BLE


def layer_of(model: Transformer, state: State) -> Block:
    """The block that the state is about to enter."""
    block = model.blocks[state.layer]
    assert isinstance(block, Block)
    return block


def real_tokens(state: State) -> Tensor:
    """Where a token is no padding, (B, L)."""
    steps = torch.arange(state.x_BLE.shape[1], device=state.x_BLE.device)
    return steps < state.lengths_B[:, None]


def frozen_norm(norm: nn.LayerNorm, part_BLE: Tensor, whole_BLE: Tensor) -> Tensor:
    """A part under the norm of the whole: linear in the part, shift left out.

    Parts that add up to the whole come out adding up to norm(whole) - norm.bias.
    """
    variance_BL1 = whole_BLE.var(-1, correction=0, keepdim=True)
    centred_BLE = part_BLE - part_BLE.mean(-1, keepdim=True)
    return centred_BLE * (variance_BL1 + norm.eps).rsqrt() * norm.weight


def walk(model: Transformer, batch: Batch) -> Iterator[State]:
    """The state before each layer, all in one forward pass."""
    sites = TransformerSites(model)
    state = sites.enter(batch)
    yield state
    for _ in range(sites.layers - 1):
        state = sites.advance(state, sites.write(state, sites.heads(state)))
        yield state


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """The first and the second half of the sequences. Raises InputError for fewer than two."""
    if len(batch) < 2:
        raise InputError(
            "a split is fitted on one half of the sequences and used on the other; got "
            f"{len(batch)} sequence, give 2 or more"
        )
    return batch.rows(slice(0, len(batch) // 2)), batch.rows(slice(len(batch) // 2, None))


def iid_batch(embeddings: int, sequences: int, length: int, generator: torch.Generator) -> Batch:
    """Sequences of independent tokens, uniform over all but padding: what the mean split wants.

    Every position holds the same distribution of tokens, so what differs between positions is
    position. All sequences are `length` long, labels are 0. `embeddings` is the number of rows of
    the embedding table (`task.embeddings`). Raises InputError where there is nothing to draw.
    """
    if embeddings < 2 or sequences < 1 or length < 1:
        raise InputError(
            f"cannot draw {sequences} sequences of {length} tokens from {embeddings - 1} words; "
            "each must be 1 or more"
        )
    tokens_BL = torch.randint(PAD + 1, embeddings, (sequences, length), generator=generator)
    none_B = torch.zeros(sequences, dtype=torch.int64)
    return Batch(tokens_BL, torch.full((sequences,), length), none_B)


def _check_layer(layer: int, state: State) -> None:
    if state.layer != layer:
        raise InputError(
            f"the split was fitted to layer {layer} and is asked for layer {state.layer}; "
            "fit one for each layer"
        )
