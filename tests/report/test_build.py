"""The page as a whole, from made-up result folders."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from poslens.claims import CLAIMS
from poslens.errors import InputError
from poslens.report import build
from poslens.report.build import render
from poslens.report.style import number, percent
from poslens.results import read

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def page(quick: Path) -> str:
    return build(quick).read_text("utf-8")


@pytest.fixture(scope="module")
def markup(page: str) -> str:
    """The page without what scripts and styles hold."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.S)


def figures_of(page: str) -> dict[str, Any]:
    found = re.findall(r'data-panel="([^"]+)">(.*?)</script>', page, flags=re.S)
    return {name: json.loads(text) for name, text in found}


def test_page_and_figures_are_there(quick: Path, page: str) -> None:
    names = ["accuracy", "curves", "by_distance", "by_count", "heads", "lengths"]
    names += ["probe_by_layer", "principal_angles"]
    names += ["heads_and_positions_distance", "heads_and_positions_count"]
    for task in ("distance", "count"):
        names += [f"seed_against_batch_{task}", f"margins_by_layer_{task}"]
    expected = {f"{name}.{suffix}" for name in names for suffix in ("png", "svg")}
    assert {path.name for path in (quick / "figures").iterdir()} == expected
    assert not list(quick.rglob("*.tmp"))
    assert page.count("Plotly.newPlot(data") == 1
    assert page.count("* plotly.js v") == 1


def test_every_section_is_there(markup: str) -> None:
    for section in (
        *("findings", "claims", "accuracy", "curves", "labels", "heads"),
        *("concentration", "sets", "lengths", "seeds", "mechanism", "probing", "published"),
        *("runs", "reading"),
    ):
        assert f'<section id="{section}">' in markup
        assert f'href="#{section}"' in markup


def test_every_run_has_its_map_and_every_task_its_panels(page: str) -> None:
    names = list(figures_of(page))
    assert sum(name.startswith("heads-distance") for name in names) == 9
    assert sum(name.startswith("heads-count") for name in names) == 9
    assert sum(name.startswith("positions-distance") for name in names) == 8  # NoPE has none
    assert sum(name.startswith("kept-distance-0-") for name in names) == 8
    assert [name for name in names if name.startswith("kept-distance-1-")] == ["kept-distance-1-0"]
    assert {"against-distance", "right-distance-0", "columns-distance-0"} <= set(names)
    for kind in ("accuracy", "curves", "by-label"):
        assert {f"{kind}-distance", f"{kind}-count"} <= set(names)


def test_nothing_is_loaded_from_elsewhere(page: str, markup: str) -> None:
    for attribute in re.findall(r'(?:src|href|action|data)\s*=\s*"([^"]*)"', markup):
        assert attribute.startswith(("#", "data:")), attribute
    style = re.search(r"<style>(.*?)</style>", page, flags=re.S)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert not re.search(r"<script[^>]*\bsrc\b", page)


def test_the_numbers_of_the_page_are_those_of_the_tables(
    quick: Path, page: str, markup: str
) -> None:
    tables = read(quick)
    for row in tables.summary.iter_rows(named=True):
        assert percent(row["accuracy"], 2) in markup
        assert number(row["loss"], 3) in markup
    figures = figures_of(page)
    for kind, target, method in (("heads", "head", "zero"), ("positions", "position", "none")):
        drawn = [
            value
            for name, figure in figures.items()
            if name.startswith(f"{kind}-")
            for trace in figure["data"]
            for line in trace["z"]
            for value in line
        ]
        rows = tables.effects.filter(
            pl.col("layer") >= 0, target=target, method=method, metric="accuracy"
        )
        assert sorted(drawn) == pytest.approx(sorted(100 * rows["effect"]))
    for task in ("distance", "count"):
        dots = [
            x
            for trace in figures[f"accuracy-{task}"]["data"]
            if "customdata" in trace
            for x in trace["x"]
        ]
        expected = tables.summary.filter(task=task)["accuracy"]
        assert sorted(dots) == pytest.approx(sorted(100 * expected))


def test_verdicts_and_rules_are_told(markup: str) -> None:
    assert markup.count('<article class="card') == len(CLAIMS)
    assert "inconclusive, leaning" in markup
    assert "not run" in markup
    assert markup.count("The rule</summary>") == len(CLAIMS)


def test_every_axis_with_data_names_its_unit(page: str) -> None:
    for name, figure in figures_of(page).items():
        for axis in ("xaxis", "yaxis"):
            title = figure["layout"][axis]["title"]["text"]
            assert re.search(r"\(.+\)$", title), f"{name}: {title}"


def test_every_panel_is_told_in_words(page: str, markup: str) -> None:
    labels = re.findall(r'role="img" aria-label="([^"]{20,})"', markup)
    assert len(labels) >= len(figures_of(page))


@pytest.mark.slow
def test_the_same_tables_give_the_same_bytes(make: Make, tmp_path: Path) -> None:
    folder = make(tmp_path / "runs", schemes=("nope", "rope"), tasks=("distance",))
    first = build(folder).read_bytes()
    figures = {path.name: path.read_bytes() for path in (folder / "figures").iterdir()}
    shutil.rmtree(folder / "figures")
    moved = shutil.copytree(folder, tmp_path / "elsewhere")
    assert build(moved).read_bytes() == first
    assert {path.name: path.read_bytes() for path in (moved / "figures").iterdir()} == figures


