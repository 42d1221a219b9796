"""ALiBi against BLOOM's slopes and bias."""

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from poslens.encodings import ALiBi, Shape
from poslens.encodings.alibi import alibi_slopes


@pytest.mark.parametrize("heads", range(1, 34))
def test_slopes_and_bias_are_blooms(heads: int) -> None:
    length = 21
    theirs_HM = build_alibi_tensor(torch.ones(1, length), heads, torch.float32)[:, 0]
    torch.testing.assert_close(alibi_slopes(heads), theirs_HM[:, 1], rtol=1e-5, atol=0)

    shape = Shape(width=heads * 2, heads=heads, head_width=2, max_length=length, causal=True)
    bias_HLM = ALiBi(shape).bias(torch.arange(length), torch.arange(length))
    # BLOOM adds slope x key position: for each query the same up to a constant, on keys seen.
    difference = (bias_HLM - theirs_HM[:, None]).masked_fill(
        torch.ones(length, length).triu(1).bool(), 0.0
    )
    seen = torch.ones(length, length).tril()
    constant = difference[:, :, :1] * seen
    torch.testing.assert_close(difference, constant, rtol=1e-5, atol=1e-5)


def test_symmetric() -> None:
    alibi = ALiBi(Shape(width=16, heads=8, head_width=2, max_length=8))
    bias_HLM = alibi.bias(torch.arange(5), torch.arange(5))
    assert torch.equal(bias_HLM, bias_HLM.mT)
    assert bias_HLM[0, 0].tolist() == [0.0, -0.5, -1.0, -1.5, -2.0]
    assert bias_HLM[7, 4, 0].item() == -4 / 256


def test_nothing_to_learn_or_store() -> None:
    alibi = ALiBi(Shape(width=16, heads=8, head_width=2, max_length=8))
    assert not list(alibi.parameters())
    assert not alibi.state_dict()
