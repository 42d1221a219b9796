"""Learned positional gains: what they multiply, how they start, and how training holds them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from poslens.errors import InputError
from poslens.model import ModelSettings, Transformer, TransformerSites, build
from poslens.tasks import held_out, make_task
from poslens.toeplitz import decompose
from poslens.training import RunSettings, TrainingSettings, load_model, train

TASK = make_task("distance")
SIZE = ModelSettings(layers=2, heads=4, width=32, feedforward=64)
BRIEF = TrainingSettings(sequences=160, batch=16, learning_rate=1e-2, evaluation=32, evaluations=2)


def made(scheme: str, **gain: Any) -> Transformer:
    torch.manual_seed(0)
    return build(scheme, TASK, SIZE, {"gain": gain})


def gains_of(model: Transformer) -> torch.Tensor:
    return torch.stack([block.attention.gain_H for block in model.blocks]).detach()


@pytest.mark.parametrize("scheme", ["rope", "alibi", "t5", "mla", "rope@2"])
def test_at_one_they_change_nothing_and_elsewhere_they_are_gains(scheme: str) -> None:
    data = held_out(TASK, 8, seed=1)
    torch.manual_seed(0)
    plain = build(scheme, TASK, SIZE).double()
    with_gains = made(scheme).double()
    scores = plain(data.tokens_BL, data.lengths_B)
    torch.testing.assert_close(with_gains(data.tokens_BL, data.lengths_B), scores)

    with_gains.blocks[0].attention.gain_H.data = torch.tensor([0.0, 0.5, 2.0, -1.0]).double()
    one, other = TransformerSites(with_gains), TransformerSites(plain)
    state, same = one.enter(data), other.enter(data)
    asked = torch.tensor([1.0, 0.5, 0.5, 2.0]).double().expand(8, -1)
    for gains in (None, asked):
        whole = with_gains.blocks[0].attention.gain_H.detach() * (1 if gains is None else gains)
        found = one.heads(state, gains)
        torch.testing.assert_close(found, other.heads(same, whole.expand(8, -1)))


def test_one_head_starts_otherwise() -> None:
    start = gains_of(made("rope", layer=1, head=2, start=0.25))
    expected = torch.ones(2, 4)
    expected[1, 2] = 0.25
    assert torch.equal(start, expected)


def trained(tmp_path: Path, name: str, **gain: Any) -> torch.Tensor:
    run = RunSettings("rope", "distance", parts={"gain": gain}, model=SIZE, training=BRIEF)
    train(run, tmp_path / name)
    return gains_of(load_model(tmp_path / name)[0])


def test_they_learn_but_where_one_is_fixed(tmp_path: Path) -> None:
    free = trained(tmp_path, "free")
    assert (free != 1).all()
    off = trained(tmp_path, "off", head=1, start=0.0, fixed=True)
    assert off[0, 1] == 0
    assert (off[0, [0, 2, 3]] != 1).all()
    assert (off[1] != 1).all()


def test_tied_heads_learn_one_gain_until_they_are_let_go(tmp_path: Path) -> None:
    tied = trained(tmp_path, "tied", tied=1.0)
    assert (tied != 1).all()
    assert torch.equal(tied, tied[:, :1].expand(2, 4))
    parted = trained(tmp_path, "parted", tied=0.5)
    assert all(len(row.unique()) > 1 for row in parted)


@pytest.mark.parametrize(
    ("scheme", "gain", "message"),
    [
        ("nope", {}, "gains are learned where position enters by queries, keys or logits alone"),
        ("sinusoidal+rope", {}, "gains are learned where position enters by queries"),
        ("rope", {"head": 4}, "gain.head is 4; use 0..3"),
        ("rope", {"layer": 2, "head": 0}, "gain.layer is 2; use 0..1"),
        ("rope", {"fixed": True}, "give gain.head"),
        ("rope", {"start": 2.0}, "give gain.head"),
        ("rope", {"head": 0, "start": float("nan")}, "use a finite number"),
        ("rope", {"tied": 1.5}, "use a share from 0 to 1"),
        ("rope", {"rate": 1}, "rate"),
    ],
)
def test_what_cannot_be_is_refused(scheme: str, gain: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        made(scheme, **gain)


def test_the_logits_are_not_taken_apart() -> None:
    with pytest.raises(InputError, match="learn their positional gains"):
        next(decompose(made("rope"), held_out(TASK, 8, seed=1)))
