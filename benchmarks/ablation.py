"""What measuring every head costs, beside the plain loop: a forward pass for each edited head.

    python benchmarks/ablation.py [--sequences 64] [--block 16] [--budget 256] [--threads 1]

One process: 6 layers, 16 heads, width 256, feed-forward 512, L = 128, float32, no gradients; random
weights, since neither way looks at them. For every head, every layer's heads together, those of the
whole model, and none, the plain loop makes a full forward pass of the model with their outputs set
to zero; the engine (`poslens.heads.measure`) answers the same, and both must agree. They take the
sequences block by block and in turns, so that what else the machine does meets both alike; seconds
are the processor's, ratios medians over blocks. Models: the standard one, and one whose keys and
values come from the embeddings, where all variants of a sequence share them.

The floor counts multiply-adds of both ways. Memory, beside the budget, is what tensors hold at the
engine's peak, and how far the process rises above what it held before its first block. Last: what
early stopping saves on a small model trained for the purpose, and whether its verdicts stay the
same.
"""

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from poslens.heads import Edit, Effort, Reference, measure
from poslens.heads.concentration import concentration_rows
from poslens.heads.edits import reference_batch
from poslens.heads.effects import HeadAt, Walk
from poslens.heads.estimates import METRICS, estimate
from poslens.model import ModelSettings, TransformerSites, build
from poslens.tasks import Batch, Distance, held_out
from poslens.tasks.distance import DistanceSettings
from poslens.training import RunSettings, TrainingSettings, task_of
from poslens.training.loop import Trainer

LAYERS, HEADS, WIDTH, FEEDFORWARD, LENGTH = 6, 16, 256, 512, 128
SOURCE = ("of each layer (standard)", "from the embeddings")
SMALL = RunSettings(
    "rope",
    "distance",
    task_settings={"between": 4, "aside": 2, "words": 12},
    model=ModelSettings(layers=2, heads=4, width=32, feedforward=48),
    training=TrainingSettings(sequences=32_000, batch=64, learning_rate=6e-3),
)


def multiply_adds(shared: bool) -> tuple[int, int]:
    """Of the plain loop and of the engine, per sequence; norms, embedding and readout left out.

    `shared`: keys and values are made from the embeddings.
    """
    keys_values = 2 * WIDTH**2
    feedforward = 2 * WIDTH * FEEDFORWARD
    layer = 4 * WIDTH**2 + 2 * LENGTH * WIDTH + feedforward  # projections, attention
    plain = (LAYERS * (HEADS + 1) + 2) * LAYERS * layer
    engine = 2 * LAYERS * layer  # intact, and with every head of the model edited
    for above in range(LAYERS):
        engine += 2 * WIDTH**2  # what each head, and all together, now write
        engine += (HEADS + 1) * (feedforward + above * layer)
        if shared:
            engine -= HEADS * above * keys_values
    return LENGTH * plain, LENGTH * engine


def gemm_rate(size: int = 1024, repeats: int = 5) -> float:
    """float32 multiply-adds a second of a square product: the best of a few."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return size**3 / min(seconds(lambda: a @ b) for _ in range(repeats))


def seconds(call: Callable[[], object]) -> float:
    """On the processor, all threads together."""
    start = time.process_time()
    call()
    return time.process_time() - start


def status(key: str) -> int:
    """A number of megabytes from Linux's /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) // 1024
    raise KeyError(key)


