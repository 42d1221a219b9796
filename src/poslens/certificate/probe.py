"""What a rotary encoding does to known content: its matrices, and the turn of each channel pair.

Shapes: N contents, P positions, D head width, F channel pairs, R channels that never turn.

Turning is linear in the content, so unit vectors tell all: out = R(p) x. Once it is known which
channels pair up, two contents tell the rest, since pairs do not mix: ones on the first channel of
every pair, and ones on the second. Read as complex numbers, z = first + i second, any real 2 x 2
block acts as z -> alpha z + beta conj(z); it turns and stretches exactly where beta = 0.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from poslens.certificate.calls import Rotary

# Sums of two before them, so that R(a) R(b) = R(a + b) can be read off; and far ones of the same
# kind, where slow pairs have turned as well.
SMALL = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55)
FAR = (377, 4181, 46368, 121393)
SINGLE = 1e-6  # what float32 arithmetic on numbers about 1 may be off by


@dataclass(frozen=True)
class Pairs:
    """Which channels turn together.

    Channels `first_F` and `second_F` of the content (first below second) come out, turned, as
    channels `out_first_F` and `out_second_F`; channel `rest_R` comes out unturned as `out_rest_R`.
    """

    first_F: np.ndarray
    second_F: np.ndarray
    out_first_F: np.ndarray
    out_second_F: np.ndarray
    rest_R: np.ndarray
    out_rest_R: np.ndarray

    def __len__(self) -> int:
        return len(self.first_F)

    @property
    def permuted(self) -> bool:
        moved = [
            (self.first_F, self.out_first_F),
            (self.second_F, self.out_second_F),
            (self.rest_R, self.out_rest_R),
        ]
        return any(not np.array_equal(there, here) for there, here in moved)

    def same(self, other: "Pairs") -> bool:
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in vars(self))


@dataclass(frozen=True)
class Factors:
    """The blocks of all pairs, `alpha_PF` and `beta_PF`, and `rest_PR` of the other channels."""

    alpha_PF: np.ndarray
    beta_PF: np.ndarray
    rest_PR: np.ndarray


class Probe:
    """Calls one rotary encoding on chosen contents. Raises CallError where the target does."""

    def __init__(self, rotary: Rotary, dtype: torch.dtype | None = None) -> None:
        self.rotary = rotary
        self.dtype = dtype or rotary.dtype

    def along(self, q_ND: Tensor, k_ND: Tensor, positions: list[int]) -> tuple[Tensor, Tensor]:
        """Each content at each position, turned as query and as key: (N, P, D), float64, head 0."""
        where = torch.tensor(positions, device=self.rotary.device)
        given = [
            x[:, None, None, :]
            .expand(-1, self.rotary.heads, len(positions), -1)
            .to(self.rotary.device, self.dtype)
            .contiguous()
            for x in (q_ND, k_ND)
        ]
        q, k = self.rotary(given[0], given[1], where)
        return q[:, 0].double().cpu(), k[:, 0].double().cpu()

    def matrices(self, positions: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """R(p) of queries and of keys, (P, D, D): column d is what becomes of channel d."""
        basis = torch.eye(self.rotary.head_dim)
        q_NPD, k_NPD = self.along(basis, basis, positions)
        return q_NPD.permute(1, 2, 0).numpy(), k_NPD.permute(1, 2, 0).numpy()

    def factors(
        self, q_pairs: Pairs, k_pairs: Pairs, positions: list[int]
    ) -> tuple[Factors, Factors]:
        """The block of every pair at every position, for queries and for keys."""
        contents = [self._contents(pairs) for pairs in (q_pairs, k_pairs)]
        turned = self.along(contents[0], contents[1], positions)
        with np.errstate(invalid="ignore"):  # infinity and NaN are for the checks to judge
            q, k = (
                factors_of(pairs, x.numpy())
                for pairs, x in zip((q_pairs, k_pairs), turned, strict=True)
            )
        return q, k

    def _contents(self, pairs: Pairs) -> Tensor:
        contents = torch.zeros(2, self.rotary.head_dim)
        contents[0, pairs.first_F] = 1.0
        contents[0, pairs.rest_R] = 1.0
        contents[1, pairs.second_F] = 1.0
        return contents


def factors_of(pairs: Pairs, turned_2PD: np.ndarray) -> Factors:
    """Blocks from the two contents of `Probe.factors`, turned."""
    first, second = turned_2PD
    a, c = first[:, pairs.out_first_F], first[:, pairs.out_second_F]
    b, d = second[:, pairs.out_first_F], second[:, pairs.out_second_F]
    return Factors(
        ((a + d) + 1j * (c - b)) / 2, ((a - d) + 1j * (c + b)) / 2, first[:, pairs.out_rest_R]
    )


def find_pairs(R_PDD: np.ndarray, noise: float) -> Pairs | str:
    """Which channels turn together, or in words why they do not form pairs.

    An entry counts where it exceeds `noise` at any of the positions, the first of which is 0.
    """
    meets_DD = (np.abs(R_PDD) > noise).any(0)
    width = len(meets_DD)
    rows, columns = np.nonzero(meets_DD)
    graph = coo_array((np.ones(len(rows)), (rows, columns + width)), shape=(2 * width, 2 * width))
    _, label = connected_components(graph, directed=False)
    pairs, rest = [], []
    for group in np.unique(label[width:]):
        channels = np.nonzero(label[width:] == group)[0]
        out = np.nonzero(label[:width] == group)[0]
        if len(channels) == len(out) == 1:
            rest.append((channels[0], out[0]))
        elif len(channels) == len(out) == 2:
            pairs.append((*channels, *_order(R_PDD[0], channels, out)))
        elif len(out) == 0:
            return f"channel {channels[0]} is set to zero"
        else:
            return (
                f"channels {_some(channels)} mix with one another ({len(channels)} channels into "
                f"{len(out)}); a rotation turns two at a time"
            )
    columns_of_pairs = np.array(sorted(pairs), dtype=int).reshape(-1, 4).T
    columns_of_rest = np.array(sorted(rest), dtype=int).reshape(-1, 2).T
    return Pairs(*columns_of_pairs, *columns_of_rest)


def _order(R_DD: np.ndarray, channels: np.ndarray, out: np.ndarray) -> tuple[int, int]:
    """Which of two output channels is the first: itself, or the one that it is at position 0."""
    if set(channels) == set(out):
        return int(channels[0]), int(channels[1])
    first = int(np.abs(R_DD[out, channels[0]]).argmax())
    return int(out[first]), int(out[1 - first])


def _some(channels: np.ndarray) -> str:
    shown = ", ".join(str(channel) for channel in channels[:6])
    return shown + (", .." if len(channels) > 6 else "")
