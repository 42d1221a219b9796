"""The matrix of claims and corrections for print."""

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from poslens.report.corrections import LOOKS, Judged, label
from poslens.report.static import STYLE, save
from poslens.report.style import INK, RULE, SOFT

WIDTH, HEIGHT = 0.78, 0.36  # of a cell, inches
OUTLINES = {"turned": "-", "surer": (0, (2, 1.5))}


def draw_matrix(rows: list[list[Judged]]) -> Figure:
    """A cell for each claim and correction, outlined where it differs from the standard one."""
    columns = len(rows[0])
    figure = Figure(figsize=(1.5 + WIDTH * columns, 1.5 + HEIGHT * len(rows)), layout="constrained")
    axes = figure.subplots()
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            fill, ink, sign = cell.look
            box = Rectangle((j - 0.46, i - 0.44), 0.92, 0.88, facecolor=fill, edgecolor=RULE)
            box.set(linewidth=0.5, alpha=0.45 if cell.same else 1)
            axes.add_patch(box)
            text = axes.text(j, i, f"{sign}  {cell.count}".strip(), fontsize=8)
            text.set(ha="center", va="center", color=SOFT if cell.same else ink)
            if cell.change:
                edge = Rectangle((j - 0.46, i - 0.44), 0.92, 0.88, fill=False, edgecolor=INK)
                edge.set(linewidth=2, linestyle=OUTLINES[cell.change])
                axes.add_patch(edge)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks(range(columns), [cell.claim.replace(" (", "\n(") for cell in rows[0]])
    axes.set_yticks(range(len(rows)), [row[0].correction for row in rows])
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    signs = [f"{sign} {label(verdict)}" for verdict, (_, _, sign) in LOOKS.items()]
    half = (len(signs) + 1) // 2
    lines = [
        "    ".join(signs[:half]),
        "    ".join(signs[half:]),
        "Numbers: seeds that pass : fail. Outlined: differs from standard",
        "(dotted: only in how sure). Pale: the same runs as standard.",
    ]
    figure.supxlabel("\n".join(lines), fontsize=7)
    return figure


def save_matrix(rows: list[list[Judged]], folder: Path) -> Path:
    """Write it as corrections.png and .svg into `folder`; returns the PNG file."""
    folder.mkdir(exist_ok=True)
    with rc_context(STYLE):
        return save(draw_matrix(rows), folder, "corrections")
