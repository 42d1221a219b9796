"""Draws the catalogue of faults in certificate.md and writes its table.

    python docs/make_certificate_figures.py

Each fault of certificate_faults.py gets one small SVG, drawn from what its code returns, beside the
same code without the mistake (dashed), and a line with what the certificate says of it.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from certificate_faults import FAULTS, HEAD_DIM, Fault, Rotary, frequencies  # noqa: E402

from poslens.certificate.check import check  # noqa: E402
from poslens.certificate.drawing import COLOURS, SOFT, STYLE, logarithmic  # noqa: E402

FIGURES = DOCS / "figures" / "certificate"
PAGE = DOCS / "certificate.md"
BEGIN, END = "<!-- catalogue: made by make_certificate_figures.py -->", "<!-- end of catalogue -->"
SIZE = (2.6, 1.75)
WRONG = {"color": COLOURS[1], "linewidth": 1.4}
RIGHT = {"color": SOFT, "linewidth": 1.0, "linestyle": "--"}


def main() -> None:
    FIGURES.mkdir(parents=True, exist_ok=True)
    for fault in FAULTS:
        with rc_context({**STYLE, "font.size": 8, "svg.hashsalt": fault.slug}):
            figure = Figure(figsize=SIZE, layout="constrained")
            FigureCanvasSVG(figure)
            PICTURES[fault.picture](figure.subplots(), fault)
            figure.savefig(FIGURES / f"{fault.slug}.svg", metadata={"Date": None})
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{catalogue()}{END}{after}", "utf-8")


def catalogue() -> str:
    """The table of faults in Markdown."""
    lines = ["| fault | picture | what the certificate says |", "|---|---|---|"]
    for fault in FAULTS:
        image = f"![{fault.title}](figures/certificate/{fault.slug}.svg)"
        lines.append(f"| {fault.title} | {image} | {says(fault)} |")
    return "\n".join(lines) + "\n"


def says(fault: Fault) -> str:
    """The most specific of the wrong findings: against a configuration, else by its own family."""
    certificate = check(fault.wrong, **fault.options)
    wrong = [it for it in certificate.findings if it.verdict == "wrong"]
    if not wrong:
        return "nothing"
    expected = [it for it in wrong if it.test == "expected"]
    own = [it for it in wrong if it.test != "relative"]
    (said, *_) = expected or own or wrong
    note = " (with `--expect`)" if expected else ""
    return f"*{said.test}, {said.name}*{note}: {said.what}"


def logits(rotary: Rotary, length: int = 48) -> np.ndarray:
    """Logits of constant content, queries by keys."""
    generator = torch.Generator().manual_seed(3)
    query, other = torch.randn(2, HEAD_DIM, generator=generator) / HEAD_DIM**0.5
    key = 0.8 * query + 0.6 * other  # alike, so that near tokens agree, and not the same
    q, k = (it.expand(1, 1, length, -1) for it in (query, key))
    q, k = rotary(q, k, torch.arange(length))
    return (q @ k.mT)[0, 0].numpy()


def draw_logits(axes: Axes, fault: Fault) -> None:
    axes.imshow(logits(fault.wrong), cmap="viridis", interpolation="none")
    axes.set(xlabel="key position", ylabel="query position", xticks=[0, 40], yticks=[0, 40])
    axes.grid(False)


def draw_kernel(axes: Axes, fault: Fault) -> None:
    offsets = np.arange(-23, 24)
    for rotary, style in ((fault.wrong, WRONG), (fault.right, RIGHT)):
        S_LM = logits(rotary, 64)
        axes.plot(offsets, [S_LM[30, 30 - offset] for offset in offsets], **style)
    axes.set(xlabel="offset", ylabel="logit")


def draw_values(axes: Axes, fault: Fault) -> None:
    x = torch.ones(1, 1, 48, HEAD_DIM)
    for function, style in ((fault.wrong, WRONG), (fault.right, RIGHT)):
        axes.plot(function(x, x, x, torch.arange(48))[2][0, 0, :, 0], **style)
    axes.set(xlabel="position", ylabel="a channel of the values")


def phases(rotary: Rotary, positions: np.ndarray) -> np.ndarray:
    """The angle each pair of a half-split rotation is turned by, (P, F)."""
    ones = torch.zeros(1, 1, len(positions), HEAD_DIM)
    ones[..., : HEAD_DIM // 2] = 1.0
    q = rotary(ones, ones, torch.from_numpy(positions))[0][0, 0].double()
    return torch.atan2(q[:, HEAD_DIM // 2 :], q[:, : HEAD_DIM // 2]).numpy()


def draw_error(axes: Axes, fault: Fault) -> None:
    positions = np.unique(np.geomspace(1, 131_071, 200).astype(int))
    ideal_PF = positions[:, None] * frequencies().double().numpy()
    for rotary, style in ((fault.wrong, WRONG), (fault.right, RIGHT)):
        off_PF = np.angle(np.exp(1j * (phases(rotary, positions) - ideal_PF)))
        axes.plot(positions, np.abs(off_PF).max(1).clip(1e-8), **style)
    logarithmic(axes, x=True, y=True)
    axes.set(xlabel="position", ylabel="error of a phase (rad)")


def draw_frequencies(axes: Axes, fault: Fault) -> None:
    """Radians a position, from the first position on, against unscaled frequencies."""
    for rotary, style in ((fault.wrong, WRONG), (fault.right, RIGHT)):
        found = check(rotary, kind="rotary", head_dim=HEAD_DIM).recovered
        axes.plot(found["frequencies"], **style)
    logarithmic(axes, y=True)
    axes.set(xlabel="pair", ylabel="rad per position")


def draw_bias(axes: Axes, fault: Fault) -> None:
    for bias, style in ((fault.wrong, WRONG), (fault.right, RIGHT)):
        middle = bias(64, 64)[:, 31]
        axes.plot(np.arange(-32, 32), middle.flip(-1).T, **style)
    axes.set(xlabel="offset", ylabel="bias (logits)")


def draw_length(axes: Axes, fault: Fault) -> None:
    for length in (32, 64, 128):
        axes.plot(fault.wrong(length, length)[0, -1].flip(0), **WRONG)
    axes.plot(fault.right(128, 128)[0, -1].flip(0), **RIGHT)
    axes.set(xlabel="distance", ylabel="bias (logits)", ylim=(-4, 0.2))


def draw_phase(axes: Axes, fault: Fault) -> None:
    """The largest error of a phase by row of a sinusoidal table."""
    right, wrong = (
        torch.atan2(table[:, 0::2].double(), table[:, 1::2].double())
        for table in (fault.right, fault.wrong)
    )
    off_PF = torch.remainder(wrong - right + torch.pi, 2 * torch.pi) - torch.pi
    rows = np.arange(0, len(off_PF), 7)
    axes.plot(rows, off_PF.abs().amax(1)[rows], **WRONG)
    axes.axhline(0, **RIGHT)
    axes.set(xlabel="row", ylabel="error of a phase (rad)")


PICTURES: dict[str, Callable[[Axes, Fault], None]] = {
    "logits": draw_logits,
    "kernel": draw_kernel,
    "values": draw_values,
    "error": draw_error,
    "frequencies": draw_frequencies,
    "bias": draw_bias,
    "length": draw_length,
    "phase": draw_phase,
}


def masked(text: str) -> str:
    """A text without its numbers, whose last digits differ between machines."""
    return re.sub(r"[\d.,]+(e[-+]?\d+)?", "#", text)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
