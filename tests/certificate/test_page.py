"""The certificate as a page: everything found is in it, safely, and it needs nothing else."""

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser import needs_browser, visit

from poslens.certificate import drawing
from poslens.certificate.finding import Certificate, Finding
from poslens.certificate.page import parameters, render, summary, text, write_html
from poslens.errors import InputError
from poslens.report import style

RIGHT = Finding("rotary", "layout", "right", "channels f and f + 32 pair up (half-split)")
UNUSUAL = Finding("rotary", "frequencies", "unusual", "YaRN", "Named.", "", {"factor": 4.0})
WRONG = Finding("bias", "sign", "wrong", "farther keys weigh more", "Drawn away.", "Turn it round.")
OPEN = Finding("bias", "direction", "undecidable", "the same for all keys")

CURVES = {
    "kernel": {
        "title": "Kernel by offset",
        "x_label": "Offset (positions)",
        "y_label": "Logit",
        "x": list(range(-40, 41)),
        "lines": {f"head {h}": [-abs(x) / 2**h for x in range(-40, 41)] for h in range(8)},
        "note": "Keys after the query on the left.",
    },
    "error": {
        "title": "Error by position",
        "x_label": "Position",
        "y_label": "Largest error of any phase against float64, in radians",
        "x": [1, 10, 100, 1_000, 1_000_000],
        "lines": {"float32": [1e-8, 0.0, None, 1e-6, math.nan], "bfloat16": [0.002] * 5},
        "bands": {"float32 tolerance": [1e-6, 5e-6, 5e-5, 5e-4, 0.5]},
        "log_x": True,
        "log_y": True,
    },
}
RECOVERED = {
    "base": 10_000.0,
    "scaling": {"kind": "yarn", "factor": 4.0},
    "frequencies": [10_000.0 ** (-f / 32) for f in range(32)],
    "key_only": False,
    "length": None,
}


def certificate(*findings: Finding, **changes: Any) -> Certificate:
    values = {"recovered": RECOVERED, "curves": CURVES} | changes
    return Certificate("package.module:rotate<Any>", "rotary", findings, **values)


@pytest.fixture(scope="module")
def page() -> str:
    return render(certificate(RIGHT, UNUSUAL, WRONG))


