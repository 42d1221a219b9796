"""Axes of seeds: powers of ten, and training steps with the untrained model at the left."""

import math
from collections.abc import Sequence

GAP = 0.5  # between step 0 and the next, in powers of ten
ROOM = 0.25  # beyond the ends


def decades(low: float, high: float) -> tuple[list[float], list[str]]:
    """Ticks from 10^low to 10^high with their texts: at 1 and 3 of each decade, or at 1 alone."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    bases = (1, 3) if high - low < 2.5 else (1,)
    ticks = [(base, power) for power in powers for base in bases]
    shown = [it for it in ticks if low <= math.log10(it[0]) + it[1] <= high]
    return [base * 10.0**power for base, power in shown], [_text(*it) for it in shown]


def _text(base: int, power: int) -> str:
    """3 times 10^-2 as "0.03", 10^-5 as "10⁻⁵"."""
    if power >= -3:
        return f"{base * 10.0**power:g}"
    raised = "⁻" + str(-power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if base == 1 else f"{base}·10{raised}"


class Steps:
    """Where steps stand on an axis of powers of ten, and what is written there."""

    def __init__(self, steps: Sequence[int]) -> None:
        later = sorted({step for step in steps if step > 0})
        self.first = math.log10(later[0]) if later else 0.0
        self.last = math.log10(later[-1]) if later else 0.0
        self.begins = 0 in steps

    def place(self, step: int) -> float:
        return self.first - GAP if step == 0 else math.log10(step)

    @property
    def range(self) -> tuple[float, float]:
        return self.first - (GAP if self.begins else 0) - ROOM, self.last + ROOM

    @property
    def ticks(self) -> tuple[list[float], list[str]]:
        """Places and texts: 0, and powers of ten, or the ends where there are fewer than two."""
        powers = [10**k for k in range(math.ceil(self.first - 1e-9), int(self.last + 1e-9) + 1)]
        if len(powers) < 2:
            powers = sorted({round(10**self.first), round(10**self.last)})
        shown = [0] * self.begins + powers
        return [self.place(step) for step in shown], [f"{step:,}" for step in shown]
