"""What taking all heads apart costs, beside a plain forward pass of the same sequences.

    python benchmarks/decomposition.py [--schemes rope sinusoidal alibi mla] [--threads 1]

One process: 6 layers, 16 heads, width 256, L = 512, batch 8, float32, mean split. For each scheme,
the shortest of several alternating repetitions of: the forward pass of the 8 sequences (fused
attention); the terms of every head with their summaries, split fitted beforehand; the same with the
fit on 8 other sequences; the matrices of every term of one head, times the number of heads; and,
apart, the frequency use of one rotary head, times the number of heads. Terms are held as factors
and checked against the logits; their matrices are what is made when they are to be looked at.
Beside the times: how far the process's memory rises above what it held before, in units of one
layer's logits (B x H x L x L numbers).
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from poslens.model import ModelSettings, Transformer, build
from poslens.tasks import Batch, Distance
from poslens.tasks.distance import DistanceSettings
from poslens.toeplitz import (
    Head,
    MeanSplit,
    counted_entries,
    decompose,
    frequency_use,
    heads_of,
    iid_batch,
    summarise,
    walk,
)

LAYERS, HEADS, WIDTH, LENGTH, BATCH = 6, 16, 256, 512, 8
LOGITS = 4 * BATCH * HEADS * LENGTH * LENGTH  # bytes


@dataclass(frozen=True)
class Cost:
    """Seconds on the processor, and the rise of memory in bytes (None where it cannot be read)."""

    seconds: float
    rise: int | None


def status(key: str) -> int:
    """A number of bytes from /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return 1024 * int(line.split()[1])
    raise KeyError(key)


def cost(call: Callable[[], object]) -> Cost:
    """Of one call; the peak of memory is Linux's, reset before the call."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before: int | None = status("VmRSS")
    except OSError:
        before = None
    start = time.process_time()
    call()
    seconds = time.process_time() - start
    return Cost(seconds, None if before is None else status("VmHWM") - before)


def best(costs: list[Cost]) -> Cost:
    rises = [entry.rise for entry in costs if entry.rise is not None]
    return Cost(min(entry.seconds for entry in costs), max(rises) if rises else None)


def consume(summaries: Iterator[object]) -> None:
    for _ in summaries:
        pass


@torch.no_grad()
def terms_and_summaries(model: Transformer, batch: Batch, splits: list[MeanSplit]) -> None:
    def heads() -> Iterator[Head]:
        entries_BLM = None
        for state in walk(model, batch):
            if state.layer == 0:
                entries_BLM = counted_entries(state)
            yield from heads_of(model, state, splits[state.layer], entries_BLM)

    consume(summarise(heads()))


def measure(scheme: str, repetitions: int) -> None:
    task = Distance(DistanceSettings(between=LENGTH - 58, aside=28))
    torch.manual_seed(0)
    settings = ModelSettings(LAYERS, HEADS, WIDTH, feedforward=2 * WIDTH)
    model = build(scheme, task, settings).eval()
    generator = torch.Generator().manual_seed(0)
    both = iid_batch(task.embeddings, 2 * BATCH, LENGTH, generator)
    batch = both.rows(slice(BATCH, None))
    with torch.no_grad():
        splits = [MeanSplit.fit(model, state) for state in walk(model, both.rows(slice(0, BATCH)))]

    def forward() -> None:
        with torch.no_grad():
            model(batch.tokens_BL, batch.lengths_B)

    calls: dict[str, Callable[[], None]] = {
        "forward": forward,
        "terms and summaries": lambda: terms_and_summaries(model, batch, splits),
        "and the split's fit": lambda: consume(summarise(decompose(model, both))),
    }
    head = next(iter(decompose(model, both, layers=[0])))
    heads = {name: 1 for name in calls}
    calls["matrices of terms"] = lambda: consume(iter(head.images().items()))
    heads["matrices of terms"] = LAYERS * HEADS
    if head.pairs.turned:
        calls["frequency use"] = lambda: consume(iter(frequency_use(head)))
        heads["frequency use"] = LAYERS * HEADS
    costs: dict[str, list[Cost]] = {name: [] for name in calls}
    for _ in range(repetitions):
        for name, call in calls.items():
            costs[name].append(cost(call))
    plain = best(costs["forward"]).seconds
    print(f"\n{scheme}")
    for name, entries in costs.items():
        found = best(entries)
        seconds = found.seconds * heads[name]
        rise = "?" if found.rise is None else f"{found.rise / LOGITS:.2f}"
        print(f"  {name:<22}{seconds:>9.3f} s {seconds / plain:>7.2f} x forward {rise:>8} logits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--schemes", nargs="+", default=["rope", "sinusoidal", "alibi", "mla"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"{LAYERS} layers, {HEADS} heads, width {WIDTH}, L = {LENGTH}, batch {BATCH}, float32, "
        f"{torch.get_num_threads()} thread(s); one layer's logits are {LOGITS / 2**20:.0f} MiB"
    )
    for scheme in options.schemes:
        measure(scheme, options.repetitions)


if __name__ == "__main__":
    main()
