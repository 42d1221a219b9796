"""The logits of every head as a sum of named terms.

An attention input is the sum of a constant, content and position (`poslens.toeplitz.splits`), and
so are queries and keys. With G(a, b)_ij = scale a_i . b_j, each part rotated if the scheme rotates
(which puts the term under its kernel), q the images of query parts and k those of key parts, 0 for
the constant, c for content together with the constant, p for position:

    content-content      G(qc, kc) - G(q0, k0)
    content-position     G(qc, kp)
    position-content     G(qp, kc)
    position-position    G(qp, kp)
    bias                 what the encoding adds to the logits
    constant-constant    G(q0, k0)

The constant collects the projections' biases, the norm's shift and mean content. Only its product
with itself has a term of its own: of its cross terms, those with content are in content-content,
those with position in content-position and position-content, where the constant stands for content.
Under a rotary kernel constant-constant is a content-free sum of cosines: the one way in which RoPE
acts as a bias. Latent attention has two channels with a kernel each, `unrotated` and `rotary`; its
terms but the bias come once for either, as in `content-content (rotary)`. Its norms divide by a
token's own statistics, frozen at those of the whole, so its constant varies by that factor.

The sum is checked against the model's own logits whenever terms are made or summed up.

Shapes: B batch, L query positions, M key positions, H heads, D head width, E model width, W columns
of all parts.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from poslens.encodings import Encoding
from poslens.encodings.base import doors
from poslens.errors import InputError
from poslens.model import State, Transformer
from poslens.model.attention import Attention, Channel
from poslens.tasks import Batch
from poslens.toeplitz.rotary import channel_pairs
from poslens.toeplitz.splits import (
    SPLITS,
    Split,
    SplitName,
    attention_input,
    halves,
    layer_of,
    real_tokens,
    walk,
)
from poslens.toeplitz.terms import BIAS, Columns, Head, Logits, Product

CONSTANT = "constant-constant"
# Each term's products of parts: 0 constant, 1 content, 2 position, queries first. Content-content
# is taken as three products rather than G(qc, kc) - G(q0, k0), in which large constants cancel.
TERMS = {
    "content-content": ((1, 1), (1, 0), (0, 1)),
    "content-position": ((1, 2), (0, 2)),
    "position-content": ((2, 1), (2, 0)),
    "position-position": ((2, 2),),
    CONSTANT: ((0, 0),),
}
FOUR = tuple(name for name in TERMS if name != CONSTANT)


def decompose(
    model: Transformer,
    batch: Batch,
    split: SplitName = "mean",
    layers: Sequence[int] | None = None,
) -> Iterator[Head]:
    """The terms of every head, one at a time.

    The split is fitted on the first half of the sequences and used on the second, whose logits are
    taken apart. `layers` None is all of them, or layer 0 for the embedding split. A model in half
    precision is taken in float32. Weights and batch are left as they are.
    Raises InputError for a split refused for that layer, layers the model does not have, models
    whose keys come from the embeddings, sequences of one position or of padding only, and weights
    that are not finite, which it names.
    """
    if model.settings.memory_from_embeddings:
        raise InputError(
            "keys of this model come from the embeddings, not from what its queries come from; "
            "decompose takes models with memory_from_embeddings off"
        )
    if any(attention.gain_H is not None for attention in model.attentions):
        raise InputError(
            "heads of this model learn their positional gains, so its logits are no sum of these "
            "terms; decompose takes models without the part gain"
        )
    if layers is None:
        layers = range(len(model.blocks)) if split == "mean" else [0]
    for layer in layers:
        if not 0 <= layer < len(model.blocks):
            raise InputError(
                f"layer {layer} is out of range; the model has 0..{len(model.blocks) - 1}"
            )
    _check_batch(batch)
    _check_weights(model, max(layers))
    return _decompose(in_full_precision(model), *halves(batch), split, layers)


@torch.no_grad()
def _decompose(
    model: Transformer, fit: Batch, use: Batch, split: SplitName, layers: Sequence[int]
) -> Iterator[Head]:
    entries_BLM = None
    for fitted, used in zip(walk(model, fit), walk(model, use), strict=True):
        if used.layer == 0:
            entries_BLM = counted_entries(used)
        if used.layer in layers:
            yield from heads_of(model, used, SPLITS[split].fit(model, fitted), entries_BLM)


def heads_of(
    model: Transformer, state: State, split: Split, entries_BLM: Tensor | None
) -> Iterator[Head]:
    """The terms of every head of one layer, given the state before it and a split fitted to it.

    `entries_BLM` as `counted_entries` gives them.
    """
    attention, context = layer_of(model, state).attention, state.context
    x_BLE = attention_input(model, state)
    parts = split.parts(model, state)
    # A position that is 0 throughout makes no terms.
    channels = attention.images(parts if bool(parts.position.any()) else parts[:2], x_BLE)
    turned = [_turned(channel, state) if channel.rotated else channel for channel in channels]
    queries, keys, _ = attention.queries_keys_values(x_BLE, context)
    queries = queries * attention.scale
    names = [label(name, channel) for name in FOUR for channel in channels]
    names += [BIAS, *(label(CONSTANT, channel) for channel in channels)]
    rotated = [label(name, channel) for channel in channels if channel.rotated for name in TERMS]
    products, layout = _products(channels)
    still = _without_position(attention, context.encoding, channels)
    table = "table" in doors(context.encoding)
    for head, pairs in enumerate(channel_pairs(context.encoding)):
        bias_BLM = None if context.bias is None else _bias_of(context.bias, head)
        own = Logits(queries[:, head], keys[:, head], bias_BLM)
        yield Head(
            layer=state.layer,
            head=head,
            names=tuple(names),
            products=products,
            channels=layout,
            queries_BLW=_joined([channel.queries for channel in turned], head, own.queries_BLD)
            * attention.scale,
            keys_BMW=_joined([channel.keys for channel in turned], head, own.keys_BMD),
            bias_BLM=bias_BLM,
            turning=tuple(name for name in products if pairs.turned and name in rotated),
            pairs=pairs,
            logits=own,
            added=_added(own, still, head, moved=table or bool(pairs.turned)),
            entries_BLM=entries_BLM,
        )


def label(name: str, channel: Channel) -> str:
    return f"{name} ({channel.name})" if channel.name else name


def counted_entries(state: State) -> Tensor | None:
    """Real queries and the keys they see, (B or 1, L, M) boolean; None where that is all."""
    real_BL, visible = real_tokens(state), state.context.visible
    if visible is None:
        return None
    if bool(real_BL.all()):
        return visible.reshape(-1, *visible.shape[-2:])
    return visible[:, 0] & real_BL[:, :, None]


def in_full_precision(model: Transformer) -> Transformer:
    """The model itself, or a copy in float32 of one that holds half precision."""
    half = any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters())
    return copy.deepcopy(model).float() if half else model


def _turned(channel: Channel, state: State) -> Channel:
    """A channel with the image of every part rotated."""
    positions, rotate = state.context.positions, state.context.encoding.rotate
    length = state.x_BLE.shape[1]
    turned = [
        rotate(q.expand(-1, -1, length, -1), k.expand(-1, -1, length, -1), positions, positions)
        for q, k in zip(channel.queries, channel.keys, strict=True)
    ]
    queries, keys = zip(*turned, strict=True)
    return replace(channel, queries=queries, keys=keys)


def _products(
    channels: list[Channel],
) -> tuple[dict[str, tuple[Product, ...]], tuple[Columns, ...]]:
    """The products that each term is the sum of, and where the channels' parts will stand."""
    products, layout, start = {}, [], 0
    for number, channel in enumerate(channels):
        columns = Columns(start, len(channel.queries), channel.queries[0].shape[-1])
        start = columns.of(columns.parts).start
        layout.append(columns)
        for name, pairs in TERMS.items():
            if max(max(pair) for pair in pairs) < columns.parts:
                every = tuple(Product(number, query, key) for query, key in pairs)
                products[label(name, channel)] = every
    return products, tuple(layout)


