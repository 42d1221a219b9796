"""What a claim is, and how its seeds make one verdict.

A claim states which runs it needs and judges one seed at a time; everything else (missing runs,
pairing by seed, the number of seeds, schemes still improving) is the same for all claims.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import polars as pl

from poslens.claims.words import listed, title
from poslens.results import Tables

MINIMUM_SEEDS = 3  # fewer decide nothing
IMPROVING_SHARE = 0.1  # of a run's evaluations, compared with as many before them
EDITS = {"head": "zero", "position": "none"}  # the method that claims look at, by target
MEASURED = ("seeds", "margins", "subspaces")  # further tables that claims look at
IMPROVING_RISE = 0.01  # in mean held-out accuracy, above which a run is still improving

Outcome = Literal["passes", "fails", "undecided"]
VerdictName = Literal["reproduced", "contradicted", "mixed", "inconclusive", "not run"]
Direction = Literal["reproduced", "contradicted", ""]
Row = Mapping[str, Any]


class Cell(NamedTuple):
    """A scheme on a task."""

    scheme: str
    task: str

    @property
    def words(self) -> str:
        return f"{title(self.scheme)} on {self.task}"


class Judgement(NamedTuple):
    """What a claim's rule says of one seed: the outcome, its numbers, and why in words."""

    outcome: Outcome
    numbers: dict[str, float]
    words: str


@dataclass(frozen=True)
class Runs:
    """All runs of one seed: rows of the tables SUMMARY, CONCENTRATION and SUBSPACES.

    Of CONCENTRATION those of `EDITS`, on accuracy. `measured` holds all rows of the tables
    `MEASURED`, by name.
    """

    summary: dict[Cell, Row] = field(default_factory=dict)
    layers: dict[str, dict[Cell, list[Row]]] = field(
        default_factory=lambda: {target: {} for target in EDITS}
    )
    measured: dict[str, dict[Cell, list[Row]]] = field(
        default_factory=lambda: {name: {} for name in MEASURED}
    )


@dataclass(frozen=True)
class SeedResult:
    """One seed's part of a verdict."""

    seed: int
    outcome: Outcome
    numbers: dict[str, float]
    words: str


@dataclass(frozen=True)
class Verdict:
    """A claim judged.

    `direction` is where an inconclusive verdict leans, empty where it leans nowhere. `sequences` is
    the largest training budget of the runs involved.
    """

    claim: str
    statement: str
    statistic: str
    rule: str
    paper: str
    verdict: VerdictName
    direction: Direction
    reason: str
    seeds: tuple[SeedResult, ...] = ()
    sequences: int = 0

    @property
    def label(self) -> str:
        """The verdict in words: "inconclusive, leaning reproduced"."""
        if self.verdict != "inconclusive":
            return self.verdict
        return f"inconclusive, {f'leaning {self.direction}' if self.direction else 'undecided'}"

    @property
    def numbers(self) -> str:
        """Every number behind the verdict, seeds side by side: "RoPE 0.962 / 0.958 / 0.971"."""
        names = list(dict.fromkeys(name for result in self.seeds for name in result.numbers))
        return "; ".join(
            f"{name} " + " / ".join(_decimals(result.numbers.get(name)) for result in self.seeds)
            for name in names
        )

    @property
    def budget(self) -> str:
        """Seeds and training sequences behind the verdict; empty where nothing was run."""
        if not self.seeds:
            return ""
        seeds = f"{len(self.seeds)} seed{'' if len(self.seeds) == 1 else 's'}"
        return f"{seeds}, up to {self.sequences:,} training sequences a run"


@dataclass(frozen=True)
class Claim:
    """A statement of the study with the rule that judges it.

    `cells` are the runs needed; `ablated` are the targets of edits their heads must have seen,
    `measured` the tables of `MEASURED` that they must have. `judge` applies the rule to the runs of
    one seed. `statistic` says what is compared, `rule` how. A claim that is not about `trained`
    models does not ask whether they are still improving.
    """

    id: str
    statement: str
    statistic: str
    rule: str
    paper: str
    cells: tuple[Cell, ...]
    judge: Callable[[Runs], Judgement]
    ablated: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    trained: bool = True

    def verdict(self, tables: Tables) -> Verdict:
        """Judge every seed that has all the runs needed, and join the seeds to a verdict."""
        by_seed = runs_by_seed(tables)
        missing = [cell for cell in self.cells if not self._seeds(cell, by_seed)]
        if missing:
            what = "ablated runs" if self.ablated else "runs"
            names = listed(cell.words for cell in missing)
            having = f" with {listed(self.measured)}" if self.measured else ""
            return self._state("not run", "", f"There are no {what} of {names}{having}.")
        paired = set.intersection(*(self._seeds(cell, by_seed) for cell in self.cells))
        if not paired:
            names = listed(cell.words for cell in self.cells)
            return self._state("not run", "", f"No seed has all of {names}.")

        results = tuple(SeedResult(seed, *self.judge(by_seed[seed])) for seed in sorted(paired))
        improving = [
            (cell, seed)
            for cell in self.cells
            for seed in sorted(paired)
            if self.trained and still_improving(tables, cell, seed)
        ]
        verdict, direction, why = join([result.outcome for result in results], improving)
        words = [
            result.words if len(results) == 1 else f"Seed {result.seed}: {result.words}"
            for result in results
        ]
        left_out = set.union(*(self._seeds(cell, by_seed) for cell in self.cells)) - paired
        if left_out:
            seeds = listed(str(seed) for seed in sorted(left_out))
            why += f" Seeds without all runs needed were left out: {seeds}."
        budgets = [by_seed[seed].summary[cell]["budget"] for seed in paired for cell in self.cells]
        return self._state(verdict, direction, " ".join([*words, why]), results, max(budgets))

    def _seeds(self, cell: Cell, by_seed: Mapping[int, Runs]) -> set[int]:
        return {
            seed
            for seed, runs in by_seed.items()
            if cell in runs.summary
            and all(cell in runs.layers[target] for target in self.ablated)
            and all(cell in runs.measured[name] for name in self.measured)
        }

    def _state(
        self,
        verdict: VerdictName,
        direction: Direction,
        reason: str,
        seeds: tuple[SeedResult, ...] = (),
        sequences: int = 0,
    ) -> Verdict:
        return Verdict(
            claim=self.id,
            statement=self.statement,
            statistic=self.statistic,
            rule=self.rule,
            paper=self.paper,
            verdict=verdict,
            direction=direction,
            reason=reason,
            seeds=seeds,
            sequences=sequences,
        )