@pytest.mark.slow
def test_a_partial_folder_shows_what_is_there(make: Make, tmp_path: Path) -> None:
    folder = make(tmp_path / "runs", schemes=("nope", "rope", "t5"))
    shutil.rmtree(folder / "t5-count-seed0")
    (folder / "rope-count-seed0" / "summary.parquet").unlink()
    for name in ("effects", "concentration", "labels", "curve"):
        for table in folder.glob(f"*-count-seed0/{name}.parquet"):
            table.unlink()
    page = build(folder).read_text("utf-8")
    assert "Not finished: RoPE and T5 bias on count, seed 0." in page
    assert "No head ablation yet for NoPE on count, seed 0." in page
    assert "accuracy-count" in figures_of(page)
    assert "curves-count" not in figures_of(page)
    assert not (folder / "figures" / "by_count.png").exists()


def test_a_folder_without_ablation_has_no_empty_sections(make: Make, tmp_path: Path) -> None:
    folder = make(tmp_path / "runs", schemes=("rope",), tasks=("distance",))
    for name in ("effects", "concentration"):
        (folder / "rope-distance-seed0" / f"{name}.parquet").unlink()
    page = build(folder).read_text("utf-8")
    assert "No head ablation yet for any run." in page
    assert '<section id="heads">' not in page
    assert "#concentration" not in page
    assert not (folder / "figures" / "heads.png").exists()


@pytest.mark.slow
def test_an_early_folder_has_its_maps_and_nothing_new(early: Path) -> None:
    page = build(early).read_text("utf-8")
    names = list(figures_of(page))
    assert sum(name.startswith("heads-") for name in names) == 18
    assert {name.split("-")[0] for name in names} == {"accuracy", "curves", "by", "heads"}
    for new in (
        'id="sets"',
        'id="lengths"',
        'id="probing"',
        'id="published"',
        'class="runs"',
        "Taken away",
        "its position",
    ):
        assert new not in page
    assert "All layers, accuracy and loss</summary>" in page
    assert not list((early / "figures").glob("heads_and_*"))
    for name in ("lengths", "probe_by_layer", "principal_angles"):
        assert not (early / "figures" / f"{name}.png").exists()


def test_tables_of_sets_are_shown_one_by_one(make: Make, tmp_path: Path) -> None:
    folder = make(tmp_path / "runs", schemes=("rope",), tasks=("distance",))
    run = folder / "rope-distance-seed0"
    (run / "sufficiency.parquet").unlink()
    (run / "interactions.parquet").unlink()
    page = render(read(folder), folder, [])
    assert "Needed: one head after the other" in page
    assert "<dt>Enough</dt>" not in page
    assert "Pairs of heads" not in page
    assert "kept-" not in "".join(figures_of(page))


def test_one_run_alone_has_a_report(make: Make, tmp_path: Path) -> None:
    folder = make(tmp_path / "runs", schemes=("rope",), tasks=("distance",))
    page = build(folder / "rope-distance-seed0")
    assert page.parent.name == "rope-distance-seed0"
    assert "custom profile" in page.read_text("utf-8")


def test_odd_names_do_no_harm(make: Make, tmp_path: Path) -> None:
    odd = "<img src=x>$a$</script>"
    folder = make(tmp_path / "runs", schemes=(odd, "rope"), tasks=("distance",))
    page = render(read(folder), folder, [])
    assert "<img" not in page.replace(page[page.index("* plotly.js v") :], "")
    assert "&lt;img src=x&gt;" in page
    texts = figures_of(page)["accuracy-distance"]["layout"]["yaxis"]["ticktext"]
    assert "&lt;img src=x&gt;$a$&lt;/script&gt;" in texts


def test_unsolvable_numbers_are_dashes(make: Make, tmp_path: Path) -> None:
    folder = make(tmp_path / "runs", schemes=("rope",), tasks=("distance",))
    path = folder / "rope-distance-seed0" / "concentration.parquet"
    undefined = {name: None for name in ("top_share", "effective_heads", "deposit_index")}
    table = pl.read_parquet(path)
    table.with_columns(
        **{name: pl.lit(value, pl.Float64) for name, value in undefined.items()},
        counted=pl.lit(0, pl.Int64),
    ).write_parquet(path)
    page = render(read(folder), folder, [])
    assert '<td data-name="Deposit index">–</td>' in page
    assert "nan" not in re.findall(r"<td[^>]*>([^<]*)</td>", page)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no finished run"):
        build(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder"):
        build(tmp_path / "nowhere")


def test_a_folder_without_permission_is_refused(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "runs", schemes=("rope",), tasks=("distance",))
    monkeypatch.setattr(os, "access", lambda path, mode, **_: False)
    with pytest.raises(InputError, match="no permission"):
        build(folder)
    assert not (folder / "figures").exists()


def test_names_that_read_as_mathematics_stay_text(make: Make, tmp_path: Path) -> None:
    folder = make(tmp_path / "runs", schemes=("$\\frac{$",), tasks=("distance",))
    build(folder)
    assert (folder / "figures" / "heads.svg").exists()
