"""Seeds of a run as tables: what is in them, what is kept, what is refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from poslens import results
from poslens.errors import InputError
from poslens.heads.position_part import position_part
from poslens.model import ModelSettings, TransformerSites
from poslens.theory import Plan, fresh, record, theory_run
from poslens.theory.tables import OTHER_EXAMPLES, first, with_seeds
from poslens.training import RunSettings, TrainingSettings, initial_model, load_snapshot, train

SMALL = Plan(examples=96, initialisations=2, batches=(8, 32))


def make(folder: Path, scheme: str, snapshots: int = 2) -> Path:
    run = RunSettings(
        scheme,
        "distance",
        task_settings={"between": 4, "aside": 3, "words": 12},
        model=ModelSettings(layers=2, heads=4, width=16, feedforward=16),
        training=TrainingSettings(
            256, 32, evaluations=1, validation=32, evaluation=32, snapshots=snapshots
        ),
    )
    return train(run, folder / scheme).path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a few schemes with their seeds. Shared: tests must not change it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs")
    for scheme in ("rope", "rope@1", "nope", "sinusoidal"):
        made = make(folder, scheme)
        if scheme != "nope":
            theory_run(made, SMALL)
    return folder


def test_the_numbers_are_those_of_what_is_recorded(runs: Path) -> None:
    """At a snapshot, and at another initialisation."""
    tables = results.read(runs)
    for step, number in ((3, 0), (0, 2)):
        model, run, task = load_snapshot(runs / "rope", step)
        if number:
            model = initial_model(run, task, number).eval()
        data = fresh(task, 96, run.seed)
        found = record(TransformerSites(model), position_part(model, task), data)
        rows = tables.seeds.filter(scheme="rope", step=step, initialisation=number)
        assert rows.height == 8
        mu_AH = found.seeds_NAH.mean(0, dtype=np.float64)
        np.testing.assert_allclose(rows["mu"].to_numpy().reshape(2, 4), mu_AH, rtol=1e-4)
        sigma_AH = found.seeds_NAH.std(0, ddof=1, dtype=np.float64)
        np.testing.assert_allclose(rows["sigma"].to_numpy().reshape(2, 4), sigma_AH, rtol=1e-4)
        np.testing.assert_allclose(rows["rms"].to_numpy().reshape(2, 4), found.rms_AH, rtol=1e-5)
        np.testing.assert_allclose(rows["scaled"], rows["mu"] / rows["rms"])
        assert rows["loss"][0] == pytest.approx(found.losses_N.mean(), rel=1e-5)
        assert (rows["ratio_low"] < rows["ratio"]).all()
        assert (rows["examples"] == 96).all()
        if number == 0:
            law = tables.seed_batches.filter(scheme="rope", step=step, batch=32)
            assert law["batches"].to_list() == [3] * 8
            means = np.abs(found.seeds_NAH.reshape(3, 32, 8).mean(1)).mean(0)
            np.testing.assert_allclose(law["mean_abs"], means, rtol=1e-4)


def test_every_step_and_initialisation_is_there(runs: Path) -> None:
    tables = results.read(runs)
    steps = tables.seeds.filter(scheme="rope").select("step", "initialisation").unique()
    assert sorted(steps.rows()) == [(0, 0), (0, 1), (0, 2), (3, 0), (8, 0)]
    places = tables.margins.filter(scheme="rope").select("step", "initialisation", "layer")
    assert sorted(places.rows()) == [
        (*place, layer) for place in sorted(steps.rows()) for layer in (0, 1)
    ]
    assert set(tables.seed_batches.filter(scheme="rope")["step"]) == {0, 3, 8}


def test_other_initialisations_are_other_ones_on_the_same_sequences(runs: Path) -> None:
    rows = results.read(runs).seeds.filter(scheme="rope", step=0)
    by_number = {n: of["mu"].to_list() for (n,), of in rows.group_by("initialisation")}
    assert len({tuple(mu) for mu in by_number.values()}) == 3
    losses = rows.group_by("initialisation").agg(loss=rows["loss"].first())
    assert losses.height == 3


def test_heads_without_rotation_have_no_seeds(runs: Path) -> None:
    tables = results.read(runs)
    rows = tables.seeds.filter(scheme="rope@1")
    others = rows.filter(rows["head"] > 0)
    for name in ("mu", "mu_low", "sigma", "ratio", "ratio_high", "scaled"):
        assert others[name].is_nan().all(), name
        assert rows.filter(head=0)[name].is_not_nan().all(), name
    assert (others["rms"] == 0).all()
    assert set(tables.seed_batches.filter(scheme="rope@1")["head"]) == {0}
    leads = tables.margins.filter(scheme="rope@1")
    assert leads["margin"].is_nan().all()
    assert set(leads["reason"]) == {"fewer than two heads of the layer have a seed"}


def test_the_same_again_is_the_same_and_other_steps_are_kept(runs: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs / "rope", tmp_path / "rope"))
    before = results.read(folder)
    theory_run(folder, Plan(96, 2, (3,), (8, 32)))
    after = results.read(folder)
    for name in ("seeds", "seed_batches", "margins"):
        order = [it for it in ("step", "initialisation", "layer", "head", "batch")]
        old, new = getattr(before, name), getattr(after, name)
        columns = [it for it in order if it in old.columns]
        assert new.sort(columns).equals(old.sort(columns)), name
    theory_run(folder, Plan(32, 0, (3,), (8,)))
    rows = results.read(folder).seeds
    assert set(rows.filter(step=3)["examples"]) == {32}
    assert set(rows.filter(rows["step"] != 3)["examples"]) == {96}


def test_schemes_see_the_same_sequences(runs: Path) -> None:
    first_, second = (next(fresh(load_snapshot(runs / it, 0)[2], 9, 0)) for it in ("rope", "nope"))
    assert torch.equal(first_.tokens_BL, second.tokens_BL)


def test_fewer_examples_are_cut_from_blocks(runs: Path) -> None:
    task = load_snapshot(runs / "rope", 0)[2]
    data = list(fresh(task, OTHER_EXAMPLES + 10, 0))
    for size in (5, OTHER_EXAMPLES, OTHER_EXAMPLES + 3):
        assert sum(map(len, first(data, size))) == size


def test_what_cannot_be_is_refused_and_nothing_written(runs: Path) -> None:
    before = sorted(path.name for path in (runs / "nope").iterdir())
    with pytest.raises(InputError, match="nope: seeds are undefined: the scheme has no position"):
        theory_run(runs / "nope", SMALL)
    assert sorted(path.name for path in (runs / "nope").iterdir()) == before
    with pytest.raises(InputError, match="no weights of step 5; it has those of 0, 3, 8"):
        theory_run(runs / "rope", Plan(96, 0, (0, 5), (8,)))
    having, ((lacking, reason),) = with_seeds(runs)
    assert [folder.name for folder in having] == ["rope", "rope@1", "sinusoidal"]
    assert lacking.name == "nope"
    assert reason.startswith("seeds are undefined")


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"examples": 3}, "examples is 3; use 4 or more"),
        ({"initialisations": -1}, "initialisations is -1; use 0 or more"),
        ({"steps": ()}, "the set of steps is empty"),
        ({"examples": 100}, "a batch of 4096 is larger than the 100 examples"),
    ],
)
def test_plans_that_make_no_sense(plan: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Plan(**plan)  # type: ignore[arg-type]
