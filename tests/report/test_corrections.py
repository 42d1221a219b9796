"""Claims by correction: the matrix, its sentences, the maps and the page."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from scipy.stats import t as student

from poslens.claims import CLAIMS
from poslens.claims.corrections import PUBLISHED, SWITCHES, matrix, read_corrections
from poslens.errors import InputError
from poslens.model.published import SWITCHES as EVERY_SWITCH
from poslens.report import build
from poslens.report.correction_maps import (
    accuracy_map,
    effect_map,
    gain_scale,
    scheme_frame,
    scheme_listing,
    signed,
)
from poslens.report.corrections import (
    LOOKS,
    Correction,
    Judged,
    changes,
    claims_of,
    judged,
    read_all,
)
from poslens.results import KEY, SEEDS, collect


@pytest.fixture(scope="module")
def corrections(corrected: Path) -> list[Correction]:
    return read_all(corrected)


@pytest.fixture(scope="module")
def rows(corrections: list[Correction]) -> list[list[Judged]]:
    return judged(corrections, claims_of(corrections))


def cell(rows: list[list[Judged]], correction: str, claim: str) -> Judged:
    return next(
        it for row in rows for it in row if (it.correction, it.claim) == (correction, claim)
    )


def test_standard_comes_first_and_published_last(corrections: list[Correction]) -> None:
    names = [it.name for it in corrections]
    assert (names[0], names[-1]) == ("standard", "published")
    assert set(names) == {"standard", "memory", "slopes", "optimiser", "published"}


def test_every_cell_is_that_of_the_matrix(
    corrected: Path, corrections: list[Correction], rows: list[list[Judged]]
) -> None:
    told = claims_of(corrections)
    table = matrix(read_corrections(corrected), told)
    assert sum(len(row) for row in rows) == table.height == 5 * len(told)
    for row in table.iter_rows(named=True):
        found = cell(rows, row["correction"], row["claim"])
        assert found.reason.endswith(row["reason"])
        lean = row["direction"] if row["verdict"] == "inconclusive" else ""
        assert found.look == LOOKS[row["verdict"], lean]
        if row["verdict"] != "not run":
            assert found.count == f"{row['passes']}\u202f:\u202f{row['fails']}"


def test_a_deposit_that_a_switch_makes_is_outlined(rows: list[list[Judged]]) -> None:
    assert "reproduced" not in cell(rows, "standard", "C4").label
    for name in ("memory", "published"):
        assert "reproduced" in cell(rows, name, "C4").label
        assert cell(rows, name, "C4").change == "turned"
    assert cell(rows, "optimiser", "C4").change == ""
    assert all(it.change == "" for it in rows[0])


def test_cells_whose_schemes_have_no_switch_say_so(rows: list[list[Judged]]) -> None:
    same = cell(rows, "slopes", "C4")
    assert same.same
    assert same.reason.startswith("No scheme of this claim has this switch")
    assert not cell(rows, "slopes", "C2").same
    assert not any(it.same for it in rows[0])


def test_not_run_is_no_difference(rows: list[list[Judged]]) -> None:
    assert {it.change for row in rows for it in row if it.label == "not run"} == {""}


def test_a_sentence_for_each_claim_that_changes(
    corrections: list[Correction], rows: list[list[Judged]]
) -> None:
    sentences = changes(rows, claims_of(corrections))
    changed = {it.claim for row in rows for it in row if it.change}
    assert len(sentences) == len(changed) + 2
    (c4,) = (it for it in sentences if it.startswith("C4 ("))
    assert re.search(r"under memory and published\.$", c4)
    assert "as standard" in c4
    assert (
        sentences[-1]
        == "Not run as standard, so nothing to compare: C6 (k = 1), C6 (k = 2) and C8."
    )


def test_how_sure_a_verdict_is_counts_apart(corrections: list[Correction]) -> None:
    """One seed less leaves the direction and takes the certainty."""
    standard = corrections[0]
    fewer = {
        name: table.filter(pl.col("seed") < 2) if "seed" in table.columns else table
        for name, table in vars(standard.tables).items()
    }
    second = Correction(
        **{**vars(standard), "name": "norm", "tables": type(standard.tables)(**fewer)}
    )
    c7 = [cell(judged([standard, second]), name, "C7") for name in ("standard", "norm")]
    assert [it.label for it in c7] == ["reproduced", "inconclusive, leaning reproduced"]
    assert c7[1].change == "surer"


def test_one_experiment_alone_has_nothing_to_compare(corrections: list[Correction]) -> None:
    assert changes(judged(corrections[:1])) == [
        "There is no correction to compare with the standard model yet."
    ]


def test_differences_are_paired_by_seed(corrections: list[Correction]) -> None:
    frame = scheme_frame(corrections, "distance")
    slopes = frame.filter(correction="slopes")
    assert slopes["scheme"].to_list() == ["alibi"]
    before, after = (
        it.own.summary.filter(scheme="alibi", task="distance").sort("seed")["accuracy"]
        for it in (corrections[0], next(it for it in corrections if it.name == "slopes"))
    )
    gaps = after - before
    row = slopes.row(0, named=True)
    assert row["difference"] == pytest.approx(gaps.to_numpy().mean())
    wide = student.ppf(0.975, 2) * gaps.to_numpy().std(ddof=1) / 3**0.5
    assert row["error"] == pytest.approx(wide)
    assert frame.filter(correction="standard")["difference"].null_count() == 7


def test_one_seed_has_the_error_of_held_out_data(corrections: list[Correction]) -> None:
    single = [
        Correction(
            **{
                **vars(it),
                "own": type(it.own)(
                    **{n: table.filter(pl.col("seed") == 0) for n, table in vars(it.own).items()}
                ),
            }
        )
        for it in corrections
    ]
    row = scheme_frame(single, "distance").filter(correction="memory", scheme="alibi")
    assert row["seeds"].to_list() == [1]
    assert 0.005 < row["error"][0] < 0.03  # of some 4096 sequences each


def test_maps_show_what_is_certain_and_leave_out_what_is_not_touched(
    corrections: list[Correction],
) -> None:
    frame = scheme_frame(corrections, "distance")
    (heat,) = accuracy_map(frame, "distance", (-80.0, 10.0)).figure.data
    names = frame["correction"].unique(maintain_order=True).to_list()
    slopes = names.index("slopes")
    assert [value is None for value in heat.z[slopes]] == [True] * 4 + [False] + [True] * 2
    assert heat.text[slopes][4] == "−70"
    assert [int(text) for text in heat.text[0]] == [
        round(100 * value) for value in frame.filter(correction="standard")["accuracy"]
    ]
    panel = effect_map(frame, "distance", (0.0, 90.0))
    assert panel is not None
    (heat,) = panel.figure.data
    assert heat.text[names.index("memory")][5] == "60●"
    assert "●" not in heat.text[0][5]


def test_the_listing_has_every_number(corrections: list[Correction]) -> None:
    frame = scheme_frame(corrections, "count")
    listing = scheme_listing(frame)
    assert len(listing.rows) == frame.height
    texts = next(it for _, it in listing.rows if it[:2] == ["ALiBi", "slopes"])
    assert re.fullmatch(r"−\d+\.\d \(\d+\.\d\)", texts[3])
    assert texts[5].startswith("spread 3")


def test_signs_and_scales() -> None:
    assert [signed(value) for value in (0.012, -0.012, 0.0)] == ["+1.2", "−1.2", "0.0"]
    scale = gain_scale((-70.0, 10.0))
    assert [scale[0][0], scale[-1][0]] == [0, 1]
    assert min(scale, key=lambda it: abs(it[0] - 70 / 80))[1] == "#f4f3f1"


def test_every_switch_is_explained() -> None:
    assert set(SWITCHES) == {*EVERY_SWITCH, PUBLISHED}


def test_a_folder_of_corrections_has_its_own_page(corrected: Path) -> None:
    page = build(corrected)
    assert page == corrected / "corrections.html"
    text = page.read_text("utf-8")
    told = claims_of(read_all(corrected))
    assert text.count("<button type") == 5 * len(told)
    assert [claim.id for claim in CLAIMS if claim not in told] == ["P6.1", "P6.2", "T6.1"]
    assert {path.name for path in (corrected / "figures").iterdir()} == {
        "corrections.png",
        "corrections.svg",
    }
    assert not (corrected / "report.html").exists()
    markup = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S)
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', markup)
    assert "168 of 168" in markup  # of all experiments


def test_claims_on_tables_that_were_recorded_stand_in_the_matrix(
    corrections: list[Correction],
) -> None:
    standard, *others = corrections
    seeds = pl.DataFrame([{"scheme": "rope"}], schema={**KEY, **SEEDS})
    recorded = replace(standard, tables=replace(standard.tables, seeds=seeds))
    told = {claim.id for claim in claims_of([recorded, *others])}
    assert {"P6.1", "P6.2"} <= told
    assert "T6.1" not in told


@pytest.mark.slow
def test_collected_corrections_give_the_same_page(corrected: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for name in ("standard", "memory", "slopes", "optimiser", "published"):
        collect(corrected / name, kept / name)
    assert build(kept).read_bytes() == build(corrected).read_bytes()
    first, second = ((it / "figures" / "corrections.svg").read_bytes() for it in (kept, corrected))
    assert first == second


@pytest.mark.slow
def test_what_is_not_finished_is_not_taken_from_the_standard(
    corrected: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(corrected, tmp_path / "partial"))
    for run in (folder / "memory").glob("rope-*"):
        shutil.rmtree(run)
    rows = judged(read_all(folder))
    assert cell(rows, "memory", "C4").label == "not run"
    assert cell(rows, "memory", "C7").same
    page = build(folder).read_text("utf-8")
    assert "Runs not finished, by correction: memory (6)." in page


def test_without_a_finished_standard_run_there_is_no_page(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make(tmp_path / "c" / "standard", schemes=("rope",), tasks=("distance",))
    (folder / "rope-distance-seed0" / "summary.parquet").unlink()
    with pytest.raises(InputError, match="standard holds no finished run"):
        build(tmp_path / "c")
    assert not (tmp_path / "c" / "corrections.html").exists()


def test_odd_names_do_no_harm(make: Callable[..., Path], tmp_path: Path) -> None:
    odd = "<img src=x>"
    make(tmp_path / "c" / "standard", schemes=(odd, "rope"), tasks=("distance",))
    make(tmp_path / "c" / "mine", schemes=(odd,), tasks=("distance",))
    text = build(tmp_path / "c").read_text("utf-8")
    assert "<img" not in text.replace(text[text.index("* plotly.js v") :], "")
    panels = re.findall(r'data-panel="difference-distance">(.*?)</script>', text, flags=re.S)
    assert json.loads(panels[0])["layout"]["xaxis"]["ticktext"][-1] == "&lt;img src=x&gt;"
