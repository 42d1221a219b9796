"""The decomposition page: what it shows, that it stands alone, and how it behaves in a browser."""

import base64
import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.browser import needs_browser, visit

from poslens.errors import InputError
from poslens.model import ModelSettings
from poslens.report.decomposition import (
    algebra_counts,
    algebra_listing,
    build_decomposition,
    contraction_listing,
    largest_terms,
    rounded,
    shown_runs,
)
from poslens.report.term_images import Images, packed
from poslens.results import read
from poslens.toeplitz.tables import decompose_run
from poslens.training import RunSettings, TrainingSettings, train

RUNS = [
    *(("mla", "distance", 0), ("alibi", "distance", 0), ("rope", "count", 0)),
    *(("rope", "distance", 1), ("rope", "distance", 0)),
]
TASKS = {
    "distance": {"between": 4, "aside": 2, "words": 12},
    "count": {"length": 5, "most": 4, "triggers": 3, "words": 12},
}


@pytest.fixture(scope="module")
def decomposed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three schemes, trained for a few steps and decomposed; `build` may write to it."""
    folder = tmp_path_factory.mktemp("decomposed")
    for scheme, task, seed in RUNS:
        run = RunSettings(
            scheme,
            task,
            seed,
            TASKS[task],
            model=ModelSettings(layers=2, heads=2, width=16, feedforward=16),
            training=TrainingSettings(640, 64, evaluations=1, validation=32, evaluation=64),
        )
        decompose_run(train(run, folder / f"{scheme}-{task}-seed{seed}").path)
    return folder


@pytest.fixture(scope="module")
def page(decomposed: Path) -> str:
    return build_decomposition(decomposed).read_text()


@pytest.fixture(scope="module")
def data(page: str) -> dict[str, Any]:
    """What the page's script reads."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_page_shows_one_run_of_each_scheme_in_the_studys_order(data: dict[str, Any]) -> None:
    titles = [run["title"] for run in data["runs"]]
    assert titles == [f"{name} (distance, seed 0)" for name in ("ALiBi", "RoPE", "MLA")]


def test_a_scheme_without_the_first_task_is_shown_on_another(decomposed: Path) -> None:
    heads = read(decomposed).decomposition
    left = heads.filter(~((pl.col("scheme") == "rope") & (pl.col("task") == "distance")))
    assert shown_runs(left)[1] == ("rope", "count", 0)


def test_the_page_holds_the_numbers_of_the_tables(decomposed: Path, data: dict[str, Any]) -> None:
    tables = read(decomposed)
    run, place = data["runs"][1], {"layer": 1, "head": 0}
    (head,) = [it for it in run["heads"] if (it["layer"], it["head"]) == (1, 0)]
    where = {"scheme": "rope", "task": "distance", "seed": 0, **place}
    row = tables.decomposition.filter(**where).row(0, named=True)
    assert head["tau_row"] == pytest.approx(row["tau_row"], rel=1e-4)
    symbol = tables.symbols.filter(**where)
    assert head["offsets"] == symbol["offset"].to_list()
    assert head["symbol"] == pytest.approx(symbol["value"].to_list(), rel=1e-4)
    own = tables.covariances.filter(pl.col("term") == pl.col("other"), **where)
    assert run["terms"] == own["term"].to_list()
    assert head["within"] == pytest.approx(own["share_within_rows"].to_list(), rel=1e-4)
    assert "bias" not in run["made"]
    assert "bias" in data["runs"][0]["made"]


def test_the_images_on_the_page_add_up_to_the_logits(data: dict[str, Any]) -> None:
    for run in data["runs"]:
        content = np.frombuffer(zlib.decompress(base64.b64decode(run["bytes"])), np.int8)
        size, found = run["shown"], {}
        for layer, head, term, count, scale, at in run["places"]:
            steps = content[at : at + count * size * size].reshape(count, size, size)
            found[layer, head, term] = steps * scale
        for layer, head in {place[:2] for place in found}:
            terms = [found[layer, head, it] for it in run["terms"] if (layer, head, it) in found]
            rounding = sum(np.abs(it).max() for it in terms) / 127
            total = sum(np.broadcast_to(it, (3, size, size)) for it in terms)
            np.testing.assert_allclose(total, found[layer, head, "logits"], atol=rounding)


def test_tables_count_heads_by_measured_algebra(decomposed: Path) -> None:
    listing = algebra_listing(read(decomposed), "distance")
    rows = [dict(zip(listing.columns, cells, strict=True)) for _, cells in listing.rows]
    assert [(row["Scheme"], row["Seed"]) for row in rows] == [
        *(("ALiBi", "0"), ("RoPE", "0"), ("RoPE", "1"), ("MLA", "0"))
    ]
    assert rows[0]["Additive"] == "4"
    assert rows[0]["Same for all sequences"] == "1.00 (1.00 to 1.00)"
    for row in rows:
        names = ("Additive", "Mixed", "Multiplicative", "Undefined")
        assert sum(int(row[name]) for name in names) == 4
    layers = algebra_listing(read(decomposed), "distance", by_layer=True)
    assert [cells[2] for _, cells in layers.rows] == ["0", "1"] * 4


