"""docs/reading-a-report.md: its example runs, and it explains what the page has."""

import re
from pathlib import Path

import pytest

from poslens.report.concentration import concentration_listing
from poslens.results import read

PAGE = (Path(__file__).parents[2] / "docs" / "reading-a-report.md").read_text()


def test_the_example_builds_the_page(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "runs" / "quick", schemes=("rope",), tasks=("distance",))
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(example, "reading-a-report.md", "exec"), names)
    assert Path(str(names["page"])).exists()


def test_every_section_and_column_is_explained(quick: Path) -> None:
    templates = Path(__file__).parents[2] / "src" / "poslens" / "report"
    headings = [
        heading
        for name in ("template", "lengths", "seeds", "mechanism", "probing", "corrections")
        for heading in re.findall(r"<h2>(.*?)</h2>", (templates / f"{name}.html.j2").read_text())
    ]
    headings.remove("How to read this")  # the page's own guide
    assert len(headings) > 10
    for heading in headings:
        assert f"## {heading}\n" in PAGE or f"- **{heading}.**" in PAGE
    for column in concentration_listing(read(quick), "distance").columns[2:]:
        assert f"| {column.removesuffix(' (points)')} |" in PAGE
