"""`poslens ablate`: what each head of trained runs is worth, and what its position is."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import tyro

from poslens import results
from poslens.claims.over_seeds import over_seeds
from poslens.cli.each import each
from poslens.cli.options import parse, print_json
from poslens.errors import InputError
from poslens.heads.edits import METHODS, Edit, Method, Target
from poslens.heads.estimates import METRICS, Metric

HEAD, WHOLE = "head", -1
USUAL: dict[Target, tuple[Method, ...]] = {"head": ("zero",), "position": ("none",)}
SHOWN = 4  # heads told of each run and edit


@dataclass(frozen=True)
class Ablate:
    """Edit one head at a time, on held-out sequences, and measure what that costs.

    Target head replaces a head's output by: zero; its mean; its output in another sequence
    (resample). Target position leaves the head and takes its position: none at all; its kernel's
    mean over offsets; positions permuted (resample). Targets table, rotation and bias do so at one
    door of a hybrid. Positive effects are harm: a fall in accuracy or margin, a rise in loss
    (nats).

    Adds to effects.parquet and concentration.parquet of every run, with --sets also to necessity,
    sufficiency and interactions (.parquet). What is asked of some layers, heads or metrics alone,
    of another seed's sequences, or with --precision, is told and not written: tables are of whole
    models on all the run's own held-out sequences.

    For example:
      poslens ablate runs/quick
      poslens ablate runs/quick/rope-distance-seed0 --methods mean resample
      poslens ablate runs/quick/rope-distance-seed0 --layers 0 --heads 0 3 --metrics accuracy
      poslens ablate runs/quick --targets position --sets
      poslens ablate runs/quick/mla-distance-seed0 --published
    """

    path: Annotated[Path, tyro.conf.Positional]
    """A run, or a folder of runs."""
    targets: tuple[Target, ...] = ()
    """What of a head is edited [default: those of head and position that the methods fit]."""
    methods: tuple[Method, ...] = ()
    """How [default: zero for head, none for position and its doors]."""
    metrics: tuple[Metric, ...] = METRICS
    """Effects on accuracy, loss (nats) and margin (right class's score over the next)."""
    layers: tuple[int, ...] | None = None
    """Only these layers, counted from 0 [default: all]."""
    heads: tuple[int, ...] | None = None
    """Only these heads of them, counted from 0 [default: all]."""
    sets: bool = False
    """Also which sets of heads are necessary, which suffice, and which work together."""
    published: bool = False
    """Also measured as the study's code did, beside the right way (docs/published.md)."""
    seed: int | None = None
    """Held-out sequences of another seed [default: the run's own held-out sequences]."""
    precision: float | None = None
    """Stop when all accuracies are known to this, such as 0.01 [default: all sequences]."""
    draws: int = 2
    """Random draws that resample averages."""
    budget: float = 256.0
    """Megabytes that the variants measured together may hold."""
    jobs: int | None = None
    """Runs at once, in processes of one thread [default: one a core]."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print the runs' tables as JSON, or what is told and not written."""

    @property
    def effort(self) -> Any:
        from poslens.heads import Effort

        return Effort(self.budget, self.draws, self.precision)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """Every target with every method it has. Raises InputError for one without the other."""
        targets = self.targets or tuple(
            target for target in USUAL if not self.methods or {*self.methods} & {*METHODS[target]}
        )
        found = []
        for target in targets:
            methods = self.methods or USUAL.get(target, ("none",))
            own = [method for method in methods if method in METHODS[target]]
            found += [Edit(target, method) for method in own] or [Edit(target, methods[0])]
        for method in self.methods:
            if all(edit.method != method for edit in found):
                Edit(targets[0], method)
        return tuple(dict.fromkeys(found))

    @property
    def partial(self) -> bool:
        """Whether what is asked for is not what a run's tables hold."""
        asked = (self.layers, self.heads, self.seed, self.precision)
        return any(it is not None for it in asked) or {*self.metrics} != {*METRICS}


def run(arguments: list[str]) -> None:
    from poslens.training import runs_below

    command = parse(Ablate, arguments, "ablate")
    edits = command.edits
    if command.partial and (command.sets or command.published):
        raise InputError("--sets and --published are of whole models; leave the restriction out")
    folders = runs_below(command.path)
    # All that can be refused is, before anything is written.
    undefined = {
        (folder, edit): why
        for folder in folders
        for edit, why in refusals(folder, command).items()
        if why is not None
    }
    if len(undefined) == len(folders) * len(edits):
        raise InputError(f"{folders[0]}: {next(iter(undefined.values()))}")
    rows = each(folders, partial(ablate, command=command), command.jobs)
    if command.partial:
        _tell_some([row for of_run in rows for row in of_run], command.json)
        return
    tables = results.read(command.path)
    if command.json:
        names = ("effects", "concentration", "necessity", "sufficiency", "interactions")
        print_json({name: getattr(tables, name).to_dicts() for name in names})
        return
    for line in (*_told(tables, edits, command.published), *_over_seeds(tables)):
        print(line)


def refusals(folder: Path, command: Ablate) -> dict[Edit, str | None]:
    """Why each edit is not defined for a run, None where it is.

    Raises InputError for all else that measuring would refuse.
    """
    from poslens.heads import Ablatable

    it = Ablatable.of(folder, command.device, command.seed)
    it.check(command.effort, command.layers, command.heads)
    return {edit: it.refuses(edit) for edit in command.edits}


def ablate(folder: Path, command: Ablate) -> list[dict[str, Any]]:
    """Do what is asked to one run; the rows of what is told and not written."""
    from poslens.heads import Ablatable, ablate_run
    from poslens.heads.ablate import add_effects
    from poslens.heads.published import published_measurements

    if command.partial:
        it = Ablatable.of(folder, command.device, command.seed)
        defined = [edit for edit in command.edits if it.refuses(edit) is None]
        chosen = (command.effort, command.layers, command.heads, command.metrics)
        return [row for edit in defined for row in it.rows(edit, *chosen)]
    alone = (command.path / "config.json").exists()
    ablate_run(
        *(folder, command.device, command.edits, command.effort, command.sets),
        done=_tell_edit if alone else None,
    )
    if command.published:
        add_effects(folder, published_measurements(folder, command.device))
    return []


def _tell_edit(edit: Edit) -> None:
    print(f"measured: {edit.target} {edit.method}", file=sys.stderr)


def _tell_some(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"effects": rows})
        return
    for row in rows:
        print(
            f"{row['scheme']} on {row['task']}, seed {row['seed']}: {_where(row)}, "
            f"{row['target']} {row['method']}: {_effect(row)}"
        )
    print("told, not written: the tables of a run are of all heads on its own held-out sequences")


