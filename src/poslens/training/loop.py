"""The training loop: deterministic from the seed, killed and continued without a trace.

Data, initialisation and batch order each have a generator of their own, so that the same seed gives
every scheme the same sequences.

Shapes: B batch, N sequences, C classes.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from poslens import results
from poslens.errors import InputError
from poslens.model import Transformer, build
from poslens.model.gains import constrain, gain_settings
from poslens.settings import make_settings
from poslens.tasks import TASKS, Batch, Stream, Task, generator_for, held_out, make_task
from poslens.training.environment import Usage, environment
from poslens.training.folder import (
    MODEL,
    TRAIN_STATE,
    RunFolder,
    cut_back,
    pick_device,
    read_lines,
    snapshot_name,
)
from poslens.training.settings import RunSettings, TrainingSettings

# Sequences of similar length a forward pass takes when nothing is kept for a backward pass.
EVALUATION_BATCH = 256
# Parts of a training batch, cut by length so that little padding is computed (1.3x here at
# width 64, 1.5x at the published size); the gradient is that of the whole batch.
LENGTH_GROUPS = 4
SOLVED_IN_A_ROW = 3
SECONDS_BETWEEN_CHECKPOINTS = 20.0


@dataclass(frozen=True)
class Progress:
    """Where a run stands: what progress bars show."""

    step: int
    steps: int
    loss: float
    accuracy: float
    sequences_per_second: float


Report = Callable[[Progress], None]


def task_of(run: RunSettings) -> Task:
    """The run's task. Raises InputError for an unknown task or setting."""
    if run.task not in TASKS:
        return make_task(run.task)
    return make_task(run.task, make_settings(TASKS[run.task].Settings, run.task_settings, run.task))


