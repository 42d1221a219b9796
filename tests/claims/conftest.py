"""Hand-made result tables: a study written down cell by cell."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest

from poslens.claims import CLAIMS
from poslens.results import KEY, RUN_TABLES, Tables

BASELINE = {"distance": 0.2, "count": 0.03}


@dataclass
class Study:
    """A grid of finished runs; `run` adds one, `tables` stacks them."""

    summary: list[dict[str, Any]] = field(default_factory=list)
    curve: list[dict[str, Any]] = field(default_factory=list)
    concentration: list[dict[str, Any]] = field(default_factory=list)
    subspaces: list[dict[str, Any]] = field(default_factory=list)
    seeds: list[dict[str, Any]] = field(default_factory=list)
    margins: list[dict[str, Any]] = field(default_factory=list)

    def run(
        self,
        scheme: str,
        task: str = "distance",
        seed: int = 0,
        accuracy: float = 0.9,
        *,
        verdict: str | None = "spread",
        largest: float = 0.3,
        above: str = "spread",
        solved: bool = False,
        evaluated: int = 4096,
        curve: list[float] | None = None,
        cos2: tuple[float, ...] = (),
        above_noise: int = 9,
        dimensions: int = 8,
    ) -> "Study":
        """`verdict` is that of the first layer (None: not ablated), `above` of the second.

        `cos2` are those of the position subspaces after 1, 2, .. layers of width 32; empty where
        the run was not probed.
        """
        key = {"scheme": scheme, "task": task, "seed": seed}
        self.summary.append(
            {
                **key,
                "accuracy": accuracy,
                "evaluated": evaluated,
                "baseline": BASELINE[task],
                "ceiling": 1.0,
                "budget": 96_000,
                "solved": solved,
            }
        )
        for step, value in enumerate([accuracy] * 20 if curve is None else curve):
            self.curve.append({**key, "sequences": 1000 * (step + 1), "accuracy": value})
        if verdict is not None:
            for layer, found in ((0, verdict), (1, above)):
                for metric in ("accuracy", "loss"):
                    self.concentration.append(
                        {
                            **key,
                            "layer": layer,
                            "target": "head",
                            "method": "zero",
                            "metric": metric,
                            "top_head": 3,
                            "largest": largest if metric == "accuracy" else 4.0,
                            "second": 0.02,
                            "verdict": found,
                        }
                    )
        for state, value in enumerate((1.0, *cos2) if cos2 else ()):
            sizes = {"above_noise": above_noise, "dimensions": dimensions}
            angle = {"mean_cos2": value, "null": dimensions / 32}
            self.subspaces.append({**key, "state": state, **sizes, **angle})
        return self

    def seed(self, scheme: str, seed: int, ratios: list[float], **others: Any) -> "Study":
        """A head's seed for each mu / sigma, each known to 0.01, at step 0 unless told."""
        for head, ratio in enumerate(ratios):
            row = {"step": 0, "initialisation": 0, "layer": 0, "head": head, "examples": 65_536}
            bounds = {"ratio": ratio, "ratio_low": ratio - 0.01, "ratio_high": ratio + 0.01}
            key = {"scheme": scheme, "task": "distance", "seed": seed}
            self.seeds.append({**key, **row, **bounds, **others})
        return self

    def gammas(self, seed: int, gammas: list[float], **others: Any) -> "Study":
        """RoPE's gammas, known within a fifth, at step 0 unless told; the last layer has none."""
        for layer, gamma in enumerate([*gammas, float("nan")]):
            row = {"step": 0, "initialisation": 0, "layer": layer, "examples": 65_536, "reason": ""}
            bounds = {"gamma": gamma, "gamma_low": gamma / 1.2, "gamma_high": gamma * 1.2}
            key = {"scheme": "rope", "task": "distance", "seed": seed}
            self.margins.append({**key, **row, **bounds, **others})
        return self

    def tables(self) -> Tables:
        rows = {
            "summary": self.summary,
            "curve": self.curve,
            "concentration": self.concentration,
            "subspaces": self.subspaces,
            "seeds": self.seeds,
            "margins": self.margins,
        }
        return Tables(
            **{
                name: pl.DataFrame(rows.get(name, []), schema={**KEY, **schema})
                for name, schema in RUN_TABLES.items()
            }
        )

    def verdict(self, claim: str) -> Any:
        (found,) = [it for it in CLAIMS if it.id == claim]
        return found.verdict(self.tables())


@pytest.fixture
def study() -> Callable[[], Study]:
    return Study
