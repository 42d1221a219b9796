"""Users' own predictions: a sentence and a rule in TOML, judged like the study's claims.

A prediction says that a metric of one subject (a scheme on a task, where it is about heads in one
layer) is above or below a number or another subject's metric, or that a layer's verdict is or is
not a word. `claim` makes it a `Claim`, so that seeds are joined by the same rules.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from poslens.claims.accuracy import ERROR_LEVEL, difference
from poslens.claims.base import Cell, Claim, Judgement, Row, Runs
from poslens.claims.words import listed
from poslens.errors import InputError
from poslens.settings import convert, make_settings

RunMetric = Literal["accuracy", "loss", "excess", "sequences"]
LayerMetric = Literal[
    "largest effect",
    "second effect",
    "layer effect",
    "top share",
    "effective heads",
    "deposit index",
    "verdict",
]
# The columns that hold them in the table of concentration.
COLUMNS: dict[str, str] = {
    "largest effect": "largest",
    "second effect": "second",
    "layer effect": "lost",
    "top share": "top_share",
    "effective heads": "effective_heads",
    "deposit index": "deposit_index",
    "verdict": "verdict",
}
VERDICTS = ("deposit", "weak deposit", "spread", "none", "undecidable", "undefined")
NOTHING = ("undecidable", "undefined")  # verdicts that say nothing of the heads
Target = Literal["head", "position"]
COMPARISONS = ("above", "below", "equals", "differs")


class Subject(NamedTuple):
    """What a metric is taken of; `layer` is None where the metric is the whole run's.

    `target` says whether heads were silenced or lost their position.
    """

    scheme: str
    task: str
    layer: int | None
    target: Target = "head"

    @property
    def cell(self) -> Cell:
        return Cell(self.scheme, self.task)

    @property
    def words(self) -> str:
        layer = "" if self.layer is None else f", layer {self.layer}"
        return self.cell.words + layer + (", position" if self.target == "position" else "")


class Measured(NamedTuple):
    """A metric as measured: between `low` and `high`, which are equal where it is known exactly."""

    low: float
    high: float
    words: str


@dataclass(frozen=True)
class Other:
    """The other side of a comparison: what is not given is as on the first side."""

    scheme: str | None = None
    task: str | None = None
    layer: int | None = None
    target: Target | None = None
    by: float = 0.0
    """The margin: how much more, or less, it has to be."""


@dataclass(frozen=True)
class Prediction:
    """One entry of a file of predictions; exactly one of the comparisons is given."""

    id: str
    claim: str
    metric: RunMetric | LayerMetric
    scheme: str
    task: str
    layer: int | None = None
    target: Target = "head"
    above: Any = None
    below: Any = None
    equals: str | None = None
    differs: str | None = None

    @property
    def subject(self) -> Subject:
        return Subject(self.scheme, self.task, self.layer, self.target)

    @property
    def other(self) -> Subject | None:
        """The other subject compared with; None where it is a number or a word."""
        if not isinstance(self.bound, Other):
            return None
        own = self.bound
        layer = self.layer if own.layer is None else own.layer
        scheme, task = own.scheme or self.scheme, own.task or self.task
        return Subject(scheme, task, layer, own.target or self.target)

    @property
    def comparison(self) -> str:
        (given,) = (name for name in COMPARISONS if getattr(self, name) is not None)
        return given

    @property
    def bound(self) -> Any:
        """What is compared with: a number, an `Other` or a word."""
        return getattr(self, self.comparison)

    @property
    def subjects(self) -> list[Subject]:
        return [self.subject] if self.other is None else [self.subject, self.other]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The runs that it needs."""
        return tuple(dict.fromkeys(subject.cell for subject in self.subjects))


def read_predictions(values: dict[str, Any], where: str) -> list[Prediction]:
    """The predictions of a TOML file's values, `where` being its name.

    Raises InputError for what no prediction has, an unknown metric, a comparison that is missing,
    double or does not fit its metric, a layer that is missing or too much, and ids used twice.
    """
    entries = values.get("prediction")
    if not isinstance(entries, list) or not entries:
        raise InputError(f"{where} holds no predictions; add a table [[prediction]]")
    if unknown := [key for key in values if key not in ("prediction", "registered")]:
        raise InputError(f"{where} has {unknown[0]!r} outside its predictions; move it into one")
    found = [_read(entry, f"{where}: prediction {n}") for n, entry in enumerate(entries, 1)]
    ids = [prediction.id for prediction in found]
    if twice := [name for name in ids if ids.count(name) > 1]:
        raise InputError(f"{where} uses the id {twice[0]!r} twice; name each prediction once")
    return found


