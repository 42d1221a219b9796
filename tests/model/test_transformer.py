"""The standard model: padding, positions, readouts, gradients, and what it refuses.

Shapes: B batch, L positions, E model width.
"""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close as close

from poslens.errors import InputError
from poslens.model import ModelSettings, Transformer
from poslens.tasks import Batch

RELATIVE = ("nope", "alibi", "t5", "kerple", "rope", "rope@1", "alibi+rope", "mla")
few = settings(deadline=None, max_examples=5)
lengths = st.lists(st.integers(1, 10), min_size=1, max_size=4)
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize("readout", ["mean", "last"])
@pytest.mark.parametrize("causal", [False, True])
@few
@given(lengths=lengths, columns=st.integers(11, 14), seed=seeds)
def test_padding_changes_nothing(
    scheme: str,
    readout: str,
    causal: bool,
    lengths: list[int],
    columns: int,
    seed: int,
    small: Any,
    padded: Any,
) -> None:
    """Neither how much there is nor which words stand there, nor the other rows of the batch."""
    model, batch = small(scheme, seed, causal=causal, readout=readout), padded(lengths, columns)
    scores_BC = model(batch.tokens_BL, batch.lengths_B)
    trimmed, other = batch.trim(), padded(lengths, columns, seed=1)
    real = torch.arange(columns) < batch.lengths_B[:, None]
    other_words = torch.where(real, batch.tokens_BL, other.tokens_BL)
    close(model(trimmed.tokens_BL, batch.lengths_B), scores_BC)
    close(model(other_words, batch.lengths_B), scores_BC)
    for row in range(len(batch)):
        alone = batch.rows(slice(row, row + 1)).trim()
        close(model(alone.tokens_BL, alone.lengths_B), scores_BC[row : row + 1])


@pytest.mark.parametrize("relative", RELATIVE)
@few
@given(
    shifts=st.lists(st.integers(-5000, 5000), min_size=3, max_size=3),
    causal=st.booleans(),
    seed=seeds,
)
def test_shifting_all_positions_changes_nothing(
    relative: str, shifts: list[int], causal: bool, seed: int, small: Any, padded: Any
) -> None:
    model, batch = small(relative, seed, causal=causal).double(), padded([7, 4, 9])
    steps, inputs = torch.arange(9), (batch.tokens_BL, batch.lengths_B)
    expected = model(*inputs)
    close(model(*inputs, steps + shifts[0]), expected)
    close(model(*inputs, steps + torch.tensor(shifts)[:, None]), expected)


def test_positions_of_each_row_equal_to_shared_ones(scheme: str, small: Any, padded: Any) -> None:
    model, batch = small(scheme), padded([7, 4, 9])
    inputs, steps = (batch.tokens_BL, batch.lengths_B), torch.arange(9)
    expected = model(*inputs)
    close(model(*inputs, steps), expected)
    close(model(*inputs, steps.expand(3, 9)), expected)


def residual_stream(model: Transformer, batch: Batch) -> Tensor:
    x_BLE, context = model.embed(batch.tokens_BL, batch.lengths_B)
    for block in model.blocks:
        x_BLE = block(x_BLE, context)
    return x_BLE


def test_causal_models_do_not_see_what_follows(scheme: str, small: Any, padded: Any) -> None:
    batch, changed = padded([9, 9]), padded([9, 9])
    changed.tokens_BL[:, 6:] = (changed.tokens_BL[:, 6:] + 1) % 21
    for causal in (True, False):
        model = small(scheme, causal=causal)
        before, after = residual_stream(model, batch), residual_stream(model, changed)
        assert ((before[:, :6] - after[:, :6]).abs().max() < 1e-5) == causal


@pytest.mark.parametrize("causal", [False, True])
def test_blocks_are_those_of_torch(causal: bool, small: Any, padded: Any) -> None:
    model, batch = small("nope", causal=causal), padded([7, 4, 9])
    x_BLE, context = model.embed(batch.tokens_BL, batch.lengths_B)
    block = model.blocks[0]
    theirs = nn.TransformerEncoderLayer(32, 4, 48, 0.0, batch_first=True, norm_first=True)
    modules = {  # theirs: ours
        "self_attn.in_proj_": block.attention.input,
        "self_attn.out_proj.": block.attention.output,
        "linear1.": block.feedforward[0],
        "linear2.": block.feedforward[2],
        "norm1.": block.attention_norm,
        "norm2.": block.feedforward_norm,
    }
    for name, ours in modules.items():
        for kind in ("weight", "bias"):
            theirs.state_dict()[name + kind].copy_(getattr(ours, kind).detach())
    padding_BL = torch.arange(9) >= batch.lengths_B[:, None]
    later_LL = torch.ones(9, 9).triu(1).bool() if causal else None
    expected = theirs(x_BLE, src_mask=later_LL, src_key_padding_mask=padding_BL)
    close(block(x_BLE, context)[~padding_BL], expected[~padding_BL])


def test_readouts_take_real_words_only(small: Any) -> None:
    x_BLE, lengths = torch.randn(3, 9, 32), [7, 1, 9]
    for readout in ("mean", "last"):
        model = small("nope", readout=readout)
        scores_BC = model.read(x_BLE, torch.tensor(lengths))
        for row, length in enumerate(lengths):
            normed_LE = model.final_norm(x_BLE[row])
            pooled = normed_LE[:length].mean(0) if readout == "mean" else normed_LE[length - 1]
            close(scores_BC[row], model.classifier(pooled))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("readout", ["mean", "last"])
def test_every_parameter_learns(
    scheme: str, readout: str, causal: bool, small: Any, padded: Any
) -> None:
    model, batch = small(scheme, causal=causal, readout=readout), padded([7, 4, 9, 12] * 4)
    scores_BC = model(batch.tokens_BL, batch.lengths_B)
    nn.functional.cross_entropy(scores_BC, batch.labels_B).backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert still == []


def test_only_a_learned_table_bounds_the_length(scheme: str, small: Any, padded: Any) -> None:
    model, batch = small(scheme), padded([15, 20])
    if scheme == "learned":
        with pytest.raises(
            InputError, match=r"position 14 is not in the learned table, .* 14 rows"
        ):
            model(batch.tokens_BL, batch.lengths_B)
    else:
        assert model(batch.tokens_BL, batch.lengths_B).isfinite().all()


@pytest.mark.parametrize("name", ["layers", "heads", "width", "feedforward"])
@pytest.mark.parametrize("size", [0, -8])
def test_sizes_below_one_are_named(name: str, size: int) -> None:
    with pytest.raises(InputError, match=f"^{name} is {size}; use 1 or more$"):
        ModelSettings(**{name: size})


def test_unknown_readouts_are_named() -> None:
    with pytest.raises(InputError, match="readout 'first' is unknown; use 'mean' or 'last'"):
        ModelSettings(readout="first")
