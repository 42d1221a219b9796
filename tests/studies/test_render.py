"""Documents are what the committed tables give, and say nothing else in numbers."""

import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "studies"))

import render  # noqa: E402


def test_numbers_are_found_where_a_template_states_them() -> None:
    source = (
        "Of {{ 3 }} heads, 4.5 points.\n{% set a = 7 %}\nC1, P6.1, k = 1, `x[0]`, [a](f2.md)\n12"
    )
    assert list(render.typed_numbers(source)) == [(1, "4.5"), (4, "12")]


@pytest.mark.parametrize("document", render.DOCUMENTS, ids=lambda it: it.template)
def test_no_template_states_a_number(document: render.Document) -> None:
    assert not list(render.typed_numbers((render.TEMPLATES / document.template).read_text()))


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    document = render.Document("x.md", "x.j2", "here")
    text = "1\n<!-- here -->\nold\n<!-- /here -->\n2\n"
    assert document.apply("new\n", text) == text.replace("old", "new")
    for damaged in ("none", text + text):
        with pytest.raises(SystemExit, match=r"x\.md needs one <!-- here -->"):
            document.apply("new\n", damaged)


def test_what_the_text_needs_must_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "TEMPLATES", tmp_path)
    monkeypatch.setattr(render, "DOCUMENTS", (render.Document("x.md", "x.j2"),))
    template = tmp_path / "x.j2"
    template.write_text("\n{{ need(1 < 2) }}so")
    assert render.rendered({"x.md": ""}) == {"x.md": "\nso"}
    template.write_text("\n{{ need(1 > 2) }}so")
    with pytest.raises(SystemExit, match=r"x\.j2:2: not so"):
        render.rendered({"x.md": ""})
    template.write_text("so 3")
    with pytest.raises(SystemExit, match=r"x\.j2:1 states 3"):
        render.rendered({"x.md": ""})


def test_figures_differ_by_more_than_rounding(tmp_path: Path) -> None:
    one, same, other = (tmp_path / f"{name}.png" for name in "abc")
    Image.new("RGB", (100, 100), "white").save(one)
    Image.new("RGB", (100, 100), (254, 255, 255)).save(same)
    shown = Image.new("RGB", (100, 100), "white")
    shown.paste((0, 0, 0), (10, 10, 20, 20))
    shown.save(other)
    assert not render.differing(one, same)
    assert render.differing(one, other)
    assert render.differing(one, tmp_path / "missing.png")


@pytest.mark.slow
def test_the_committed_documents_are_what_the_tables_give() -> None:
    assert render.check() == []
