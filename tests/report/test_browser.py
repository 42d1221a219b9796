"""The page in headless Chromium: no request, no error, nothing cut, nothing on top of another."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.browser import needs_browser, visit

from poslens.report import build

WIDTHS = (1280, 390)
# Panels and the place in them that the mouse goes to.
HOVERED = {
    "#heads-distance-3": {"x": 100, "y": 30},
    "#positions-distance-3": {"x": 100, "y": 30},
    "#kept-count-0-0": {"x": 160, "y": 90},
    "#lengths-distance": {"x": 80, "y": 40},
    "#probe-r2-distance": {"x": 74, "y": 60},
    "#ratios-distance-rope": {"x": 90, "y": 96},
}

pytestmark = [
    pytest.mark.slow,
    needs_browser,
]

# Everything the tests ask of the page, read in one go.
READ = """() => {
  const box = (node) => { const b = node.getBoundingClientRect();
    return [b.left, b.top + scrollY, b.right, b.bottom + scrollY]; };
  const wide = [...document.body.querySelectorAll("*")]
    .filter((node) => node.getBoundingClientRect().width > 2 && !node.closest("thead, svg"))
    .filter((node) => node.getBoundingClientRect().right > innerWidth + 0.5
      || (node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).overflowX !== "visible"
          && !node.closest(".panel")))
    .map((node) => node.outerHTML.slice(0, 120));
  const panels = [...document.querySelectorAll(".panel")].map((node) => {
    const axes = new Set(node._fullData.flatMap((t) => [t.xaxis ?? "x", t.yaxis ?? "y"]));
    const titles = [...axes].map((id) =>
      node._fullLayout[id.replace(/^([xy])/, "$1axis")].title.text);
    const texts = [...node.querySelectorAll("svg text")]
      .filter((text) => text.textContent.trim() && text.getBoundingClientRect().width)
      .map((text) => ({ text: text.textContent, box: box(text),
        size: parseFloat(getComputedStyle(text).fontSize) }));
    return { id: node.id, titles, texts, box: box(node), drawn: node.querySelectorAll(
      ".trace, .hm image, .heatmaplayer image").length };
  });
  return { inner: innerWidth, scroll: document.documentElement.scrollWidth, wide, panels };
}"""


@pytest.fixture(scope="module", params=["quick", "standard"])
def page_file(request: pytest.FixtureRequest) -> Path:
    return build(request.getfixturevalue(request.param))


@pytest.fixture(scope="module", params=WIDTHS)
def seen(
    request: pytest.FixtureRequest, page_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The page as a browser of that width shows it, with its requests and complaints."""
    with visit(page_file, request.param) as visited:
        page = visited.tab
        page.wait_for_function(
            "[...document.querySelectorAll('.panel')].every((it) => it.querySelector('svg')"
            " || it.closest('details:not([open])'))"
        )
        # The tables and panels that are closed at first count too.
        page.evaluate("document.querySelectorAll('main details').forEach((it) => it.open = true)")
        page.wait_for_function(
            "[...document.querySelectorAll('.panel')].every((it) => it.querySelector('svg'))"
        )
        found = page.evaluate(READ)
        shot = tmp_path_factory.mktemp("screenshots") / f"{request.param}.png"
        page.screenshot(path=shot, full_page=True)
        told = {}
        for panel, place in HOVERED.items():
            page.hover(panel, position=place)
            page.wait_for_selector(f"{panel} .hovertext")
            told[panel] = page.text_content(f"{panel} .hovertext")
    seen = {"others": visited.others, "complaints": visited.complaints}
    return {**found, **seen, "told": told, "shot": shot}


def test_the_page_asks_for_nothing_but_itself(seen: dict[str, Any]) -> None:
    assert seen["others"] == []


def test_the_console_is_silent(seen: dict[str, Any]) -> None:
    assert seen["complaints"] == []


def test_nothing_scrolls_sideways(seen: dict[str, Any]) -> None:
    assert seen["scroll"] <= seen["inner"]
    assert seen["wide"] == []


def test_every_panel_is_drawn_and_its_axes_name_their_units(seen: dict[str, Any]) -> None:
    assert len(seen["panels"]) >= 60
    for panel in seen["panels"]:
        assert panel["drawn"] > 0, panel["id"]
        assert len(panel["titles"]) == 2
        for title in panel["titles"]:
            assert re.search(r"\(.+\)$", title), f"{panel['id']}: {title}"


