"""Positional encodings, one a file, each through the three doors of `base.Encoding`."""

from poslens.encodings.alibi import ALiBi, ALiBiSettings
from poslens.encodings.base import Encoding, Kind, Shape, pairwise_offsets
from poslens.encodings.bases import RoPEBases, RoPEBasesSettings
from poslens.encodings.combine import Both, FirstHeads
from poslens.encodings.fire import FIRE, FIRESettings
from poslens.encodings.kerple import KERPLE
from poslens.encodings.learned import Learned, LearnedSettings
from poslens.encodings.prope import PRoPE, PRoPESettings
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
from poslens.encodings.xpos import XPos, XPosSettings

NoPE = Encoding

ENCODINGS: dict[str, type[Encoding]] = {
    "nope": NoPE,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "t5": T5Bias,
    "alibi": ALiBi,
    "rope": RoPE,
    "kerple": KERPLE,
    "xpos": XPos,
    "fire": FIRE,
    "p-rope": PRoPE,
    "rope-bases": RoPEBases,
}

__all__ = [
    "ENCODINGS",
    "FIRE",
    "KERPLE",
    "ALiBi",
    "ALiBiSettings",
    "Both",
    "DynamicNTKScaling",
    "Encoding",
    "FIRESettings",
    "FirstHeads",
    "Kind",
    "Learned",
    "LearnedSettings",
    "LinearScaling",
    "Llama3Scaling",
    "LongRoPEScaling",
    "NTKScaling",
    "NoPE",
    "PRoPE",
    "PRoPESettings",
    "RelativeBias",
    "RoPE",
    "RoPEBases",
    "RoPEBasesSettings",
    "RoPESettings",
    "Scaling",
    "Shape",
    "Sinusoidal",
    "SinusoidalSettings",
    "T5Bias",
    "T5Settings",
    "XPos",
    "XPosSettings",
    "YaRNScaling",
    "pairwise_offsets",
    "yarn_magnitude",
]
