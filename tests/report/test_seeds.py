"""Seeds on the page: what is drawn is what the tables hold."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from poslens.claims.foresight import foresight_over_seeds
from poslens.report.batch_law import batch_ticks, law_frame, law_panel, star_words
from poslens.report.build import render
from poslens.report.seed_axes import Steps, decades
from poslens.report.seed_margins import margin_frame, margin_panel
from poslens.report.seed_ratios import ratio_frame, ratio_panel, reach
from poslens.report.seeds import foresight_listing, seed_part
from poslens.report.style import number
from poslens.results import Tables, read

HAVING = 8  # schemes of the nine that have position in their attention


@pytest.fixture(scope="module")
def tables(standard: Path) -> Tables:
    return read(standard)


def test_every_scheme_with_seeds_has_its_panels(tables: Tables) -> None:
    part = seed_part(tables, "distance")
    assert len(part.laws) == len(part.ratios) == len(part.foresight) == HAVING
    assert len(part.margins) == len(part.leads) == HAVING - 1  # RoPE on one head has no second
    assert part.examples == "65,536"
    assert [name for _, name in part.layers] == ["layer 0", "layer 1", "layer 2"]
    panels = [*part.laws, *part.ratios, *part.margins, *part.leads, *part.foresight]
    assert len({panel.id for panel in panels}) == len(panels)


def test_the_law_is_in_units_of_sigma_and_of_the_lowest_seed(tables: Tables) -> None:
    frame = law_frame(tables, "distance")
    assert set(frame["seed"]) == {0}
    own = {"scheme": "rope", "task": "distance", "seed": 0, "step": 0}
    seeds = tables.seeds.filter(**own, initialisation=0)
    ratios = np.abs(seeds["ratio"].to_numpy())
    (leader,) = set(frame.filter("leads", scheme="rope").select("layer", "head").rows())
    assert leader == seeds.select("layer", "head").row(int(ratios.argmax()))
    top = frame.filter("leads", scheme="rope")
    raw = tables.seed_batches.filter(**own, layer=leader[0], head=leader[1])
    sigma = seeds.filter(layer=leader[0], head=leader[1])["sigma"][0]
    for name in ("mean_abs", "low", "high", "predicted"):
        np.testing.assert_allclose(top[name], raw[name] / sigma)
    assert top["star"][0] == pytest.approx(1 / ratios.max() ** 2)
    pale, law, dots = law_panel(frame, "rope", "#000000", "distance").figure.data
    assert sum(it is None for it in pale.x) == 23
    assert list(law.y) == pytest.approx(top["predicted"].to_list())
    assert list(dots.y) == pytest.approx(top["mean_abs"].to_list())


def test_a_batch_far_beyond_those_tried_is_only_said_to_be(tables: Tables) -> None:
    assert star_words(3428.3, 2048) == "B* = 3,428"
    assert star_words(1e9, 2048) == "B* above 32,768"
    assert batch_ticks([8, 16, 32, 64, 128, 256]) == [8, 32, 128]


def test_ratios_have_a_dot_a_head_and_seed(tables: Tables) -> None:
    frame = ratio_frame(tables, "distance")
    figure = ratio_panel(frame, "rope", "distance").figure
    assert [len(trace.x) for trace in figure.data] == [3 * 8] * 3
    places = [x for trace in figure.data for x in trace.x]
    assert len(set(places)) == len(places)
    drawn = sorted(y for trace in figure.data for y in trace.y)
    own = tables.seeds.filter(scheme="rope", task="distance", step=0, initialisation=0)
    assert drawn == pytest.approx(sorted(own["ratio"]))
    lines = sorted(shape.y0 for shape in figure.layout.shapes)
    assert lines == [-0.05, 0, 0.05]
    assert frame["ratio_high"].max() < reach(frame)
    one = ratio_panel(frame, "rope@1", "distance").figure
    assert [len(trace.x) for trace in one.data] == [3] * 3  # heads without rotation have none


def test_margins_that_are_not_above_zero_leave_gaps(tables: Tables) -> None:
    low = pl.when(pl.col("step") == 20).then(-0.01).otherwise(pl.col("margin"))
    changed = replace(tables, margins=tables.margins.with_columns(margin=low))
    frame = margin_frame(changed, "distance")
    for trace in margin_panel(frame, "rope", "margin", "distance").figure.data:
        assert len(trace.x) == 4
        assert min(trace.y) > 0
    for trace in margin_panel(frame, "rope", "lead", "distance").figure.data:
        assert len(trace.x) == 5
    every = replace(tables, margins=tables.margins.with_columns(margin=pl.lit(-0.01)))
    assert margin_panel(margin_frame(every, "distance"), "rope", "margin", "distance")


def test_foresight_is_that_of_the_claims(tables: Tables) -> None:
    told = foresight_over_seeds(tables, measures=("|mu|",), metrics=("loss",))
    told = told.filter(task="distance")
    listing = foresight_listing(told, dict.fromkeys(told["scheme"], "#000000"))
    lines = [texts for _, texts in listing.rows]
    assert len(lines) == 2 * HAVING * 4  # untrained and at the end; three layers and the model
    row = told.filter(scheme="rope", step=0, layer=-1).row(0, named=True)
    own = ["RoPE", "untrained", "all layers", "3", number(row["agreement"]), number(row["p"], 3)]
    assert any(line[:6] == own for line in lines)


def test_step_zero_stands_left_of_the_others() -> None:
    steps = Steps([0, 4, 420])
    assert steps.place(0) < steps.place(4) < steps.place(420)
    assert steps.ticks[1] == ["0", "10", "100"]
    assert Steps([0]).ticks[1] == ["0", "1"]
    assert Steps([0, 625]).ticks[1] == ["0", "625"]
    assert Steps([5, 8]).ticks[1] == ["5", "8"]


def test_ticks_are_powers_of_ten() -> None:
    assert decades(-1.9, 0) == (
        pytest.approx([0.03, 0.1, 0.3, 1]),
        ["0.03", "0.1", "0.3", "1"],
    )
    assert decades(-6.2, -0.9)[1] == ["10⁻⁶", "10⁻⁵", "10⁻⁴", "0.001", "0.01", "0.1"]


def test_the_page_is_whole_with_some_of_the_tables(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make(tmp_path / "few", schemes=("rope",), tasks=("distance",))
    tables = read(folder)
    for missing in ("seed_batches", "margins", "effects"):
        part = replace(tables, **{missing: getattr(tables, missing).clear()})
        assert '<section id="seeds">' in render(part, folder, [])
    none = replace(tables, seeds=tables.seeds.clear())
    assert '<section id="seeds">' not in render(none, folder, [])
