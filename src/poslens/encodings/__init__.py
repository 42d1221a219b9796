"""Positional encodings, one a file, each through the three doors of `base.Encoding`."""

from poslens.encodings.alibi import ALiBi
from poslens.encodings.base import Encoding, Kind, Shape, pairwise_offsets
from poslens.encodings.combine import Both, FirstHeads
from poslens.encodings.kerple import KERPLE
from poslens.encodings.learned import Learned, LearnedSettings
from poslens.encodings.relative import RelativeBias
from poslens.encodings.rope import RoPE, RoPESettings
from poslens.encodings.scaling import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    NTKScaling,
    Scaling,
    YaRNScaling,
    yarn_magnitude,
)
from poslens.encodings.sinusoidal import Sinusoidal, SinusoidalSettings
from poslens.encodings.t5 import T5Bias, T5Settings

NoPE = Encoding

ENCODINGS: dict[str, type[Encoding]] = {
    "nope": NoPE,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "t5": T5Bias,
    "alibi": ALiBi,
    "rope": RoPE,
    "kerple": KERPLE,
}

__all__ = [
    "ENCODINGS",
    "KERPLE",
    "ALiBi",
    "Both",
    "DynamicNTKScaling",
    "Encoding",
    "FirstHeads",
    "Kind",
    "Learned",
    "LearnedSettings",
    "LinearScaling",
    "Llama3Scaling",
    "LongRoPEScaling",
    "NTKScaling",
    "NoPE",
    "RelativeBias",
    "RoPE",
    "RoPESettings",
    "Scaling",
    "Shape",
    "Sinusoidal",
    "SinusoidalSettings",
    "T5Bias",
    "T5Settings",
    "YaRNScaling",
    "pairwise_offsets",
    "yarn_magnitude",
]
