"""What the study's released code measured in place of zero ablation, on any trained run.

published columns  latent attention only: not a head's rows of the up-projections are zeroed but
                   columns, the compressed dimension
published loop     weights are restored only when the next head of the same layer starts, so the
                   last head of every layer already done stays zeroed while later ones are measured
published data     scored on training and test sequences together

Each is one mistake alone; everything else is as in the right measurement (method "zero").

Shapes: A layers, V variants (heads, then the whole layer), N sequences, B batch, L positions,
H heads, D head width, E model width, C classes.
"""

import math
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from poslens.heads.estimates import Measured, effect_rows, estimate
from poslens.model import State, TransformerSites
from poslens.model.latent_attention import LatentAttention
from poslens.model.transformer import Block
from poslens.tasks import Batch, Stream, Task, held_out
from poslens.training import RunFolder, RunSettings, load_model
from poslens.training.folder import MODEL

TRAINING_SHARE = 0.7  # of the scored sequences, as in the study's split
ROWS = 2048  # of one forward pass through the layers above: bounds memory, not results

# What a layer writes with each head changed, and with all changed, from its state and its heads'
# outputs (B, H, L, D): (V, B, L, E).
Change = Callable[[TransformerSites, State, Tensor], Tensor]


def published_measurements(folder: Path, device: str = "cpu") -> list[dict[str, object]]:
    """Effects of every head of a trained run, measured as published: rows of the table EFFECTS.

    Their methods are "published columns" (latent attention only), "published loop" and "published
    data". Raises InputError where the folder holds no trained model or a damaged one.
    """
    model, run, task = load_model(folder, device)
    steps = RunFolder(folder).load_tensors(MODEL)[1]["step"]
    sites = TransformerSites(model)
    test = held_out(task, run.training.evaluation, run.seed).to(device)
    together = Batch.joined([training_data(run, task, steps).to(device), test])
    found = [
        *measure(sites, test, "published loop", zeroed_heads, leaks=True),
        *measure(sites, together, "published data", zeroed_heads),
    ]
    if isinstance(model.blocks[0].attention, LatentAttention):
        found = [*measure(sites, test, "published columns", zeroed_columns), *found]
    return [row for measured in found for row in effect_rows(estimate(measured))]


@torch.no_grad()
def measure(
    sites: TransformerSites, data: Batch, method: str, change: Change, leaks: bool = False
) -> tuple[Measured, Measured]:
    """Accuracy and cross-entropy (nats) with each head and each whole layer changed.

    With `leaks`, what lies above a layer sees it without its last head. The model that effects are
    relative to is intact.
    """
    heads = sites.heads_in(0)
    batch_size = max(1, ROWS // (heads + 2))
    correct, losses = [], []
    for start in range(0, len(data), batch_size):
        batch = data.rows(slice(start, start + batch_size)).trim()
        state, scores = sites.enter(batch), []
        for _ in range(sites.layers):
            outputs_BHLD = sites.heads(state)
            update_BLE = sites.write(state, outputs_BHLD)
            changed_VBLE = change(sites, state, outputs_BHLD)
            scores.append(sites.leave(state, torch.cat([changed_VBLE, update_BLE[None]])))
            state = sites.advance(state, changed_VBLE[heads - 1] if leaks else update_BLE)
        scores_AVBC = torch.stack(scores).double()
        correct.append(scores_AVBC.argmax(-1) == batch.labels_B)
        labels_AVB = batch.labels_B.expand(scores_AVBC.shape[:-1])
        losses.append(F.cross_entropy(scores_AVBC.movedim(-1, 1), labels_AVB, reduction="none"))
    accuracy_AVN, loss_AVN = (torch.cat(parts, -1).cpu().numpy() for parts in (correct, losses))
    # The first layer's last variant is the model intact; above it may have leaked.
    return (
        Measured(
            "accuracy",
            accuracy_AVN[0, -1],
            accuracy_AVN[:, :heads],
            accuracy_AVN[:, heads],
            method=method,
        ),
        Measured("loss", loss_AVN[0, -1], loss_AVN[:, :heads], loss_AVN[:, heads], method=method),
    )


def zeroed_heads(sites: TransformerSites, state: State, outputs_BHLD: Tensor) -> Tensor:
    """The right change: outputs of a head are zero."""
    update_BLE = sites.write(state, outputs_BHLD)
    return torch.stack(
        [
            *(
                update_BLE - sites.write(state, outputs_BHLD[:, [head]], [head])
                for head in range(outputs_BHLD.shape[1])
            ),
            sites.write(state, torch.zeros_like(outputs_BHLD)),
        ]
    )


def zeroed_columns(sites: TransformerSites, state: State, outputs_BHLD: Tensor) -> Tensor:
    """Columns h D .. (h + 1) D - 1 of the up-projections are zero for head h, D = E / H.

    Columns are the compressed dimension, shared by all heads: for heads whose columns lie beyond
    its rank nothing changes, for the others every head loses a slice.
    """
    block, heads = sites.model.blocks[state.layer], outputs_BHLD.shape[1]
    assert isinstance(block, Block)
    attention, x_BLE = block.attention, block.attention_norm(state.x_BLE)
    size = x_BLE.shape[-1] // heads
    ranges = [
        *(slice(head * size, (head + 1) * size) for head in range(heads)),
        slice(heads * size),
    ]
    changed = []
    for columns in ranges:
        weights = {}
        for name in ("query_up.weight", "latent_up.weight"):
            weights[name] = attention.get_parameter(name).clone()
            weights[name][:, columns] = 0
        changed.append(functional_call(attention, weights, (x_BLE, state.context)))
    return torch.stack(changed)


def training_data(run: RunSettings, task: Task, steps: int) -> Batch:
    """Sequences of the first of `steps` training steps, at most `TRAINING_SHARE` of all scored."""
    settings = run.training
    wanted = round(settings.evaluation * TRAINING_SHARE / (1 - TRAINING_SHARE))
    if settings.fixed_set is not None:
        steps = min(steps, settings.fixed_set // settings.batch)  # later ones are seen again
    stream = Stream(task, settings.batch, run.seed, settings.fixed_set)
    needed = min(steps, math.ceil(wanted / settings.batch))
    return Batch.joined([stream.batch(step) for step in range(needed)]).rows(slice(wanted))
