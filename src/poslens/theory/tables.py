"""The seeds of a finished run, along its training and at other initialisations, as result tables.

Shapes: N examples, A layers, H heads.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from poslens.errors import InputError
from poslens.heads.position_part import position_part
from poslens.model import Transformer, TransformerSites
from poslens.results import read_table, update_table
from poslens.tasks import Batch, Task
from poslens.theory.batches import SIZES, batch_means, check_sizes
from poslens.theory.margins import margins
from poslens.theory.ratios import ratios
from poslens.theory.seeds import Recorded, fresh, positional_rms, record
from poslens.training import (
    RunFolder,
    RunSettings,
    checkpoints,
    initial_model,
    load_model,
    load_snapshot,
    runs_below,
    trained_steps,
)
from poslens.training.folder import make_folder, pick_device

EXAMPLES = 65_536
# Other initialisations show how seeds vary; no rule judges one of them alone.
OTHER_EXAMPLES = 8192
TABLES = ("seeds", "seed_batches", "margins")

Row = dict[str, object]


@dataclass(frozen=True)
class Plan:
    """What to record: `examples` at each of `steps` (None: all the weights that a run has) from the
    run's own initialisation, and up to `OTHER_EXAMPLES` of the same at `initialisations` others.

    Raises InputError for numbers that make no sense, and for batches larger than the examples.
    """

    examples: int = EXAMPLES
    initialisations: int = 4
    steps: tuple[int, ...] | None = None
    batches: tuple[int, ...] = SIZES

    def __post_init__(self) -> None:
        if self.examples < 4:
            raise InputError(f"examples is {self.examples}; use 4 or more")
        if self.initialisations < 0:
            raise InputError(f"initialisations is {self.initialisations}; use 0 or more")
        if self.steps is not None and not self.steps:
            raise InputError("the set of steps is empty; name at least one or leave it out")
        check_sizes(self.batches, self.examples)


def theory_run(folder: Path, plan: Plan | None = None, device: str = "cpu") -> None:
    """Add seeds to the tables SEEDS, SEED_BATCHES and MARGINS (`poslens.results`) of a run.

    Rows of the same step and initialisation are replaced, others kept. All on sequences that no
    training or evaluation of the run's seed has seen, the same for all schemes, steps and
    initialisations. Other initialisations are of step 0. Raises InputError as `check` does.
    """
    plan = plan or Plan()
    run, task = check(folder, plan, device)
    data, trained = list(fresh(task, plan.examples, run.seed, device)), trained_steps(folder)
    steps = checkpoints(folder) if plan.steps is None else sorted(set(plan.steps))
    seeds: list[Row] = []
    batches: list[Row] = []
    leads: list[Row] = []
    for step, number, model in models(folder, steps, plan.initialisations, device):
        size = plan.examples if number == 0 else min(plan.examples, OTHER_EXAMPLES)
        part = position_part(model, task)
        found = record(TransformerSites(model), part, first(data, size))
        where: Row = {"step": step, "initialisation": number}
        seeds += [where | {"trained": trained} | row for row in seed_rows(found)]
        leads += [where | row for row in margin_rows(found)]
        if number == 0:
            batches += [{"step": step} | row for row in batch_rows(found, plan.batches)]
    places = {(row["step"], row["initialisation"]) for row in seeds}
    update_table(folder, "margins", leads, ("step", "initialisation"), places)
    update_table(folder, "seed_batches", batches, ("step",), {(step,) for step in steps})
    update_table(folder, "seeds", seeds, ("step", "initialisation"), places)


def check(folder: Path, plan: Plan, device: str = "cpu") -> tuple[RunSettings, Task]:
    """All that can be refused before anything is recorded: the run's settings and task.

    Raises InputError where the folder holds no finished run or a damaged one, lacks the weights of
    a step, cannot be written to, or holds a scheme whose seeds are undefined.
    """
    model, run, task = load_model(folder, device)
    if not RunFolder(folder).finished:
        raise InputError(f"{folder} holds no finished run; run its training again to the end")
    make_folder(folder)
    for name in TABLES:
        read_table(folder, name)
    for step in plan.steps or ():
        load_snapshot(folder, step)
    if reason := refuses(model, task):
        raise InputError(f"{folder}: {reason}")
    return run, task


def refuses(model: Transformer, task: Task) -> str | None:
    """Why the model's seeds are undefined, or None where they are not."""
    one = next(fresh(task, 2, 0)).to(next(model.parameters()).device)
    try:
        positional_rms(TransformerSites(model), position_part(model, task), one)
    except InputError as error:
        return f"seeds are undefined: {error}"
    return None


