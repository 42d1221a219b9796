"""Position edits against gains, brute force over offsets, and content-only queries and keys."""

from dataclasses import replace

import pytest
import torch

from poslens.errors import InputError
from poslens.model import ModelSettings, Transformer, TransformerSites, build
from poslens.model.positions import MeanKernel, PositionEdit, offset_weights, permuted
from poslens.tasks import Distance, held_out
from poslens.tasks.distance import DistanceSettings

TASK = Distance(DistanceSettings(between=6, aside=3, words=20))
DATA = held_out(TASK, 12, seed=0)


def generators(many: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(row) for row in range(many)]


def small(scheme: str) -> Transformer:
    torch.manual_seed(0)
    return build(scheme, TASK, ModelSettings(layers=2, heads=4, width=32, feedforward=48)).eval()


@pytest.mark.parametrize("scheme", ["rope", "rope@2", "t5", "alibi", "mla", "sinusoidal+rope"])
@torch.no_grad()
def test_none_is_gain_zero(scheme: str) -> None:
    sites = TransformerSites(small(scheme))
    state = sites.enter(DATA, 1)
    told = sites.heads_told(state, PositionEdit("none"))
    torch.testing.assert_close(told, sites.heads(state, torch.zeros(len(DATA), 4)))
    assert (told - sites.heads(state)).abs().max() > 1e-4


@torch.no_grad()
def test_a_mean_bias_is_a_constant_and_so_no_position_at_all() -> None:
    sites = TransformerSites(small("alibi"))
    state = sites.enter(DATA)
    offsets_O, weights_O = offset_weights(DATA.lengths_B, causal=False)
    told = sites.heads_told(state, PositionEdit("mean", offsets_O, weights_O))
    torch.testing.assert_close(told, sites.heads_told(state, PositionEdit("none")))


@torch.no_grad()
def test_the_mean_rotation_is_the_mean_over_offsets() -> None:
    model = small("rope").double()
    offsets_O, weights_O = offset_weights(DATA.lengths_B, causal=False)
    mean = MeanKernel(model.encoding, offsets_O, weights_O)
    q, k = torch.randn(2, 1, 4, 5, 8, dtype=torch.float64)
    steps = torch.arange(5)
    turned_q, turned_k = mean.rotate(q, k, steps, steps)
    expected = torch.zeros(1, 4, 5, 5, dtype=torch.float64)
    for offset, weight in zip(offsets_O, weights_O, strict=True):
        at, origin = torch.full((5,), int(offset)), torch.zeros(5, dtype=torch.int64)
        one_q, one_k = model.encoding.rotate(q, k, at, origin)
        expected += weight * one_q @ one_k.mT
    torch.testing.assert_close(turned_q @ turned_k.mT, expected)


def test_offset_weights_count_the_pairs_of_real_tokens() -> None:
    lengths_B = torch.tensor([3, 5])
    for causal in (False, True):
        counts: dict[int, int] = {}
        for length in lengths_B.tolist():
            for i in range(length):
                for j in range(length):
                    if i >= j or not causal:
                        counts[i - j] = counts.get(i - j, 0) + 1
        offsets_O, weights_O = offset_weights(lengths_B, causal)
        total = sum(counts.values())
        found = dict(zip(offsets_O.tolist(), weights_O.tolist(), strict=True))
        assert found == pytest.approx({offset: n / total for offset, n in counts.items()})


def test_permutations_move_real_positions_only() -> None:
    lengths_B = torch.tensor([4, 7, 1])
    order_BL = permuted(lengths_B, 7, generators(3))
    for row, length in enumerate(lengths_B.tolist()):
        assert sorted(order_BL[row, :length].tolist()) == list(range(length))
        assert order_BL[row, length:].tolist() == list(range(length, 7))
    assert order_BL[1].tolist() != list(range(7))


