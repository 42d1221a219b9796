"""Attention whose bias is under a gain: the gain's gradient without holding the logits.

Fused attention gives no gradient by its mask, so autograd would fall back to attention step by
step, with every matrix of all rows held and passed over many times. Here the forward pass is the
fused one; the backward pass makes the weights anew. Both go a few rows at a time, while masks and
weights fit a processor's caches.

Shapes: B batch, L query positions, M key positions, H heads, D head width.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Attention weights held at once: a megabyte of float32.
WEIGHTS = 2**18


class GainedBias(torch.autograd.Function):
    """softmax(scale q k + gain bias) v with gradients by q, k, v and the gain; bias is fixed.

    q, k and v (B, H, L, D) have one width, gains are (B, H), the bias broadcasts to (B, H, L, M)
    and `visible` (boolean) does, too, or is None. With weights A and their gradient dA, the logits
    have the gradient dS = A (dA - sum_m A dA), and the gain that of sum dS bias.
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        gains_BH: Tensor,
        bias: Tensor,
        visible: Tensor | None,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(queries, keys, values, gains_BH, bias, visible)
        ctx.scale = scale
        made = torch.empty_like(values)
        for rows in _rows_together(gains_BH, bias):
            made[rows] = F.scaled_dot_product_attention(
                *(queries[rows], keys[rows], values[rows]),
                attn_mask=_mask(gains_BH, bias, visible, rows),
                scale=scale,
            )
        return made

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, outputs_grad: Tensor) -> Any:
        queries, keys, values, gains_BH, bias, visible = ctx.saved_tensors
        heads = gains_BH.shape[1]
        # In the first layer of a model whose weights are fixed only the gain has a gradient.
        sought = (queries, keys, values) if any(ctx.needs_input_grad[:3]) else ()
        made = [torch.empty_like(part) for part in sought]
        gains_grad_BH = torch.empty_like(gains_BH)
        for rows in _rows_together(gains_BH, bias):
            # All heads of these rows as one batch of matrices.
            q, k, v, grad = (it[rows].flatten(0, 1) for it in (queries, keys, values, outputs_grad))
            mask = _mask(gains_BH, bias, visible, rows).flatten(0, 1)
            weights = torch.baddbmm(mask, q, k.mT, alpha=ctx.scale).softmax(-1)
            logits_grad = torch._softmax_backward_data(grad @ v.mT, weights, -1, weights.dtype)
            if made:
                found = (ctx.scale * (logits_grad @ k), ctx.scale * (logits_grad.mT @ q))
                for whole, own in zip(made, (*found, weights.mT @ grad), strict=True):
                    whole[rows] = own.unflatten(0, (-1, heads))
            gains_grad_BH[rows] = torch.linalg.vecdot(
                logits_grad.unflatten(0, (-1, heads)).flatten(2), _of(bias, rows).flatten(-2)
            )
        return *(made or (None, None, None)), gains_grad_BH, None, None, None


def _rows_together(gains_BH: Tensor, bias: Tensor) -> Iterator[slice]:
    rows, heads = gains_BH.shape
    together = max(1, WEIGHTS // (heads * bias.shape[-2] * bias.shape[-1]))
    for start in range(0, rows, together):
        yield slice(start, start + together)


def _mask(gains_BH: Tensor, bias: Tensor, visible: Tensor | None, rows: slice) -> Tensor:
    """The bias of these rows under their gains, with what is not visible at -inf."""
    mask_BHLM = gains_BH[rows, :, None, None] * _of(bias, rows)
    if visible is not None:
        mask_BHLM.masked_fill_(~_of(visible, rows), float("-inf"))
    return mask_BHLM


def _of(shared: Tensor, rows: slice) -> Tensor:
    """The rows of what has rows, and all of what is the same for all."""
    return shared if shared.dim() < 4 or len(shared) == 1 else shared[rows]
