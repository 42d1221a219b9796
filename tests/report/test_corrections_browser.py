"""The page of corrections in headless Chromium: quiet, nothing cut, reasons at a tap."""

from pathlib import Path
from typing import Any

import pytest
from tests.browser import needs_browser, visit

from poslens.report import build

pytestmark = [
    pytest.mark.slow,
    needs_browser,
]

READ = """() => {
  const cells = [...document.querySelectorAll(".matrix button")].map((node) => ({
    cut: node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight,
    width: node.getBoundingClientRect().width,
    size: Math.min(...[...node.children].map((it) => parseFloat(getComputedStyle(it).fontSize))),
    outline: getComputedStyle(node).outlineStyle, change: node.className.trim() }));
  const cut = [...document.querySelectorAll(".panel")].flatMap((panel) => {
    const box = panel.getBoundingClientRect();
    return [...panel.querySelectorAll("svg text")].filter((text) => {
      const it = text.getBoundingClientRect();
      return it.width && (it.left < box.left - 1 || it.right > box.right + 1
        || it.top < box.top - 1 || it.bottom > box.bottom + 1);
    }).map((text) => text.textContent);
  });
  return { inner: innerWidth, scroll: document.documentElement.scrollWidth, cells, cut,
    panels: document.querySelectorAll(".panel svg.main-svg").length };
}"""


@pytest.fixture(scope="module")
def page_file(corrected: Path) -> Path:
    return build(corrected)


@pytest.fixture(scope="module", params=(1280, 390))
def seen(request: pytest.FixtureRequest, page_file: Path) -> dict[str, Any]:
    """What a browser of that width shows, and what it tells of a cell before and after a tap."""
    with visit(page_file, request.param) as visited:
        page = visited.tab
        page.wait_for_function(
            "[...document.querySelectorAll('.panel')].every((it) => it.querySelector('svg'))"
        )
        page.evaluate("document.querySelectorAll('main details').forEach((it) => it.open = true)")
        found = page.evaluate(READ)
        told = [page.text_content("#reason p")]
        page.click(".matrix [data-title^='C4, memory']")
        told += [page.text_content("#reason h3"), page.text_content("#reason p")]
        page.hover("#difference-distance", position={"x": 120, "y": 20})
        page.wait_for_selector("#difference-distance .hovertext")
        told.append(page.text_content("#difference-distance .hovertext"))
    return {
        **found,
        **{"told": told, "others": visited.others, "complaints": visited.complaints},
    }


def test_the_page_is_alone_and_silent(seen: dict[str, Any]) -> None:
    assert seen["others"] == []
    assert seen["complaints"] == []


def test_nothing_is_cut_or_scrolls_sideways(seen: dict[str, Any]) -> None:
    assert seen["scroll"] <= seen["inner"]
    assert seen["cut"] == []
    assert seen["panels"] >= 4


def test_cells_can_be_read_and_tapped(seen: dict[str, Any]) -> None:
    for cell in seen["cells"]:
        assert not cell["cut"]
        assert cell["width"] >= 28
        assert cell["size"] >= 11
        outlines = {"turned": "solid", "surer": "dotted"}
        assert cell["outline"] == outlines.get(cell["change"], "none")


def test_a_tap_tells_the_reason(seen: dict[str, Any]) -> None:
    before, title, reason, hover = seen["told"]
    assert before.startswith("Point at a cell")
    assert title.startswith("C4, memory: ")
    assert "the layer's verdict is deposit" in reason
    assert hover.startswith("NoPE, standard: ")
    assert "ceiling 100.0" in hover
