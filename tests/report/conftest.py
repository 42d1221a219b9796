"""Made-up result folders that look like real ones: nine schemes, two tasks, any seeds."""

import json
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.report.planted_seeds import write_seeds

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
# Share of a head's effect that is position's: all of it, none of it (content), more than it.
POSITION = {"rope": (0.0, 1.0, 3.0, 1.0, 0.5, 1.0, 0.0, 0.5)}
# Share of what is above the baseline that each doubling of the length keeps; a learned table ends.
KEPT = {"nope": 1.0, "t5": 0.8, "alibi": 0.95, "rope": 0.5, "rope@1": 0.6, "mla": 0.45}
LONGEST = 34
LAYERS, HEADS, EVALUATED, BUDGET = 3, 8, 4096, 64_000
METRICS = {"accuracy": 1, "loss": 3, "margin": 5}


def make_run(folder: Path, scheme: str, task: str, seed: int, early: bool = False) -> Path:
    """One finished run with every table; with zeroed heads alone where it is an `early` one."""
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
    make_ablation(run, scheme, task, accuracy, baseline, rng, early)
    if not early:
        write_table(run, "lengths", length_rows(scheme, accuracy, baseline, rng))
        write_table(run, "probes", probe_rows(scheme, seed))
        write_table(run, "subspaces", subspace_rows(scheme, seed))
        mechanism, falls = mechanism_rows(scheme, rng)
        write_table(run, "mechanism", mechanism)
        write_table(run, "falls", falls)
        write_seeds(run, scheme, rng)
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


def length_rows(
    scheme: str, accuracy: float, baseline: float, rng: np.random.Generator
) -> list[dict[str, object]]:
    """Accuracy on sequences up to four times as long."""
    reason = f"position {LONGEST} is not in the learned table, which has {LONGEST} rows"
    rows = []
    for factor in (1, 2, 3, 4):
        lost = scheme == "learned" and factor > 1
        kept = (KEPT.get(scheme, 0.3) + float(rng.normal(0, 0.03))) ** (factor - 1)
        value = float("nan") if lost else min(0.999, baseline + (accuracy - baseline) * kept)
        rows.append(
            {
                **{"factor": factor, "longest": factor * LONGEST, "accuracy": value},
                **{"loss": 3 * (1 - value), "sequences": EVALUATED},
                "reason": reason if lost else "",
            }
        )
    return rows


