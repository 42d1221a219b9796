"""The frequencies of RoPE, and the ways of stretching them to longer sequences.

Shapes: D rotary width, F = D/2 rotary frequencies. Frequencies are in radians per position and
float64: an angle near 100,000 radians rounded to float32 is off by up to 0.004.
"""

import math
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from poslens.errors import InputError


def geometric_frequencies(base: float, width: int, device: torch.device) -> Tensor:
    """theta_f = base^(-2f/width) for f = 0 .. width/2 - 1, shape (F,) (Su et al. 2021, eq. 15).

    Raises InputError for a base of 1 or less.
    """
    if base <= 1:
        raise InputError(f"the base of the frequencies must be above 1, got {base}")
    return base ** -(torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """0.1 weight ln(factor) + 1, or 1 where nothing is stretched (Peng et al. 2023, 3.4).

    DeepSeek also multiplies the scale of its logits by the square of this.
    """
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


@dataclass(frozen=True)
class Scaling:
    """No scaling: the frequencies of RoPE as they are. Subclasses change them.

    `KINDS` names them, for settings given as plain values: {"kind": "linear", "factor": 4.0}.
    A setting that is 0 or negative raises InputError.
    """

    KINDS: ClassVar[dict[str, type["Scaling"]]]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            for number in value if isinstance(value, tuple) else (value,):
                if number is not None and not isinstance(number, bool) and number <= 0:
                    name = f"{type(self).__name__}.{field.name}"
                    raise InputError(f"{name} must be above 0, got {number}")

    def frequencies(self, base: float, width: int, length: Tensor) -> tuple[Tensor, float]:
        """Frequencies (F,), and the attention factor that rotated queries and keys are scaled by.

        `length` is the current sequence length, an integer tensor without dimensions, so that
        nothing waits for a GPU to tell its value; the frequencies come on its device.
        """
        return geometric_frequencies(base, width, length.device), 1.0


@dataclass(frozen=True)
class LinearScaling(Scaling):
    """Position interpolation: every frequency divided by `factor` (Chen et al. 2023)."""

    factor: float

    def frequencies(self, base: float, width: int, length: Tensor) -> tuple[Tensor, float]:
        return geometric_frequencies(base, width, length.device) / self.factor, 1.0


@dataclass(frozen=True)
class NTKScaling(Scaling):
    """Fixed NTK-aware scaling: the base times factor^(D/(D-2)) (Peng et al. 2023, 3.1)."""

    factor: float

    def frequencies(self, base: float, width: int, length: Tensor) -> tuple[Tensor, float]:
        theta_F = geometric_frequencies(base, width, length.device)
        return theta_F * _ntk_slowing(torch.full_like(theta_F, self.factor), width), 1.0


@dataclass(frozen=True)
class DynamicNTKScaling(Scaling):
    """NTK-aware scaling by factor (length/original_length) - (factor - 1), at least 1.

    Peng et al. 2023, section 3.3, with the stretch used by `transformers`. It keeps no state:
    each call sees its own length alone.
    """

    factor: float
    original_length: int

    def frequencies(self, base: float, width: int, length: Tensor) -> tuple[Tensor, float]:
        theta_F = geometric_frequencies(base, width, length.device)
        excess = (length.double() / self.original_length).clamp(min=1.0) - 1.0
        return theta_F * _ntk_slowing(1.0 + self.factor * excess, width), 1.0


@dataclass(frozen=True)
class YaRNScaling(Scaling):
    """NTK-by-parts: fast frequencies stay, slow ones are divided by `factor`, a ramp lies between.

    Peng et al. 2023, sections 3.2 and 3.4. A frequency is fast if it turns more than `beta_fast`
    times within `original_length` positions, slow if fewer than `beta_slow` times; `truncate`
    rounds the ends of the ramp outwards to whole frequencies. `attention_factor` None means
    0.1 ln(factor) + 1, or, where both are given (DeepSeek), the quotient of the magnitudes at
    weights `mscale` and `mscale_all_dim`.
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def frequencies(self, base: float, width: int, length: Tensor) -> tuple[Tensor, float]:
        theta_F = geometric_frequencies(base, width, length.device)
        low = self._index(self.beta_fast, base, width)
        high = self._index(self.beta_slow, base, width)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        high += 0.001 if low == high else 0.0  # a step instead of a division by zero
        index_F = torch.arange(width // 2, dtype=torch.float64, device=length.device)
        slow_F = ((index_F - low) / (high - low)).clamp(0, 1)
        return theta_F * (slow_F / self.factor + (1 - slow_F)), self._attention_factor()

    def _index(self, turns: float, base: float, width: int) -> float:
        """Which f makes this many turns within the original length; not a whole number."""
        turned = self.original_length / (turns * 2 * math.pi)
        return width * math.log(turned) / (2 * math.log(base))

    def _attention_factor(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale is None or self.mscale_all_dim is None:
            return yarn_magnitude(self.factor)
        return yarn_magnitude(self.factor, self.mscale) / yarn_magnitude(
            self.factor, self.mscale_all_dim
        )


@dataclass(frozen=True)
class LongRoPEScaling(Scaling):
    """Each frequency divided by its own searched factor (Ding et al. 2024).

    `short_factors` serve sequences up to `original_length`, `long_factors` longer ones; both have
    one entry a frequency, else InputError. `attention_factor` None means
    sqrt(1 + ln(factor) / ln(original_length)), and 1 where `factor` is at most 1.
    """

    short_factors: tuple[float, ...]
    long_factors: tuple[float, ...]
    original_length: int
    factor: float = 1.0
    attention_factor: float | None = None

    def frequencies(self, base: float, width: int, length: Tensor) -> tuple[Tensor, float]:
        theta_F = geometric_frequencies(base, width, length.device)
        for factors in (self.short_factors, self.long_factors):
            if len(factors) != width // 2:
                raise InputError(
                    f"LongRoPE needs {width // 2} factors for rotary width {width},"
                    f" got {len(factors)}"
                )
        is_long = length > self.original_length
        factors_F = torch.where(
            is_long, theta_F.new_tensor(self.long_factors), theta_F.new_tensor(self.short_factors)
        )
        return theta_F / factors_F, self._attention_factor()

    def _attention_factor(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.factor <= 1:
            return 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_length))


@dataclass(frozen=True)
class Llama3Scaling(Scaling):
    """Slow frequencies divided by `factor`, fast ones kept, a ramp between (Llama 3.1).

    The ramp runs over the turns within `original_length` positions, from `low_turns` (slow) to
    `high_turns` (fast): `low_freq_factor` and `high_freq_factor` in Llama's own files.
    Raises InputError unless the first is below the second.
    """

    factor: float = 8.0
    original_length: int = 8192
    low_turns: float = 1.0
    high_turns: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low_turns >= self.high_turns:
            raise InputError(
                f"Llama3Scaling.low_turns must be below high_turns, {self.high_turns},"
                f" got {self.low_turns}"
            )

    def frequencies(self, base: float, width: int, length: Tensor) -> tuple[Tensor, float]:
        theta_F = geometric_frequencies(base, width, length.device)
        turns_F = self.original_length * theta_F / (2 * math.pi)
        fast_F = ((turns_F - self.low_turns) / (self.high_turns - self.low_turns)).clamp(0, 1)
        return theta_F * ((1 - fast_F) / self.factor + fast_F), 1.0


Scaling.KINDS = {
    "linear": LinearScaling,
    "ntk": NTKScaling,
    "dynamic": DynamicNTKScaling,
    "yarn": YaRNScaling,
    "longrope": LongRoPEScaling,
    "llama3": Llama3Scaling,
}


def _ntk_slowing(stretch: Tensor, width: int) -> Tensor:
    """What a base larger by stretch^(D/(D-2)) does: f = 0 stays, the slowest falls by `stretch`."""
    if width <= 2:
        raise InputError(f"NTK scaling needs a rotary width above 2, got {width}")
    exponents_F = torch.arange(0, width, 2, dtype=torch.float64, device=stretch.device)
    return stretch ** -(exponents_F / (width - 2))
