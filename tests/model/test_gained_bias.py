"""Attention with a bias under a gain, against autograd through attention written out."""

import pytest
import torch

from poslens.model import gained_bias
from poslens.model.gained_bias import GainedBias


@pytest.mark.parametrize("bias_rows", [None, 1, 5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weights", [1, 200, 2**20])
def test_outputs_and_gradients_are_those_of_attention_written_out(
    bias_rows: int | None, masked: bool, weights: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held a row at a time, a few, or all at once; gains other than 1."""
    monkeypatch.setattr(gained_bias, "WEIGHTS", weights)
    torch.manual_seed(0)
    queries, keys, values = (
        torch.randn(5, 3, 6, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)
    )
    gains_BH = torch.rand(5, 3, dtype=torch.float64, requires_grad=True)
    shape = (3, 6, 6) if bias_rows is None else (bias_rows, 3, 6, 6)
    bias = torch.randn(shape, dtype=torch.float64)
    lengths_B = torch.tensor([6, 3, 5, 1, 6])
    visible = (torch.arange(6) < lengths_B[:, None])[:, None, None] if masked else None

    logits = 0.3 * queries @ keys.mT + gains_BH[..., None, None] * bias
    if visible is not None:
        logits = logits.masked_fill(~visible, float("-inf"))
    expected = logits.softmax(-1) @ values
    found = GainedBias.apply(queries, keys, values, gains_BH, bias, visible, 0.3)
    torch.testing.assert_close(found, expected)
    inputs, weights_BHLD = (queries, keys, values, gains_BH), torch.randn_like(expected)
    wanted = torch.autograd.grad((expected * weights_BHLD).sum(), inputs)
    own = torch.autograd.grad((found * weights_BHLD).sum(), inputs)
    torch.testing.assert_close(own, wanted)
    fixed = (it.detach() for it in (queries, keys, values))
    alone = GainedBias.apply(*fixed, gains_BH, bias, visible, 0.3)
    (of_gains,) = torch.autograd.grad((alone * weights_BHLD).sum(), gains_BH)
    torch.testing.assert_close(of_gains, wanted[-1])
