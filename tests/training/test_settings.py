"""Settings of a run: read back as written, refused where they make no sense."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poslens.errors import InputError
from poslens.model import ModelSettings
from poslens.training import RunSettings, TrainingSettings
from poslens.training.folder import to_json


@given(
    scheme=st.sampled_from(["rope", "rope@1", "sinusoidal+rope", "mla"]),
    seed=st.integers(0, 2**40),
    batch=st.integers(1, 512),
    rate=st.floats(1e-8, 10),
    fixed=st.none() | st.integers(512, 10**6),
    causal=st.booleans(),
    base=st.floats(1, 1e6),
)
@settings(deadline=None, max_examples=50)
def test_settings_read_back_from_json_are_the_same(
    scheme: str, seed: int, batch: int, rate: float, fixed: int | None, causal: bool, base: float
) -> None:
    run = RunSettings(
        scheme,
        "distance",
        seed,
        {"between": 4},
        {"rope": {"base": base}},
        ModelSettings(causal=causal),
        TrainingSettings(batch=batch, learning_rate=rate, fixed_set=fixed),
    )
    assert RunSettings.from_json(json.loads(json.dumps(to_json(run))), Path("config.json")) == run


@pytest.mark.parametrize(
    "values",
    [
        *({name: 0} for name in ("sequences", "batch", "evaluations", "validation", "evaluation")),
        *({name: -1} for name in ("sequences", "batch", "evaluations", "validation", "evaluation")),
        {"batch": 128, "sequences": 127},
        {"fixed_set": 0},
        {"fixed_set": 127, "batch": 128},
        *({"learning_rate": value} for value in (0.0, -1.0, math.nan, math.inf)),
        *({"warmup": value} for value in (-0.1, 1.0, math.nan)),
        *({"weight_decay": value} for value in (-0.1, math.nan, math.inf)),
        *({"clip": value} for value in (0.0, -1.0, math.nan)),
        *({"solved": value} for value in (0.0, math.nan)),
    ],
)
def test_training_that_makes_no_sense_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        TrainingSettings(**values)
    message = str(caught.value)
    assert next(iter(values)) in message
    assert "use " in message
    assert "\n" not in message


def test_a_fixed_set_of_one_batch_is_allowed() -> None:
    assert TrainingSettings(fixed_set=128, batch=128).fixed_set == 128


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="seed is -1; use 0 or more"):
        RunSettings("rope", "distance", -1)


@pytest.mark.parametrize(
    ("sequences", "batch", "evaluations", "steps", "every"),
    [(64_000, 128, 50, 500, 10), (100, 16, 50, 6, 1), (100, 10, 3, 10, 3)],
)
def test_steps_and_evaluations(
    sequences: int, batch: int, evaluations: int, steps: int, every: int
) -> None:
    training = TrainingSettings(sequences=sequences, batch=batch, evaluations=evaluations)
    assert (training.steps, training.evaluate_every) == (steps, every)


def test_a_run_is_named_by_scheme_task_and_seed() -> None:
    assert RunSettings("rope@1", "count", 3).name == "rope@1-count-seed3"


def test_snapshots_are_spaced_geometrically_from_nothing_to_the_end() -> None:
    run = TrainingSettings(sequences=128 * 1024, batch=128, snapshots=5)
    assert run.snapshot_steps == (0, 4, 16, 64, 256, 1024)
    assert TrainingSettings().snapshot_steps == ()
    few = TrainingSettings(sequences=128 * 3, batch=128, snapshots=12)
    assert few.snapshot_steps == (0, 1, 2, 3)
    with pytest.raises(InputError, match="snapshots is -1; use 0 or more"):
        TrainingSettings(snapshots=-1)
