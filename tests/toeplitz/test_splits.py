"""Splits of attention's input: what they add up to, what they find, what they refuse.

Shapes: B batch, L positions, E model width.
"""

import pytest
import torch
from torch import nn

from poslens.errors import InputError
from poslens.model import TransformerSites
from poslens.tasks import Batch
from poslens.toeplitz import EmbeddingSplit, MeanSplit, halves, iid_batch, walk
from poslens.toeplitz.splits import attention_input, frozen_norm


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def states(model, batch: Batch) -> list:
    with torch.no_grad():
        return list(walk(model, batch))


def test_walking_is_entering_each_layer(scheme: str, small, padded: Batch) -> None:
    model = small(scheme, layers=3).double()
    for layer, state in enumerate(states(model, padded)):
        entered = TransformerSites(model).enter(padded, layer)
        assert entered.layer == state.layer == layer
        close(state.x_BLE, entered.x_BLE)


def test_a_frozen_norm_is_linear_and_whole() -> None:
    torch.manual_seed(0)
    norm = nn.LayerNorm(6).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    a, b = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    close(frozen_norm(norm, a, a + b) + frozen_norm(norm, b, a + b) + norm.bias, norm(a + b))
    close(frozen_norm(norm, 5 * a, a + b), 5 * frozen_norm(norm, a, a + b))


def test_embedding_split_is_token_and_table(scheme: str, small, padded: Batch) -> None:
    model = small(scheme).double()
    state = states(model, padded)[0]
    split = EmbeddingSplit.fit(model, state)
    constant, content, position = split.parts(model, state)
    norm, real_BL = model.blocks[0].attention_norm, torch.arange(12) < padded.lengths_B[:, None]
    close((constant + content + position).expand_as(content), attention_input(model, state))
    words_BLE = model.embedding(padded.tokens_BL)
    close(content + split.mean_E, frozen_norm(norm, words_BLE, state.x_BLE))
    close(constant[0, 0], split.mean_E + norm.bias)
    close(content[real_BL].mean(0), torch.zeros(32, dtype=torch.float64))
    table = "sinusoidal" in scheme or scheme == "learned"
    assert (position.abs().max() > 0.1) == table


@pytest.mark.parametrize("layer", [0, 1])
def test_mean_split_is_the_mean_over_sequences(layer: int, scheme: str, small, padded) -> None:
    model = small(scheme).double()
    fit, use = (states(model, half)[layer] for half in halves(padded))
    split = MeanSplit.fit(model, fit)
    x_BLE = attention_input(model, fit)
    real = [(b, t) for b, length in enumerate(fit.lengths_B.tolist()) for t in range(length)]
    mean_E = torch.stack([x_BLE[place] for place in real]).mean(0)
    close(split.mean_E, mean_E)
    for t in range(12):
        seen = [x_BLE[place] for place in real if place[1] == t]
        assert len(seen) == split.counts_L[t]
        close(split.position_LE[t], torch.stack(seen).mean(0) - mean_E)
    constant, content, position = split.parts(model, use)
    close((constant + content + position).expand_as(content), attention_input(model, use))
    close(position[0], split.position_LE)


def test_columns_of_padding_alone_need_no_position(small, padded: Batch, tokens) -> None:
    model = small("rope").double()
    fit = states(model, tokens(4, length=10))[1]
    split = MeanSplit.fit(model, fit)
    short = Batch(padded.tokens_BL, padded.lengths_B.clamp(max=10), padded.labels_B)
    position_1LE = split.parts(model, states(model, short)[1]).position
    assert position_1LE.shape == (1, 12, 32)
    assert not position_1LE[0, 10:].any()


def test_implicit_position_is_found_in_causal_models_alone(small, tokens) -> None:
    """NoPE: without a mask positions are exchangeable and p_t is the noise of a mean of n."""
    fit, use = halves(tokens(3000, length=10))
    for causal in (False, True):
        model = small("nope", causal=causal)
        fitted, used = states(model, fit), states(model, use)
        found = [
            MeanSplit.fit(model, one).explains(model, other)
            for one, other in zip(fitted, used, strict=True)
        ]
        assert abs(found[0]) < 2 / len(fit)  # before any attention there is none
        if causal:
            assert found[1] > 5 / len(fit)
        else:
            assert abs(found[1]) < 2 / len(fit)
            assert found[1] < 0  # noise explains less than nothing of other sequences


def test_a_table_explains_much_of_its_layer(small, tokens) -> None:
    model = small("sinusoidal")
    fitted, used = (states(model, half)[0] for half in halves(tokens(200)))
    assert 0.1 < MeanSplit.fit(model, fitted).explains(model, used) < 0.9


def test_independent_tokens(tokens) -> None:
    batch = tokens(4000, length=5)
    assert batch.lengths_B.tolist() == [5] * 4000
    assert batch.tokens_BL.min() == 1  # no padding
    counts = torch.stack([batch.tokens_BL[:, t].bincount() for t in range(5)])[:, 1:].double()
    expected = 4000 / counts.shape[1]
    chi2_L = ((counts - expected) ** 2 / expected).sum(-1)
    degrees = counts.shape[1] - 1
    assert (chi2_L < degrees + 5 * (2 * degrees) ** 0.5).all()
    assert torch.equal(batch.tokens_BL, tokens(4000, length=5).tokens_BL)


def test_halves_are_disjoint(tokens) -> None:
    batch = tokens(5)
    first, second = halves(batch)
    assert torch.equal(torch.cat([first.tokens_BL, second.tokens_BL]), batch.tokens_BL)
    assert (len(first), len(second)) == (2, 3)


def test_refusals_say_why(small, tokens) -> None:
    model = small("sinusoidal")
    below, above = states(model, tokens(4, length=12))
    short = MeanSplit.fit(model, states(model, tokens(4, length=6))[1])
    generator = torch.Generator()
    cases = [
        (lambda: EmbeddingSplit.fit(model, above), "ends with layer 0, got layer 1: above it"),
        (lambda: MeanSplit.fit(model, below).parts(model, above), "fitted to layer 0 and is asked"),
        (lambda: short.parts(model, above), "fitted on 6 positions and is asked for 12"),
        (lambda: halves(tokens(1)), "got 1 sequence, give 2 or more"),
        (lambda: iid_batch(1, 4, 5, generator), "from 0 words; each must be 1 or more"),
        (lambda: iid_batch(9, 0, 5, generator), "cannot draw 0 sequences"),
    ]
    for call, message in cases:
        with pytest.raises(InputError, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)
