"""Mechanism beside behaviour: does attention go where the task needs it, and what falls first?

The task needs the words that are no fillers: on distance the two triggers. A head's *mass* is the
attention weight from such a word to the other such words. A head, or its position alone, is taken
away by degrees: its output is scaled by a gain, or its positional gain is lowered. At each degree
accuracy stands beside the head's own mass and the mass of the heads above, and *first* is what has
lost half of what it loses at the higher gain.

Shapes: B batch, L query positions, M key positions, H heads, A layers, G gains, N sequences.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poslens.encodings.base import doors
from poslens.errors import InputError
from poslens.heads.edits import PositionPart
from poslens.heads.position_part import position_part
from poslens.model import Sites, State, TransformerSites
from poslens.results import write_table
from poslens.tasks import Batch, Task, held_out
from poslens.theory.falls import GAINS, Floats, first
from poslens.training import RunFolder, load_model

Target = Literal["head", "position"]
TOGETHER = 256  # sequences of a forward pass: bounds memory, not results
SEQUENCES = 512  # held out, of a run

Row = dict[str, object]


@dataclass
class Lowered:
    """One head under one target: by gain and sequence whether the answer is right, and masses.

    `own_GN` is the head's own mass, `above_GN` the mean over the heads of the layers above it, NaN
    in the top layer. Sequences without a pair of needed words have NaN masses.
    """

    layer: int
    head: int
    target: Target
    correct_GN: NDArray[np.bool_]
    own_GN: Floats
    above_GN: Floats


def needed_words(task: Task, batch: Batch) -> Tensor:
    """Which words are no fillers, (B, L). Raises InputError for a task that tells none apart."""
    words = task.filler_words
    if len(words) >= task.embeddings - 1:
        raise InputError(
            f"the task {task.name!r} does not say which words are fillers, so where attention is "
            "needed is unknown; give it filler_words"
        )
    steps = torch.arange(batch.tokens_BL.shape[1], device=batch.tokens_BL.device)
    real_BL = steps < batch.lengths_B[:, None]
    filler_BL = (batch.tokens_BL >= words.start) & (batch.tokens_BL < words.stop)
    return real_BL & ~filler_BL


def mass(logits_BHLM: Tensor, needed_BL: Tensor) -> Tensor:
    """Attention weight from needed words to other needed words, (B, H).

    Mean over the needed words that see another one; NaN where none does. Logits are NaN where a
    query sees no key.
    """
    seen_BHLM = ~logits_BHLM.isnan()
    weights = logits_BHLM.masked_fill(~seen_BHLM, float("-inf")).softmax(-1)
    other_BLM = needed_BL[:, :, None] & needed_BL[:, None, :]
    other_BLM = other_BLM & ~torch.eye(other_BLM.shape[-1], dtype=torch.bool, device=weights.device)
    wanted_BHLM = other_BLM[:, None] & seen_BHLM
    asking_BHL = wanted_BHLM.any(-1)
    found_BHL = weights.where(wanted_BHLM, 0.0).sum(-1)
    return found_BHL.where(asking_BHL, 0.0).sum(-1) / asking_BHL.sum(-1)


@torch.no_grad()
def lowered(
    sites: Sites, part: PositionPart, task: Task, data: Batch, targets: tuple[Target, ...]
) -> Iterator[Lowered]:
    """Every head of every layer under each target.

    Target position needs a scheme with position in its attention. Raises InputError for a task
    that does not say which words are fillers.
    """
    needed_words(task, data.rows(slice(0, 1)))
    order = data.lengths_B.argsort(stable=True)
    batches = [data.rows(rows).trim() for rows in order.split(TOGETHER)]
    found: dict[tuple[int, int, Target], list[Lowered]] = {}
    for batch in batches:
        needed_BL = needed_words(task, batch)
        state = sites.enter(batch)
        for layer in range(sites.layers):
            for it in _layer(sites, part, state, batch, needed_BL, targets):
                found.setdefault((it.layer, it.head, it.target), []).append(it)
            if layer < sites.layers - 1:
                state = sites.advance(state, sites.write(state, sites.heads(state)))
    for (layer, head, target), parts in found.items():
        joined = {
            name: np.concatenate([getattr(it, name) for it in parts], 1)
            for name in ("correct_GN", "own_GN", "above_GN")
        }
        yield Lowered(layer, head, target, **joined)


def _layer(
    sites: Sites,
    part: PositionPart,
    state: State,
    batch: Batch,
    needed_BL: Tensor,
    targets: tuple[Target, ...],
) -> Iterator[Lowered]:
    """All heads of the state's layer on one batch."""
    heads = sites.heads_in(state.layer)
    intact_BHLD = sites.heads(state)
    update_BLE = sites.write(state, intact_BHLD)
    own_BH = mass(sites.logits(state), needed_BL)
    position_BLE = part(state)
    whole = _above(sites, state, update_BLE, batch, needed_BL)
    for target in targets:
        told = {}
        for gain in GAINS[1:]:
            if target == "head":
                told[gain] = (gain * intact_BHLD, own_BH)
                continue
            gains_BH = state.x_BLE.new_full((len(batch), heads), gain)
            outputs_BHLD = sites.heads(state, gains_BH, position_BLE)
            told[gain] = (
                outputs_BHLD,
                mass(sites.logits(state, gains_BH, position_BLE), needed_BL),
            )
        for head in range(heads):
            rows = [(whole[0], own_BH[:, head], whole[1])]
            for outputs_BHLD, masses_BH in told.values():
                change = (outputs_BHLD - intact_BHLD)[:, [head]]
                changed_BLE = update_BLE + sites.write(state, change, [head])
                correct_B, above_B = _above(sites, state, changed_BLE, batch, needed_BL)
                rows.append((correct_B, masses_BH[:, head], above_B))
            correct, own, above = (torch.stack(it).cpu().numpy() for it in zip(*rows, strict=True))
            yield Lowered(
                state.layer, head, target, correct, own.astype(float), above.astype(float)
            )


