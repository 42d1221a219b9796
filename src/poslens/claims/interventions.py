"""What became of the leading head when something was done to it."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from poslens import results
from poslens.claims.base import EDITS
from poslens.errors import InputError
from poslens.results import Tables

CONTROL = "control"
# What is done, in a few words; the leader is that of the control run of the same seed.
INTERVENTIONS = {
    CONTROL: "every head learns its positional gain, from 1",
    "lower": "the leader's gain starts at a quarter",
    "higher": "the gain of the head that does least starts at four",
    "tied": "gains of a layer are one for the first quarter of training",
    "off": "the leader has no position: its gain is 0 and stays",
    "bases": "heads have rotary bases of their own",
}
OUTCOMES = {
    "intervention": pl.String,
    "seed": pl.Int64,
    "accuracy": pl.Float64,  # of the model, held out
    "chosen": pl.Int64,  # the head that something was done to; null where none was
    "leader": pl.Int64,  # head of the first layer with the largest position effect
    "stays": pl.Boolean,  # whether it is the control's; null for that itself and where it cannot
    "effect": pl.Float64,  # the leader's fall in accuracy without its position
    "was_leader": pl.Float64,  # the same of the head that leads in the control run
    "second": pl.Float64,  # the next head's
    "effective_heads": pl.Float64,  # of the first layer; NaN where no head counts
    "verdict": pl.String,  # of the first layer
}
FIRST_LAYER = 0


def first_heads(tables: Tables, seed: int) -> pl.DataFrame:
    """Position effects (accuracy) of the first layer's heads in one run, largest first."""
    edit = {"target": "position", "method": EDITS["position"], "metric": "accuracy"}
    found = tables.effects.filter(pl.col("head") >= 0, layer=FIRST_LAYER, seed=seed, **edit)
    return found.sort("effect", descending=True, maintain_order=True)


def leader(tables: Tables, seed: int) -> int:
    """The first-layer head whose position is worth most."""
    return int(first_heads(tables, seed)["head"][0])


def least(tables: Tables, seed: int) -> int:
    """The one whose position is worth least."""
    return int(first_heads(tables, seed)["head"][-1])


def chosen(name: str, control: Tables, seed: int) -> int | None:
    """The head that an intervention is about, None where it is about all."""
    if name in ("lower", "off"):
        return leader(control, seed)
    return least(control, seed) if name == "higher" else None


def read_interventions(folder: Path) -> dict[str, Tables]:
    """The tables of each intervention below `folder` that has runs, in their order.

    Raises InputError where there is no control experiment.
    """
    if not (folder / CONTROL).is_dir():
        raise InputError(
            f"{folder} holds no interventions (no folder {CONTROL!r}); give the folder that "
            "'poslens interventions' wrote"
        )
    return {name: results.read(folder / name) for name in INTERVENTIONS if (folder / name).is_dir()}


def outcomes(by_name: Mapping[str, Tables]) -> pl.DataFrame:
    """A row for each intervention and seed whose run is finished, with columns `OUTCOMES`.

    Seeds without a control run are left out.
    """
    control = by_name[CONTROL]
    rows = []
    for name in INTERVENTIONS:
        if name not in by_name:
            continue
        tables = by_name[name]
        for seed in sorted({*tables.effects["seed"]} & {*control.effects["seed"]}):
            heads = first_heads(tables, seed)
            before, now = leader(control, seed), leader(tables, seed)
            (layer,) = tables.concentration.filter(
                **{"layer": FIRST_LAYER, "seed": seed, "target": "position"},
                **{"method": EDITS["position"], "metric": "accuracy"},
            ).iter_rows(named=True)
            rows.append(
                {
                    "intervention": name,
                    "seed": seed,
                    "accuracy": tables.summary.filter(seed=seed)["accuracy"][0],
                    "chosen": chosen(name, control, seed),
                    "leader": now,
                    "stays": None if name in (CONTROL, "off") else now == before,
                    "effect": heads["effect"][0],
                    "was_leader": heads.filter(head=before)["effect"][0],
                    "second": heads["effect"][1],
                    "effective_heads": layer["effective_heads"],
                    "verdict": layer["verdict"],
                }
            )
    return pl.DataFrame(rows, schema=OUTCOMES)
