"""Intervals of proportions."""

import math

Z = 1.959963984540054  # 97.5 % point of the standard normal


def wilson(share: float, size: int) -> tuple[float, float]:
    """The 95 % score interval of a proportion `share` seen in `size` trials (Wilson 1927)."""
    centre = (share + Z * Z / (2 * size)) / (1 + Z * Z / size)
    half = Z / (1 + Z * Z / size) * math.sqrt(share * (1 - share) / size + (Z / (2 * size)) ** 2)
    # At 0 and 1 the bound is the share itself, which rounding must not put outside.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))