def test_no_text_is_cut_or_tiny(seen: dict[str, Any]) -> None:
    for panel in seen["panels"]:
        left, top, right, bottom = panel["box"]
        assert len(panel["texts"]) > 8, panel["id"]
        for text in panel["texts"]:
            x0, y0, x1, y1 = text["box"]
            inside = left - 1 <= x0 and x1 <= right + 1 and top - 1 <= y0 and y1 <= bottom + 1
            assert inside, f"{panel['id']}: {text['text']} is cut"
            assert text["size"] >= 11, f"{panel['id']}: {text['text']} is tiny"


def test_no_text_lies_on_another(seen: dict[str, Any]) -> None:
    for panel in seen["panels"]:
        texts = panel["texts"]
        for i, first in enumerate(texts):
            for second in texts[:i]:
                both = f"{panel['id']}: {first['text']!r} lies on {second['text']!r}"
                assert not overlap(first["box"], second["box"]), both


def overlap(first: list[float], second: list[float], slack: float = 2.0) -> bool:
    """Whether two boxes (left, top, right, bottom) share more than a rim of `slack` pixels."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return width > slack and height > slack


NUMBER = r"−?\d+\.\d+"


@pytest.mark.parametrize(
    ("panel", "others"),
    [
        ("#heads-distance-3", ("output at its mean", "output of another sequence")),
        ("#positions-distance-3", ("kernel at its mean", "positions permuted")),
    ],
)
def test_hovering_over_a_head_tells_its_effects_with_intervals(
    seen: dict[str, Any], panel: str, others: tuple[str, str]
) -> None:
    expected = (
        rf"layer \d, head \daccuracy falls by {NUMBER} points \({NUMBER} to {NUMBER}\)"
        rf"loss rises by {NUMBER} nats \({NUMBER} to {NUMBER}\)"
        rf"margin falls by {NUMBER} nats \({NUMBER} to {NUMBER}\)"
    ) + "".join(rf"{name}: {NUMBER} points \({NUMBER} to {NUMBER}\)" for name in others)
    assert re.fullmatch(expected, seen["told"][panel]), seen["told"]


def test_hovering_over_a_curve_tells_the_head_that_was_added(seen: dict[str, Any]) -> None:
    expected = (
        rf"(seed \d, )?layer \d: \d kept(, head \d added)?"
        rf"accuracy {NUMBER}\s% \({NUMBER} to {NUMBER}\)"
    )
    assert re.fullmatch(expected, seen["told"]["#kept-count-0-0"]), seen["told"]


def test_hovering_over_a_length_tells_the_run(seen: dict[str, Any]) -> None:
    expected = rf"[A-Z][\w ,.+]+?(, seed \d)?: {NUMBER} % at 1×|Learned ends at 1× .*34 rows"
    assert re.fullmatch(expected, seen["told"]["#lengths-distance"]), seen["told"]


def test_hovering_over_a_probe_tells_the_run_and_its_state(seen: dict[str, Any]) -> None:
    expected = (
        rf"[A-Z][\w ,.+]+?(, seed \d)?, (the input|after \d layers?): {NUMBER} "
        rf"\({NUMBER} to {NUMBER}\)"
    )
    assert re.fullmatch(expected, seen["told"]["#probe-r2-distance"]), seen["told"]


def test_hovering_over_a_seed_tells_its_head(seen: dict[str, Any]) -> None:
    expected = (
        rf"layer \d, head \d(, seed \d)?μ/σ {NUMBER} \({NUMBER} to {NUMBER}\)"
        r"μ [-\d.e]+, σ [\d.]+ nats a unit of gainposition in the logits 0\.3 nats"
    )
    assert re.fullmatch(expected, seen["told"]["#ratios-distance-rope"]), seen["told"]


def test_maps_of_a_run_stand_side_by_side_where_there_is_room(seen: dict[str, Any]) -> None:
    boxes = {panel["id"]: panel["box"] for panel in seen["panels"]}
    head, position = boxes["heads-count-3"], boxes["positions-count-3"]
    if seen["inner"] == min(WIDTHS):
        assert position[1] > head[3]
        assert position[0] == pytest.approx(head[0])
    else:
        assert position[0] > head[2]
        assert position[1] == pytest.approx(head[1])
    assert position[2] - position[0] == pytest.approx(head[2] - head[0])


def test_the_screenshot_is_taken(seen: dict[str, Any]) -> None:
    assert seen["shot"].stat().st_size > 100_000
