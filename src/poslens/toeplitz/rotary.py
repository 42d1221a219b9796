"""Which channels a rotary encoding pairs, and what its kernel does to a model's spectra.

Shapes: B batch, L query positions, M key positions, H heads, D head width, F rotary frequencies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslens.encodings import Encoding
from poslens.errors import InputError
from poslens.model import Transformer
from poslens.tasks import Batch
from poslens.toeplitz.spectra import RotaryComparison, compare_rotary
from poslens.toeplitz.splits import attention_input, layer_of, real_tokens, walk


@dataclass(frozen=True)
class Pairs:
    """Channels of a head that turn together, one pair a frequency, and those that do not turn.

    An encoding that mixes more than two channels has longer tuples than pairs.
    """

    turned: tuple[tuple[int, ...], ...]
    still: tuple[int, ...]


def channel_pairs(encoding: Encoding) -> list[Pairs]:
    """The pairs of every head, in the order of their first channels.

    Found by turning each channel by itself by one position and seeing where it lands, so that an
    encoding need not say how it pairs channels. For RoPE that is the order of falling frequency.
    """
    width, heads = encoding.shape.head_width, encoding.shape.heads
    # Twice, at positions 0 and 1: an encoding may count positions from where the keys are.
    each_LD = torch.eye(width, dtype=torch.float64).repeat(2, 1)
    positions_L = torch.arange(2).repeat_interleave(width)
    each_1HLD = each_LD.expand(1, heads, -1, -1)
    turned_1HLD, _ = encoding.rotate(each_1HLD, each_1HLD, positions_L, positions_L)
    return [_pairs(lands_DD) for lands_DD in turned_1HLD[0, :, width:] != 0]


def _pairs(lands_DD: Tensor) -> Pairs:
    linked_DD = (lands_DD | lands_DD.mT).double()
    for _ in range(len(linked_DD).bit_length()):  # and what is linked to what is linked
        linked_DD = (linked_DD @ linked_DD > 0).double()
    groups = sorted({tuple(row.nonzero().flatten().tolist()) for row in linked_DD})
    turned = tuple(group for group in groups if len(group) > 1)
    return Pairs(turned, tuple(group[0] for group in groups if len(group) == 1))


@torch.no_grad()
def compare_kernels(
    model: Transformer, batch: Batch, layers: Sequence[int] | None = None
) -> Iterator[tuple[int, int, RotaryComparison]]:
    """Spectra of every rotary head's logits without and with the kernel: layer, head, comparison.

    Each comparison has the batch's sequences as its first dimension; see `compare_rotary`. Logits
    are before bias and causal mask, scale included, with the rows and columns of padding at 0.
    Channels that do not turn (latent attention's content channel, unrotated widths, frequency 0)
    are read as further pairs, which the kernel leaves alone; they come after the others. Raises
    InputError for a scheme without a rotary kernel, or with one that mixes more than two channels.
    """
    for state in walk(model, batch):
        if layers is not None and state.layer not in layers:
            continue
        encoding, attention = state.context.encoding, layer_of(model, state).attention
        pairs_H = _pairs_to_compare(encoding)
        x_BLE, real_B1L1 = attention_input(model, state), real_tokens(state)[:, None, :, None]
        still_q, still_k, _ = attention.queries_keys_values(x_BLE, state.context, positioned=False)
        turned_q, turned_k, _ = attention.queries_keys_values(x_BLE, state.context)
        every = [
            still_q * attention.scale * real_B1L1,
            still_k * real_B1L1,
            turned_q * attention.scale * real_B1L1,
            turned_k * real_B1L1,
        ]
        before = still_q.shape[-1] - encoding.shape.head_width  # channels without a kernel
        for head, pairs in enumerate(pairs_H):
            if pairs.turned:
                q, k, turned_q, turned_k = (
                    _as_complex(x_BHLD[:, head], pairs, before) for x_BHLD in every
                )
                yield state.layer, head, compare_rotary(q, k, turned_q, turned_k)


def _pairs_to_compare(encoding: Encoding) -> list[Pairs]:
    pairs_H = channel_pairs(encoding)
    if not any(pairs.turned for pairs in pairs_H):
        raise InputError(
            "the scheme does not rotate queries and keys, so there is no kernel to compare; "
            "use one that does, such as rope or mla"
        )
    if any(len(group) > 2 for pairs in pairs_H for group in pairs.turned):
        raise InputError(
            "the encoding mixes more than two channels of a head, so queries and keys have no "
            "frequencies to compare; use one that turns channels in pairs"
        )
    return pairs_H


def _as_complex(x_BLD: Tensor, pairs: Pairs, before: int) -> Tensor:
    """Channel pairs as complex numbers (B, L, F'), still channels two by two after the turned."""
    first, second = ([before + pair[side] for pair in pairs.turned] for side in (0, 1))
    still = [*range(before), *(before + channel for channel in pairs.still)]
    if len(still) % 2:
        x_BLD = torch.nn.functional.pad(x_BLD, (0, 1))
        still.append(x_BLD.shape[-1] - 1)
    return torch.complex(x_BLD[..., first + still[::2]], x_BLD[..., second + still[1::2]])