def with_seeds(path: Path) -> tuple[list[Path], list[tuple[Path, str]]]:
    """The runs below `path` that have seeds, and those that have none, with the reason.

    Raises InputError where there are no runs, or none has seeds.
    """
    having, lacking = [], []
    for folder in runs_below(path):
        model, _, task = load_model(folder)
        reason = refuses(model, task)
        if reason is None:
            having.append(folder)
        else:
            lacking.append((folder, reason))
    if not having:
        folder, reason = lacking[0]
        raise InputError(f"{folder}: {reason}")
    return having, lacking


def models(
    folder: Path, steps: Iterable[int], others: int, device: str
) -> Iterator[tuple[int, int, Transformer]]:
    """Step, number of the initialisation and model: the run's own, then other initialisations.

    In evaluation mode, and asking for no gradients.
    """
    for step in steps:
        model, run, task = load_snapshot(folder, step, device)
        yield step, 0, model.requires_grad_(False)
        if step == 0:
            for number in range(1, others + 1):
                other = initial_model(run, task, number).to(pick_device(device))
                yield 0, number, other.eval().requires_grad_(False)


def first(data: list[Batch], size: int) -> Iterator[Batch]:
    """The first `size` sequences of blocks."""
    for block in data:
        if size > 0:
            yield block.rows(slice(0, size))
        size -= len(block)


def seed_rows(found: Recorded) -> Iterator[Row]:
    examples, layers, heads = found.seeds_NAH.shape
    numbers = ratios(found.seeds_NAH.reshape(examples, -1))
    loss = float(found.losses_N.mean(dtype=np.float64))
    for place, (layer, head) in enumerate(np.ndindex(layers, heads)):
        rms = float(found.rms_AH[layer, head])
        mu, low, high, *others = (float(values_K[place]) for values_K in numbers)
        yield {
            **{"layer": layer, "head": head, "examples": examples},
            **{"mu": mu, "mu_low": low, "mu_high": high},
            **dict(zip(("sigma", "ratio", "ratio_low", "ratio_high"), others, strict=True)),
            **{"rms": rms, "scaled": mu / rms if rms else float("nan"), "loss": loss},
        }


def batch_rows(found: Recorded, sizes: tuple[int, ...]) -> Iterator[Row]:
    """Rows of the heads that have seeds."""
    examples, layers, heads = found.seeds_NAH.shape
    means = batch_means(found.seeds_NAH.reshape(examples, -1), sizes)
    columns: dict[str, NDArray[np.float64]] = {
        **{"mean_abs": means.mean_SK, "low": means.low_SK, "high": means.high_SK},
        **{"predicted": means.predicted_SK, "folded": means.folded_SK},
    }
    for place, (layer, head) in enumerate(np.ndindex(layers, heads)):
        if found.rms_AH[layer, head] == 0:
            continue
        for s, (size, count) in enumerate(zip(means.sizes, means.batches_S, strict=True)):
            yield {
                **{"layer": layer, "head": head, "batch": size, "batches": count},
                **{name: float(values_SK[s, place]) for name, values_SK in columns.items()},
            }


def margin_rows(found: Recorded) -> Iterator[Row]:
    for one in margins(found.seeds_NAH):
        yield {"examples": len(found.seeds_NAH), **asdict(one)}
