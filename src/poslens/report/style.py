"""What all figures share: names, order and colours of schemes, words for tasks, numbers as text.

A scheme keeps its colour and line style in every figure. Families share a hue (tables blue, biases
orange, rotations green, the rest purple); lightness tells members apart, so that no two colours
come close in normal vision or under simulated protanopia, deuteranopia and tritanopia.
"""

import math
import re
from collections.abc import Iterable
from itertools import pairwise

import polars as pl

from poslens.claims.words import title

# In the order of tables and of legends: no position, tables, biases, rotations, mixtures.
COLOURS = {
    "nope": "#8b8184",
    "sinusoidal": "#14149b",
    "learned": "#0b99e4",
    "t5": "#eca31d",
    "alibi": "#da5d07",
    "rope": "#065935",
    "rope@1": "#87c4a2",
    "sinusoidal+rope": "#973e9d",
    "mla": "#321138",
}
# For schemes beyond the study, in the order in which they come.
SPARE_COLOURS = ("#b5495b", "#5f7d2b", "#2f7f86", "#7a5230", "#c77daf", "#4a5a8c")
DASHED = ("learned", "alibi", "rope@1", "mla")

TASKS = {"distance": "Distance", "count": "Count"}
LABELS = {
    "distance": "Distance between the two triggers",
    "count": "Number of triggers",
}

INK = "#1d2126"
SOFT = "#5a626c"  # secondary text: 6.2 to 1 on white
RULE = "#c9ced4"
FAINT = "#e9ecef"

# Pale grey is no effect; harm runs to dark red, improvement (rare, small) to blue.
EFFECT_HARM = ("#f4f3f1", "#fbe0cf", "#f7b799", "#e2765c", "#b8303b", "#6d0a2b")
EFFECT_HELP = ("#f4f3f1", "#d5e6f3", "#7fb2d8", "#2f6fae")
ACCURACY = ("#f3f5f7", "#cfdcec", "#96b5d8", "#5584b8", "#26528c", "#0c2450")
# Layers, from the input up: lighter to darker.
LAYERS = ("#db8420", "#c0384a", "#6a2a86", "#12125f")

Scale = list[tuple[float, str]]


def short_title(scheme: str) -> str:
    """The scheme's name where room is scarce: "RoPE, 1 head", "Sin. + RoPE"."""
    return re.sub(r" on (\d+)", r", \1", title(scheme).replace("Sinusoidal +", "Sin. +"))


def rank(scheme: str) -> tuple[float, str]:
    """Sort key: the study's order; `rope@1`, `rope@2` stand after `rope`, strangers at the end."""
    order = [name for name in COLOURS if "@" not in name]
    base, _, heads = scheme.partition("@")
    place = order.index(base) if base in order else len(order)
    return (place + 0.5 + int(heads) / 1000 if heads.isdigit() else place), scheme


def ordered(frame: pl.DataFrame, *then: str) -> pl.DataFrame:
    """Rows in the study's order of schemes, then by the columns `then`."""
    schemes = sorted(frame["scheme"].unique(), key=rank)
    return frame.sort(pl.col("scheme").cast(pl.Enum(schemes)), *then, maintain_order=True)


def colours(schemes: Iterable[str]) -> dict[str, str]:
    """A colour for each scheme: its own where it has one, else the next spare one."""
    found = sorted(set(schemes), key=rank)
    strangers = [scheme for scheme in found if scheme not in COLOURS]
    spare = {scheme: SPARE_COLOURS[i % len(SPARE_COLOURS)] for i, scheme in enumerate(strangers)}
    return {scheme: COLOURS.get(scheme) or spare[scheme] for scheme in found}


def task_title(task: str) -> str:
    return TASKS.get(task, task)


def task_rank(task: str) -> tuple[int, str]:
    """Sort key: distance, count, then others by name."""
    return (list(TASKS).index(task) if task in TASKS else len(TASKS)), task


def tasks_of(frame: pl.DataFrame) -> list[str]:
    """The tasks of a table, distance first."""
    return sorted(frame["task"].unique(), key=task_rank)


def percent(value: float, digits: int = 1) -> str:
    """0.9264 as "92.6 %"."""
    return number(100 * value, digits) + "\u202f%"


def points(value: float, digits: int = 1) -> str:
    """0.0264 as "2.6 points"."""
    text = number(100 * value, digits)
    return f"{text} point{'' if text == number(1, digits) else 's'}"


def number(value: float | None, digits: int = 2) -> str:
    """A number with a true minus sign, "0" never negative, and a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:,.{digits}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("-")
    return text.replace("-", "\u2212")


def duration(seconds: float) -> str:
    """Seconds as "1.2 s", "48 s", "14 min 5 s" or "3 h 20 min"."""
    whole = round(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def text_colour(colour: str) -> str:
    """The colour darkened until it reads as text on white (contrast 4.5 to 1)."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    while 1.05 / (luminance(red, green, blue) + 0.05) < 4.5:
        red, green, blue = red * 0.95, green * 0.95, blue * 0.95
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in (red, green, blue))


def on_fill(colour: str) -> str:
    """White or ink, whichever reads better on a fill of that colour."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return INK if luminance(red, green, blue) > 0.21 else "#ffffff"


def luminance(red: float, green: float, blue: float) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.1)."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def evenly(stops: tuple[str, ...]) -> Scale:
    """Colours at equal steps from 0 to 1."""
    return [(i / (len(stops) - 1), colour) for i, colour in enumerate(stops)]


def gradient(scale: Scale) -> str:
    """A colour scale as a CSS gradient, so that legends cannot differ from figures."""
    return ", ".join(f"{colour} {100 * where:.2f}%" for where, colour in scale)


def at(scale: Scale, where: float) -> str:
    """The colour of a scale at `where`, 0 to 1, mixed linearly between its stops."""
    where = min(max(where, 0.0), 1.0)
    for (start, low), (end, high) in pairwise(scale):
        if where <= end:
            share = (where - start) / (end - start)
            channels = (
                round((1 - share) * int(low[i : i + 2], 16) + share * int(high[i : i + 2], 16))
                for i in (1, 3, 5)
            )
            return "#" + "".join(f"{channel:02x}" for channel in channels)
    return scale[-1][1]


def around_zero(low: float, high: float) -> Scale:
    """A scale for values from `low` <= 0 to `high` > 0: grey at 0, equal steps on both sides."""
    zero = -low / (high - low)
    harm = [(zero + (1 - zero) * where, colour) for where, colour in evenly(EFFECT_HARM)]
    if zero == 0:
        return harm
    depth = min(1.0, -low / high)
    reach = [where for where, _ in evenly(EFFECT_HELP) if where < depth] + [depth]
    helped = [
        (zero * (1 - where / depth), at(evenly(EFFECT_HELP), where)) for where in reversed(reach)
    ]
    return helped + harm[1:]
