"""Tables of what is measured in the name of the theory, as Markdown, for documents that quote them.

Over seeds: mean with smallest and largest in brackets, unless said otherwise.
"""

from collections.abc import Iterator

import polars as pl

from poslens.claims.foresight import foresight_over_seeds
from poslens.claims.implicit import appears
from poslens.claims.interventions import INTERVENTIONS
from poslens.claims.words import title
from poslens.report.markdown import mean_and_range, table
from poslens.report.style import rank
from poslens.results import Tables

UNTRAINED, OWN = 0, 0  # a step, an initialisation


def seed_table(tables: Tables, task: str) -> str:
    """One line a scheme, untrained: its strongest seed, and bounds on all, over runs.

    mu/sigma of the head where it is largest, with the lower bound for all heads at once; the upper
    bound of |mu|/sigma that holds for every head; the batch beyond which the strongest head's mean
    outweighs noise; the share of positive mu over heads of other initialisations.
    """
    lines = [
        [
            *("scheme", "largest mu/sigma", "its lower bound", "batch B\\*"),
            *("upper bound of all", "mu/size, nats", "positive elsewhere, %"),
        ]
    ]
    known = tables.seeds.filter(pl.col("ratio").is_not_nan(), task=task, step=UNTRAINED)
    own, others = known.filter(initialisation=OWN), known.filter(pl.col("initialisation") != OWN)
    for scheme, heads in _by_scheme(own):
        by_run = heads.sort("ratio", descending=True).group_by("seed", maintain_order=True)
        top = by_run.first()
        most = by_run.agg(pl.max_horizontal(pl.col("ratio_high"), -pl.col("ratio_low")).max())
        positive = others.filter(scheme=scheme)["mu"].to_numpy() > 0
        lines.append(
            [
                title(scheme),
                mean_and_range(top["ratio"], 3),
                mean_and_range(top["ratio_low"], 3),
                mean_and_range(1 / top["ratio"] ** 2, 0),
                mean_and_range(most["ratio_high"], 3),
                mean_and_range(top["scaled"], 4),
                f"{100 * positive.mean():.0f}" if len(positive) else "-",
            ]
        )
    return table(lines)


def margin_table(tables: Tables, task: str) -> str:
    """One line a scheme and layer but the last, untrained: gamma of each run with its interval.

    Then how many of all recorded steps of all runs have gamma surely above 1, and surely below.
    """
    lines = [["scheme", "layer", "gamma, untrained, by run", "steps above 1", "below", "of"]]
    rows = tables.margins.filter(task=task, initialisation=OWN)
    last = rows.group_by("scheme").agg(pl.col("layer").max().alias("last"))
    rows = rows.join(last, on="scheme").filter(pl.col("layer") < pl.col("last"))
    for scheme, own in _by_scheme(rows):
        for (layer,), steps in own.sort("layer").group_by("layer", maintain_order=True):
            first = steps.filter(step=UNTRAINED).sort("seed")
            gammas = first.select("gamma", "gamma_low", "gamma_high").iter_rows()
            told = [
                "undefined" if gamma != gamma else f"{gamma:.2f} ({low:.2f} to {high:.2f})"
                for gamma, low, high in gammas
            ]
            known = steps.filter(pl.col("gamma").is_not_nan())
            above, below = ((known["gamma_low"] > 1).sum(), (known["gamma_high"] < 1).sum())
            counts = [str(above), str(below), str(steps.height)]
            lines.append([title(scheme), str(layer), "; ".join(told), *counts])
    return table(lines)


def foresight_table(tables: Tables, task: str, layer: int = 0) -> str:
    """One line a scheme and step: do the layer's seeds rank heads as their final effects do?

    Of |mu| with the effects on accuracy of taking position: mean rank correlation over runs, its p,
    hits and those by guessing. A last step is told as one, wherever runs ended.
    """
    lines = [["scheme", "step", "rank agreement", "p", "hits", "by guessing", "runs"]]
    found = foresight_over_seeds(tables, measures=("|mu|",), metrics=("accuracy",))
    found = found.filter(task=task, layer=layer)
    runs = found.filter(step=UNTRAINED).select("scheme", pl.col("runs").alias("all"))
    found = found.join(runs, on="scheme").filter(pl.col("runs") == pl.col("all"))
    for scheme, steps in _by_scheme(found):
        steps = steps.with_columns(late=pl.col("step") < 0).sort("late", "step")
        for row in steps.iter_rows(named=True):
            step = "last" if row["late"] else str(row["step"])
            agreement = "-" if row["agreement"] != row["agreement"] else f"{row['agreement']:.2f}"
            numbers = [agreement, f"{row['p']:.3f}", str(row["hits"]), f"{row['expected']:.2f}"]
            lines.append([title(scheme), step, *numbers, str(row["runs"])])
    return table(lines)