def _read(entry: Any, where: str) -> Prediction:
    if not isinstance(entry, dict):
        raise InputError(f"{where} is {entry!r}; write a table [[prediction]]")
    metrics = [*get_args(RunMetric), *get_args(LayerMetric)]
    if "metric" in entry and entry["metric"] not in metrics:
        raise InputError(f"{where} has metric {entry['metric']!r}; use one of: {listed(metrics)}")
    given = [name for name in COMPARISONS if name in entry]
    if len(given) != 1:
        what = f"both {listed(given)}" if given else "no comparison"
        raise InputError(f"{where} has {what}; give one of: {', '.join(COMPARISONS)}")
    sides = {
        name: _side(entry[name], f"{where}, {name}") for name in ("above", "below") if name in given
    }
    prediction: Prediction = make_settings(Prediction, entry | sides, where)
    _check(prediction, where)
    return prediction


def _side(value: Any, where: str) -> float | Other:
    if isinstance(value, dict):
        other: Other = make_settings(Other, value, where)
        if not 0 <= other.by < math.inf:
            raise InputError(f"{where} has by = {other.by:g}; use a number from 0")
        return other
    number: float = convert(float, value, where)
    if not math.isfinite(number):
        raise InputError(f"{where} is {number}; use a finite number")
    return number


def _check(prediction: Prediction, where: str) -> None:
    """Raises InputError where the parts of a prediction do not fit each other."""
    metric, comparison = prediction.metric, prediction.comparison
    for name in ("id", "claim"):
        if not getattr(prediction, name).strip():
            raise InputError(f"{where} has an empty {name}; say something")
    words = comparison in ("equals", "differs")
    if (metric == "verdict") != words:
        fitting = "equals or differs" if metric == "verdict" else "above or below"
        raise InputError(f"{where} compares {metric} by {comparison!r}; use {fitting}")
    if words and prediction.bound not in VERDICTS:
        raise InputError(f"{where} has {comparison} = {prediction.bound!r}; use {listed(VERDICTS)}")
    if metric in COLUMNS and prediction.layer is None:
        raise InputError(f"{where} needs a layer, which {metric} is of; the first is layer = 0")
    for subject in prediction.subjects:
        if metric not in COLUMNS and subject.layer is not None:
            raise InputError(f"{where} has a layer, but {metric} is the whole run's; leave it out")
        if metric not in COLUMNS and subject.target != "head":
            raise InputError(f"{where} has a target, but {metric} is the whole run's; leave it out")
        if subject.layer is not None and subject.layer < 0:
            raise InputError(f"{where} has layer {subject.layer}; layers count from 0")
    if prediction.other == prediction.subject:
        raise InputError(f"{where} compares {prediction.subject.words} with itself; name another")


def claim(prediction: Prediction) -> Claim:
    """The claim that a prediction makes, with its rule in words."""
    metric, subject, other = prediction.metric, prediction.subject, prediction.other
    statistic = f"{metric} of {subject.words}"
    undecided = "it is undecided if the layer's verdict is undecidable"
    if metric == "accuracy" or metric == "excess":
        undecided = f"it is undecided within the {ERROR_LEVEL:.0%} error of the difference"
    elif metric == "sequences":
        undecided = "it is undecided where an unsolved run leaves it open"
    if other is not None:
        statistic += f" and of {other.words}, paired by seed"
    rule = f"A seed passes if the {metric} of {subject.words} {_asked(prediction)}"
    sure = metric == "loss" or (metric in ("accuracy", "excess") and other is None)
    return Claim(
        id=prediction.id,
        statement=prediction.claim,
        statistic=statistic,
        rule=f"{rule}, and fails otherwise." if sure else f"{rule}; {undecided}; else it fails.",
        paper="",
        cells=prediction.cells,
        judge=lambda runs: judge(prediction, runs),
        ablated=tuple({it.target: None for it in prediction.subjects if metric in COLUMNS}),
    )


