"""The certificate as one page that needs nothing else: no network, no script, no other files."""

import math
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from poslens.certificate.drawing import as_svg
from poslens.certificate.finding import Certificate
from poslens.certificate.text import LABELS, worst_first
from poslens.errors import InputError

# Lists longer than this are folded.
_SHOWN = 8


def write_html(certificate: Certificate, path: Path) -> Path:
    """Write the page to `path` and return it. The same certificate gives the same bytes.

    Raises InputError where the folder is not there or cannot be written to.
    """
    path = Path(path)
    unfinished = path.with_name(path.name + ".tmp")
    try:
        unfinished.write_text(render(certificate), "utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise InputError(
            f"the page cannot be written to {path} ({error.strerror}); give a file in a folder of "
            "yours"
        ) from error
    return path


def render(certificate: Certificate) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("poslens.certificate", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The report's style sheet, as a file: the report itself is not needed for it.
    style = (files("poslens") / "report" / "report.css").read_text("utf-8")
    return environment.get_template("page.html.j2").render(
        style=style,
        certificate=certificate,
        label=LABELS[certificate.verdict],
        labels=LABELS,
        summary=summary(certificate),
        findings=worst_first(certificate),
        recovered=list(parameters(certificate.recovered)),
        drawings=[
            (curve, as_svg(curve, f"curve{i}"), alt(curve))
            for i, curve in enumerate(certificate.curves.values())
        ],
        version=_version(),
    )


def summary(certificate: Certificate) -> str:
    """One sentence: how many tests, and the worst of them."""
    count = len(certificate.findings)
    worst = [it for it in certificate.findings if it.verdict == certificate.verdict]
    if certificate.verdict == "right":
        return f"All {count} tests are right." if count > 1 else "The one test is right."
    kinds = {"wrong": "wrong", "unusual": "unusual", "undecidable": "not decidable"}
    verb = "is" if len(worst) == 1 else "are"
    first = worst[0].what
    return f"{len(worst)} of {count} tests {verb} {kinds[certificate.verdict]}: {first}" + (
        "." if len(worst) == 1 else "; and more."
    )


def parameters(recovered: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, value and, where the value is a long list, all of it; nested values one by one."""
    for name, value in recovered.items():
        words = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from parameters(value, f"{words}, ")
        elif isinstance(value, list | tuple) and len(value) > _SHOWN:
            texts = [text(it) for it in value]
            yield words, f"{len(value)} values, {texts[0]} to {texts[-1]}", ", ".join(texts)
        else:
            yield words, text(value), ""


def text(value: Any) -> str:
    """A value as people write it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < 1e15
        return (f"{value:,.0f}" if whole else f"{value:.6g}").replace("-", "\u2212")
    if isinstance(value, int):
        return f"{value:,}".replace("-", "\u2212")
    if isinstance(value, list | tuple):
        return ", ".join(text(it) for it in value) or "none"
    return str(value)


def alt(curve: Mapping[str, Any]) -> str:
    """A drawing in words, for those who do not see it."""
    lines = ", ".join([*curve["lines"], *(f"{it} (dashed)" for it in curve.get("bands", {}))])
    return f"{curve['title']}. {curve['y_label']} against {curve['x_label']}: {lines}."


def _version() -> str:
    try:
        return version("poslens")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "from source"
