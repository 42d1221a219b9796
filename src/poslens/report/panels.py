"""What interactive panels share: one Plotly figure per panel, laid out by the page's own grid."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from scipy.optimize import isotonic_regression

from poslens.report.style import FAINT, INK, RULE, SOFT

FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
AXIS = {
    "showline": True,
    "linecolor": RULE,
    "gridcolor": FAINT,
    "zeroline": False,
    "ticks": "outside",
    "ticklen": 4,
    "tickcolor": RULE,
    "tickfont": {"color": SOFT, "size": 12},
    "fixedrange": True,
}


@dataclass(frozen=True)
class Panel:
    """One drawing of the page: `id` is unique in it, `alt` says in words what it shows."""

    id: str
    title: str
    alt: str
    figure: go.Figure

    @property
    def height(self) -> int:
        """In CSS pixels."""
        return int(self.figure.layout.height)

    @property
    def json(self) -> str:
        """The figure as JSON that can stand inside a script element."""
        return str(self.figure.to_json()).replace("<", "\\u003c").replace(">", "\\u003e")


def axis(text: str, **settings: object) -> dict[str, object]:
    """An axis in the house style with its title, which names the unit."""
    name = {"text": text, "font": {"size": 12, "color": INK}, "standoff": 8}
    return {**AXIS, "title": name, **settings}


def empty_figure(height: int, margin: tuple[int, int, int, int], **layout: object) -> go.Figure:
    """A figure in the house style; `margin` is left, right, top, bottom in pixels."""
    left, right, top, bottom = margin
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": left, "r": right, "t": top, "b": bottom, "pad": 0},
        font={"family": FONT, "size": 12, "color": INK},
        paper_bgcolor="#ffffff",
        plot_bgcolor="#ffffff",
        showlegend=False,
        dragmode=False,
        hoverlabel={"bgcolor": "#ffffff", "bordercolor": RULE, "font": {"size": 12, "color": INK}},
        **layout,
    )
    return figure


def spread(values: list[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels near `values`: at least `gap` apart, within `low`..`high`, moved least.

    Least squares under a minimum distance is isotonic regression of the values less their rank
    times the gap. Labels that cannot all fit are packed upwards from `low`.
    """
    order = np.argsort(values, kind="stable")
    steps = gap * np.arange(len(values))
    shifted = isotonic_regression(np.asarray(values)[order] - steps).x
    places = np.clip(shifted, low, max(low, high - gap * (len(values) - 1))) + steps
    result = np.empty(len(values))
    result[order] = places
    return [float(place) for place in result]
