"""What the checks of a rotary encoding know about it, gathered once.

Shapes: P positions, F channel pairs.
"""

import time
from dataclasses import dataclass, field

import numpy as np
import torch

from poslens.certificate.calls import CallError
from poslens.certificate.layout import Layout
from poslens.certificate.probe import Factors, Pairs, Probe
from poslens.certificate.recovery import Frequencies, phase_error

FAR_POSITION, FARTHEST = 131_072, 1_000_000
SLOW = 0.01  # seconds of processor time; a dozen calls at 1,000,000 then take one


@dataclass
class Evidence:
    """`q` and `k` are the blocks at `positions`, the small ones, in a call without others.

    `magnitude` is the attention factor, `low` what low-precision tables may add to an error of
    float32, `last` the last position that can be asked for, `end` the reason why (empty where it
    is only the last that was tried). `fading` says that sizes change with position (xPos), `switch`
    is the length from which frequencies change, if any.
    """

    probe: Probe
    positions: list[int]
    q_pairs: Pairs
    k_pairs: Pairs
    q: Factors
    k: Factors
    layout: Layout
    last: int
    end: str
    low: float = 0.0
    magnitude: float = 1.0
    origin_F: np.ndarray = field(default_factory=lambda: np.zeros(0))
    fading: bool = False
    frequencies: Frequencies | None = None
    switch: int | None = None

    @property
    def theta_F(self) -> np.ndarray:
        assert self.frequencies is not None
        return self.frequencies.theta_F

    @property
    def fastest(self) -> float:
        return float(np.abs(self.theta_F).max(initial=0.0))

    def tolerance(self, positions: np.ndarray | float) -> np.ndarray:
        """What a unit number turned at these positions may be off by."""
        return phase_error(positions, self.fastest) + self.low

    @property
    def limit(self) -> int:
        """The last position at which frequencies are those of short calls."""
        return self.last if self.switch is None else min(self.last, self.switch - 1)


def last_position(probe: Probe) -> tuple[int, str]:
    """The last position that can be asked for, up to 1,000,000, and the error beyond it.

    Searched by halving: what can be asked for at one position can be at all below it. A target
    slow at 131,072, because it makes a table of all positions, is not asked for 1,000,000.
    """
    content = torch.ones(1, probe.rotary.head_dim)

    def error_at(position: int) -> str:
        try:
            probe.along(content, content, [0, position])
        except CallError as error:
            return str(error)
        return ""

    def timed(position: int) -> tuple[str, float]:
        started = time.process_time()
        return error_at(position), time.process_time() - started

    low, high = 0, FAR_POSITION
    reason, seconds = timed(FAR_POSITION)
    if not reason:
        if seconds > SLOW and timed(FAR_POSITION + 1)[1] > SLOW:  # not the first call alone
            return FAR_POSITION, ""
        reason = error_at(FARTHEST)
        if not reason:
            return FARTHEST, ""
        low, high = FAR_POSITION, FARTHEST
    while high - low > 1:
        middle = (low + high) // 2
        found = error_at(middle)
        low, high, reason = (low, middle, found) if found else (middle, high, reason)
    return low, reason
