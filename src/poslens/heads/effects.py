"""What editing a head does to every answer: one engine for all targets, methods and sets of heads.

The prefix and the attention of a layer are computed once. What differs between variants, the
layer's feed-forward and the layers above, is batched over them within a memory budget.

Shapes: A layers, H heads, N sequences, B batch, V variants, C classes, E model width.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from poslens.errors import InputError
from poslens.heads.edits import Edit, Reference
from poslens.heads.estimates import METRICS, Measured, Metric
from poslens.heads.stopping import LOOK, precise
from poslens.model import Sites, State
from poslens.model.sites import check_head, check_layer
from poslens.tasks import Batch

HeadAt = tuple[int, int]  # layer, head

# What a sequence holds beside its variants, in rows of a forward pass: its own state, masks and
# head outputs, and those under the edit.
OWN_ROWS = 2


@dataclass(frozen=True)
class Effort:
    """How much to spend: `megabytes` bounds what a block of sequences and its variants hold.

    Few of them keep a forward pass within a processor's caches; give a GPU more.

    `draws` average random methods. With `precision`, measuring stops once no 95 % interval of
    accuracy reaches further than that to either side; None uses all sequences.
    """

    megabytes: float = 256.0
    draws: int = 2
    precision: float | None = None

    def __post_init__(self) -> None:
        """Raises InputError for values that make no sense."""
        if not 0 < self.megabytes < math.inf:
            raise InputError(f"budget is {self.megabytes:g}; use a number of megabytes above 0")
        if self.draws < 1:
            raise InputError(f"draws is {self.draws}; use 1 or more")
        if self.precision is not None and not 0 < self.precision < 1:
            raise InputError(f"precision is {self.precision:g}; use a share above 0 and below 1")

    def plan(self, sites: Sites, length: int, variants: int) -> tuple[int, int]:
        """How many sequences to take at once, and how many variants of them.

        As few sequences as all their variants leave room for: what variants share is then made for
        many of them at once. Raises InputError where not even one variant of one sequence fits.
        """
        row = sites.megabytes_per_row(length)
        rows = int(self.megabytes / row)
        if rows < OWN_ROWS + 1:
            least = math.ceil((OWN_ROWS + 1) * row * 10) / 10
            raise InputError(
                f"a budget of {self.megabytes:g} MB is too small for one variant of one sequence; "
                f"give at least {least:g} MB"
            )
        sequences = max(1, min(LOOK, rows // (OWN_ROWS + variants)))
        return sequences, rows // sequences - OWN_ROWS


@dataclass
class Scores:
    """Answers collected batch by batch: accuracy, loss and margin of V variants of a layer."""

    parts: dict[Metric, list[NDArray[np.generic]]] = field(
        default_factory=lambda: {metric: [] for metric in METRICS}
    )

    def add(self, scores_VBC: Tensor, labels_B: Tensor) -> None:
        for metric, values in answers(scores_VBC, labels_B).items():
            self.parts[metric].append(values)

    def joined(self, metric: Metric) -> NDArray[np.generic]:
        return np.concatenate(self.parts[metric], 1)


def answers(scores_VBC: Tensor, labels_B: Tensor) -> dict[Metric, NDArray[np.generic]]:
    """Right or wrong (bool), cross-entropy (nats), and the right class's score over the next."""
    scores_VBC = scores_VBC.double()
    labels_VB1 = labels_B.expand(scores_VBC.shape[:2])[..., None]
    right_VB = scores_VBC.gather(-1, labels_VB1)[..., 0]
    others_VBC = scores_VBC.scatter(-1, labels_VB1, float("-inf"))
    losses_VB = F.cross_entropy(scores_VBC.movedim(-1, 1), labels_VB1[..., 0], reduction="none")
    return {
        "accuracy": (scores_VBC.argmax(-1) == labels_B).cpu().numpy(),
        "loss": losses_VB.cpu().numpy(),
        "margin": (right_VB - others_VBC.amax(-1)).cpu().numpy(),
    }


