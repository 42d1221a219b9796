"""What the decomposition of a run leaves in its folder: tables, images, or a refusal.

Shapes: S sequences, L positions.
"""

import json
import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from poslens import results
from poslens.errors import InputError
from poslens.model import ModelSettings
from poslens.toeplitz import compare_kernels, decompose, halves, summarise
from poslens.toeplitz.tables import (
    COMPARED,
    EFFECT,
    IMAGES,
    LOGITS,
    SEQUENCES,
    SHOWN,
    decompose_run,
    prepare,
)
from poslens.training import RunSettings, TrainingSettings, train

LAYERS, HEADS, LENGTH = 2, 2, 10
TABLES = ("decomposition", "covariances", "symbols", "spectra")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`made(scheme, causal)`: a short run, trained and decomposed. Shared: tests take a copy."""

    @lru_cache
    def make(scheme: str, causal: bool = False) -> Path:
        run = RunSettings(
            scheme,
            "distance",
            seed=1,
            task_settings={"between": 4, "aside": 2, "words": 12},
            model=ModelSettings(
                layers=LAYERS, heads=HEADS, width=16, feedforward=16, causal=causal
            ),
            training=TrainingSettings(1280, 64, evaluations=1, validation=32, evaluation=64),
        )
        folder = train(run, tmp_path_factory.mktemp("runs") / scheme).path
        decompose_run(folder)
        return folder

    return make


def table(folder: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(folder / f"{name}.parquet")


def images(folder: Path) -> dict[str, np.ndarray]:
    """The images in nats."""
    with safe_open(folder / IMAGES, framework="numpy") as stored:
        scales = json.loads(stored.metadata()["notes"])["scales"]
        return {key: stored.get_tensor(key) * scale for key, scale in scales.items()}


@pytest.mark.parametrize("scheme", ["sinusoidal", "alibi", "mla"])
def test_tables_have_their_schemas_and_a_row_for_every_head(made: Callable, scheme: str) -> None:
    folder = made(scheme)
    for name in TABLES:
        assert table(folder, name).schema == results.RUN_TABLES[name]
    heads = table(folder, "decomposition")
    expected = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    assert heads.select("layer", "head").rows() == expected
    assert heads["sequences"].unique().to_list() == [SEQUENCES // 2]
    assert heads["length"].unique().to_list() == [LENGTH]
    assert heads["error"].is_between(0, 1e-5).all()
    assert table(folder, "symbols")["offset"].unique().sort().to_list() == [
        *range(1 - LENGTH, LENGTH)
    ]


@pytest.mark.parametrize("scheme", ["sinusoidal", "alibi", "rope"])
def test_numbers_are_those_of_the_summaries(made: Callable, scheme: str) -> None:
    folder = made(scheme)
    trained = prepare(folder)
    one = list(summarise(decompose(trained.model, trained.batch)))[3]
    row = table(folder, "decomposition").row(3, named=True)
    assert (row["layer"], row["head"]) == (one.layer, one.head) == (1, 1)
    assert row["tau"] == float(one.tau.value)
    assert row["tau_each"] == pytest.approx(float(one.tau_each.value.mean()))
    assert row["tau_row_adjusted"] == float(one.tau_row.adjusted)
    assert row["tau_row_each_adjusted"] == pytest.approx(float(one.tau_row_each.adjusted.mean()))
    assert (row["algebra"], row["explained"]) == (one.algebra.kind, one.algebra.explained)
    symbol = table(folder, "symbols").filter(layer=1, head=1)
    assert symbol["value"].to_list() == one.symbol.values.tolist()
    assert symbol["entries"].to_list() == one.symbol.counts.tolist()
    variances = table(folder, "covariances").filter(pl.col("term") == pl.col("other"))
    within = variances.filter(layer=1, head=1).select("term", "share_within_rows").rows()
    assert dict(within) == pytest.approx(one.variances.shares(within_rows=True))


@pytest.mark.parametrize("scheme", ["sinusoidal", "t5", "mla"])
def test_the_shares_of_all_pairs_of_terms_add_up_to_1(made: Callable, scheme: str) -> None:
    pairs = table(made(scheme), "covariances")
    sums = pairs.group_by("layer", "head", maintain_order=True).agg(
        pl.exclude("term", "other").sum()
    )
    heads = table(made(scheme), "decomposition")
    assert sums["share"].to_list() == pytest.approx([1.0] * 4)
    assert sums["share_within_rows"].to_list() == pytest.approx([1.0] * 4)
    assert sums["covariance"].to_list() == pytest.approx(heads["variance"].to_list())
    assert sums["within_rows"].to_list() == pytest.approx(heads["within_rows"].to_list())


def test_spectra_are_those_of_the_rotary_kernel(made: Callable) -> None:
    folder = made("rope")
    trained = prepare(folder)
    batch = halves(trained.batch)[1].rows(slice(0, COMPARED))
    found = [
        comparison.sum_real.contraction
        for _, _, comparison in compare_kernels(trained.model, batch)
    ]
    rows = table(folder, "spectra")
    assert rows.height == LAYERS * HEADS
    for row, one in zip(rows.iter_rows(named=True), found, strict=True):
        assert row["operator"] == pytest.approx(float(one.operator.mean()))
        assert row["nuclear"] == pytest.approx(float(one.nuclear.mean()))
        assert row["operator_contracted"] == int((one.operator < 1).sum()) / COMPARED
        assert row["nuclear_contracted"] == int((one.nuclear < 1).sum()) / COMPARED
        assert row["none_grew"] == int((one.ky_fan <= 1 + 1e-5).sum()) / COMPARED


def test_schemes_without_a_kernel_have_no_spectra(made: Callable) -> None:
    assert table(made("alibi"), "spectra").is_empty()
    assert not table(made("mla"), "spectra").is_empty()


@pytest.mark.parametrize("scheme", ["nope", "sinusoidal", "alibi", "rope", "mla"])
def test_images_are_the_terms_to_half_a_step(made: Callable, scheme: str) -> None:
    folder = made(scheme)
    trained, found = prepare(folder), images(made(scheme))
    for head in decompose(trained.model, trained.batch):
        place = f"{head.layer}/{head.head}"
        every = head.images()
        own = {name: every[name] for name in head.made} | {LOGITS: head.logits.matrix()}
        shown = {key.split("/")[2] for key in found if key.startswith(place)} - {EFFECT}
        assert shown == set(own)
        for name, image in own.items():
            expected = image.expand(head.shape)[:SHOWN].numpy()
            half_a_step = np.abs(expected).max() / 127 / 2
            np.testing.assert_allclose(
                np.broadcast_to(found[f"{place}/{name}"], expected.shape),
                expected,
                atol=1.001 * half_a_step + 1e-12,
            )


def test_an_image_that_all_sequences_share_is_kept_once(made: Callable) -> None:
    found = images(made("alibi"))
    assert found["0/0/bias"].shape == (1, LENGTH, LENGTH)
    assert found["0/0/constant-constant"].shape == (1, LENGTH, LENGTH)
    assert found[f"0/0/{LOGITS}"].shape == (SHOWN, LENGTH, LENGTH)


def test_the_effect_of_a_table_is_the_sum_of_its_terms(made: Callable) -> None:
    found = images(made("sinusoidal"))
    parts = [found[f"0/1/{name}"] for name in ("content-position", "position-content")]
    total = parts[0] + parts[1] + found["0/1/position-position"]
    steps = sum(np.abs(it).max() for it in (*parts, total)) / 127
    np.testing.assert_allclose(found[f"0/1/{EFFECT}"], total, atol=steps)


def test_the_effect_of_a_rotation_is_what_angle_0_takes_away(made: Callable) -> None:
    folder = made("rope")
    trained = prepare(folder)
    model, used = trained.model, halves(trained.batch)[1].rows(slice(0, SHOWN))
    with torch.no_grad():
        x_BLE, context = model.embed(used.tokens_BL, used.lengths_B)
        block = model.blocks[0]
        x_BLE = block.attention_norm(x_BLE)
        logits = []
        for positioned in (True, False):
            q, k, _ = block.attention.queries_keys_values(x_BLE, context, positioned=positioned)
            logits.append(block.attention.scale * q @ k.mT)
    expected = (logits[0] - logits[1])[:, 1].numpy()
    step = np.abs(expected).max() / 127
    np.testing.assert_allclose(images(folder)[f"0/1/{EFFECT}"], expected, atol=step)


def test_no_effect_is_kept_where_it_is_a_bias_or_undefined(made: Callable) -> None:
    for scheme in ("alibi", "nope"):
        assert not any(key.endswith(EFFECT) for key in images(made(scheme)))


def test_under_a_causal_mask_what_is_not_seen_is_0(made: Callable) -> None:
    folder = made("rope", causal=True)
    above = ~np.tril(np.ones((LENGTH, LENGTH), bool))
    for image in images(folder).values():
        assert (image[:, above] == 0).all()
    assert table(folder, "symbols")["offset"].unique().sort().to_list() == [*range(LENGTH)]


def test_the_same_run_gives_the_same_bytes(made: Callable, tmp_path: Path) -> None:
    names = [IMAGES, *(f"{name}.parquet" for name in TABLES)]
    copy = Path(shutil.copytree(made("rope"), tmp_path / "copy"))
    for name in names:
        (copy / name).unlink()
    decompose_run(copy)
    for name in names:
        assert (copy / name).read_bytes() == (made("rope") / name).read_bytes(), name


def test_the_embedding_split_does_layer_0_alone(made: Callable, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made("sinusoidal+rope"), tmp_path / "copy"))
    decompose_run(copy, "embedding")
    for name in TABLES:
        assert table(copy, name)["layer"].unique().to_list() == [0]
    assert table(copy, "decomposition")["split"].unique().to_list() == ["embedding"]
    assert {key[0] for key in images(copy)} == {"0"}


def untrained(folder: Path) -> str:
    (folder / "model.safetensors").unlink()
    return "model.safetensors is missing: the run has not been trained"


def not_finite(folder: Path) -> str:
    weights = load_file(folder / "model.safetensors")
    name = next(key for key in weights if key.startswith("blocks.1"))
    weights[name][0] = torch.nan
    with safe_open(folder / "model.safetensors", framework="pt") as stored:
        notes = stored.metadata()
    save_file(weights, folder / "model.safetensors", metadata=notes)
    return f"{folder}: layer 1: {name.removeprefix('blocks.1.')} holds NaN"


def keys_from_embeddings(folder: Path) -> str:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    config["model"]["memory_from_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    return f"{folder}: keys of this model come from the embeddings"


@pytest.mark.parametrize("spoil", [untrained, not_finite, keys_from_embeddings])
def test_a_run_that_cannot_be_taken_apart_is_left_as_it_was(
    made: Callable, tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    copy = Path(shutil.copytree(made("rope"), tmp_path / "copy"))
    for name in (IMAGES, *(f"{name}.parquet" for name in TABLES)):
        (copy / name).unlink()
    words = spoil(copy)
    before = sorted(path.name for path in copy.iterdir())
    with pytest.raises(InputError) as caught:
        decompose_run(copy)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in copy.iterdir()) == before
