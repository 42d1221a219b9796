"""Gradient seeds: what a little more position in a head would do to the loss, example by example.

A head's positional gain lambda blends its logits without position (0) and with it (1). Its *seed*
on an example is g = -dLoss/dlambda at lambda = 1, the model as it is: positive where more of the
head's position would lower the loss. This is the project's reading of the "gradient seeds" of Gu et
al. 2026 (arXiv 2505.13027), whose propositions are known to it by their statements alone.

Shapes: N examples, B batch, A layers, H heads, L query positions, M key positions.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from poslens.errors import InputError
from poslens.heads.edits import PositionPart
from poslens.model import Sites
from poslens.tasks import Batch, Task, generator_for

# Sequences drawn and sorted by length at once, and those of a forward pass: a GPU takes more.
BLOCK = 8192
TOGETHER = 128
ON_GPU = 4096
# Sequences that the size of the positional part of the logits is measured on.
RMS_EXAMPLES = 256
# A positional part below this share of the logits' own size is rounding, in units of precision.
ROUNDING = 64


@dataclass(frozen=True)
class Recorded:
    """Seeds g (N, A, H) in nats per unit of gain and losses (N) in nats, in the data's order.

    `rms_AH` is the size of the positional part of the logits (nats). Heads without one, such as
    those that `rope@1` leaves without rotation, have no seed: NaN, and a size of 0.
    """

    seeds_NAH: NDArray[np.float32]
    losses_N: NDArray[np.float32]
    rms_AH: NDArray[np.float64]


def record(sites: Sites, part: PositionPart, data: Iterable[Batch]) -> Recorded:
    """Seeds of all heads on all of `data`, whose batches may be large.

    The model must be in evaluation mode, and should not ask for gradients of its own (none are
    made, but room is kept for them). Raises InputError for a scheme without position in its
    attention (NoPE): its seeds are undefined, not 0.
    """
    seeds, losses = [], []
    rms_AH: NDArray[np.float64] | None = None
    for block in data:
        if rms_AH is None:
            rms_AH = positional_rms(sites, part, block.rows(slice(0, RMS_EXAMPLES)).trim())
        order = block.lengths_B.argsort(stable=True)
        together = TOGETHER if order.device.type == "cpu" else ON_GPU
        found_BAH = torch.empty(len(block), *rms_AH.shape)
        losses_B = torch.empty(len(block))
        for rows in order.split(together):
            found, loss = seeds_and_losses(sites, part, block.rows(rows).trim())
            found_BAH[rows.cpu()], losses_B[rows.cpu()] = found.float().cpu(), loss.float().cpu()
        seeds.append(found_BAH.numpy())
        losses.append(losses_B.numpy())
    if rms_AH is None:
        raise InputError("there are no sequences to record seeds on; give 1 or more")
    seeds_NAH = np.concatenate(seeds)
    seeds_NAH[:, rms_AH == 0] = np.nan
    return Recorded(seeds_NAH, np.concatenate(losses), rms_AH)


def seeds_and_losses(sites: Sites, part: PositionPart, batch: Batch) -> tuple[Tensor, Tensor]:
    """Seeds (B, A, H) of every head of every layer, and losses (B), in one backward pass.

    Each example has gains of its own, so the gradient of the sum of losses by them is each one's
    own. A table's part of an attention input is held at its value (`heads.position_part`). Heads
    without position in their logits get 0 or rounding here. Raises InputError as `record` does.
    """
    heads = sites.heads_in(0)
    state = sites.enter(batch)
    gains_BAH = state.x_BLE.new_ones(len(batch), sites.layers, heads).requires_grad_()
    for layer in range(sites.layers):
        outputs_BHLD = sites.heads(state, gains_BAH[:, layer], part(state))
        update_BLE = sites.write(state, outputs_BHLD)
        if layer < sites.layers - 1:
            state = sites.advance(state, update_BLE)
    scores_BC = sites.leave(state, update_BLE[None])[0]
    losses_B = F.cross_entropy(scores_BC, batch.labels_B, reduction="none")
    (slopes_BAH,) = torch.autograd.grad(losses_B.sum(), gains_BAH)
    return -slopes_BAH, losses_B.detach()


@torch.no_grad()
def positional_rms(sites: Sites, part: PositionPart, data: Batch) -> NDArray[np.float64]:
    """Root mean square of the positional part of each head's logits, (A, H), nats.

    That part is the logits less those without position, each query's mean over the keys it sees
    taken off (softmax ignores what is constant in a row), over all pairs of a word and a key it
    sees. 0 where it is below rounding. Raises InputError as `record` does.
    """
    layers, heads = sites.layers, sites.heads_in(0)
    squares_AH, whole_AH = torch.zeros(2, layers, heads, dtype=torch.float64)
    entries, tiny = 0.0, 0.0
    for rows in data.lengths_B.argsort(stable=True).split(TOGETHER):
        state = sites.enter(data.rows(rows).trim())
        none_BH = state.x_BLE.new_zeros(len(rows), heads)
        for layer in range(layers):
            logits_BHLM = sites.logits(state)
            seen_BLM = ~logits_BHLM[:, 0].isnan()
            delta_BHLM = logits_BHLM - sites.logits(state, none_BH, part(state))
            squares_AH[layer] += _squares_within_rows(delta_BHLM, seen_BLM).cpu()
            whole_AH[layer] += logits_BHLM.nan_to_num().square().sum((0, 2, 3)).double().cpu()
            if layer < layers - 1:
                state = sites.advance(state, sites.write(state, sites.heads(state)))
        entries += float(seen_BLM.sum())
        tiny = ROUNDING * torch.finfo(logits_BHLM.dtype).eps
    rounding_AH = tiny**2 * torch.maximum(whole_AH, whole_AH.mean())
    squares_AH = torch.where(squares_AH > rounding_AH, squares_AH, 0.0)
    return (squares_AH / entries).sqrt().numpy()


def _squares_within_rows(logits_BHLM: Tensor, seen_BLM: Tensor) -> Tensor:
    """By head, (H): sum of squares about the mean of each row, over seen entries."""
    seen_B1LM = seen_BLM[:, None]
    logits_BHLM = logits_BHLM.where(seen_B1LM, 0.0)
    means_BHL1 = logits_BHLM.sum(-1, keepdim=True) / seen_B1LM.sum(-1, keepdim=True).clamp_min(1)
    return ((logits_BHLM - means_BHL1) * seen_B1LM).square().sum((0, 2, 3)).double()


def fresh(task: Task, examples: int, seed: int, device: str = "cpu") -> Iterator[Batch]:
    """Sequences of the task that neither training nor evaluation of the seed's runs has seen.

    In blocks from a generator each, so that fewer examples are the first of more. Raises
    InputError for fewer than 2.
    """
    if examples < 2:
        raise InputError(f"examples is {examples}; use 2 or more")
    for number, start in enumerate(range(0, examples, BLOCK)):
        block = task.sample(BLOCK, generator_for(seed, "seeds", number))
        yield block.rows(slice(0, min(BLOCK, examples - start))).trim().to(device)