def _told(tables: results.Tables, edits: tuple[Edit, ...], published: bool) -> Iterator[str]:
    """What was found in every run, in lines."""
    of_run = list(results.KEY)
    for key, verdicts in tables.concentration.group_by(of_run, maintain_order=True):
        this = dict(zip(of_run, key, strict=True))
        yield f"{this['scheme']} on {this['task']}, seed {this['seed']}"
        for edit in edits:
            same = {"target": edit.target, "method": edit.method, "metric": "accuracy"}
            words = ", ".join(verdicts.filter(**same).sort("layer")["verdict"].to_list())
            yield f"  {edit.target} {edit.method}; by layer: {words}"
            found = tables.effects.filter(**this, **same)
            for row in _largest(found):
                yield f"    {_where(row)}: {_effect(row)}"
            for row in found.filter(layer=WHOLE).iter_rows(named=True):
                yield f"    every head of the model: {_effect(row)}"
            needed = tables.necessity.filter(**this, target=edit.target, method=edit.method)
            if not needed.is_empty():
                yield f"    {_count(needed)}"
        if published:
            right = tables.effects.filter(**this, target="head", metric="accuracy")
            right = right.filter(pl.col("head") != WHOLE)
            for method in right["method"].unique(maintain_order=True):
                if method.startswith("published"):
                    yield f"  {method}: {_furthest(right.filter(method=method), right)}"


def _over_seeds(tables: results.Tables) -> Iterator[str]:
    """How much the first layer of schemes with several seeds differs between them."""
    first = tables.concentration.filter(layer=0, metric="accuracy")
    for row in over_seeds(first).filter(pl.col("seeds") > 1).iter_rows(named=True):
        told = [
            f"{name.replace('_', ' ')} {row[name]:.2f} "
            f"({row[f'{name}_min']:.2f} to {row[f'{name}_max']:.2f})"
            for name in ("top_share", "effective_heads", "deposit_index")
            if row["defined"]
        ]
        yield (
            f"{row['scheme']} on {row['task']}, first layer, {row['target']} {row['method']}, "
            f"{row['seeds']} seeds: {', '.join([row['verdicts'], *told])}"
        )


def _largest(effects: pl.DataFrame) -> Iterator[dict[str, Any]]:
    heads = effects.filter(pl.col("head") != WHOLE).sort("effect", descending=True)
    yield from heads.head(SHOWN).iter_rows(named=True)


def _furthest(published: pl.DataFrame, every: pl.DataFrame) -> str:
    """The head whose effect as published is furthest from the right one."""
    zero = every.filter(method="zero").select("layer", "head", pl.col("effect").alias("right"))
    both = published.join(zero, on=["layer", "head"]).with_columns(
        (pl.col("effect") - pl.col("right")).abs().alias("off")
    )
    if both.is_empty():
        return "measured; measure head zero to compare"
    row = both.sort("off", descending=True).row(0, named=True)
    return (
        f"furthest off in {_where(row)}: accuracy falls by {row['effect']:.3f}, "
        f"rightly by {row['right']:.3f}"
    )


def _where(row: dict[str, Any]) -> str:
    if row["layer"] == WHOLE:
        return "every head of the model"
    return f"layer {row['layer']} " + ("whole" if row["head"] == WHOLE else f"head {row['head']}")


def _effect(row: dict[str, Any]) -> str:
    verb = "rises" if row["metric"] == "loss" else "falls"
    return f"{row['metric']} {verb} by {row['effect']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def _count(steps: pl.DataFrame) -> str:
    """How many heads it takes, from the rows of a search."""
    row = steps.row(0, named=True)
    if row["count"] != row["count"]:
        return "heads needed to lose what can be lost: undecidable, there is nothing to lose"
    value, low, high = (
        f"{row[name]:.0f}" if row[name] != float("inf") else f"over {steps.height - 1}"
        for name in ("count", "count_low", "count_high")
    )
    return f"heads needed to lose what can be lost, by greedy search: {value} [{low}, {high}]"
