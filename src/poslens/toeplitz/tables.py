"""The decomposition of a finished run, written into its folder: tables, and images of the terms.

Shapes: S sequences shown, L query positions, M key positions.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from poslens.errors import InputError
from poslens.model import Transformer
from poslens.results import write_table
from poslens.tasks import Batch, Task
from poslens.tasks.data import generator_for
from poslens.toeplitz.decomposition import decompose
from poslens.toeplitz.operators import offsets
from poslens.toeplitz.rotary import channel_pairs, compare_kernels
from poslens.toeplitz.shares import Share
from poslens.toeplitz.spectra import RotaryComparison
from poslens.toeplitz.splits import SplitName, halves, iid_batch
from poslens.toeplitz.summaries import HeadSummary, summarise
from poslens.toeplitz.terms import Head
from poslens.training import RunFolder, load_model
from poslens.training.folder import make_folder

# The split is fitted on the first half of these sequences and used on the second.
SEQUENCES = 512
COMPARED = 64  # sequences whose singular values are taken
SHOWN = 3  # sequences whose terms are kept as images
IMAGES = "terms.safetensors"
LOGITS, EFFECT = "logits", "effect of position"
# Images are whole numbers up to this, times a scale of their own.
_STEPS = 127

Row = dict[str, object]


def decompose_run(folder: Path, split: SplitName = "mean", device: str = "cpu") -> None:
    """Write what the logits of a finished run are made of into its folder.

    Tables `decomposition`, `covariances`, `symbols` and `spectra` (`poslens.results`), and
    `terms.safetensors`: for `SHOWN` sequences every term of every head, the logits, and the effect
    of position, "layer/head/term" -> int8 (S, L, M), or (1, L, M) where all sequences have the
    same; times `scales[key]` of its JSON notes they are nats, to 1/254 of the largest. What
    attention does not see is 0. All on sequences of independent tokens as long as the task's
    longest, the same for all runs of a task. The embedding split does layer 0 alone.
    Raises InputError as `prepare` does, and NotExact where terms and logits disagree.
    """
    trained = prepare(folder, split, device)
    model, batch = trained.model, trained.batch
    images = _Images()
    summaries = list(summarise(images.keep(decompose(model, batch, split))))
    layers = sorted({one.layer for one in summaries})
    spectra = [*_spectra(model, halves(batch)[1].rows(slice(0, COMPARED)), layers)]
    notes = {
        **{"split": split, "scales": images.scales, "causal": model.settings.causal},
        **{"logits": LOGITS, "effect": EFFECT},
    }
    RunFolder(folder).save_tensors(IMAGES, images.tensors, notes)
    write_table(folder, "covariances", [row for one in summaries for row in _covariances(one)])
    write_table(folder, "symbols", [row for one in summaries for row in _symbol(one)])
    write_table(folder, "spectra", spectra)
    size = {"split": split, "sequences": SEQUENCES // 2, "length": batch.tokens_BL.shape[1]}
    write_table(folder, "decomposition", [size | _head(one) for one in summaries])


@dataclass(frozen=True)
class Trained:
    """A finished run's model and the sequences it is taken apart on."""

    model: Transformer
    batch: Batch


def prepare(folder: Path, split: SplitName = "mean", device: str = "cpu") -> Trained:
    """All that can be refused before anything is computed or written.

    Raises InputError where the folder holds no trained model or a damaged one, cannot be written
    to, or holds a model that cannot be taken apart; the message names the folder.
    """
    model, _, task = load_model(folder, device)
    if not RunFolder(folder).finished:
        raise InputError(f"{folder} holds no finished run; run its training again to the end")
    make_folder(folder)
    batch = independent_tokens(task).to(device)
    try:
        decompose(model, batch, split)  # checks at once, computes only when iterated
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error
    return Trained(model, batch)


def independent_tokens(task: Task) -> Batch:
    """Sequences of independent tokens, the same for every run of the task."""
    return iid_batch(task.embeddings, SEQUENCES, task.max_length, generator_for(0, "decompose"))