def intervention_table(outcomes: pl.DataFrame) -> str:
    """One line an intervention of `claims.interventions.outcomes`, over seeds."""
    lines = [
        [
            *("intervention", "what is done", "accuracy, %", "same leader", "its position, points"),
            *("next head's", "the control's leader", "effective heads", "first layer"),
        ]
    ]
    for (name,), runs in outcomes.group_by("intervention", maintain_order=True):
        stays = runs["stays"].drop_nulls()
        effective = runs["effective_heads"].fill_nan(None).drop_nulls()
        verdicts = runs["verdict"].value_counts(name="runs").sort("verdict")
        lines.append(
            [
                str(name),
                INTERVENTIONS[str(name)],
                mean_and_range(100 * runs["accuracy"], 1),
                f"{stays.sum()} of {len(stays)}" if len(stays) else "",
                *(mean_and_range(100 * runs[it], 1) for it in ("effect", "second", "was_leader")),
                mean_and_range(effective, 1) if len(effective) else "-",
                ", ".join(f"{verdict} {count}" for verdict, count in verdicts.iter_rows()),
            ]
        )
    return table(lines)


def probe_table(tables: Tables, task: str) -> str:
    """One line a scheme: R^2 of position by state, and the first state from which it is read."""
    read = tables.probes.filter(task=task, target="true", score="r2")
    states = sorted(read["state"].unique())
    lines = [["scheme", *(str(state) for state in states), "read from, by run"]]
    first = appears(tables.probes).filter(task=task)
    for scheme, rows in _by_scheme(read):
        values = [mean_and_range(rows.filter(state=it)["value"], 2) for it in states]
        starts = first.filter(scheme=scheme).sort("seed")["appears"]
        told = ", ".join("none" if start is None else str(start) for start in starts)
        lines.append([title(scheme), *values, told])
    return table(lines)


def angle_table(tables: Tables, task: str) -> str:
    """One line a scheme with a table: mean cos^2 with the input's position subspace by state."""
    rows = tables.subspaces.filter(pl.col("mean_cos2").is_not_nan(), task=task)
    states = sorted(rows["state"].unique())
    lines = [["scheme", "dimensions", "random", *(str(state) for state in states)]]
    for scheme, own in _by_scheme(rows):
        values = [mean_and_range(own.filter(state=it)["mean_cos2"], 2) for it in states]
        size = mean_and_range(own.filter(state=0)["dimensions"], 0)
        lines.append([title(scheme), size, f"{own['null'].to_numpy().mean():.2f}", *values])
    return table(lines)


def fall_table(tables: Tables, task: str) -> str:
    """One line a scheme and what is taken away: of the heads that cost accuracy, what falls first.

    Counted are heads of all runs whose fall in accuracy is surely above 0 and that have a mass to
    compare: above the last layer there is none.
    """
    kinds = ("only accuracy", "accuracy", "not told apart", "mass")
    lines = [["scheme", "taken away", "heads", *kinds]]
    rows = tables.falls.filter(
        pl.col("accuracy_half").is_not_nan(), pl.col("verdict") != "no mass", task=task
    )
    for scheme, own in _by_scheme(rows):
        for (target,), heads in own.sort("target").group_by("target", maintain_order=True):
            counts = [str((heads["verdict"] == kind).sum()) for kind in kinds]
            what = "output" if target == "head" else "position"
            lines.append([title(scheme), what, str(heads.height), *counts])
    return table(lines)


def _by_scheme(rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    for scheme in sorted(rows["scheme"].unique(), key=rank):
        yield scheme, rows.filter(scheme=scheme)