def _above(
    sites: Sites, state: State, update_BLE: Tensor, batch: Batch, needed_BL: Tensor
) -> tuple[Tensor, Tensor]:
    """Whether answers are right, and the mean mass of the heads above, both (B)."""
    masses = []
    while state.layer < sites.layers - 1:
        state = sites.advance(state, update_BLE)
        masses.append(mass(sites.logits(state), needed_BL))
        update_BLE = sites.write(state, sites.heads(state))
    scores_BC = sites.leave(state, update_BLE[None])[0]
    none_B = scores_BC.new_full((len(batch),), float("nan"))
    above_B = torch.cat(masses, 1).mean(1) if masses else none_B
    return scores_BC.argmax(-1) == batch.labels_B, above_B


def mechanism_run(folder: Path, sequences: int = SEQUENCES, device: str = "cpu") -> None:
    """Write the tables MECHANISM and FALLS (`poslens.results`) of a finished run into its folder.

    On the first `sequences` of the run's own held-out ones (all, where it has fewer). A scheme
    without position in its attention has rows of target head alone. Raises InputError as `prepare`
    does.
    """
    sites, part, task, data = prepare(folder, sequences, device)
    found = doors(sites.model.encoding)
    targets: tuple[Target, ...] = ("head", "position") if found else ("head",)
    mechanism: list[Row] = []
    falls: list[Row] = []
    for it in lowered(sites, part, task, data, targets):
        place: Row = {"layer": it.layer, "head": it.head, "target": it.target}
        for gain, *values in zip(GAINS, it.correct_GN, it.own_GN, it.above_GN, strict=True):
            accuracy, own, above = map(_mean, values)
            masses = {"own_mass": own, "above_mass": above}
            size = {"sequences": it.correct_GN.shape[1]}
            mechanism.append({**place, "gain": gain, "accuracy": accuracy, **masses, **size})
        # Its own attention stays as it is when a head's output is scaled: the mass above may fall.
        which = "own" if it.target == "position" else "above"
        halves = first(it.correct_GN, it.own_GN if which == "own" else it.above_GN)
        falls.append({**place, "mass": which, **asdict(halves)})
    write_table(folder, "mechanism", mechanism)
    write_table(folder, "falls", falls)


def prepare(
    folder: Path, sequences: int = SEQUENCES, device: str = "cpu"
) -> tuple[TransformerSites, PositionPart, Task, Batch]:
    """All that can be refused before anything is computed or written.

    Raises InputError for fewer than 2 sequences, where the folder holds no finished run or a
    damaged one, and for a task that does not say which words are fillers.
    """
    model, run, task = load_model(folder, device)
    if not RunFolder(folder).finished:
        raise InputError(f"{folder} holds no finished run; run its training again to the end")
    if sequences < 2:
        raise InputError(f"sequences is {sequences}; use 2 or more")
    data = held_out(task, run.training.evaluation, run.seed).rows(slice(0, sequences)).to(device)
    needed_words(task, data.rows(slice(0, 1)))
    return TransformerSites(model), position_part(model, task), task, data


def _mean(values_N: NDArray[np.generic]) -> float:
    known = values_N.astype(float)
    known = known[np.isfinite(known)]
    return float(known.mean()) if len(known) else float("nan")
