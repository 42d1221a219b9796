"""KERPLE by hand."""

import math

import torch

from poslens.encodings import KERPLE, Shape


def test_formula() -> None:
    kerple = KERPLE(Shape(width=4, heads=2, head_width=2, max_length=8))
    kerple.log_r1_H.data = torch.tensor([1.5, 0.5]).log()
    kerple.log_r2_H.data = torch.tensor([0.25, 3.0]).log()
    bias_HLM = kerple.bias(torch.tensor([4, 7]), torch.tensor([0, 4, 9]))
    for head, (r1, r2) in enumerate([(1.5, 0.25), (0.5, 3.0)]):
        expected = [[-r1 * math.log(1 + r2 * abs(i - j)) for j in (0, 4, 9)] for i in (4, 7)]
        torch.testing.assert_close(bias_HLM[head], torch.tensor(expected), rtol=1e-5, atol=1e-5)


def test_starts_within_the_authors_ranges_and_learns() -> None:
    torch.manual_seed(0)
    kerple = KERPLE(Shape(width=2000, heads=1000, head_width=2, max_length=8))
    r1_H, r2_H = kerple.log_r1_H.exp(), kerple.log_r2_H.exp()
    assert 0.0099 < r1_H.min() < 0.05
    assert 1.9 < r1_H.max() <= 2
    assert 0.0099 < r2_H.min() < 0.05
    assert 0.95 < r2_H.max() <= 1
    kerple.bias(torch.arange(8), torch.arange(8)).sum().backward()
    for parameter in (kerple.log_r1_H, kerple.log_r2_H):
        assert parameter.grad is not None
        assert (parameter.grad < 0).all()
