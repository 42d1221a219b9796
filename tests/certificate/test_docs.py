"""docs/certificate.md: its examples run, its catalogue is what the certificate says."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from poslens.certificate.finding import EXIT_CODES
from poslens.certificate.text import LABELS
from poslens.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "certificate.md").read_text("utf-8")
FIGURES = DOCS / "figures" / "certificate"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """The script that draws the catalogue."""
    spec = importlib.util.spec_from_file_location(
        "make_certificate_figures", DOCS / "make_certificate_figures.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "docs/certificate.md", "exec"), names)
    names["test_positions"]()
    assert (tmp_path / "certificate.html").stat().st_size > 10_000


def test_the_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rope.py").write_text(blocks("python")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 2
    try:
        for command in commands:
            program, *arguments = shlex.split(command)
            assert program == "poslens"
            main(arguments)
            assert "right" in capsys.readouterr().out
    finally:
        sys.modules.pop("rope", None)
    assert (tmp_path / "certificate.html").exists()


def test_the_workflow_is_yaml_and_checks() -> None:
    yaml = pytest.importorskip("yaml")
    (block,) = blocks("yaml")
    steps = yaml.safe_load(block)["jobs"]["certificate"]["steps"]
    assert any("poslens check" in step.get("run", "") for step in steps)


def test_verdicts_and_exit_codes_are_the_codes() -> None:
    rows = re.findall(r"^\| \*([^*|]+)\* \|.*\| (\d) \|$", PAGE, re.MULTILINE)
    assert dict(rows) == {LABELS[it]: str(code) for it, code in EXIT_CODES.items()}


def test_every_fault_of_the_catalogue_is_caught_in_the_words_shown(maker: ModuleType) -> None:
    shown = PAGE.split(maker.BEGIN)[1].split(maker.END)[0].strip()
    assert "nothing |" not in shown
    # Last digits differ between machines.
    assert maker.masked(shown) == maker.masked(maker.catalogue().strip())


def test_what_each_fault_was_made_from_is_right(maker: ModuleType) -> None:
    seen = []
    for fault in maker.FAULTS:
        if any(fault.right is other for other in seen):
            continue
        seen.append(fault.right)
        verdict = maker.check(fault.right, **fault.options).verdict
        assert verdict in ("right", "unusual"), fault.slug


def test_every_fault_has_its_picture_and_none_is_left_over(maker: ModuleType) -> None:
    drawn = {path.stem: path.stat().st_size for path in FIGURES.iterdir()}
    assert set(drawn) == {fault.slug for fault in maker.FAULTS}
    assert max(drawn.values()) < 32_000
    for fault in maker.FAULTS:
        assert f"(figures/certificate/{fault.slug}.svg)" in PAGE


def test_a_picture_can_be_drawn_again(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_of_each = {fault.picture: fault for fault in maker.FAULTS}
    page = tmp_path / "certificate.md"
    page.write_text(f"before\n{maker.BEGIN}\nold\n{maker.END}\nafter\n", "utf-8")
    monkeypatch.setattr(maker, "FAULTS", tuple(one_of_each.values()))
    monkeypatch.setattr(maker, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(maker, "PAGE", page)
    maker.main()
    assert len(list((tmp_path / "figures").iterdir())) == len(maker.PICTURES)
    assert page.read_text("utf-8").endswith("|\n" + maker.END + "\nafter\n")
