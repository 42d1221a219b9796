"""KERPLE, the logarithmic variant (Chi et al. 2022, arXiv 2205.09921, section 4)."""

import torch
from torch import Tensor, nn

from poslens.encodings.base import Shape
from poslens.encodings.relative import RelativeBias


class KERPLE(RelativeBias):
    """-r1 log(1 + r2 |offset|), with learned r1, r2 > 0 for each head.

    Their logarithms are what is learned, which keeps them positive. They start uniform, r1 up to 2
    and r2 up to 1, at least 0.01, as in the authors' code.
    """

    def __init__(self, shape: Shape, settings: object = None) -> None:
        super().__init__(shape, settings)
        self.log_r1_H = nn.Parameter((2 * torch.rand(shape.heads)).clamp(min=0.01).log())
        self.log_r2_H = nn.Parameter(torch.rand(shape.heads).clamp(min=0.01).log())

    def kernel(self, offsets: Tensor) -> Tensor:
        grown = torch.tensordot(self.log_r2_H.exp(), offsets.abs().to(self.log_r2_H), dims=0)
        return torch.einsum("h,h...->h...", -self.log_r1_H.exp(), torch.log1p(grown))
