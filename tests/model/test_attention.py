"""Attention against matrix products written out, its gains, and what heads write.

Shapes: B batch, L positions, H heads, D head width, E model width.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close as close

from poslens.errors import InputError
from poslens.model import Transformer
from poslens.model.attention import Attention, Context, head_width
from poslens.tasks import Batch

LENGTHS = [7, 4, 9]
STARTS = torch.tensor([0, 3, 1])  # of the positions of each row
GAINED = ["rope", "rope@1", "rope@3", "t5", "t5@2", "alibi", "kerple", "alibi+rope", "mla"]


def states(
    model: Transformer, batch: Batch, positions: Tensor | None = None
) -> tuple[Tensor, Context, Attention]:
    """A random residual stream, the context, and the first layer's attention."""
    x_BLE = torch.randn(*batch.tokens_BL.shape, 32, generator=torch.Generator().manual_seed(1))
    context = model.embed(batch.tokens_BL, batch.lengths_B, positions)[1]
    return x_BLE, context, model.blocks[0].attention


def written_out(model: Transformer, x_LE: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (H, L, L) and output (L, E) of one row without padding, head by head."""
    attention, encoding = model.blocks[0].attention, model.encoding
    width, heads = x_LE.shape[-1], model.settings.heads
    size = width // heads
    joint = x_LE @ attention.input.weight.T + attention.input.bias
    columns = [
        [joint[:, part * width + head * size :][:, :size] for head in range(heads)]
        for part in range(3)
    ]
    q_BHLD, k_BHLD = (torch.stack(part)[None] for part in columns[:2])
    q_BHLD, k_BHLD = encoding.rotate(q_BHLD, k_BHLD, positions, positions)
    bias_HLL = encoding.bias(positions, positions)
    later = torch.ones(len(x_LE), len(x_LE)).triu(1).bool() & model.settings.causal
    logits, output_LE = [], attention.output.bias.expand_as(x_LE)
    for head in range(heads):
        scores_LL = q_BHLD[0, head] @ k_BHLD[0, head].T / size**0.5
        if bias_HLL is not None:
            scores_LL = scores_LL + bias_HLL[head]
        logits.append(scores_LL)
        weights_LL = torch.softmax(scores_LL.masked_fill(later, -torch.inf), dim=-1)
        into_ED = attention.output.weight[:, head * size : (head + 1) * size]
        output_LE = output_LE + weights_LL @ columns[2][head] @ into_ED.T
    return torch.stack(logits), output_LE


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
def test_multi_head_attention_is_matmul_softmax_matmul(
    multi_head_scheme: str, per_row: bool, causal: bool, small: Any, padded: Any
) -> None:
    model, batch = small(multi_head_scheme, causal=causal), padded(LENGTHS, 11)
    positions_BL = torch.arange(11) + STARTS[:, None] * per_row
    x_BLE, context, attention = states(model, batch, positions_BL if per_row else None)
    output_BLE, logits_BHLL = attention(x_BLE, context), attention.logits(x_BLE, context)
    for row, length in enumerate(LENGTHS):
        expected = written_out(model, x_BLE[row, :length], positions_BL[row, :length])
        close(logits_BHLL[row, :, :length, :length], expected[0])
        close(output_BLE[row, :length], expected[1])


@pytest.mark.parametrize("causal", [False, True])
def test_full_gain_is_the_fused_path(scheme: str, causal: bool, small: Any, padded: Any) -> None:
    x_BLE, context, attention = states(small(scheme, causal=causal), padded(LENGTHS))
    close(attention.heads(x_BLE, context, torch.ones(3, 4)), attention.heads(x_BLE, context))


def test_gains_interpolate_logits(scheme: str, small: Any, padded: Any) -> None:
    x_BLE, context, attention = states(small(scheme).double(), padded(LENGTHS))
    x_BLE = x_BLE.double()
    gains_BH = 3 * torch.rand(3, 4, dtype=torch.float64) - 1
    without = attention.logits(x_BLE, context, torch.zeros_like(gains_BH))
    positional = attention.logits(x_BLE, context) - without
    expected = without + gains_BH[:, :, None, None] * positional
    close(attention.logits(x_BLE, context, gains_BH), expected)


@pytest.mark.parametrize("scheme", GAINED)
def test_a_gain_is_that_of_its_head_and_row_alone(scheme: str, small: Any, padded: Any) -> None:
    """Also in latent attention, whose heads share the rotary key."""
    x_BLE, context, attention = states(small(scheme), padded(LENGTHS))
    gains_BH = torch.ones(3, 4)
    gains_BH[1, 0] = 0
    mixed = attention.heads(x_BLE, context, gains_BH)
    intact = attention.heads(x_BLE, context)
    without = attention.heads(x_BLE, context, torch.zeros(3, 4))
    changed = torch.zeros(3, 4, dtype=torch.bool)
    changed[1, 0] = True
    close(mixed[changed], without[changed])
    close(mixed[~changed], intact[~changed])
    assert (without[1, 0] - intact[1, 0]).abs().max() > 1e-3


def test_writes_of_disjoint_heads_add_up_to_all(scheme: str, small: Any, padded: Any) -> None:
    x_BLE, context, attention = states(small(scheme), padded(LENGTHS))
    outputs_BHLD = attention.heads(x_BLE, context)
    parts = [attention.write(outputs_BHLD[:, heads], heads) for heads in ([2, 0], [3], [1])]
    constant = attention.write(torch.zeros_like(outputs_BHLD))
    close(sum(parts) + constant, attention.write(outputs_BHLD))
    assert torch.equal(attention.write(0 * outputs_BHLD[:, [1]], [1]), torch.zeros_like(x_BLE))
    size = outputs_BHLD.shape[-1]
    into_ED = attention.output.weight[:, 3 * size : 4 * size]
    close(parts[1], outputs_BHLD[:, 3] @ into_ED.T)


def test_heads_must_divide_the_width() -> None:
    assert head_width(64, 8) == 8
    with pytest.raises(InputError, match=r"width 50 is not divisible by 8 heads; .* such as 48"):
        head_width(50, 8)
    with pytest.raises(InputError, match=r"width 4 is not divisible by 8 heads; .* such as 8"):
        head_width(4, 8)
