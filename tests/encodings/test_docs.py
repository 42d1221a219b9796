"""The walkthrough in docs/adding-an-encoding.md says what the code says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENCODINGS = ROOT / "src" / "poslens" / "encodings"
PAGE = (ROOT / "docs" / "adding-an-encoding.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def lines_of_code(source: str) -> int:
    """Lines that are neither blank, nor comment, nor docstring."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            assert docstring.end_lineno is not None
            lines = source.splitlines()
            for number in range(docstring.lineno - 1, docstring.end_lineno):
                lines[number] = ""
            source = "\n".join(lines)
    code = [line for line in source.splitlines() if line.strip()]
    return sum(not line.strip().startswith("#") for line in code)


def test_the_file_shown_is_the_file() -> None:
    assert blocks("python")[0] == (ENCODINGS / "kerple.py").read_text()


def test_the_registration_shown_is_the_registration() -> None:
    (diff,) = blocks("diff")
    added = [line[1:] for line in diff.splitlines() if line.startswith("+")]
    registry = (ENCODINGS / "__init__.py").read_text().splitlines()
    assert len(added) == 2
    assert [line for line in registry if line in added] == added


def test_the_example_runs() -> None:
    _, example = blocks("python")
    exec(compile(example, "docs/adding-an-encoding.md", "exec"), {})


@pytest.mark.parametrize("name", ["alibi", "kerple", "learned", "sinusoidal", "t5"])
def test_an_encoding_is_under_40_lines_of_code(name: str) -> None:
    assert lines_of_code((ENCODINGS / f"{name}.py").read_text()) < 40


def test_lines_are_counted_right() -> None:
    source = '"""Two\nlines."""\n\n# why\nclass A:\n    """One."""\n\n    x = 1  # what\n'
    assert lines_of_code(source) == 2
