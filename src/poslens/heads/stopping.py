"""When measuring may stop early, such that intervals keep their coverage.

To stop at a moment that the answers choose biases what is then said of them. Width alone hardly
does: it says little of where the effect lies. Waiting for a number of changed answers does, since
the wait ends on a lucky streak; so these must be among the first half of the sequences, and half
of what an interval is made from had no say in when to stop.

Shapes: V variants, N sequences.
"""

import numpy as np
from numpy.typing import NDArray

from poslens.heads.intervals import Bools, paired_accuracy

LOOK = 512  # sequences before the first look, and between looks
DISCORDANT = 10  # answers that some variant must have changed in the first half


def precise(intact_N: Bools, ablated_VN: Bools, precision: float) -> NDArray[np.bool_]:
    """Whether every variant's 95 % interval of accuracy reaches at most `precision` to either side.

    Some variant must also have changed `DISCORDANT` answers among the first half of the sequences.
    Dimensions before V, if any, are decided apart.
    """
    *apart, variants, sequences = ablated_VN.shape
    if sequences < LOOK:
        return np.zeros(apart, np.bool_)
    half = sequences // 2
    changed_V = (ablated_VN[..., :half] != intact_N[:half]).sum(-1)
    found = paired_accuracy(intact_N, ablated_VN.reshape(-1, sequences))
    reach_V = np.maximum(found.high - found.effect, found.effect - found.low)
    narrow_V = reach_V.reshape(*apart, variants) <= precision
    return np.asarray(narrow_V.all(-1) & (changed_V.max(-1) >= DISCORDANT))