@torch.no_grad()
def measure(
    data: Batch,
    edit: Edit,
    reference: Reference,
    effort: Effort | None = None,
    layers: Collection[int] | None = None,
    heads: Collection[int] | None = None,
) -> dict[Metric, Measured]:
    """Edit each head alone, the heads of each layer together, and all heads of the model.

    Single heads are those of `heads` in `layers` (None: all); layers as wholes have all theirs.
    `data` must be held out from training and from the reference. Random methods average the
    answers over draws. Raises InputError where position is to be taken from a model that has none
    in its attention, for layers or heads that are not there or an empty set of them, and for a
    budget too small for one variant.
    """
    sites = reference.sites
    chosen_layers, chosen_heads = chosen(sites, layers, heads)
    effort = effort or Effort()
    sequences, together = effort.plan(sites, data.tokens_BL.shape[1], len(chosen_heads) + 1)
    draws = effort.draws if edit.random else 1
    collected = Collected(edit, reference, chosen_layers, chosen_heads, draws)
    for look in looks(data):
        for batch, numbers in in_batches(data, look, sequences):
            collected.add(batch, numbers, together)
        if effort.precision is not None and collected.precise(effort.precision):
            break
    return {metric: collected.measured(metric) for metric in METRICS}


class Collected:
    """Answers of the intact model, with each variant of each layer, and with every head edited."""

    def __init__(
        self,
        edit: Edit,
        reference: Reference,
        layers: tuple[int, ...],
        heads: tuple[int, ...],
        draws: int,
    ) -> None:
        self.edit, self.reference, self.heads = edit, reference, heads
        self.intact = Scores()
        self.layers = {layer: [Scores() for _ in range(draws)] for layer in layers}
        self.model = [Scores() for _ in range(draws)]
        self.numbers: list[int] = []

    def add(self, batch: Batch, numbers: list[int], together: int) -> None:
        """Answers to one more batch, at most `together` variants of it at once.

        `numbers` are those of its sequences in the data.
        """
        edit, reference, sites = self.edit, self.reference, self.reference.sites
        last = max(self.layers)
        state = sites.enter(batch)
        for layer in range(last + 1):
            outputs_BHLD = sites.heads(state)
            for draw, scores in enumerate(self.layers.get(layer, [])):
                changed_BHLD = reference.replacement(edit, state, outputs_BHLD, draw, numbers)
                scores_VBC = leave_edited(
                    sites, state, outputs_BHLD, changed_BHLD, self.heads, together
                )
                scores.add(scores_VBC, batch.labels_B)
            update_BLE = sites.write(state, outputs_BHLD)
            if layer < last:
                state = sites.advance(state, update_BLE)
        self.intact.add(sites.leave(state, update_BLE[None]), batch.labels_B)
        for draw, scores in enumerate(self.model):
            scores_BC = Walk(batch, edit, reference, draw, numbers).scores(None)
            scores.add(scores_BC[None], batch.labels_B)
        self.numbers += numbers

    def precise(self, precision: float) -> bool:
        """Whether measuring may stop; random methods are judged by their first draw."""
        order = np.argsort(self.numbers)
        by_layer = [draws[0].joined("accuracy")[:, order] for draws in self.layers.values()]
        intact_N = self.intact.joined("accuracy")[0, order].astype(bool)
        return bool(precise(intact_N, np.concatenate(by_layer).astype(bool), precision))

    def measured(self, metric: Metric) -> Measured:
        order = np.argsort(self.numbers)
        by_layer = [_mean_of_draws(draws, metric)[:, order] for draws in self.layers.values()]
        return Measured(
            metric,
            self.intact.joined(metric)[0, order],
            heads_AHN=np.stack([layer_VN[:-1] for layer_VN in by_layer]),
            layers_AN=np.stack([layer_VN[-1] for layer_VN in by_layer]),
            model_N=_mean_of_draws(self.model, metric)[0, order],
            target=self.edit.target,
            method=self.edit.method,
            layers=tuple(self.layers),
            heads=self.heads,
        )


