"""mu / sigma of every head's seed, untrained, with its interval and the claims' threshold."""

import polars as pl

from poslens.claims.seeds import SEED_SIZE
from poslens.report.kept import layer_colours
from poslens.report.panels import Panel, axis, empty_figure
from poslens.report.style import SOFT, number, ordered, short_title
from poslens.results import Tables

SEEDS_APART = 0.6  # of the room of a head that its training seeds spread over


def ratio_frame(tables: Tables, task: str) -> pl.DataFrame:
    """Rows of the table SEEDS, untrained, own initialisation, of heads that have seeds."""
    rows = tables.seeds.filter(pl.col("ratio").is_not_nan(), task=task, step=0, initialisation=0)
    return ordered(rows, "layer", "head", "seed")


def reach(frame: pl.DataFrame) -> float:
    """How far the axis of all schemes of a task goes to either side of 0."""
    ends = frame.select(pl.col("ratio_high").max(), -pl.col("ratio_low").min()).row(0)
    return 1.08 * max(*ends, 1.6 * SEED_SIZE)


def ratio_panel(frame: pl.DataFrame, scheme: str, task: str) -> Panel:
    """A dot a head and training seed, layer by layer; dashed the threshold on either side of 0."""
    rows = frame.filter(scheme=scheme)
    layers, heads = max(rows["layer"].to_list()) + 1, max(rows["head"].to_list()) + 1
    runs = rows["seed"].unique().sort().to_list()
    palette, figure = layer_colours(layers), empty_figure(232, (58, 10, 8, 44))
    for side in (-1, 1):
        figure.add_hline(side * SEED_SIZE, line={"color": SOFT, "width": 1, "dash": "4px,3px"})
    figure.add_hline(0, line={"color": SOFT, "width": 1})
    step = SEEDS_APART / len(runs)
    for (layer,), own in rows.group_by("layer", maintain_order=True):
        number_of = int(str(layer))
        places = [
            number_of * (heads + 1) + row["head"] + step * (runs.index(row["seed"]) + 0.5)
            for row in own.iter_rows(named=True)
        ]
        figure.add_scatter(
            x=places,
            y=own["ratio"].to_list(),
            mode="markers",
            marker={"color": palette[number_of], "size": 5 if len(runs) == 1 else 4},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": (own["ratio_high"] - own["ratio"]).to_list(),
                "arrayminus": (own["ratio"] - own["ratio_low"]).to_list(),
                "thickness": 1,
                "width": 0,
            },
            customdata=[_hover(row, len(runs) > 1) for row in own.iter_rows(named=True)],
            hovertemplate="%{customdata}<extra></extra>",
        )
    middle = heads / 2 - 0.2
    figure.update_xaxes(
        axis(
            "Heads by layer (index)",
            range=(-0.6, layers * (heads + 1) - 0.6),
            tickvals=[layer * (heads + 1) + middle for layer in range(layers)],
            ticktext=[f"layer {layer}" for layer in range(layers)],
        )
    )
    most = reach(frame)
    figure.update_yaxes(axis("Mean seed (in σ)", range=(-most, most), nticks=9))
    top = rows.sort(pl.col("ratio").abs()).row(-1, named=True)
    name = short_title(scheme)
    alt = (
        f"{name}: mean seed over its deviation for each head; furthest from 0 is layer "
        f"{top['layer']}, head {top['head']} with {number(top['ratio'], 3)}."
    )
    return Panel(f"ratios-{task}-{scheme}", name, alt, figure)


def _hover(row: dict[str, float], several: bool) -> str:
    seed = f", seed {row['seed']}" if several else ""
    return (
        f"<b>layer {row['layer']}, head {row['head']}</b>{seed}<br>μ/σ {number(row['ratio'], 3)} "
        f"({number(row['ratio_low'], 3)} to {number(row['ratio_high'], 3)})<br>"
        f"μ {row['mu']:.2g}, σ {row['sigma']:.2g} nats a unit of gain<br>"
        f"position in the logits {row['rms']:.2g} nats"
    )
