"""Curves of a certificate as SVG that stands inside a page: no fonts, no files, no network."""

import io
import math
import re
import textwrap
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

# The report's ink and rules, so that pages look alike.
INK, SOFT, RULE, FAINT = "#1d2126", "#5a626c", "#c9ced4", "#e9ecef"
# For few curves: blue, orange, green, far apart also in common colour-vision deficiencies.
COLOURS = ("#14149b", "#da5d07", "#065935")

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_ROOM = 74  # letters of a legend that fit side by side

SIZE = (5.6, 3.2)  # inches; the page scales it
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same layout on every machine
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": INK,
    "axes.edgecolor": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "svg.fonttype": "none",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.columnspacing": 1.2,
    "legend.handlelength": 1.6,
}


def draw(curve: dict[str, Any]) -> Figure:
    """One drawing of named lines over x; dashed grey bands are what may be or should be."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    x = np.asarray(curve["x"], dtype=float)
    lines, bands = curve["lines"], curve.get("bands", {})
    for (label, values), colour, width in zip(
        lines.items(), line_colours(len(lines)), line_widths(len(lines)), strict=True
    ):
        axes.plot(x, series(values, curve), color=colour, linewidth=width, label=label)
    for label, values in bands.items():
        axes.plot(x, series(values, curve), color=SOFT, linewidth=1, linestyle="--", label=label)
    logarithmic(axes, x=bool(curve.get("log_x")), y=bool(curve.get("log_y")))
    axes.margins(x=0.01)
    axes.set_xlabel(curve["x_label"])
    axes.set_ylabel(textwrap.fill(curve["y_label"], 34))
    _legend(axes, [*lines, *bands])
    return figure


def series(values: list[float | None], curve: dict[str, Any]) -> np.ndarray:
    """Values as an array, NaN where there is none, and where a logarithm would have none."""
    array = np.array([np.nan if it is None else it for it in values], dtype=float)
    return np.where(array > 0, array, np.nan) if curve.get("log_y") else array


def line_colours(count: int) -> list[str]:
    """Distinct colours for up to three lines, for more an even scale from dark to light."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    return [to_hex(colormaps["viridis"](place)) for place in np.linspace(0, 0.9, count)]


def line_widths(count: int) -> list[float]:
    """Up to three lines get thinner, so that lines on top of one another can all be seen."""
    return [3.4, 1.9, 0.8][-count:] if 1 < count <= len(COLOURS) else [1.5] * count


def logarithmic(axes: Axes, x: bool = False, y: bool = False) -> None:
    """Makes axes logarithmic, labelled without mathematical markup."""
    for wanted, name in ((x, "x"), (y, "y")):
        if wanted:
            getattr(axes, f"set_{name}scale")("log")
            axis = axes.xaxis if name == "x" else axes.yaxis
            axis.set_major_formatter(FuncFormatter(power_of_ten))
            axis.set_minor_formatter(NullFormatter())


def power_of_ten(value: float, _place: object = None) -> str:
    """1,000 and 0.01, and powers beyond as 10⁶ and 10⁻⁷."""
    exponent = round(math.log10(value))
    if -2 <= exponent <= 3:
        return f"{value:,.{max(0, -exponent)}f}"
    return "10" + str(exponent).translate(_RAISED)


def _legend(axes: Axes, labels: list[str]) -> None:
    """Above the drawing, in as many columns as there is room for."""
    if len(labels) > 1:
        columns = min(len(labels), max(1, _ROOM // (max(map(len, labels)) + 7)))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.3)


def as_svg(curve: dict[str, Any], name: str) -> str:
    """The drawing as an SVG element whose ids begin with `name`, the same bytes every time."""
    with rc_context({**STYLE, "svg.hashsalt": name}):
        figure = draw(curve)
        FigureCanvasSVG(figure)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<(defs)>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r'(url\(#|href="#)', rf"\1{name}-", svg)