@torch.no_grad()
def test_taking_a_table_away_leaves_content_only_queries_and_keys_with_frozen_statistics() -> None:
    model = small("sinusoidal")
    sites = TransformerSites(model)
    state = sites.enter(DATA)
    block = model.blocks[0]
    norm = block.attention_norm
    table_BLE = state.context.encoding.embed(torch.zeros_like(state.x_BLE), state.context.positions)
    deviation = (state.x_BLE.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    part_BLE = (table_BLE - table_BLE.mean(-1, keepdim=True)) / deviation * norm.weight
    told = sites.heads_told(state, PositionEdit("none", position_BLE=part_BLE))

    normed = norm(state.x_BLE)
    queries, keys, _ = block.attention.queries_keys_values(normed - part_BLE, state.context)
    values = block.attention.queries_keys_values(normed, state.context)[2]
    logits = block.attention.scale * queries @ keys.mT
    logits = logits.masked_fill(~state.context.visible, float("-inf"))
    torch.testing.assert_close(told, logits.softmax(-1) @ values, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_table_has_no_kernel_to_average_and_nope_nothing_to_take() -> None:
    sites = TransformerSites(small("sinusoidal"))
    state = sites.enter(DATA)
    offsets_O, weights_O = offset_weights(DATA.lengths_B, causal=False)
    part = torch.zeros_like(state.x_BLE)
    with pytest.raises(InputError, match="no kernel to average"):
        sites.heads_told(state, PositionEdit("mean", offsets_O, weights_O, position_BLE=part))
    with pytest.raises(InputError, match="no position"):
        TransformerSites(small("nope")).heads_told(state, PositionEdit("none"))


@torch.no_grad()
def test_what_would_be_wrong_silently_is_refused() -> None:
    torch.manual_seed(0)
    offsets_O, weights_O = offset_weights(DATA.lengths_B, causal=False)
    settings = ModelSettings(layers=2, heads=4, width=32, feedforward=48)
    wrong = TransformerSites(build("rope", TASK, settings, {"rope": {"step": "published"}}))
    with pytest.raises(InputError, match="no function of the offset"):
        wrong.heads_told(wrong.enter(DATA), PositionEdit("mean", offsets_O, weights_O))


@torch.no_grad()
def test_tables_in_a_memory_are_taken_from_its_keys_and_not_its_values() -> None:
    torch.manual_seed(0)
    settings = ModelSettings(
        layers=2, heads=4, width=32, feedforward=48, memory_from_embeddings=True
    )
    model = build("learned", TASK, settings).eval()
    sites = TransformerSites(model)
    state = sites.enter(DATA, 1)
    block, table_BLE = model.blocks[1], state.context.table_BLE
    part_BLE = torch.randn(1, *state.x_BLE.shape[1:])
    told = sites.heads_told(state, PositionEdit("none", position_BLE=part_BLE))

    normed = block.attention_norm(state.x_BLE)
    bare = replace(state.context, memory_BLE=state.context.memory_BLE - table_BLE)
    queries, keys, _ = block.attention.queries_keys_values(normed - part_BLE, bare)
    values = block.attention.queries_keys_values(normed, state.context)[2]
    logits = block.attention.scale * queries @ keys.mT
    logits = logits.masked_fill(~state.context.visible, float("-inf"))
    torch.testing.assert_close(told, logits.softmax(-1) @ values, rtol=1e-5, atol=1e-5)
    gains = sites.heads(state, torch.zeros(len(DATA), 4), part_BLE)
    torch.testing.assert_close(told, gains, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "sinusoidal+rope", "learned+alibi"])
@torch.no_grad()
def test_gains_of_tables_go_from_no_position_to_all_of_it(scheme: str) -> None:
    sites = TransformerSites(small(scheme))
    state = sites.enter(DATA, 1)
    part_BLE = torch.randn(1, *state.x_BLE.shape[1:])
    gains = torch.zeros(len(DATA), 4)
    told = sites.heads_told(state, PositionEdit("none", position_BLE=part_BLE))
    torch.testing.assert_close(told, sites.heads(state, gains, part_BLE), rtol=1e-4, atol=1e-5)
    full = sites.heads(state, gains + 1, part_BLE)
    torch.testing.assert_close(full, sites.heads(state), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_one_door_of_a_hybrid_leaves_the_others() -> None:
    model = small("rope+alibi")
    sites = TransformerSites(model)
    state = sites.enter(DATA, 1)
    alone = {"rope": small("rope"), "alibi": small("alibi")}
    for other in alone.values():
        weights = {k: v for k, v in model.state_dict().items() if "encoding" not in k}
        other.load_state_dict(weights, strict=False)
    for door, left in (("rotation", "alibi"), ("bias", "rope")):
        told = sites.heads_told(state, PositionEdit("none", doors=(door,)))
        there = TransformerSites(alone[left])
        context = there.enter(DATA, 1).context
        torch.testing.assert_close(told, there.heads(replace(state, context=context)))
    order_BL = permuted(DATA.lengths_B, state.x_BLE.shape[1], generators(len(DATA)))
    both = sites.heads_told(state, PositionEdit("resample", order_BL=order_BL))
    one = sites.heads_told(state, PositionEdit("resample", order_BL=order_BL, doors=("bias",)))
    assert (both - one).abs().max() > 1e-4
    with pytest.raises(InputError, match="no position"):
        sites.heads_told(state, PositionEdit("none", doors=("table",)))


@torch.no_grad()
def test_the_mean_of_a_hybrid_is_the_mean_of_each_kernel() -> None:
    model = small("rope+alibi")
    sites = TransformerSites(model)
    state = sites.enter(DATA)
    offsets_O, weights_O = offset_weights(DATA.lengths_B, causal=False)
    both = sites.heads_told(state, PositionEdit("mean", offsets_O, weights_O))
    rotation = PositionEdit("mean", offsets_O, weights_O, doors=("rotation",))
    # A mean bias is a constant, which the softmax does not see.
    bare = replace(state, context=replace(state.context, bias=None))
    torch.testing.assert_close(both, sites.heads_told(bare, rotation), rtol=1e-4, atol=1e-5)