def test_only_rotary_schemes_are_in_the_contraction_table(decomposed: Path) -> None:
    listing = contraction_listing(read(decomposed), "distance")
    assert [cells[:3] for _, cells in listing.rows] == [
        *([["RoPE", seed, layer] for seed in "01" for layer in "01"]),
        *([["MLA", "0", layer] for layer in "01"]),
    ]
    for _, cells in listing.rows:
        assert re.fullmatch(r"\d\.\d\d \(\d\.\d\d to \d\.\d\d\)", cells[3])
        assert re.fullmatch(r"\d+\u202f%", cells[4])


def test_words_for_heads_and_terms() -> None:
    heads = pl.DataFrame({"algebra": ["mixed", "additive", "mixed"]})
    assert algebra_counts(heads) == "1 additive, 2 mixed"
    terms = pl.DataFrame(
        {
            "term": ["a", "b", "c", "a", "b", "c", "a"],
            "other": ["a", "b", "c", "a", "b", "c", "b"],
            "share_within_rows": [0.5, 0.9, 0.0, 0.1, float("nan"), 0.001, 9.0],
        }
    )
    assert largest_terms(terms) == [("b", 0.9), ("a", pytest.approx(0.3))]
    assert [rounded(it) for it in (0.1234567, float("nan"), float("inf"), None)] == [
        *(0.12346, None, None, None)
    ]


def test_images_are_cut_to_what_a_page_can_hold() -> None:
    steps = {
        "0/0/a": np.arange(300, dtype=np.int8).reshape(3, 10, 10),
        "0/0/b": np.ones((1, 10, 10), np.int8),
    }
    images = Images(steps, {"0/0/a": 1.0, "0/0/b": 1.0}, causal=False)

    def shapes(most: int) -> list[tuple[int, ...]]:
        (cut,) = packed([images], most)
        assert (
            cut.steps["0/0/a"]
            == steps["0/0/a"][: len(cut.steps["0/0/a"])][
                :, : cut.steps["0/0/a"].shape[1], : cut.steps["0/0/a"].shape[2]
            ]
        ).all()
        return [it.shape for it in cut.steps.values()]

    assert shapes(400) == [(3, 10, 10), (1, 10, 10)]
    assert shapes(399) == [(2, 10, 10), (1, 10, 10)]
    assert shapes(200) == [(1, 10, 10), (1, 10, 10)]
    assert shapes(199) == [(1, 9, 9), (1, 9, 9)]


def test_the_page_stands_alone_and_is_the_same_every_time(decomposed: Path, page: str) -> None:
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page)
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", page)
    assert build_decomposition(decomposed).read_text() == page


def test_folders_without_what_the_page_needs(decomposed: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(decomposed / "rope-count-seed0", tmp_path / "rope-count-seed0"))
    images = run / "terms.safetensors"
    images.write_bytes(images.read_bytes()[:100])
    with pytest.raises(InputError, match=f"{images} is damaged"):
        build_decomposition(tmp_path)
    images.unlink()
    with pytest.raises(InputError, match=f"{images} is missing; run `poslens decompose"):
        build_decomposition(run)
    (run / "decomposition.parquet").unlink()
    with pytest.raises(InputError, match="holds no decomposed run; run `poslens decompose`"):
        build_decomposition(tmp_path)
    assert not list(tmp_path.rglob("decomposition.html*"))


@pytest.mark.slow
@needs_browser
def test_in_a_browser(decomposed: Path, tmp_path: Path) -> None:
    image = "document.querySelector('canvas[data-term=\"content-content\"]').toDataURL()"
    with visit(build_decomposition(decomposed), 1280) as visited:
        tab = visited.tab
        tab.wait_for_selector("#terms canvas")
        first = tab.evaluate(image)
        for change in (
            lambda: tab.select_option("#number", "1"),
            lambda: tab.select_option("#sequence", "2"),
            lambda: tab.click("#heads button[data-place='1/0']"),
            lambda: tab.select_option("#values", "whole"),
            lambda: tab.select_option("#scheme", label="RoPE (distance, seed 0)"),
        ):
            before = tab.evaluate(image)
            change()
            tab.wait_for_function(f"{image} !== {json.dumps(before)}")
        assert tab.evaluate(image) != first
        assert tab.input_value("#layer") == "1"
        assert "Layer 1, head 0: " in tab.text_content("#summary")

        sizes = tab.locator("#terms output").all_text_contents()
        largest = [float(re.fullmatch(r"at most (\S+) nats in size", it)[1]) for it in sizes]
        tab.hover("canvas[data-term='logits']", position={"x": 5, "y": 60})
        place = tab.text_content("#place")
        assert re.fullmatch(r"Query position [1-9], key position 0, offset [1-9] words:", place)
        told = tab.locator("#terms output").all_text_contents()
        assert len(told) == 7  # five terms, logits, effect of position
        values = [float(it.removesuffix(" nats").replace("−", "-")) for it in told]
        assert sum(values[:5]) == pytest.approx(values[5], abs=sum(largest) / 127)
        tab.hover("#symbol svg")
        assert re.fullmatch(r"Offset −?\d words: .* nats", tab.text_content("#symbol-told"))
        axes = tab.locator("#symbol text.title").all_text_contents()
        assert axes == ["Offset, query less key position (words)", "Mean logit (nats)"]
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        shot = tmp_path / "decomposition.png"
        tab.screenshot(path=shot, full_page=True)
        tab.set_viewport_size({"width": 390, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert shot.stat().st_size > 50_000
    assert visited.complaints == []
    assert visited.others == []
