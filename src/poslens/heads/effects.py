"""What removing a head does to every answer: zero ablation of each head, and of each whole layer.

Shapes: A layers, H heads, N sequences, B batch, V variants (heads, then the whole layer),
C classes.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from poslens.heads.estimates import Measured, Metric
from poslens.model import Sites
from poslens.tasks import Batch

# Rows of one forward pass through the layers above: bounds memory, not results.
ROWS = 2048


@torch.no_grad()
def zero_ablation(sites: Sites, data: Batch) -> tuple[Measured, Measured]:
    """Replace the output of each head, and of each layer's heads together, by zero.

    The prefix and the attention of a layer are computed once; what differs between variants, the
    layer's feed-forward and the layers above, is batched over them. `data` must be held out.
    Returns the answers' accuracy and their cross-entropy (nats).
    """
    heads = sites.heads_in(0)
    batch_size = max(1, ROWS // (heads + 1))
    parts: list[tuple[list[Tensor], list[Tensor]]] = []
    for start in range(0, len(data), batch_size):
        batch = data.rows(slice(start, start + batch_size)).trim()
        state = sites.enter(batch)
        correct, losses = [], []
        for layer in range(sites.layers):
            outputs_BHLD = sites.heads(state)
            update_BLE = sites.write(state, outputs_BHLD)
            variants = [
                update_BLE - sites.write(state, outputs_BHLD[:, [head]], [head])
                for head in range(heads)
            ]
            variants.append(sites.write(state, torch.zeros_like(outputs_BHLD)))
            if layer == 0:
                variants.append(update_BLE)
            scores_VBC = sites.leave(state, torch.stack(variants))
            correct.append(scores_VBC.argmax(-1) == batch.labels_B)
            losses.append(_cross_entropy(scores_VBC, batch.labels_B))
            state = sites.advance(state, update_BLE)
        parts.append((correct, losses))
    return _measured("accuracy", [part[0] for part in parts]), _measured(
        "loss", [part[1] for part in parts]
    )


def _measured(metric: Metric, parts: list[list[Tensor]]) -> Measured:
    """Join batches of (V, B) per layer; the first layer's last variant is the intact model."""
    by_layer = [torch.cat(list(layer), 1).cpu().numpy() for layer in zip(*parts, strict=True)]
    intact_N = by_layer[0][-1]
    by_layer[0] = by_layer[0][:-1]
    return Measured(
        metric,
        intact_N,
        heads_AHN=np.stack([layer_VN[:-1] for layer_VN in by_layer]),
        layers_AN=np.stack([layer_VN[-1] for layer_VN in by_layer]),
    )


def _cross_entropy(scores_VBC: Tensor, labels_B: Tensor) -> Tensor:
    labels_VB = labels_B.expand(scores_VBC.shape[:2])
    return F.cross_entropy(scores_VBC.double().movedim(-1, 1), labels_VB, reduction="none")
