"""What the templates may say of the theory: its tables, and numbers taken from them."""

from pathlib import Path
from typing import Any

import polars as pl

from poslens.claims import ledger
from poslens.claims.foresight import foresight_over_seeds
from poslens.claims.interventions import outcomes, read_interventions
from poslens.report import markdown_theory
from poslens.results import read

RESULTS = Path(__file__).parents[1] / "results"
INTERVENTIONS = RESULTS / "theory" / "interventions"

theory = {
    path.name: read(path)
    for path in sorted((RESULTS / "theory").glob("*"))
    if path.name != "interventions"
}
interventions = outcomes(read_interventions(INTERVENTIONS)) if INTERVENTIONS.exists() else None
# Of which folder's runs a claim of the theory is judged.
theory_verdicts = [
    it
    for name, claims in {"distance": ("P6.1", "P6.2", "T6.1"), "depth": ("C8",)}.items()
    if name in theory
    for it in ledger(theory[name])
    if it.claim in claims
]


def seed_ratios(scheme: str) -> pl.Series:
    """Largest |mu|/sigma of an untrained model's heads, a value for each seed."""
    own = theory["distance"].seeds.filter(
        pl.col("ratio").is_not_nan(), scheme=scheme, task="distance", step=0, initialisation=0
    )
    return own.group_by("seed").agg(pl.col("ratio").abs().max()).sort("seed")["ratio"]


def foresees(scheme: str, step: int = 0) -> dict[str, Any]:
    """How well first-layer seeds of a step rank heads as their final position effects do."""
    found = foresight_over_seeds(theory["distance"], measures=("|mu|",), metrics=("accuracy",))
    return found.filter(scheme=scheme, task="distance", layer=0, step=step).row(0, named=True)


def theory_missing() -> list[str]:
    """What `studies/theory.sh` makes and the results lack, in words."""
    parts = {
        "distance": "seeds on distance",
        "count": "seeds on count",
        "depth": "probes",
        "depth_causal": "probes of causal models",
    }
    missing = [words for name, words in parts.items() if name not in theory]
    return missing + ([] if interventions is not None else ["interventions"])


def last_lead(scheme: str) -> pl.Series:
    """The first layer's lead, strongest seed over the second, at the end; a value for each seed."""
    own = theory["distance"].margins.filter(scheme=scheme, task="distance", layer=0)
    return own.sort("step").group_by("seed").agg(pl.col("lead").last()).sort("seed")["lead"]


def falls(target: str) -> dict[str, int]:
    """Heads of all schemes that cost accuracy, and of how many only that falls, or the mass too."""
    costly = (pl.col("accuracy_half").is_not_nan()) & (pl.col("verdict") != "no mass")
    verdicts = theory["distance"].falls.filter(costly, target=target)["verdict"]
    only = int((verdicts == "only accuracy").sum())
    return {
        "heads": len(verdicts),
        "only_accuracy": only,
        "mass_falls": len(verdicts) - only,
    }


def intervened(name: str) -> pl.DataFrame:
    """What became of the heads under one intervention, a row for each seed."""
    assert interventions is not None
    return interventions.filter(intervention=name).sort("seed")


def readable(scheme: str, folder: str = "depth", state: int = -1) -> pl.Series:
    """R2 of the position in one state, the last one if -1; a value for each seed."""
    probed = {"scheme": scheme, "probe": "ridge", "target": "true", "score": "r2"}
    rows = theory[folder].probes.filter(**probed)
    at = rows["state"].max() if state == -1 else state
    return rows.filter(state=at).sort("seed")["value"]


def most_readable(scheme: str, folder: str = "depth") -> float:
    """Largest R2 of the position in any state of any seed."""
    probed = {"scheme": scheme, "probe": "ridge", "target": "true", "score": "r2"}
    return float(theory[folder].probes.filter(**probed)["value"].to_numpy().max())


def turned(scheme: str, state: int, folder: str = "depth") -> pl.Series:
    """Mean cos2 of a state's position subspace with the input's, a value for each seed."""
    return theory[folder].subspaces.filter(scheme=scheme, state=state).sort("seed")["mean_cos2"]


_TABLES = ("seed", "margin", "foresight", "intervention", "probe", "angle", "fall")
THEORY_FACTS: dict[str, Any] = {
    "theory": theory,
    "interventions": interventions,
    "theory_verdicts": theory_verdicts,
    **{f"{name}_table": getattr(markdown_theory, f"{name}_table") for name in _TABLES},
    **{
        function.__name__: function
        for function in (
            *(theory_missing, seed_ratios, foresees, last_lead, falls),
            *(intervened, readable, most_readable, turned),
        )
    },
}