def join(
    outcomes: list[Outcome], improving: list[tuple[Cell, int]]
) -> tuple[VerdictName, Direction, str]:
    """The verdict of all seeds together, where an inconclusive one leans, and why.

    *Inconclusive*: fewer than `MINIMUM_SEEDS` seeds, or a scheme involved still improving at the
    end of its budget. Else *reproduced* if every seed passes, *contradicted* if every seed fails,
    *mixed* if some pass and some fail. What is left has undecided seeds and is inconclusive too.
    """
    passes, fails = outcomes.count("passes"), outcomes.count("fails")
    seeds = len(outcomes)
    direction: Direction = ""
    if passes and not fails:
        direction = "reproduced"
    elif fails and not passes:
        direction = "contradicted"

    obstacles = []
    if seeds < MINIMUM_SEEDS:
        have = "1 seed is" if seeds == 1 else f"{seeds} seeds are"
        obstacles.append(f"{have} fewer than the {MINIMUM_SEEDS} a verdict needs")
    if improving:
        names = listed(f"{cell.words} (seed {seed})" for cell, seed in improving)
        obstacles.append(f"still improving when the budget ended: {names}")
    if obstacles:
        text = "; ".join(obstacles)
        return "inconclusive", direction, f"{text[0].upper()}{text[1:]}."
    if passes == seeds:
        return "reproduced", "", f"All {seeds} seeds pass."
    if fails == seeds:
        return "contradicted", "", f"None of {seeds} seeds passes."
    if passes and fails:
        return "mixed", "", f"{passes} of {seeds} seeds pass, {fails} fail."
    undecided = seeds - passes - fails
    are = "is" if undecided == 1 else "are"
    return "inconclusive", direction, f"{undecided} of {seeds} seeds {are} undecided."


def all_of(parts: Iterable[bool | None]) -> Outcome:
    """Passes if all parts hold, fails if one does not; None is a part that cannot be told."""
    found = list(parts)
    if False in found:
        return "fails"
    return "undecided" if None in found else "passes"


def still_improving(tables: Tables, cell: Cell, seed: int) -> bool:
    """Whether a run was still getting better when its budget ended.

    The mean held-out accuracy of the last tenth of its evaluations (one at least) exceeds that of
    the tenth before by more than `IMPROVING_RISE`. A solved run is not; an unsolved one with fewer
    than two evaluations counts as improving, since nothing shows that it was not.
    """
    (solved,) = _of_run(tables.summary, cell, seed)["solved"]
    if solved:
        return False
    accuracy = _of_run(tables.curve, cell, seed).sort("sequences")["accuracy"]
    part = max(1, int(len(accuracy) * IMPROVING_SHARE))
    if len(accuracy) < 2:
        return True
    last, before = accuracy[-part:].to_list(), accuracy[-2 * part : -part].to_list()
    return bool(sum(last) / part - sum(before) / part > IMPROVING_RISE)


def runs_by_seed(tables: Tables) -> dict[int, Runs]:
    """The rows claims look at, by seed."""
    by_layer = tables.concentration.filter(metric="accuracy").sort("layer")
    by_seed: dict[int, Runs] = {}
    for row in tables.summary.iter_rows(named=True):
        runs = by_seed.setdefault(row["seed"], Runs())
        runs.summary[Cell(row["scheme"], row["task"])] = row
    for target, method in EDITS.items():
        for row in by_layer.filter(target=target, method=method).iter_rows(named=True):
            layers = by_seed.setdefault(row["seed"], Runs()).layers[target]
            layers.setdefault(Cell(row["scheme"], row["task"]), []).append(row)
    for name in MEASURED:
        for row in getattr(tables, name).iter_rows(named=True):
            found = by_seed.setdefault(row["seed"], Runs()).measured[name]
            found.setdefault(Cell(row["scheme"], row["task"]), []).append(row)
    return by_seed


def _of_run(frame: pl.DataFrame, cell: Cell, seed: int) -> pl.DataFrame:
    return frame.filter(
        (pl.col("scheme") == cell.scheme) & (pl.col("task") == cell.task) & (pl.col("seed") == seed)
    )


def _decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