def initial_model(run: RunSettings, task: Task, number: int = 0) -> Transformer:
    """The run's model as initialised, or with other numbers from other generators of its seed.

    Leaves torch's global generator as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator_for(run.seed, "initialisation", number).initial_seed())
        return build(run.scheme, task, run.model, run.parts)


def load_model(folder: Path | str, device: str = "cpu") -> tuple[Transformer, RunSettings, Task]:
    """A finished run's model in evaluation mode, with its settings and task.

    Raises InputError where the folder holds no trained model or a damaged one.
    """
    files = RunFolder(folder)
    run = files.settings()
    task = task_of(run)
    model = initial_model(run, task)
    tensors, _ = files.load_tensors(MODEL)
    restore(model, tensors, files.path / MODEL)
    return model.to(pick_device(device)).eval(), run, task


def load_snapshot(
    folder: Path | str, step: int, device: str = "cpu"
) -> tuple[Transformer, RunSettings, Task]:
    """A run's model after `step` steps in evaluation mode, with its settings and task.

    Step 0 is the model as initialised, whether it was kept or not, and the last step of a finished
    run is the trained model. Raises InputError for a step that was not kept, naming those that
    were, and for damage.
    """
    files = RunFolder(folder)
    run = files.settings()
    task = task_of(run)
    model = initial_model(run, task)
    name = snapshot_name(step)
    if step not in files.snapshots():
        if step not in checkpoints(folder):
            there = ", ".join(map(str, checkpoints(folder)))
            raise InputError(
                f"{files.path} has no weights of step {step}; it has those of {there} "
                "(a new run with --snapshots 12 keeps more)"
            )
        name = MODEL if step else ""
    if name:
        restore(model, files.load_tensors(name)[0], files.path / name)
    return model.to(pick_device(device)).eval(), run, task


def trained_steps(folder: Path | str) -> int:
    """The steps that a finished run was trained for. Raises InputError where it is not finished."""
    return int(RunFolder(folder).load_tensors(MODEL)[1]["step"])


def checkpoints(folder: Path | str) -> list[int]:
    """The steps of a finished run that `load_snapshot` has weights of, from 0 to its last.

    Raises InputError where the run is not finished.
    """
    return sorted({0, *RunFolder(folder).snapshots(), trained_steps(folder)})


def restore(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(
            f"{path} does not fit its config.json; delete {path.parent} and run again"
        ) from error


@torch.no_grad()
def evaluate(model: nn.Module, data: Batch) -> tuple[Tensor, Tensor]:
    """Per sequence: whether the answer is right (N, bool) and the cross-entropy (N, nats)."""
    correct, losses = [], []
    order_N = data.lengths_B.argsort(stable=True)
    for rows in order_N.split(EVALUATION_BATCH):
        batch = data.rows(rows).trim()
        scores_BC = model(batch.tokens_BL, batch.lengths_B)
        correct.append(scores_BC.argmax(-1) == batch.labels_B)
        losses.append(F.cross_entropy(scores_BC, batch.labels_B, reduction="none"))
    back_N = order_N.argsort()
    return torch.cat(correct)[back_N], torch.cat(losses)[back_N]


def by_length(batch: Batch, parts: int) -> list[Batch]:
    """The batch cut into parts of similar length; whole where all lengths are equal."""
    if parts == 1 or bool((batch.lengths_B == batch.lengths_B[0]).all()):
        return [batch]
    order = batch.lengths_B.argsort(stable=True)
    return [batch.rows(rows).trim() for rows in order.chunk(parts)]


def learning_rate(step: int, settings: TrainingSettings) -> float:
    """Linear warm-up to the peak, then a cosine to zero at the end of the budget."""
    warm = max(1, round(settings.warmup * settings.steps))
    if step < warm:
        return settings.learning_rate * (step + 1) / warm
    done = (step - warm) / max(1, settings.steps - warm)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


class Trainer:
    """The state of a run under way: everything a checkpoint must hold."""

    def __init__(self, run: RunSettings, device: torch.device) -> None:
        self.run = run
        self.task = task_of(run)
        self.model = initial_model(run, self.task).to(device)
        self.gains = gain_settings(run.parts)
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": run.training.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            betas=run.training.betas,
            fused=True,
        )
        # A GPU would rather have one large batch than less padding.
        self.parts = LENGTH_GROUPS if device.type == "cpu" else 1
        self.step = 0
        self.solved_in_a_row = 0
        self.loss_sum = 0.0
        self.loss_count = 0
        self.usage = Usage()

    def train_step(self, batch: Batch) -> float:
        """One optimiser step; the batch's mean cross-entropy before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.run.training)
        self.optimizer.zero_grad(set_to_none=True)
        value = 0.0
        with self.randomness():
            for part in by_length(batch, self.parts):
                scores_BC = self.model(part.tokens_BL, part.lengths_B)
                loss = F.cross_entropy(scores_BC, part.labels_B, reduction="sum") / len(batch)
                loss.backward()
                value += loss.item()
        if self.gains is not None:
            done = self.step / self.run.training.steps
            constrain(self.gains, self.model.attentions, done)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.run.training.clip)
        self.optimizer.step()
        self.step += 1
        if not math.isfinite(value):
            raise InputError(
                f"{self.run.name}: the loss is {value} at step {self.step}; lower learning_rate"
            )
        self.loss_sum += value
        self.loss_count += 1
        return value

    @contextmanager
    def randomness(self) -> Iterator[None]:
        """Dropout's random numbers, a function of seed and step; without it nothing is drawn."""
        if not self.run.model.dropout:
            yield
            return
        device = next(self.model.parameters()).device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(generator_for(self.run.seed, "dropout", self.step).initial_seed())
            yield

    def save(self, folder: RunFolder) -> None:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{index}.{name}"] = value
        metrics = folder.path / "metrics.jsonl"
        notes = {
            "step": self.step,
            "solved_in_a_row": self.solved_in_a_row,
            "loss_sum": self.loss_sum,
            "loss_count": self.loss_count,
            "metrics_bytes": metrics.stat().st_size if metrics.exists() else 0,
            "seconds": self.usage.so_far()["seconds"],
        }
        folder.save_tensors(TRAIN_STATE, tensors, notes)

    def keep_snapshot(self, folder: RunFolder) -> None:
        """Keep the weights, if this is a step whose weights the settings ask for."""
        if self.step in self.run.training.snapshot_steps:
            state = self.model.state_dict()
            folder.save_tensors(snapshot_name(self.step), state, {"step": self.step})

    def resume(self, folder: RunFolder) -> None:
        """Continue from the folder's checkpoint, dropping metrics written after it."""
        tensors, notes = folder.load_tensors(TRAIN_STATE)
        path = folder.path / TRAIN_STATE
        model = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        restore(self.model, model, path)
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            if key.startswith("optimizer."):
                _, index, name = key.split(".")
                moments.setdefault(int(index), {})[name] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.step, self.solved_in_a_row = notes["step"], notes["solved_in_a_row"]
        self.loss_sum, self.loss_count = notes["loss_sum"], notes["loss_count"]
        self.usage = Usage(before=notes["seconds"])
        cut_back(folder.path / "metrics.jsonl", notes["metrics_bytes"])


