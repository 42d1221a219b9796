"""Made-up result folders that look like real ones: nine schemes, two tasks, any seeds."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from poslens.results import write_table

SCHEMES = (
    *("nope", "sinusoidal", "learned", "t5", "alibi", "rope", "rope@1"),
    *("sinusoidal+rope", "mla"),
)
ACCURACY = {
    "distance": dict(
        zip(SCHEMES, (0.207, 0.981, 0.968, 0.943, 0.962, 0.992, 0.995, 0.987, 0.912), strict=True)
    ),
    "count": dict(
        zip(SCHEMES, (0.84, 0.71, 0.752, 0.873, 0.81, 0.861, 0.868, 0.765, 0.947), strict=True)
    ),
}
# Accuracy lost by zeroing each first-layer head: a deposit for RoPE on one head, spread for others.
FIRST_LAYER = {
    "rope": (0.31, 0.53, 0.08, 0.87, 0.2, 0.19, 0.37, 0.02),
    "rope@1": (0.86, 0.01, 0.004, 0.0, 0.012, 0.003, 0.0, -0.004),
}
TASKS = {
    # task: labels, chance, baseline, unit of labels, first label
    "distance": (20, 1 / 20, 0.2083, "words", 2),
    "count": (31, 1 / 31, 1 / 31, "triggers", 0),
}
LAYERS, HEADS, EVALUATED, BUDGET = 3, 8, 4096, 64_000


def make_run(folder: Path, scheme: str, task: str, seed: int, ablated: bool = True) -> Path:
    """One finished run with every table; without the ablation's where not `ablated`."""
    rng = np.random.default_rng([sum(map(ord, scheme)), len(task), seed])
    run = folder / f"{scheme.replace('/', '')}-{task}-seed{seed}"
    run.mkdir(parents=True)
    labels, chance, baseline, unit, first_label = TASKS[task]
    target = ACCURACY[task].get(scheme, 0.5) + float(rng.normal(0, 0.006 if seed else 0))
    accuracy = round(min(target, 0.999) * EVALUATED) / EVALUATED
    config = {"scheme": scheme, "task": task, "seed": seed, "model": {"causal": False}}
    (run / "config.json").write_text(json.dumps({**config, "task_settings": {}}))
    versions = {"poslens": "0.1.0", "torch": "2.13.0+cpu", "python": "3.11.7", "commit": "4f2a91c"}
    machine = {"processor": "AMD EPYC 7B13", "threads": 1}
    usage = {"seconds": 40.0 + 11 * seed, "peak_memory_bytes": 812_000_000}
    (run / "environment.json").write_text(json.dumps({**versions, **machine, **usage}))

    solved = accuracy > 0.99
    end = BUDGET * 3 // 4 if solved else BUDGET
    steps = np.arange(1, 51) * BUDGET // 50
    steps = steps[steps <= end]
    middle = (0.25 + 0.4 * rng.random()) * BUDGET
    rise = 1 / (1 + np.exp(-(steps - middle) / 4000.0))
    path = np.clip(baseline + (accuracy - baseline) * rise + rng.normal(0, 0.006, len(steps)), 0, 1)
    write_table(
        run,
        "curve",
        [
            {"sequences": int(n), "accuracy": a, "loss": 3 * (1 - a), "training_loss": 3 * (1 - a)}
            for n, a in zip(steps, path.tolist(), strict=True)
        ],
    )
    counts = rng.multinomial(EVALUATED, [1 / labels] * labels)
    right = rng.binomial(counts, np.clip(accuracy + 0.1 * np.cos(np.arange(labels)), 0, 1))
    write_table(
        run,
        "labels",
        [
            {"label": label, "count": int(n), "correct": int(k)}
            for label, (n, k) in enumerate(zip(counts, right, strict=True))
        ],
    )
    if ablated:
        make_ablation(run, scheme, task, accuracy, baseline, rng)
    write_table(
        run,
        "summary",
        [
            {
                **{"accuracy": accuracy, "loss": 3 * (1 - accuracy), "sequences": end},
                **{"budget": BUDGET, "solved": solved, "evaluated": EVALUATED, "chance": chance},
                **{"baseline": baseline, "ceiling": 1.0, "ceiling_error": 0.0, "layers": LAYERS},
                **{"heads": HEADS, "width": 64, "parameters": 137_620, "learning_rate": 0.003},
                **{"label_unit": unit, "first_label": first_label},
            }
        ],
    )
    return run


