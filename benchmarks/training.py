"""Training speed at the published size, beside the published design and torch's own encoder.

One process run: 6 layers, 16 heads, width 256, feed-forward 512, batch 64, task 1.
Rows: our standard model with RoPE; a baseline that follows the published design (explicit
matmul-softmax attention, separate projections, text tokenised per item in a DataLoader), not slowed
on purpose; `torch.nn.TransformerEncoder`. The models alternate step by step, so that what else the
machine does meets all alike; rates are medians over rounds.

The floor counts multiplications: 6 per weight and token (forward 2, backward 4), and 12 L width per
token and layer for attention; its share of the float32 GEMM rate measured in the same run is shown.

    python benchmarks/training.py [--rounds 8] [--threads 2]
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from poslens.model import ModelSettings
from poslens.tasks import Batch, Distance, Stream
from poslens.tasks.distance import DistanceSettings
from poslens.training import RunSettings, TrainingSettings
from poslens.training.loop import Trainer

LAYERS, HEADS, WIDTH, FEEDFORWARD, BATCH = 6, 16, 256, 512, 64
PUBLISHED_TASK = {"between": 70, "aside": 25, "cut": 120, "fillers": "published"}


class PublishedAttention(nn.Module):
    """Separate projections, logits and weights written out: no fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.drop = nn.Dropout(0.1)

    def forward(self, x_BLE: Tensor, memory_BLE: Tensor) -> Tensor:
        def split(y_BLE: Tensor) -> Tensor:
            return y_BLE.view(*y_BLE.shape[:2], HEADS, -1).transpose(1, 2)

        q, k, v = (
            split(self.query(x_BLE)),
            split(self.key(memory_BLE)),
            split(self.value(memory_BLE)),
        )
        q, k = rotate(q), rotate(k)
        weights = (q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5).softmax(-1)
        mixed = self.drop(weights) @ v
        return self.output(mixed.transpose(1, 2).reshape(x_BLE.shape))


def rotate(x_BHLD: Tensor) -> Tensor:
    width = x_BHLD.shape[-1]
    theta = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(x_BHLD.shape[2])[:, None] * theta
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    first, second = x_BHLD.chunk(2, -1)
    return x_BHLD * cos + torch.cat((-second, first), -1) * sin


