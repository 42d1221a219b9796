"""Documents and figures whose numbers come from the committed tables in `results/`.

    python studies/render.py            write them
    python studies/render.py --check    fail where one is not what the tables give

Text is a Jinja template beside this file. Its numbers are expressions over the tables: a digit in
its literal text is refused, unless it names something (a claim, the study). What the prose says in
words it asserts with `need`, so that it cannot outlive a table that says otherwise.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jinja2
import numpy as np
from PIL import Image

from facts import FACTS
from figures import draw

ROOT = Path(__file__).parents[1]
TEMPLATES = Path(__file__).parent
FIGURES = ROOT / "results" / "figures"
# Digits that name something: claims, the study, code, link targets and paths.
NAMES = re.compile(
    r"\b[CPT]\d(\.\d)?\b|\bk = \d|ICLR 2026|2505\.13027|`[^`\n]*`|\]\([^)\n]*\)|<!--.*?-->"
)
# Share of a figure's pixels that may differ: fonts and layouts are the same, rounding may not be.
PIXELS = 0.002


@dataclass(frozen=True)
class Document:
    """A rendered text: a whole file, or what stands between two marks of it."""

    path: str
    template: str
    mark: str | None = None

    def apply(self, text: str, before: str) -> str:
        """The file's text with `text` in its place. Raises SystemExit where the marks are not."""
        if self.mark is None:
            return text
        start, end = f"<!-- {self.mark} -->\n", f"<!-- /{self.mark} -->"
        if before.count(start) != 1 or before.count(end) != 1:
            raise SystemExit(f"{self.path} needs one {start.strip()} and one {end}")
        head, _, rest = before.partition(start)
        return head + start + text + end + rest.partition(end)[2]


DOCUMENTS = (
    Document("README.md", "readme.md.j2", "results"),
    Document("results/README.md", "results.md.j2"),
    Document("docs/toeplitz.md", "algebra.md.j2", "algebra"),
    Document("docs/toeplitz.md", "contraction.md.j2", "contraction"),
)


def need(holds: bool) -> str:
    """Nothing, where what the text says holds. Raises AssertionError elsewhere."""
    if not holds:
        raise AssertionError("the text says what the tables do not")
    return ""


def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals.update(FACTS, need=need)
    return made


def typed_numbers(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every number that a template states by itself."""
    for line, kind, text in jinja2.Environment().lex(source):
        if kind != "data":
            continue
        for offset, part in enumerate(NAMES.sub("", text).split("\n")):
            yield from ((line + offset, found) for found in re.findall(r"\d[\d.,]*", part))


def rendered(files: dict[str, str]) -> dict[str, str]:
    """Every document's text, given the files as they stand."""
    made = environment()
    found = dict(files)
    for document in DOCUMENTS:
        source = (TEMPLATES / document.template).read_text()
        if typed := list(typed_numbers(source)):
            line, number = typed[0]
            raise SystemExit(f"{document.template}:{line} states {number}; take it from a table")
        try:
            text = made.get_template(document.template).render()
        except AssertionError:
            raise SystemExit(f"{document.template}:{_line(document.template)}: not so") from None
        found[document.path] = document.apply(text, found[document.path])
    return found


def _line(template: str) -> int:
    """The line of a template that the exception under way came from."""
    trace, line = sys.exc_info()[2], 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(template):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def differing(made: Path, kept: Path) -> bool:
    """Whether two images differ by more than rounding."""
    if not kept.exists():
        return True
    one, other = (np.asarray(Image.open(path).convert("RGB"), dtype=int) for path in (made, kept))
    if one.shape != other.shape:
        return True
    return bool((np.abs(one - other).max(-1) > 8).mean() > PIXELS)


def check() -> list[str]:
    """What is not as the tables give it: documents, then figures."""
    before = {document.path: _text(document.path) for document in DOCUMENTS}
    after = rendered(before)
    wrong = [path for path, text in after.items() if text != before[path]]
    with tempfile.TemporaryDirectory() as folder:
        made = {path.name: path for path in draw(Path(folder))}
        wrong += [
            f"results/figures/{name}"
            for name, path in made.items()
            if differing(path, FIGURES / name)
        ]
        kept = {path.name for path in FIGURES.glob("*")}
        wrong += [f"results/figures/{name} (nothing draws it)" for name in sorted(kept - {*made})]
    return wrong


def write() -> None:
    before = {document.path: _text(document.path) for document in DOCUMENTS}
    for name, text in rendered(before).items():
        (ROOT / name).write_text(text)
    FIGURES.mkdir(exist_ok=True)
    draw(FIGURES)


def _text(path: str) -> str:
    return (ROOT / path).read_text() if (ROOT / path).exists() else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    if not parser.parse_args().check:
        write()
        return
    if wrong := check():
        raise SystemExit(
            f"not what the tables in results/ give: {', '.join(wrong)}; write them anew with "
            "python studies/render.py, or find out why the tables changed"
        )
    print("every number in README.md and results/ is what the committed tables give")


if __name__ == "__main__":
    main()