class _Images:
    """Keeps images of heads that pass by on their way to the summaries."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.scales: dict[str, float] = {}

    def keep(self, heads: Iterable[Head]) -> Iterator[Head]:
        for head in heads:
            for name, image_SLM in _images(head).items():
                key = f"{head.layer}/{head.head}/{name}"
                self.tensors[key], self.scales[key] = _in_steps(image_SLM)
            yield head


def _images(head: Head) -> dict[str, Tensor]:
    """Terms, logits and effect of position of the first sequences, (S, L, M), 0 where not seen.

    The effect of a bias is the bias, so heads that rotate nothing and have no table lack it.
    """
    shown = slice(0, SHOWN)
    terms_KSLM = head.block((shown, slice(None)))
    images = dict(zip(head.made, terms_KSLM, strict=True))
    logits = head.logits
    images[LOGITS] = _product(logits.queries_BLD, logits.keys_BMD, logits.bias_BLM, shown)
    if head.added is not None and head.added[0].shape[-1]:
        images[EFFECT] = _product(*head.added, head.bias_BLM, shown)
    if head.entries_BLM is None:
        return images
    entries_SLM = head.entries_BLM[shown]
    return {name: image_SLM * entries_SLM for name, image_SLM in images.items()}


def _product(
    queries_BLW: Tensor, keys_BMW: Tensor, bias_BLM: Tensor | None, shown: slice
) -> Tensor:
    product_SLM = queries_BLW[shown] @ keys_BMW[shown].mT
    return product_SLM if bias_BLM is None else product_SLM + bias_BLM[shown]


def _in_steps(image_SLM: Tensor) -> tuple[Tensor, float]:
    """The image in steps of a scale, which is returned too; one sequence where all are equal."""
    scale = float(image_SLM.abs().max()) / _STEPS
    steps_SLM = (image_SLM / (scale or 1.0)).round().to(torch.int8)
    return (steps_SLM[:1] if bool((steps_SLM == steps_SLM[:1]).all()) else steps_SLM), scale


def _head(one: HeadSummary) -> Row:
    covariances = one.variances
    return {
        **{"layer": one.layer, "head": one.head, "error": one.error},
        "variance": float(covariances.covariances_KK.sum()),
        "within_rows": float(covariances.within_rows_KK.sum()),
        "algebra": one.algebra.kind,
        "explained": one.algebra.explained,
        "reason": one.algebra.reason,
        **_share("tau", one.tau),
        **_share("tau_each", one.tau_each),
        **_share("tau_row", one.tau_row),
        **_share("tau_row_each", one.tau_row_each),
    }


def _share(name: str, share: Share) -> Row:
    """A share, or the mean of those of each sequence, leaving out where it is undefined."""
    return {
        name: float(share.value.nanmean()),
        f"{name}_adjusted": float(share.adjusted.nanmean()),
    }


def _covariances(one: HeadSummary) -> Iterator[Row]:
    both = (one.variances.covariances_KK, one.variances.within_rows_KK)
    whole, rows = (covariances_KK.tolist() for covariances_KK in both)
    of_all, of_rows = ((covariances_KK / covariances_KK.sum()).tolist() for covariances_KK in both)
    for i, term in enumerate(one.variances.names):
        for j, other in enumerate(one.variances.names):
            yield {
                **{"layer": one.layer, "head": one.head, "term": term, "other": other},
                **{"covariance": whole[i][j], "within_rows": rows[i][j]},
                **{"share": of_all[i][j], "share_within_rows": of_rows[i][j]},
            }


def _symbol(one: HeadSummary) -> Iterator[Row]:
    values, counts = one.symbol.values, one.symbol.counts
    length = (len(values) + 1) // 2
    for offset, value, count in zip(offsets(length, length), values, counts, strict=True):
        if count:
            yield {
                **{"layer": one.layer, "head": one.head, "offset": int(offset)},
                **{"value": float(value), "entries": int(count)},
            }


def _spectra(model: Transformer, batch: Batch, layers: Sequence[int]) -> Iterator[Row]:
    """Contraction by the rotary kernel, where there is one that turns channels in pairs."""
    groups = [group for pairs in channel_pairs(model.encoding) for group in pairs.turned]
    if not groups or any(len(group) > 2 for group in groups):
        return
    for layer, head, comparison in compare_kernels(model, batch, layers):
        yield {"layer": layer, "head": head, "sequences": len(batch), **_norms(comparison)}


def _norms(comparison: RotaryComparison) -> dict[str, Any]:
    found = comparison.sum_real.contraction
    # A norm that grew by no more than rounding has not grown.
    most = 1 + 1e-5
    return {
        "operator": float(found.operator.mean()),
        "operator_contracted": float((found.operator < 1).double().mean()),
        "nuclear": float(found.nuclear.mean()),
        "nuclear_contracted": float((found.nuclear < 1).double().mean()),
        "none_grew": float((found.ky_fan <= most).double().mean()),
    }