class Reader(HTMLParser):
    """The ids of a page, what its links point to, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "xlink:href", "src"):
                self.links.append(value or "")


def test_everything_found_is_on_the_page(page: str) -> None:
    for finding in (RIGHT, UNUSUAL, WRONG):
        for words in (finding.what, finding.meaning, finding.mend, finding.name):
            assert words in page
    assert "package.module:rotate&lt;Any&gt;" in page
    assert "rotate<Any>" not in page
    for words in ("10,000", "scaling, factor", "32 values, 1 to", "Keys after the query"):
        assert words in page


def test_the_worst_stands_first(page: str) -> None:
    body = page[page.index('id="findings"') :]
    places = [body.index(it.what) for it in (WRONG, UNUSUAL, RIGHT)]
    assert places == sorted(places)


def test_the_page_needs_nothing_else(page: str) -> None:
    reader = Reader(page)
    assert not reader.tags & {"script", "img", "iframe", "object"}
    assert all(link.startswith(("#", "data:")) for link in reader.links)
    assert "@import" not in page
    assert all(it.startswith("#") for it in re.findall(r"url\(([^)]*)", page))


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    reader = Reader(page)
    assert len(reader.ids) == len(set(reader.ids))
    targets = [link[1:] for link in reader.links if link.startswith("#")]
    assert set(targets) <= set(reader.ids)


def test_the_same_certificate_gives_the_same_page(page: str) -> None:
    assert render(certificate(RIGHT, UNUSUAL, WRONG)) == page


def test_a_page_is_small(page: str) -> None:
    assert len(page) < 150_000


def test_an_empty_certificate_has_no_empty_sections() -> None:
    page = render(certificate(RIGHT, recovered={}, curves={}))
    assert 'id="curves"' not in page
    assert 'id="recovered"' not in page


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        ((RIGHT, RIGHT), "All 2 tests are right."),
        ((RIGHT,), "The one test is right."),
        ((RIGHT, WRONG), "1 of 2 tests is wrong: farther keys weigh more."),
        ((UNUSUAL, UNUSUAL), "2 of 2 tests are unusual: YaRN; and more."),
        ((RIGHT, OPEN), "1 of 2 tests is not decidable: the same for all keys."),
    ],
)
def test_the_summary_says_how_many_and_the_worst(findings: tuple[Finding, ...], words: str) -> None:
    assert summary(certificate(*findings)) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "–"),
        (math.nan, "–"),
        (True, "yes"),
        (1_000_000, "1,000,000"),
        (10_000.0, "10,000"),
        (-0.25, "\u22120.25"),
        (1 / 3, "0.333333"),
        ([1, 2], "1, 2"),
        ([], "none"),
        ("half", "half"),
    ],
)
def test_values_are_written_as_people_write_them(value: Any, words: str) -> None:
    assert text(value) == words


def test_long_lists_are_folded_and_nested_values_named() -> None:
    found = {name: (value, more) for name, value, more in parameters(RECOVERED)}
    assert found["scaling, kind"] == ("yarn", "")
    value, more = found["frequencies"]
    assert value.startswith("32 values")
    assert len(more.split(", ")) >= 32


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "certificate.html"
    assert write_html(certificate(RIGHT), path) == path
    assert path.read_text("utf-8").rstrip().endswith("</html>")
    assert [it.name for it in tmp_path.iterdir()] == ["certificate.html"]
    with pytest.raises(InputError, match="cannot be written"):
        write_html(certificate(RIGHT), tmp_path / "nowhere" / "certificate.html")


def test_values_that_a_logarithm_cannot_show_are_gaps() -> None:
    shown = drawing.series(CURVES["error"]["lines"]["float32"], CURVES["error"])
    assert np.isnan(shown).tolist() == [False, True, True, False, True]


@pytest.mark.parametrize(
    ("value", "words"),
    [(1e-7, "10⁻⁷"), (0.01, "0.01"), (1.0, "1"), (1000.0, "1,000"), (1e6, "10⁶"), (1e10, "10¹⁰")],
)
def test_powers_of_ten(value: float, words: str) -> None:
    assert drawing.power_of_ten(value) == words


def test_pages_look_like_the_report() -> None:
    assert (drawing.INK, drawing.SOFT) == (style.INK, style.SOFT)
    assert (drawing.RULE, drawing.FAINT) == (style.RULE, style.FAINT)


READ = """() => {
  const wide = [...document.body.querySelectorAll("*")]
    .filter((node) => !node.closest("svg, thead"))
    .filter((node) => node.getBoundingClientRect().right > innerWidth + 0.5)
    .map((node) => node.outerHTML.slice(0, 120));
  const drawings = [...document.querySelectorAll(".drawing")].map((node) => {
    const box = node.querySelector("svg").getBoundingClientRect();
    const cut = [...node.querySelectorAll("text")].map((it) => [it.textContent,
      it.getBoundingClientRect()]).filter(([_, it]) => it.left < box.left - 1
        || it.right > box.right + 1 || it.top < box.top - 1 || it.bottom > box.bottom + 1)
      .map(([words, _]) => words);
    return { cut, lines: node.querySelectorAll("path").length, height: box.height,
      texts: [...node.querySelectorAll("text")].map((it) => it.textContent).join(" ") };
  });
  return { inner: innerWidth, scroll: document.documentElement.scrollWidth, wide, drawings };
}"""


@pytest.fixture(scope="module", params=[1280, 390])
def seen(
    request: pytest.FixtureRequest, page: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The page as a browser of that width shows it, with its requests and complaints."""
    path = tmp_path_factory.mktemp("page") / "certificate.html"
    path.write_text(page, "utf-8")
    with visit(path, request.param) as visited:
        found = visited.tab.evaluate(READ)
    return {**found, "others": visited.others, "complaints": visited.complaints}


@pytest.mark.slow
@needs_browser
def test_a_browser_asks_for_nothing_else_and_does_not_complain(seen: dict[str, Any]) -> None:
    assert seen["others"] == []
    assert seen["complaints"] == []


@pytest.mark.slow
@needs_browser
def test_nothing_scrolls_sideways(seen: dict[str, Any]) -> None:
    assert seen["scroll"] <= seen["inner"]
    assert seen["wide"] == []


@pytest.mark.slow
@needs_browser
def test_curves_are_drawn_and_their_texts_are_whole(seen: dict[str, Any]) -> None:
    assert len(seen["drawings"]) == len(CURVES)
    for found, curve in zip(seen["drawings"], CURVES.values(), strict=True):
        assert found["cut"] == []
        assert found["height"] > 150
        assert found["lines"] >= len(curve["lines"])
        assert all(label in found["texts"] for label in curve["lines"])
        assert curve["x_label"] in found["texts"]


def test_a_judged_bias_can_be_shown(tmp_path: Path) -> None:
    from poslens.certificate.bias import judge_bias

    def bias(queries: int, keys: int) -> torch.Tensor:
        offset = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
        return -0.5 * offset.abs().float()

    findings, recovered, curves = judge_bias(bias)
    path = write_html(
        Certificate("bias", "bias", tuple(findings), recovered, curves), tmp_path / "bias.html"
    )
    assert "Kernel by offset" in path.read_text("utf-8")