def mechanism_rows(
    scheme: str, rng: np.random.Generator
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Heads lowered by degrees: head 0 of layer 0 costs most, and its mass falls as it goes."""
    mechanism, falls = [], []
    targets = ("head",) if scheme == "nope" else ("head", "position")
    for target in targets:
        for layer in range(LAYERS):
            for head in range(HEADS):
                place = {"layer": layer, "head": head, "target": target}
                cost = 0.6 if layer == head == 0 else 0.02 * float(rng.random())
                own, above = float(rng.random()), float("nan") if layer == LAYERS - 1 else 0.3
                for gain in (1.0, 0.75, 0.5, 0.25, 0.0):
                    kept = own * (gain if target == "position" else 1)
                    mechanism.append(
                        {
                            **{**place, "gain": gain, "accuracy": 0.9 - cost * (1 - gain)},
                            **{"own_mass": kept, "above_mass": above, "sequences": 512},
                        }
                    )
                falls.append(
                    {
                        **{**place, "mass": "own" if target == "position" else "above"},
                        **{"accuracy_half": 0.5, "mass_half": 0.5, "difference": 0.0},
                        **{"low": -0.1, "high": 0.1, "verdict": "not told apart"},
                    }
                )
    return mechanism, falls


# R^2 of the position in each state: tables from the input on, RoPE after the second layer.
READ = {
    **{"sinusoidal": (0.9, 0.86, 0.82, 0.8), "learned": (0.7, 0.66, 0.6, 0.58)},
    **{"sinusoidal+rope": (0.9, 0.6, 0.4, 0.3), "rope": (0.0, 0.0, 0.2, 0.3)},
}
# Mean cos^2 with the input's position subspace, of schemes with a table: displaced with RoPE.
COS2 = {
    **{"sinusoidal": (1.0, 0.9, 0.8, 0.7), "learned": (1.0, 0.8, 0.75, 0.72)},
    "sinusoidal+rope": (1.0, 0.8, 0.45, 0.3),
}


def probe_rows(scheme: str, seed: int) -> list[dict[str, object]]:
    """Probes of every state beside their shuffled control."""
    size = {"positions": LONGEST, "fitted": 512, "sequences": 512}
    rows = []
    for state, read in enumerate(READ.get(scheme, (0.0,) * (LAYERS + 1))):
        for target, r2 in (("true", read + 0.01 * seed * read), ("shuffled", -0.0005)):
            scores = {
                "r2": (r2, 0.0, 0.004),
                "error": (LONGEST / 4 * (1 - r2), LONGEST / 4, 0.1),
                "accuracy": (1 / LONGEST + r2 / 2, 1 / LONGEST, 0.003),
            }
            rows += [
                {
                    **{**size, "state": state, "target": target, "score": score},
                    **{"probe": "classes" if score == "accuracy" else "ridge", "value": value},
                    **{"low": value - half, "high": value + half, "chance": chance},
                }
                for score, (value, chance, half) in scores.items()
            ]
    return rows


def subspace_rows(scheme: str, seed: int) -> list[dict[str, object]]:
    """The mean by position in every state, and its angles where there is a table."""
    rows = []
    for state in range(LAYERS + 1):
        share = READ.get(scheme, (-0.02,) * (LAYERS + 1))[state] / 10
        cos2 = COS2[scheme][state] - 0.01 * seed * state if scheme in COS2 else float("nan")
        rows.append(
            {
                **{"state": state, "positions": LONGEST, "width": 64, "fitted": 512},
                **{"share": share, "share_low": share - 0.002, "share_high": share + 0.002},
                **{"above_noise": 12, "dimensions": 9 if scheme in COS2 else 0},
                **{"mean_cos2": cos2, "low": cos2 - 0.02, "high": min(1.0, cos2 + 0.02)},
                **{"null": 9 / 64 if scheme in COS2 else float("nan"), "sequences": 1024},
                "reason": "" if scheme in COS2 else "no table",
            }
        )
    return rows


def make_ablation(
    run: Path,
    scheme: str,
    task: str,
    accuracy: float,
    baseline: float,
    rng: np.random.Generator,
    early: bool,
) -> None:
    falls_AH = []
    for layer in range(LAYERS):
        size = 0.02 if scheme == "nope" and task == "distance" else 0.35 / (layer + 1)
        falls_AH.append(size * rng.random(HEADS) ** 3 - 0.004)
        if layer == 0 and task == "distance" and scheme in FIRST_LAYER:
            falls_AH[0] = np.array(FIRST_LAYER[scheme])
    zeroed = np.stack(falls_AH)
    room = accuracy - baseline
    layers = [
        max(room * (1 - layer / 10), float(falls.max()) + 0.02)
        for layer, falls in enumerate(zeroed)
    ]
    metrics = ["accuracy", "loss"] if early else list(METRICS)
    effects = effect_rows(zeroed, layers, None if early else room, "head", "zero", metrics)
    shares = [
        concentrate(falls, layer, metric, layers[layer], "head", "zero")
        for layer, falls in enumerate(zeroed)
        for metric in metrics
    ]
    if early:
        write_table(run, "effects", effects)
        write_table(run, "concentration", shares)
        return
    for method, scale in (("mean", 0.8), ("resample", 0.9)):
        effects += effect_rows(scale * zeroed, layers, room, "head", method, ["accuracy"])
    if scheme == "nope":
        shares += [undefined(layer, metric) for layer in range(LAYERS) for metric in metrics]
    else:
        part = np.array(POSITION.get(scheme, rng.choice([0.0, 0.5, 1.0], HEADS)))
        moved, lost = zeroed * part, max(room * 0.95, 0.02)
        floors = [lost * (1 - layer / 5) for layer in range(LAYERS)]
        effects += effect_rows(moved, floors, lost, "position", "none", metrics)
        for method, scale in (("mean", 0.7), ("resample", 1.1)):
            effects += effect_rows(scale * moved, floors, lost, "position", method, ["accuracy"])
        shares += [
            concentrate(falls, layer, metric, lost, "position", "none")
            for layer, falls in enumerate(moved)
            for metric in metrics
        ]
        sets = make_sets(moved, accuracy, lost, "position", "none", floors)
        if scheme == "rope":
            zeroed_sets = make_sets(zeroed, accuracy, room, "head", "zero", layers)
            sets = {name: rows + zeroed_sets[name] for name, rows in sets.items()}
        for name, rows in sets.items():
            write_table(run, name, rows)
    published = {"published loop": zeroed + 0.03 * np.arange(LAYERS)[:, None]}
    published["published data"] = zeroed - 0.01
    if scheme == "mla":
        published["published columns"] = (
            np.where(np.arange(HEADS) < HEADS // 2, 0.12, 0.0) + 0 * zeroed
        )
    for method, falls_AH in published.items():
        effects += effect_rows(falls_AH, layers, None, "head", method, ["accuracy", "loss"])
    write_table(run, "effects", effects)
    write_table(run, "concentration", shares)


def effect_rows(
    falls_AH: np.ndarray,
    layers: list[float],
    model: float | None,
    target: str,
    method: str,
    metrics: list[str],
) -> list[dict[str, object]]:
    """Effects of heads, of whole layers, and of the whole model where it was measured."""
    intact = 0.9
    places = [
        (layer, head, float(falls_AH[layer, head])) for layer, head in np.ndindex(falls_AH.shape)
    ]
    places += [(layer, -1, fall) for layer, fall in enumerate(layers)]
    places += [] if model is None else [(-1, -1, model)]
    return [
        {
            **{"layer": layer, "head": head, "target": target, "method": method},
            **{"metric": metric, "intact": intact, "effect": METRICS[metric] * fall},
            **{"low": METRICS[metric] * (fall - 0.006), "high": METRICS[metric] * (fall + 0.006)},
            **{"p": 0.9 if abs(fall) < 0.006 else 1e-9, "sequences": EVALUATED},
            "holm_low": METRICS[metric] * (fall - 0.009),
            "holm_high": METRICS[metric] * (fall + 0.009),
        }
        for metric in metrics
        for layer, head, fall in places
    ]


def concentrate(
    falls: np.ndarray, layer: int, metric: str, lost: float, target: str, method: str
) -> dict[str, object]:
    scale = METRICS[metric]
    counted = np.where(falls > 0.009, falls, 0)
    total = counted.sum()
    share = counted / total if total else np.full(HEADS, np.nan)
    top, effective = float(share.max()), float(1 / (share**2).sum())
    first, second = sorted(falls.tolist(), reverse=True)[:2]
    deposit = first > 0.3 * lost and second < first / 3 and effective < 2
    verdict = "undecidable" if lost < 0.3 else "deposit" if deposit else "spread"
    return {
        **{"layer": layer, "target": target, "method": method, "metric": metric, "heads": HEADS},
        **{"counted": int((counted > 0).sum()), "top_head": int(falls.argmax())},
        **{"top_share": top, "top_share_low": top - 0.02, "top_share_high": top + 0.02},
        **{"effective_heads": effective, "effective_heads_low": effective - 0.1},
        **{"effective_heads_high": effective + 0.1, "deposit_index": (8 * top - 1) / 7},
        **{"null_p": 0.001, "lost": scale * lost, "largest": scale * first},
        **{"largest_low": scale * (first - 0.006), "second": scale * second},
        **{"second_high": scale * (second + 0.006), "verdict": verdict},
    }


def undefined(layer: int, metric: str) -> dict[str, object]:
    """The row of a model that has no position in its attention."""
    row = concentrate(np.zeros(HEADS), layer, metric, 0.0, "position", "none")
    numbers = {name: float("nan") for name, value in row.items() if isinstance(value, float)}
    return {**row, **numbers, "top_head": None, "verdict": "undefined"}


def make_sets(
    falls_AH: np.ndarray,
    accuracy: float,
    lost: float,
    target: str,
    method: str,
    floors: list[float],
) -> dict[str, list[dict[str, object]]]:
    """Curves of heads kept, a greedy path that ends at the floor or short of it, and pairs."""
    edit = {"target": target, "method": method, "sequences": EVALUATED // 2}
    kept = [
        {
            **{**edit, "layer": layer, "kept": k, "head": int(order[k - 1]) if k else -1},
            **{"accuracy": value, "low": value - 0.015, "high": value + 0.015},
        }
        for layer, falls in enumerate(falls_AH)
        for order in [np.argsort(-falls)]
        for k in range(HEADS + 1)
        for value in [accuracy - floors[layer] * (1 - k / HEADS) ** (1 + 3 / (1 + layer))]
    ]
    ranked = [divmod(int(place), HEADS) for place in np.argsort(-falls_AH.ravel())]
    reached = falls_AH.max() > 0.5
    steps = 3 if reached else 12
    path = [accuracy - lost * (1 - 0.25**k if reached else k / 20) for k in range(steps + 1)]
    count = (2.0, 2.0, 3.0) if reached else (float("inf"), 11.0, float("inf"))
    needed = [
        {
            **{**edit, "step": k, "accuracy": value, "floor": accuracy - lost},
            **dict(zip(("layer", "head"), ranked[k - 1] if k else (-1, -1), strict=True)),
            **dict(zip(("count", "count_low", "count_high"), count, strict=True)),
        }
        for k, value in enumerate(path)
    ]
    excesses = (0.13, -0.24, 0.05, 0.004, -0.013, 0.0)
    pairs = [
        {
            **{**edit, "layer": first[0], "head": first[1]},
            **{"other_layer": second[0], "other_head": second[1]},
            **{"together": float(falls_AH[first] + falls_AH[second]) + excess},
            **{"excess": excess, "low": excess - 0.02, "high": excess + 0.02},
        }
        for (first, second), excess in zip(combinations(ranked[:4], 2), excesses, strict=True)
    ]
    return {"sufficiency": kept, "necessity": needed, "interactions": pairs}


def make_experiment(
    folder: Path,
    schemes: Iterable[str] = SCHEMES,
    tasks: Iterable[str] = ("distance", "count"),
    seeds: Iterable[int] = (0,),
    early: bool = False,
) -> Path:
    """A whole experiment: every scheme on every task from every seed.

    An `early` one has the tables of folders made before edits other than zeroing a head.
    """
    folder.mkdir(parents=True, exist_ok=True)
    schemes, tasks, seeds = list(schemes), list(tasks), list(seeds)
    asked = {"profile": "quick", "schemes": schemes, "tasks": tasks, "seeds": seeds}
    (folder / "experiment.json").write_text(json.dumps(asked))
    for scheme in schemes:
        for task in tasks:
            for seed in seeds:
                make_run(folder, scheme, task, seed, early)
    return folder


# Schemes that each correction touches, what it takes from their accuracy, and what it makes of the
# first layer of RoPE on distance.
CORRECTIONS = {
    "standard": (("nope", "sinusoidal", "learned", "t5", "alibi", "rope", "mla"), 0.0, ""),
    "memory": (("nope", "sinusoidal", "learned", "t5", "alibi", "rope"), 0.12, "deposit"),
    "slopes": (("alibi",), 0.7, ""),
    "optimiser": (("nope", "sinusoidal", "learned", "t5", "alibi", "rope", "mla"), -0.02, ""),
    "published": (("nope", "sinusoidal", "learned", "t5", "alibi", "rope", "mla"), 0.2, "deposit"),
}


def make_corrections(folder: Path, seeds: Iterable[int] = (0, 1, 2)) -> Path:
    """An experiment for each of a few corrections, on both tasks."""
    for name, (schemes, lost, verdict) in CORRECTIONS.items():
        make_experiment(folder / name, schemes, seeds=seeds)
        for run in (folder / name).glob("*-seed*"):
            for table in ("seeds", "seed_batches", "margins"):  # corrections do not record them
                (run / f"{table}.parquet").unlink(missing_ok=True)
            change(run / "summary.parquet", accuracy=(pl.col("accuracy") - lost).clip(0.05, 1))
            if verdict and run.name.startswith("rope-distance"):
                first = {"largest": pl.lit(0.6), "verdict": pl.lit(verdict)}
                change(run / "concentration.parquet", **first)
    return folder


def change(path: Path, **columns: pl.Expr) -> None:
    pl.read_parquet(path).with_columns(**columns).write_parquet(path)


@pytest.fixture(scope="session")
def make() -> Callable[..., Path]:
    """`make_experiment`, for tests that change what they get."""
    return make_experiment


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine schemes, two tasks, one seed. Shared: tests must not change it but by `build`."""
    return make_experiment(tmp_path_factory.mktemp("quick"))


@pytest.fixture(scope="session")
def early(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `quick`, from before there were other edits than zero. Shared like it."""
    return make_experiment(tmp_path_factory.mktemp("early"), early=True)


@pytest.fixture(scope="session")
def standard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same from three seeds. Shared: tests must not change it but by `build`."""
    return make_experiment(tmp_path_factory.mktemp("standard"), seeds=(0, 1, 2))


@pytest.fixture(scope="session")
def corrected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corrections from three seeds. Shared: tests must not change it but by `build`."""
    return make_corrections(tmp_path_factory.mktemp("corrected"))