def make_ablation(
    run: Path, scheme: str, task: str, accuracy: float, baseline: float, rng: np.random.Generator
) -> None:
    effects, layers = [], []
    for layer in range(LAYERS):
        size = 0.02 if scheme == "nope" and task == "distance" else 0.35 / (layer + 1)
        falls = size * rng.random(HEADS) ** 3 - 0.004
        if layer == 0 and task == "distance" and scheme in FIRST_LAYER:
            falls = np.array(FIRST_LAYER[scheme])
        everything = max((accuracy - baseline) * (1 - layer / 10), float(falls.max()) + 0.02)
        for metric, scale, intact in (("accuracy", 1, accuracy), ("loss", 3, 3 * (1 - accuracy))):
            for head, fall in [*enumerate(falls.tolist()), (-1, everything)]:
                effects.append(
                    {
                        **{"layer": layer, "head": head, "target": "head", "method": "zero"},
                        **{"metric": metric, "intact": intact, "effect": scale * fall},
                        **{"low": scale * (fall - 0.006), "high": scale * (fall + 0.006)},
                        **{"p": 0.9 if abs(fall) < 0.006 else 1e-9, "sequences": EVALUATED},
                        "holm_low": scale * (fall - 0.009),
                        "holm_high": scale * (fall + 0.009),
                    }
                )
            layers.append(concentrate(falls, layer, metric, scale, everything))
    write_table(run, "effects", effects)
    write_table(run, "concentration", layers)


def concentrate(
    falls: np.ndarray, layer: int, metric: str, scale: float, lost: float
) -> dict[str, object]:
    counted = np.where(falls > 0.009, falls, 0)
    total = counted.sum()
    share = counted / total if total else np.full(HEADS, np.nan)
    top, effective = float(share.max()), float(1 / (share**2).sum())
    first, second = sorted(falls.tolist(), reverse=True)[:2]
    deposit = first > 0.3 * lost and second < first / 3 and effective < 2
    verdict = "undecidable" if lost < 0.3 else "deposit" if deposit else "spread"
    return {
        **{"layer": layer, "target": "head", "method": "zero", "metric": metric, "heads": HEADS},
        **{"counted": int((counted > 0).sum()), "top_head": int(falls.argmax())},
        **{"top_share": top, "top_share_low": top - 0.02, "top_share_high": top + 0.02},
        **{"effective_heads": effective, "effective_heads_low": effective - 0.1},
        **{"effective_heads_high": effective + 0.1, "deposit_index": (8 * top - 1) / 7},
        **{"null_p": 0.001, "lost": scale * lost, "largest": scale * first},
        **{"largest_low": scale * (first - 0.006), "second": scale * second},
        **{"second_high": scale * (second + 0.006), "verdict": verdict},
    }


def make_experiment(
    folder: Path,
    schemes: Iterable[str] = SCHEMES,
    tasks: Iterable[str] = ("distance", "count"),
    seeds: Iterable[int] = (0,),
) -> Path:
    """A whole experiment: every scheme on every task from every seed."""
    folder.mkdir(parents=True, exist_ok=True)
    schemes, tasks, seeds = list(schemes), list(tasks), list(seeds)
    asked = {"profile": "quick", "schemes": schemes, "tasks": tasks, "seeds": seeds}
    (folder / "experiment.json").write_text(json.dumps(asked))
    for scheme in schemes:
        for task in tasks:
            for seed in seeds:
                make_run(folder, scheme, task, seed)
    return folder


@pytest.fixture(scope="session")
def make() -> Callable[..., Path]:
    """`make_experiment`, for tests that change what they get."""
    return make_experiment


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine schemes, two tasks, one seed. Shared: tests must not change it but by `build`."""
    return make_experiment(tmp_path_factory.mktemp("quick"))


@pytest.fixture(scope="session")
def standard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same from three seeds. Shared: tests must not change it but by `build`."""
    return make_experiment(tmp_path_factory.mktemp("standard"), seeds=(0, 1, 2))
