"""Made-up seeds of a run: the tables SEEDS, SEED_BATCHES and MARGINS of `poslens theory`."""

from pathlib import Path

import numpy as np

from poslens.results import write_table

STEPS = (0, 4, 20, 90, 420)
SIZES = (8, 32, 128, 512, 2048)
LAYERS, HEADS, EXAMPLES = 3, 8, 65_536
# mu / sigma of the heads is about this, untrained: some have a seed, others none worth the name.
RATIOS = {"rope": 0.12, "mla": 0.08, "alibi": 0.008, "rope@1": 0.1}


def write_seeds(run: Path, scheme: str, rng: np.random.Generator) -> None:
    """Seeds of every step and two other initialisations; NoPE has none."""
    if scheme == "nope":
        return
    seeds: list[dict[str, object]] = []
    batches: list[dict[str, object]] = []
    margins: list[dict[str, object]] = []
    for step, number in [*((step, 0) for step in STEPS), (0, 1), (0, 2)]:
        ratio_AH = RATIOS.get(scheme, 0.05) * rng.normal(size=(LAYERS, HEADS))
        ratio_AH[0, 3] += (1 + step) ** 0.2 * RATIOS.get(scheme, 0.05)
        if scheme == "rope@1":
            ratio_AH[:, 1:] = np.nan
        sigma_AH = 0.02 * (1 + step) ** 0.3 * (3 - np.arange(LAYERS))[:, None] + 0 * ratio_AH
        where = {"step": step, "initialisation": number}
        for (layer, head), ratio in np.ndenumerate(ratio_AH):
            sigma = float(sigma_AH[layer, head])
            seeds.append(_seed({**where, "layer": layer, "head": head}, float(ratio), sigma))
            if number == 0 and np.isfinite(ratio):
                place = {"step": step, "layer": layer, "head": head}
                batches += [_batch(place, float(ratio), sigma, size, rng) for size in SIZES]
        mu_AH = -np.sort(-np.abs(ratio_AH * sigma_AH), 1)
        margins += _margins(where, mu_AH)
    for name, rows in (("seeds", seeds), ("seed_batches", batches), ("margins", margins)):
        write_table(run, name, rows)


def _seed(place: dict[str, int], ratio: float, sigma: float) -> dict[str, object]:
    return {
        **{
            **place,
            "trained": STEPS[-1],
            "examples": EXAMPLES,
            "mu": ratio * sigma,
            "sigma": sigma,
            "ratio": ratio,
        },
        **{"mu_low": (ratio - 0.008) * sigma, "mu_high": (ratio + 0.008) * sigma},
        **{"ratio_low": ratio - 0.012, "ratio_high": ratio + 0.012},
        **{"rms": 0.3 if np.isfinite(ratio) else 0.0, "scaled": ratio * sigma / 0.3, "loss": 3.0},
    }


def _batch(
    place: dict[str, int], ratio: float, sigma: float, size: int, rng: np.random.Generator
) -> dict[str, object]:
    law = sigma * max(abs(ratio), (2 / (np.pi * size)) ** 0.5)
    mean = law * (1 + 0.1 * float(rng.normal()) * (size / EXAMPLES) ** 0.5)
    return {
        **{**place, "batch": size, "batches": EXAMPLES // size, "mean_abs": mean},
        **{"low": 0.95 * mean, "high": 1.05 * mean, "predicted": law, "folded": law},
    }


def _margins(where: dict[str, int], mu_AH: np.ndarray) -> list[dict[str, object]]:
    margin_A = mu_AH[:, 0] - mu_AH[:, 1]
    rows: list[dict[str, object]] = []
    for layer, margin in enumerate(margin_A.tolist()):
        lead = margin / mu_AH[layer].sum()
        gamma = margin / margin_A[layer + 1] if layer + 1 < LAYERS else float("nan")
        none = not np.isfinite(margin)
        rows.append(
            {
                **{**where, "layer": layer, "examples": EXAMPLES, "leader": -1 if none else 3},
                **{"margin": margin, "low": 0.8 * margin, "high": 1.2 * margin},
                **{"lead": lead, "lead_low": 0.8 * lead, "lead_high": 1.2 * lead},
                **{"gamma": gamma, "gamma_low": gamma / 1.3, "gamma_high": gamma * 1.3},
                "reason": "fewer than two heads of the layer have a seed" if none else "",
            }
        )
    return rows