def train(
    run: RunSettings,
    path: Path | str,
    device: str = "cpu",
    report: Report | None = None,
) -> RunFolder:
    """Train one run into a folder, or continue the run that is there; finished runs are kept.

    Equal settings give equal metrics.jsonl, whether or not the run was killed in between. Raises
    InputError for settings that do not fit, another run in the folder, damage, a missing device.
    """
    target = pick_device(device)
    trainer = Trainer(run, target)
    folder = RunFolder(path)
    folder.check(run)
    if folder.finished:
        return folder
    settings = run.training
    stream = Stream(trainer.task, settings.batch, run.seed, settings.fixed_set)
    folder.open(run)
    if (folder.path / TRAIN_STATE).exists():
        trainer.resume(folder)
    else:
        for name in ("metrics.jsonl", "timings.jsonl"):
            (folder.path / name).unlink(missing_ok=True)
        trainer.keep_snapshot(folder)
    validation = held_out(trainer.task, settings.validation, run.seed, "validate").to(target)
    solved_at = settings.solved * trainer.task.ceiling().value
    started, first, saved, accuracy = time.monotonic(), trainer.step, time.monotonic(), math.nan

    while trainer.step < settings.steps and trainer.solved_in_a_row < SOLVED_IN_A_ROW:
        loss = trainer.train_step(stream.batch(trainer.step).to(target))
        trainer.keep_snapshot(folder)  # before any checkpoint of this step
        elapsed = time.monotonic() - started
        rate = (trainer.step - first) * settings.batch / elapsed
        if trainer.step % settings.evaluate_every == 0 or trainer.step == settings.steps:
            correct, losses = evaluate(trainer.model.eval(), validation)
            trainer.model.train()
            accuracy = correct.double().mean().item()
            solved = accuracy >= solved_at
            trainer.solved_in_a_row = trainer.solved_in_a_row + 1 if solved else 0
            append(
                folder.path / "metrics.jsonl",
                sequences=trainer.step * settings.batch,
                accuracy=accuracy,
                loss=losses.double().mean().item(),
                training_loss=trainer.loss_sum / trainer.loss_count,
            )
            append(folder.path / "timings.jsonl", step=trainer.step, seconds=elapsed, rate=rate)
            trainer.loss_sum, trainer.loss_count = 0.0, 0
        if report is not None:
            report(Progress(trainer.step, settings.steps, loss, accuracy, rate))
        if time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
            trainer.save(folder)
            saved = time.monotonic()
    finish(trainer, folder, target)
    return folder


def finish(trainer: Trainer, folder: RunFolder, device: torch.device) -> None:
    """Evaluate on held-out data and write weights and tables; `summary` last marks the end."""
    run, task, settings = trainer.run, trainer.task, trainer.run.training
    data = held_out(task, settings.evaluation, run.seed).to(device)
    correct, losses = (values.cpu() for values in evaluate(trainer.model.eval(), data))
    labels = data.labels_B.cpu()
    folder.save_tensors(MODEL, trainer.model.state_dict(), {"step": trainer.step})
    count = torch.bincount(labels, minlength=task.classes)
    right = torch.bincount(labels[correct], minlength=task.classes)
    rows = zip(range(task.classes), count.tolist(), right.tolist(), strict=True)
    results.write_table(
        folder.path,
        "labels",
        [{"label": label, "count": n, "correct": good} for label, n, good in rows],
    )
    results.write_table(folder.path, "curve", read_lines(folder.path / "metrics.jsonl"))
    folder.note(**environment(device), **trainer.usage.so_far())
    ceiling = task.ceiling()
    summary: dict[str, Any] = {
        "accuracy": correct.double().mean().item(),
        "loss": losses.double().mean().item(),
        "sequences": trainer.step * settings.batch,
        "budget": settings.steps * settings.batch,
        "solved": trainer.solved_in_a_row >= SOLVED_IN_A_ROW,
        "evaluated": settings.evaluation,
        "chance": task.chance,
        "baseline": task.baseline().value,
        "ceiling": ceiling.value,
        "ceiling_error": ceiling.standard_error,
        "layers": run.model.layers,
        "heads": run.model.heads,
        "width": run.model.width,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "learning_rate": settings.learning_rate,
        "label_unit": task.label_unit,
        "first_label": task.first_label,
    }
    results.write_table(folder.path, "summary", [summary])
    (folder.path / TRAIN_STATE).unlink(missing_ok=True)


def append(path: Path, **row: float) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
