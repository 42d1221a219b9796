"""Ablate a finished run: effects of heads and of their position, and what they concentrate on."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from poslens import results
from poslens.errors import InputError
from poslens.heads.concentration import (
    NOTHING_TO_LOSE,
    concentration_rows,
    undefined_rows,
)
from poslens.heads.edits import Edit, Reference, reference_batch
from poslens.heads.effects import Effort, chosen, measure
from poslens.heads.estimates import METRICS, Effects, Measured, Metric, effect_rows, estimate
from poslens.heads.position_part import position_part
from poslens.heads.set_tables import SetRows, set_rows
from poslens.model import Transformer, TransformerSites
from poslens.tasks import Batch, held_out
from poslens.training import RunFolder, RunSettings, load_model
from poslens.training.loop import evaluate

# Sequences that mean and resample take their replacements from.
REFERENCE = 512
# What every run of an experiment gets: each head without output, and without position.
STANDARD = (Edit("head", "zero"), Edit("position", "none"))
EDIT_COLUMNS = ("target", "method")
TABLES = ("effects", "concentration", "necessity", "sufficiency", "interactions")

Row = dict[str, object]


@dataclass(frozen=True)
class Ablatable:
    """A trained run made ready: its model, held-out sequences, and what edits replace from."""

    folder: Path
    model: Transformer
    run: RunSettings
    data: Batch
    reference: Reference
    baseline: float

    @classmethod
    def of(cls, folder: Path, device: str = "cpu", seed: int | None = None) -> "Ablatable":
        """The run in `folder`, on its own held-out sequences or on those of another `seed`.

        Raises InputError where the folder holds no finished run or a damaged one, and for a
        negative seed and the one that the run was trained from.
        """
        model, run, task = load_model(folder, device)
        if not RunFolder(folder).finished:
            raise InputError(f"{folder} holds no finished run; run its training again to the end")
        if seed is not None and seed < 0:
            raise InputError(f"seed {seed} is negative; use 0 or more")
        if seed == run.seed:
            raise InputError(
                f"seed {seed} is the one that {folder} was trained from; give another, or none "
                "for the run's own held-out sequences"
            )
        data = held_out(task, run.training.evaluation, run.seed if seed is None else seed)
        batch = reference_batch(task, data.lengths_B, REFERENCE, run.seed).to(device)
        part = position_part(model, task)
        reference = Reference(TransformerSites(model), batch, run.model.causal, part)
        return cls(folder, model, run, data.to(device), reference, task.baseline().value)

    @cached_property
    def decidable(self) -> bool:
        """Whether the model has something to lose: is far enough above the length-only baseline."""
        accuracy = evaluate(self.model, self.data)[0].double().mean().item()
        return accuracy - self.baseline >= NOTHING_TO_LOSE

    def refuses(self, edit: Edit) -> str | None:
        """Why the edit is not defined for this model, or None where it is."""
        sites = self.reference.sites
        try:
            state = sites.enter(self.data.rows(slice(0, 1)).trim())
            self.reference.replacement(edit, state, sites.heads(state))
        except InputError as error:
            return str(error)
        return None

    def check(
        self,
        effort: Effort,
        layers: Collection[int] | None = None,
        heads: Collection[int] | None = None,
    ) -> None:
        """Raises InputError for what measuring would refuse, but for the edit; damage too."""
        for name in TABLES:
            results.read_table(self.folder, name)
        chosen(self.reference.sites, layers, heads)
        effort.plan(self.reference.sites, self.data.tokens_BL.shape[1], variants=1)

    def effects(
        self,
        edit: Edit,
        effort: Effort | None = None,
        layers: Collection[int] | None = None,
        heads: Collection[int] | None = None,
        metrics: Iterable[Metric] = METRICS,
    ) -> dict[Metric, Effects]:
        """Effects of the edit on each metric, of all heads or of some.

        Raises InputError where the edit is not defined, for a layer or head that is not there, an
        empty set of them, and a budget too small for one variant.
        """
        found = measure(self.data, edit, self.reference, effort, layers, heads)
        return {metric: estimate(found[metric]) for metric in metrics}

    def rows(
        self,
        edit: Edit,
        effort: Effort,
        layers: Collection[int] | None,
        heads: Collection[int] | None,
        metrics: Iterable[Metric],
    ) -> list[Row]:
        """Effects as rows that begin with the run's scheme, task and seed."""
        key: Row = {"scheme": self.run.scheme, "task": self.run.task, "seed": self.run.seed}
        found = self.effects(edit, effort, layers, heads, metrics)
        return [key | row for effects in found.values() for row in effect_rows(effects)]

    def sets(self, edit: Edit, loss: Measured, effort: Effort | None = None) -> SetRows:
        """Which sets of heads are necessary, suffice or work together, given effects on loss."""
        return set_rows(self.data, edit, self.reference, loss, self.decidable, effort)


def ablate_run(
    folder: Path,
    device: str = "cpu",
    edits: Iterable[Edit] = STANDARD,
    effort: Effort | None = None,
    sets: bool = False,
    done: Callable[[Edit], None] | None = None,
) -> dict[Edit, str]:
    """Measure edits of every head of a finished run and add them to its tables.

    Tables EFFECTS and CONCENTRATION, with `sets` also NECESSITY, SUFFICIENCY and INTERACTIONS
    (`poslens.results`); what was measured by other edits stays in them. An edit that is not defined
    for the model (position, where its attention has none) has the verdict *undefined*; returned are
    these edits and why. `done` is told of each edit once it is measured. Raises InputError where
    the folder holds no trained model or a damaged one.
    """
    run = Ablatable.of(folder, device)
    undefined: dict[Edit, str] = {}
    effects: list[Row] = []
    concentration: list[Row] = []
    of_sets = SetRows()
    edits = tuple(edits)
    for edit in edits:
        reason = run.refuses(edit)
        if reason is not None:
            undefined[edit] = reason
            concentration += undefined_rows(edit.target, edit.method, run.reference.sites)
            continue
        found = run.effects(edit, effort)
        effects += [row for metric in METRICS for row in effect_rows(found[metric])]
        concentration += concentration_rows(found, run.baseline)
        if sets:
            of_sets += run.sets(edit, found["loss"].measured, effort)
        if done is not None:
            done(edit)
    if sets:
        for name, rows in of_sets.tables().items():
            _add(folder, name, rows, edits)
    _add(folder, "effects", effects, edits)
    _add(folder, "concentration", concentration, edits)
    return undefined


def is_ablated(folder: Path, edits: Iterable[Edit] = STANDARD) -> bool:
    """Whether the run's tables have these edits, as far as they are defined."""
    wanted = {(edit.target, edit.method) for edit in edits}
    table = results.read_table(folder, "concentration")
    if table is None or not (folder / "effects.parquet").exists():
        return False
    return wanted <= set(table.select(EDIT_COLUMNS).rows())


def add_effects(folder: Path, rows: list[Row]) -> None:
    """Add rows to a run's table of effects, in place of those of the same targets and methods."""
    edits = {(str(row["target"]), str(row["method"])) for row in rows}
    results.update_table(folder, "effects", rows, EDIT_COLUMNS, edits)


def _add(folder: Path, name: str, rows: list[Row], edits: Iterable[Edit]) -> None:
    pairs = {(edit.target, edit.method) for edit in edits}
    results.update_table(folder, name, rows, EDIT_COLUMNS, pairs)