def chosen(
    sites: Sites, layers: Collection[int] | None, heads: Collection[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Layers and heads to measure, each in order and once; None stands for all there are.

    Raises InputError for those that are not there, and where none is asked for.
    """
    for name, asked in (("layers", layers), ("heads", heads)):
        if asked is not None and not asked:
            raise InputError(f"the set of {name} to measure is empty; name at least one or all")
    layers = range(sites.layers) if layers is None else sorted(set(layers))
    for layer in layers:
        check_layer(sites, layer)
    heads = range(sites.heads_in(layers[0])) if heads is None else sorted(set(heads))
    for layer in layers:
        for head in heads:
            check_head(sites, layer, head)
    return tuple(layers), tuple(heads)


class Walk:
    """A batch on its way through the model, to be walked again with sets of heads edited.

    States and head outputs of the intact model are kept, so that each walk begins at the lowest
    layer it edits. `numbers` are those of the batch's sequences in the data.
    """

    def __init__(
        self,
        batch: Batch,
        edit: Edit,
        reference: Reference,
        draw: int = 0,
        numbers: list[int] | None = None,
    ) -> None:
        self.edit, self.reference, self.draw, self.numbers = edit, reference, draw, numbers
        self.sites = reference.sites
        self.states = [self.sites.enter(batch)]
        self.outputs = [self.sites.heads(self.states[0])]
        self.changed: dict[int, Tensor] = {}

    def scores(self, heads: Collection[HeadAt] | None) -> Tensor:
        """Scores (B, C) with these heads edited (None: all), each layer seeing the one below."""
        last = self.sites.layers - 1
        lowest = 0 if heads is None else min((layer for layer, _ in heads), default=last)
        state, outputs_BHLD = self._intact(lowest)
        changed_BHLD = self._changed(lowest)
        while True:
            every = range(self.sites.heads_in(state.layer))
            mine = [head for head in every if heads is None or (state.layer, head) in heads]
            if mine and state.layer > lowest:
                changed_BHLD = self._replaced(state, outputs_BHLD)
            outputs_BHLD = outputs_BHLD.clone()
            outputs_BHLD[:, mine] = changed_BHLD[:, mine]
            update_BLE = self.sites.write(state, outputs_BHLD)
            if state.layer == last:
                return self.sites.leave(state, update_BLE[None])[0]
            state = self.sites.advance(state, update_BLE)
            outputs_BHLD = self.sites.heads(state)

    def _intact(self, layer: int) -> tuple[State, Tensor]:
        """The intact model's state before the layer, and its heads' outputs."""
        while len(self.states) <= layer:
            update_BLE = self.sites.write(self.states[-1], self.outputs[-1])
            self.states.append(self.sites.advance(self.states[-1], update_BLE))
            self.outputs.append(self.sites.heads(self.states[-1]))
        return self.states[layer], self.outputs[layer]

    def _changed(self, layer: int) -> Tensor:
        """What the heads of a layer are replaced by where all below is intact."""
        if layer not in self.changed:
            self.changed[layer] = self._replaced(*self._intact(layer))
        return self.changed[layer]

    def _replaced(self, state: State, outputs_BHLD: Tensor) -> Tensor:
        return self.reference.replacement(self.edit, state, outputs_BHLD, self.draw, self.numbers)


def leave_edited(
    sites: Sites,
    state: State,
    outputs_BHLD: Tensor,
    changed_BHLD: Tensor,
    heads: Collection[int],
    together: int,
) -> Tensor:
    """Scores (V, B, C) with each of `heads` changed alone, and last with all of the layer changed.

    At most `together` variants go through the layers above at once.
    """
    update_BLE = sites.write(state, outputs_BHLD)
    difference_BHLD = changed_BHLD - outputs_BHLD

    def update(head: int | None) -> Tensor:
        if head is None:
            return sites.write(state, changed_BHLD)
        return update_BLE + sites.write(state, difference_BHLD[:, [head]], [head])

    variants = [*heads, None]
    parts = []
    for start in range(0, len(variants), together):
        updates_VBLE = torch.stack([update(head) for head in variants[start : start + together]])
        parts.append(sites.leave(state, updates_VBLE))
    return torch.cat(parts)


def looks(data: Batch) -> Iterator[range]:
    """The data's numbers in blocks of `LOOK`, each a fair sample: measuring may stop after any."""
    for start in range(0, len(data), LOOK):
        yield range(start, min(start + LOOK, len(data)))


def in_batches(data: Batch, look: range, size: int) -> Iterator[tuple[Batch, list[int]]]:
    """The sequences with these numbers in batches of similar length, which saves padding.

    Each batch with the numbers of its sequences.
    """
    order = data.lengths_B[look.start : look.stop].argsort(stable=True).cpu() + look.start
    for numbers in order.split(size):
        yield data.rows(numbers.to(data.labels_B.device)).trim(), numbers.tolist()


def _mean_of_draws(draws: Iterable[Scores], metric: Metric) -> NDArray[np.generic]:
    """The mean over draws; a single draw keeps its type, so that right or wrong stays that."""
    joined = [scores.joined(metric) for scores in draws]
    return joined[0] if len(joined) == 1 else np.stack(joined).astype(np.float64).mean(0)
