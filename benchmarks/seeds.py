"""What recording the seeds of all heads costs, beside a training step of the same batch.

    python benchmarks/seeds.py [--schemes rope alibi sinusoidal mla] [--threads 1]

One process, float32, sequences of 128 words: 3 layers, 8 heads, width 64, batch 32; then 6 layers,
16 heads, width 256, batch 8. A training step is forward, backward and AdamW; recording gives the
derivative of every example's loss by every head's positional gain. Both alternate; told are the
shortest time of each, the ratio of each pair in a row (median, least and most), and beside it the
ratio of multiply-adds as counted, which needs no gradients by weights but, where position is not
in a bias alone, attention of twice the width and the projections of queries and keys once more.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
import torch.nn.functional as F
from torch import nn

from poslens.encodings.base import doors
from poslens.heads.position_part import position_part
from poslens.model import ModelSettings, Transformer, TransformerSites, build
from poslens.model.transformer import Block
from poslens.tasks import Distance
from poslens.tasks.base import Batch
from poslens.tasks.distance import DistanceSettings
from poslens.theory import seeds_and_losses
from poslens.toeplitz.splits import iid_batch

LENGTH = 128


@dataclass(frozen=True)
class Size:
    layers: int
    heads: int
    width: int
    batch: int


SIZES = (Size(3, 8, 64, 32), Size(6, 16, 256, 8))


def seconds(call: Callable[[], object]) -> float:
    """On the processor, of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def counted(model: Transformer, size: Size) -> float:
    """Multiply-adds of recording over those of a training step.

    A linear map counts once forward, once by its input and once by its weights; attention takes two
    products forward and five backward, with its weights made anew.
    """
    tokens, linear, projections, product = size.batch * LENGTH, 0, 0, 0
    for block in model.blocks:
        assert isinstance(block, Block)
        attention = block.attention
        linear += tokens * numbers(block)
        projections += tokens * (numbers(attention) - attention.output.weight.numel())
        product += tokens * LENGTH * size.heads * attention.kernel_width
    seeds = 2 * linear + 7 * product
    if doors(model.encoding) != {"bias"}:
        seeds += 2 * projections + 7 * product
    return float(seeds / (3 * linear + 7 * product))


def numbers(module: nn.Module) -> int:
    """In the matrices of its linear maps."""
    maps = [it for it in module.modules() if isinstance(it, nn.Linear)]
    return sum(it.weight.numel() for it in maps)


def measure(scheme: str, size: Size, repetitions: int) -> None:
    task = Distance(DistanceSettings(between=LENGTH - 58, aside=28))
    torch.manual_seed(0)
    settings = ModelSettings(size.layers, size.heads, size.width, feedforward=2 * size.width)
    model = build(scheme, task, settings).eval()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    data = iid_batch(task.embeddings, size.batch, LENGTH, torch.Generator().manual_seed(0))
    # One sequence is shorter, so that padding is masked as it is in data.
    batch = Batch(data.tokens_BL, data.lengths_B.clone(), data.labels_B)
    batch.lengths_B[0] -= 1
    sites, part = TransformerSites(model), position_part(model, task)

    def train() -> None:
        model.requires_grad_(True)
        optimizer.zero_grad(set_to_none=True)
        scores_BC = model(batch.tokens_BL, batch.lengths_B)
        F.cross_entropy(scores_BC, batch.labels_B).backward()
        optimizer.step()

    def record() -> None:
        model.requires_grad_(False)
        seeds_and_losses(sites, part, batch)

    train()
    record()
    pairs = [(seconds(train), seconds(record)) for _ in range(repetitions)]
    ratios = [recording / training for training, recording in pairs]
    training, recording = (min(times) for times in zip(*pairs, strict=True))
    print(
        f"  {scheme:<12}{1000 * training:>8.0f} ms{1000 * recording:>8.0f} ms"
        f"{median(ratios):>8.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        f"{counted(model, size):>10.2f} counted"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--schemes", nargs="+", default=["rope", "alibi", "sinusoidal", "mla"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for size in SIZES:
        print(f"{size}, {LENGTH} words, {options.threads} thread(s)")
        print(f"  {'':<12}{'training':>11}{'seeds':>11}{'ratio':>8}")
        for scheme in options.schemes:
            measure(scheme, size, options.repetitions)


if __name__ == "__main__":
    main()