def rise(call: Callable[[], object]) -> str:
    """How many megabytes the process rises above what it holds; "?" where that cannot be read."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not hide what is taken now
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return "?"
    before = status("VmRSS")
    call()
    return str(status("VmHWM") - before)


@torch.no_grad()
def plain_loop(batch: Batch, reference: Reference) -> tuple[Tensor, Tensor]:
    """Losses of each head (A, H, N) and of layers, model and intact (A + 2, N)."""
    every: list[HeadAt] = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    layers = [every[start : start + HEADS] for start in range(0, len(every), HEADS)]
    losses = []
    for edited in (*([head] for head in every), *layers, every, []):
        scores_BC = Walk(batch, Edit(), reference).scores(edited).double()
        losses.append(F.cross_entropy(scores_BC, batch.labels_B, reduction="none"))
    single, whole = torch.stack(losses).split((len(every), LAYERS + 2))
    return single.unflatten(0, (LAYERS, HEADS)), whole


def held(call: Callable[[], object]) -> float:
    """The most megabytes that tensors made in the call held at once, by torch's own count."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    assert profiled.profiler is not None
    changes = [
        (event.start_ns(), event.nbytes())
        for event in profiled.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    return max(accumulate(change for _, change in sorted(changes))) / 2**20


def model_and_data(shared: bool, sequences: int) -> tuple[Reference, Batch]:
    torch.manual_seed(0)
    task = Distance(DistanceSettings(between=70, aside=28))
    settings = ModelSettings(
        LAYERS, HEADS, WIDTH, feedforward=FEEDFORWARD, memory_from_embeddings=shared
    )
    reference = Reference(
        TransformerSites(build("rope", task, settings).eval()), task.sample(1, torch.Generator())
    )
    return reference, Batch(
        torch.randint(3, task.embeddings, (sequences, LENGTH)),
        torch.full((sequences,), LENGTH),
        torch.randint(task.classes, (sequences,)),
    )


def memory(shared: bool, sequences: int, effort: Effort) -> None:
    reference, data = model_and_data(shared, sequences)

    def engine(rows: int = sequences) -> None:
        measure(data.rows(slice(0, rows)), Edit(), reference, effort)

    engine(1)  # warms up
    process, tensors = rise(engine), held(lambda: engine(4))
    print(
        f"memory with keys and values {SOURCE[shared]}: tensors {tensors:.0f} MB, "
        f"process {process} MB; budget {effort.megabytes:g} MB"
    )


def compare(shared: bool, sequences: int, block: int, effort: Effort) -> None:
    reference, data = model_and_data(shared, sequences)
    engine, plain, rates, apart = [], [], [], 0.0
    for start in range(0, sequences, block):
        batch = data.rows(slice(start, start + block))
        started = time.process_time()
        found = measure(batch, Edit(), reference, effort)["loss"]
        engine.append((time.process_time() - started) / len(batch))
        started = time.process_time()
        heads_AHN, whole_VN = plain_loop(batch, reference)
        plain.append((time.process_time() - started) / len(batch))
        rates.append(gemm_rate())
        assert found.model_N is not None
        wholes = [*found.layers_AN, found.model_N, found.intact_N]
        apart = max(
            apart,
            float(np.abs(found.heads_AHN - heads_AHN.numpy()).max()),
            float(np.abs(np.stack(wholes) - whole_VN.numpy()).max()),
        )
    ratios = [b / a for a, b in zip(engine, plain, strict=True)]
    rate = statistics.median(rates)
    print(f"\nkeys and values {SOURCE[shared]}")
    print(f"  float32 GEMM in the same run {2 * rate / 1e9:.0f} GFLOP/s")
    counts = multiply_adds(shared)
    for name, count, times in zip(("plain loop", "engine"), counts, (plain, engine), strict=True):
        spent, floor = statistics.median(times), count / rate
        print(
            f"  {name:<11}{spent:>7.3f} s a sequence; floor {2 * count / 1e9:.1f} GFLOP, "
            f"{floor:.3f} s, {floor / spent:.0%} of the GEMM rate"
        )
    heads_only = LAYERS * HEADS / (LAYERS * (HEADS + 1) + 2)
    print(
        f"  ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f} over "
        f"{len(ratios)} blocks); counted {counts[0] / counts[1]:.2f}; "
        f"{heads_only * statistics.median(ratios):.2f} were the loop to leave out all but heads"
    )
    print(f"  losses differ by at most {apart:.1e}; must be below 1e-5")
    if apart > 1e-5:
        raise SystemExit("the engine and the plain loop disagree")


def early_stopping(sequences: int, precisions: list[float]) -> None:
    trainer = Trainer(SMALL, torch.device("cpu"))
    task = task_of(SMALL)
    steps = SMALL.training.sequences // SMALL.training.batch
    for step in range(steps):
        batch = task.sample(SMALL.training.batch, torch.Generator().manual_seed(step))
        trainer.train_step(batch)
    data = held_out(task, sequences, seed=1)
    references = reference_batch(task, data.lengths_B, 512, seed=0)
    reference = Reference(TransformerSites(trainer.model.eval()), references)

    def verdicts(effort: Effort, edit: Edit) -> tuple[float, int, list[object]]:
        started = time.process_time()
        measured = measure(data, edit, reference, effort)
        spent = time.process_time() - started
        found = {metric: estimate(measured[metric]) for metric in METRICS}
        rows = concentration_rows(found, task.baseline().value)
        by_layer = [row["verdict"] for row in rows if row["metric"] == "accuracy"]
        return spent, len(measured["accuracy"].intact_N), by_layer

    print(f"\nearly stopping, a model of 2 layers of 4 heads that {steps} steps have trained")
    for edit in (Edit(), Edit("position", "none")):
        verdicts(Effort(precision=max(precisions)), edit)  # warms up
        whole, used, expected = verdicts(Effort(), edit)
        print(f"  {edit.target} {edit.method}: {used} sequences, {', '.join(map(str, expected))}")
        for precision in precisions:
            spent, used, found = verdicts(Effort(precision=precision), edit)
            same = "same" if found == expected else "other"
            print(
                f"    precision {precision:g}: {used} sequences, {whole / spent:.1f} times as "
                f"fast, {same} verdicts"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--budget", type=float, default=Effort().megabytes)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"{LAYERS} layers, {HEADS} heads, width {WIDTH}, L = {LENGTH}, {options.sequences} "
        f"sequences in blocks of {options.block}, {torch.get_num_threads()} thread(s)"
    )
    effort = Effort(megabytes=options.budget)
    for shared in (False, True):
        memory(shared, options.block, effort)
    for shared in (False, True):
        compare(shared, options.sequences, options.block, effort)
    early_stopping(8192, [0.05, 0.03, 0.02, 0.01])


if __name__ == "__main__":
    main()