def _asked(prediction: Prediction) -> str:
    """The comparison as the end of a sentence: "is above 0.9"."""
    bound, other, comparison = prediction.bound, prediction.other, prediction.comparison
    if comparison in ("equals", "differs"):
        return f"{'is' if comparison == 'equals' else 'is not'} {bound}"
    if other is None:
        return f"is {comparison} {bound:g}"
    margin = f" by more than {bound.by:g}" if bound.by else ""
    return f"is {comparison} that of {other.words}{margin}"


def judge(prediction: Prediction, runs: Runs) -> Judgement:
    """Whether one seed's runs do what was predicted.

    Raises InputError where a run has no such layer.
    """
    silent: dict[str, list[str]] = {verdict: [] for verdict in NOTHING}
    for subject in prediction.subjects if prediction.metric in COLUMNS else []:
        verdict = _layer(runs, subject)["verdict"]
        if verdict in NOTHING and prediction.bound != verdict:
            silent[verdict].append(subject.words)
    if any(silent.values()):
        why = {
            "undecidable": "There is nothing to lose in {}: undecidable.",
            "undefined": "There is no position in the attention of {}: undefined.",
        }
        words = " ".join(why[name].format(listed(them)) for name, them in silent.items() if them)
        return Judgement("undecided", {}, words)
    if prediction.metric == "verdict":
        return _judge_verdict(prediction, runs)
    return _judge_number(prediction, runs)


def _judge_verdict(prediction: Prediction, runs: Runs) -> Judgement:
    row = _layer(runs, prediction.subject)
    passes = (row["verdict"] == prediction.bound) == (prediction.comparison == "equals")
    subject = prediction.subject.words
    words = f"The verdict on {subject} is {row['verdict']}."
    numbers = {f"{subject}, largest effect": row["largest"]}
    return Judgement("passes" if passes else "fails", numbers, words)


def _judge_number(prediction: Prediction, runs: Runs) -> Judgement:
    found = {subject: _measure(prediction.metric, subject, runs) for subject in prediction.subjects}
    first, other, bound = found[prediction.subject], prediction.other, prediction.bound
    numbers = {subject.words: measured.low for subject, measured in found.items()}
    text = " and ".join(f"{measured.words} for {it.words}" for it, measured in found.items())
    words = f"{prediction.metric.capitalize()}: {text}"
    if any(math.isnan(measured.low) for measured in found.values()):
        return Judgement("undecided", numbers, f"{words}; not defined where no head counts.")

    second, by, error = Measured(bound, bound, "") if other is None else found[other], 0.0, 0.0
    if other is not None:
        by = bound.by
        if prediction.metric in ("accuracy", "excess"):
            rows = (runs.summary[subject.cell] for subject in prediction.subjects)
            error = difference(*rows).error
            words += f", error of the difference {error:.3f}"
    above, below = (first, second) if prediction.comparison == "above" else (second, first)
    least, most = above.low - below.high - error, above.high - below.low + error
    words += f"; predicted: {_asked(prediction).removeprefix('is ')}."
    if least > by:
        return Judgement("passes", numbers, words)
    return Judgement("fails" if most <= by else "undecided", numbers, words)


def _measure(metric: str, subject: Subject, runs: Runs) -> Measured:
    """A metric of one subject; the sequences an unsolved run would need have no upper bound."""
    if metric in COLUMNS:
        value = float(_layer(runs, subject)[COLUMNS[metric]])
        return Measured(value, value, f"{value:.3f}")
    row = runs.summary[subject.cell]
    if metric == "sequences":
        seen = row["sequences"]
        if row["solved"]:
            return Measured(seen, seen, f"{seen:,}")
        return Measured(seen, math.inf, f"more than {seen:,} (not solved)")
    value = row["accuracy"] - row["baseline"] if metric == "excess" else row[metric]
    return Measured(value, value, f"{value:.3f}")


def _layer(runs: Runs, subject: Subject) -> Row:
    rows = {row["layer"]: row for row in runs.layers[subject.target][subject.cell]}
    if subject.layer not in rows:
        raise InputError(
            f"a prediction is on {subject.words}, but these runs have layers 0 to {max(rows)}"
        )
    return rows[subject.layer]
