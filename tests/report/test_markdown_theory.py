"""Tables of the theory say what the tables hold."""

import math
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from poslens.claims.foresight import foresight_over_seeds
from poslens.claims.interventions import OUTCOMES
from poslens.report.markdown_theory import (
    angle_table,
    fall_table,
    foresight_table,
    intervention_table,
    margin_table,
    probe_table,
    seed_table,
)
from poslens.results import Tables, read


@pytest.fixture(scope="module")
def tables(standard: Path) -> Tables:
    return read(standard)


def cells(text: str) -> list[list[str]]:
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert {*found[1]} == {"---"}
    assert {len(row) for row in found} == {len(found[0])}
    return found[2:]


def test_the_strongest_seed_of_each_run_and_the_bound_on_all(tables: Tables) -> None:
    rows = {row[0]: row for row in cells(seed_table(tables, "distance"))}
    own = tables.seeds.filter(
        pl.col("ratio").is_not_nan(), scheme="rope", task="distance", step=0, initialisation=0
    )
    tops, most = [], []
    for _, heads in own.group_by("seed"):
        best = max(heads.iter_rows(named=True), key=lambda row: row["ratio"])
        tops.append(best["ratio"])
        most.append(max(max(row["ratio_high"], -row["ratio_low"]) for row in heads.to_dicts()))
    assert rows["RoPE"][1].startswith(f"{sum(tops) / len(tops):.3f} ({min(tops):.3f} to ")
    assert rows["RoPE"][4].startswith(f"{sum(most) / len(most):.3f} ({min(most):.3f} to ")
    assert "NoPE" not in rows


def test_gammas_that_are_undefined_count_neither_way(tables: Tables) -> None:
    planted = tables.margins.filter(scheme="rope", task="distance").with_columns(
        gamma=pl.when(pl.col("layer") == 0).then(2.0).otherwise(math.nan),
        gamma_low=pl.when(pl.col("layer") == 0).then(1.5).otherwise(math.nan),
        gamma_high=pl.when(pl.col("layer") == 0).then(2.5).otherwise(math.nan),
    )
    first, second = cells(margin_table(replace(tables, margins=planted), "distance"))
    assert first[2] == "; ".join(["2.00 (1.50 to 2.50)"] * 3)
    assert first[3] == first[5] != "0"
    assert first[4] == "0"
    assert second[2] == "; ".join(["undefined"] * 3)
    assert second[3:5] == ["0", "0"]


def test_foresight_is_that_of_the_first_layer(tables: Tables) -> None:
    rows = [row for row in cells(foresight_table(tables, "distance")) if row[0] == "RoPE"]
    assert rows[0][1] == "0"
    assert rows[-1][1] == "last"
    (first,) = (
        foresight_over_seeds(tables)
        .filter(scheme="rope", task="distance", step=0, measure="|mu|", metric="accuracy", layer=0)
        .iter_rows(named=True)
    )
    assert rows[0][2] == f"{first['agreement']:.2f}"
    assert rows[0][4] == str(first["hits"])


def test_interventions_are_told_over_seeds() -> None:
    own = {"accuracy": 0.9, "chosen": None, "effect": 0.5, "was_leader": 0.4, "second": 0.3}
    own |= {"effective_heads": 2.0, "verdict": "spread", "leader": 1}
    rows = [{**own, "intervention": "control", "seed": seed, "stays": None} for seed in (0, 1)]
    rows += [
        {**own, "intervention": "off", "seed": seed, "stays": seed == 0, "was_leader": 0.0}
        for seed in (0, 1)
    ]
    rows[-1] |= {"verdict": "deposit", "effective_heads": math.nan}
    control, off = cells(intervention_table(pl.DataFrame(rows, schema=OUTCOMES)))
    assert control[3] == ""
    assert off[3] == "1 of 2"
    assert off[4] == "50.0 (50.0 to 50.0)"
    assert off[-1] == "deposit 1, spread 1"
    assert off[-2] == "2.0"


def test_probes_and_angles_by_state(tables: Tables) -> None:
    rows = {row[0]: row for row in cells(probe_table(tables, "distance"))}
    assert rows["NoPE"][-1] == "none, none, none"
    assert rows["RoPE"][-1] == "2, 2, 2"
    assert rows["Sinusoidal"][1].startswith("0.91 (0.90 to 0.92)")
    angles = {row[0]: row for row in cells(angle_table(tables, "distance"))}
    assert set(angles) == {"Sinusoidal", "Learned", "Sinusoidal + RoPE"}
    assert angles["Sinusoidal"][3].startswith("1.00")


def test_heads_that_cost_nothing_are_not_counted(tables: Tables) -> None:
    rows = {(row[0], row[1]): row[2:] for row in cells(fall_table(tables, "distance"))}
    assert rows["RoPE", "position"] == ["72", "0", "0", "72", "0"]
    assert ("NoPE", "position") not in rows
    alone = tables.falls.with_columns(verdict=pl.lit("no mass"))
    assert cells(fall_table(replace(tables, falls=alone), "distance")) == []
    none = tables.falls.with_columns(accuracy_half=math.nan)
    assert cells(fall_table(replace(tables, falls=none), "distance")) == []