class PublishedModel(nn.Module):
    """Pre-norm, keys and values from the input embedding, mean over padding too, no final norm."""

    def __init__(self, task: Distance) -> None:
        super().__init__()
        self.embedding = nn.Embedding(task.embeddings, WIDTH)
        position = torch.arange(task.max_length)[:, None]
        theta = 10_000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        table = torch.cat(((position * theta).sin(), (position * theta).cos()), -1)
        self.register_buffer("table", table)
        self.attentions = nn.ModuleList(PublishedAttention() for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * LAYERS))
        self.feedforwards = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, FEEDFORWARD), nn.ReLU(), nn.Linear(FEEDFORWARD, WIDTH))
            for _ in range(LAYERS)
        )
        self.drop = nn.Dropout(0.1)
        self.classifier = nn.Linear(WIDTH, task.classes)

    def forward(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        assert isinstance(self.table, Tensor)
        x = memory = self.drop(self.embedding(tokens_BL) + self.table[: tokens_BL.shape[1]])
        for layer in range(LAYERS):
            x = x + self.drop(self.attentions[layer](self.norms[2 * layer](x), memory))
            x = x + self.drop(self.feedforwards[layer](self.norms[2 * layer + 1](x)))
        return self.classifier(x.mean(1))


class TorchModel(nn.Module):
    """torch's encoder with padding mask and the standard readout; it has no door for rotation."""

    def __init__(self, task: Distance) -> None:
        super().__init__()
        self.embedding = nn.Embedding(task.embeddings, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, FEEDFORWARD, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False
        )
        self.classifier = nn.Linear(WIDTH, task.classes)

    def forward(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        padded = torch.arange(tokens_BL.shape[1]) >= lengths_B[:, None]
        mask = padded if bool(padded.any()) else None
        x = self.encoder(self.embedding(tokens_BL), src_key_padding_mask=mask)
        real = (~padded).float()
        return self.classifier(torch.einsum("ble,bl->be", x, real / lengths_B[:, None]))


class Texts(Dataset[tuple[Tensor, int, int]]):
    """Sentences as text, split and looked up in a vocabulary item by item, padded to one length."""

    def __init__(self, batch: Batch, length: int) -> None:
        self.length = length
        self.vocabulary = {f"word{n}": n for n in range(1, 1 + int(batch.tokens_BL.max()))}
        self.texts = [
            " ".join(f"word{token}" for token in row[:size])
            for row, size in zip(batch.tokens_BL.tolist(), batch.lengths_B.tolist(), strict=True)
        ]
        self.labels = batch.labels_B.tolist()

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        tokens = [self.vocabulary[word] for word in self.texts[index].split()]
        padded = tokens + [0] * (self.length - len(tokens))
        return torch.tensor(padded), len(tokens), self.labels[index]


@dataclass
class Row:
    """A model, how it takes a step, and what its steps took."""

    name: str
    step: Callable[[], None]
    seconds: list[float]


def plain_step(model: nn.Module, batches: Iterator[Batch]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.98, 0.9), weight_decay=1e-5)

    def step() -> None:
        batch = next(batches)
        loss = F.cross_entropy(model(batch.tokens_BL, batch.lengths_B), batch.labels_B)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def from_texts(data: Batch, length: int) -> Iterator[Batch]:
    while True:
        for tokens_BL, lengths_B, labels_B in DataLoader(Texts(data, length), BATCH, shuffle=True):
            yield Batch(tokens_BL, lengths_B, labels_B)


def endless(stream: Stream, full: int | None) -> Iterator[Batch]:
    step = 0
    while True:
        yield lengthened(stream.batch(step), full)
        step += 1


def lengthened(batch: Batch, full: int | None) -> Batch:
    """The batch with every sequence filled up to `full` words, or as it is."""
    if full is None:
        return batch
    tokens_BL = torch.randint(3, 500, (len(batch), full))
    tokens_BL[:, : batch.tokens_BL.shape[1]] = torch.where(
        batch.tokens_BL == 0, tokens_BL[:, : batch.tokens_BL.shape[1]], batch.tokens_BL
    )
    return Batch(tokens_BL, torch.full_like(batch.lengths_B, full), batch.labels_B)


def gemm_rate(size: int = 2048, repeats: int = 3) -> float:
    """float32 multiply-adds a second times two, of a square product: the best of a few."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    a @ b
    best = 0.0
    for _ in range(repeats):
        started = time.perf_counter()
        a @ b
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best


def operations_per_sequence(lengths: Tensor) -> float:
    """Floating-point operations of a training step per sequence, real tokens only."""
    tokens = lengths.double()
    weights = LAYERS * (4 * WIDTH**2 + 2 * WIDTH * FEEDFORWARD)
    linear = 6 * weights * tokens
    attention = 12 * LAYERS * WIDTH * tokens**2
    return float((linear + attention).mean())


def measure(full: int | None, rounds: int) -> None:
    settings = DistanceSettings(**PUBLISHED_TASK)  # type: ignore[arg-type]
    if full is not None:
        settings = DistanceSettings(between=70, aside=28, words=573)  # up to 128 words
    task = Distance(settings)
    model_settings = ModelSettings(LAYERS, HEADS, WIDTH, FEEDFORWARD)
    run = RunSettings(
        "rope",
        "distance",
        model=model_settings,
        training=TrainingSettings(sequences=10**6, batch=BATCH),
        task_settings=vars(settings),
    )
    trainer = Trainer(run, torch.device("cpu"))
    stream = Stream(task, BATCH, 0)
    ours = endless(stream, full)
    data = lengthened(task.sample(4096, torch.Generator().manual_seed(0)), full)
    length = full or task.max_length
    making: list[float] = []

    def our_step() -> None:
        started = time.perf_counter()
        batch = next(ours)
        making.append(time.perf_counter() - started)
        trainer.train_step(batch)

    rows = [
        Row("poslens, standard model, RoPE", our_step, []),
        Row("published design", plain_step(PublishedModel(task), from_texts(data, length)), []),
        Row(
            "torch.nn.TransformerEncoder",
            plain_step(TorchModel(task), endless(Stream(task, BATCH, 1), full)),
            [],
        ),
    ]
    rates: list[float] = []
    for number in range(rounds + 1):
        rates.append(gemm_rate())
        for row in rows:
            started = time.perf_counter()
            row.step()
            if number:  # the first round warms up
                row.seconds.append(time.perf_counter() - started)
    peak = statistics.median(rates)
    floor = operations_per_sequence(data.lengths_B)
    published = BATCH / statistics.median(rows[1].seconds)
    what = f"all sequences of length {full}" if full else "task 1 as published, up to 120 words"
    print(f"\n{what}; mean length {data.lengths_B.double().mean():.1f}")
    print(
        f"float32 GEMM {peak / 1e9:.0f} GFLOP/s in the same run; floor {floor / 1e9:.2f} GFLOP a "
        f"sequence, at most {peak / floor:.1f} sequences/s"
    )
    print(f"{'':<32}{'sequences/s':>12}{'ratio':>8}{'of GEMM rate':>14}")
    for row in rows:
        rate = BATCH / statistics.median(row.seconds)
        print(f"{row.name:<32}{rate:>12.1f}{rate / published:>8.2f}{rate * floor / peak:>13.0%}")
    share = statistics.median(making[1:]) / statistics.median(rows[0].seconds)
    print(f"making a batch: {share:.2%} of our step")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    for full in (128, None):
        measure(full, arguments.rounds)


if __name__ == "__main__":
    main()