def _joined(channels: list[tuple[Tensor, ...]], head: int, like_BLD: Tensor) -> Tensor:
    """A head's images of all parts in all channels side by side, (B, L, W)."""
    images = [_of_head(image, head) for channel in channels for image in channel]
    return torch.cat([image.expand(*like_BLD.shape[:2], -1) for image in images], -1)


def _without_position(
    attention: Attention, encoding: Encoding, channels: list[Channel]
) -> tuple[Tensor, Tensor] | None:
    """Queries (scale included) and keys at angle 0, the image of a table's position taken out.

    None where position enters neither table, queries and keys nor logits.
    """
    if not doors(encoding):
        return None
    parts = slice(2) if "table" in doors(encoding) else slice(None)
    queries = torch.cat([_sum(channel.queries[parts]) for channel in channels], -1)
    every = [_sum(channel.keys[parts]) for channel in channels]
    every = [keys.expand(-1, queries.shape[1], -1, -1) for keys in every]
    return queries * attention.scale, torch.cat(every, -1)


def _added(
    own: Logits, still: tuple[Tensor, Tensor] | None, head: int, moved: bool
) -> tuple[Tensor, Tensor] | None:
    """Factors of logits - logits without position, but for the bias; see `Head.added`.

    With q', k' those without position, q k - q' k' = (q - q') k + q' (k - k'), which stays exact
    where position does little. `moved` is whether they differ in this head.
    """
    if still is None:
        return None
    if not moved:
        return own.queries_BLD[..., :0], own.keys_BMD[..., :0]
    q, k = still[0][:, head], still[1][:, head]
    return (
        torch.cat([own.queries_BLD - q, q], -1),
        torch.cat([own.keys_BMD, own.keys_BMD - k], -1),
    )


def _sum(images: tuple[Tensor, ...]) -> Tensor:
    total, *others = images
    for other in others:
        total = total + other
    return total


def _of_head(images: Tensor, head: int) -> Tensor:
    """One head's (B, L, D) of images (B, H, L, D), H = 1 where heads share them."""
    return images[:, head if images.shape[1] > 1 else 0]


def _bias_of(bias: Tensor, head: int) -> Tensor:
    """One head's (B, L, M) or (1, L, M) of a bias (B, H, L, M) or (H, L, M)."""
    return bias[..., head, :, :].reshape(-1, *bias.shape[-2:])


def _check_batch(batch: Batch) -> None:
    """Raises InputError for sequences that leave nothing to take apart."""
    if batch.tokens_BL.shape[1] < 2:
        raise InputError(
            "sequences of one position have a single offset, so nothing tells position from "
            "content; give 2 positions or more"
        )
    empty = (batch.lengths_B < 1).nonzero().flatten().tolist()
    if empty:
        raise InputError(
            f"sequence {empty[0]} is padding only, so its rows see no key; leave it out"
        )


def _check_weights(model: Transformer, last: int) -> None:
    """Raises InputError that names the first weight up to layer `last` which is not finite."""
    parts = {"embedding": model.embedding, "encoding": model.encoding}
    parts |= {f"layer {layer}": model.blocks[layer] for layer in range(last + 1)}
    for place, part in parts.items():
        for name, weight in part.named_parameters():
            if not bool(weight.isfinite().all()):
                raise InputError(
                    f"{place}: {name} holds NaN or infinity; train the model again or take "
                    "another checkpoint"
                )
