"""The one registry of schemes: encoding + attention module + the heads it applies to.

A scheme is written as it is read: `rope`, `rope@1` (RoPE on the first head, the others NoPE),
`sinusoidal+rope` (both doors), `mla` (latent attention around a RoPE channel).
"""

import difflib
import re
from dataclasses import dataclass
from typing import Any

from poslens.encodings import (
    ENCODINGS,
    Both,
    Encoding,
    FirstHeads,
    Learned,
    LearnedSettings,
    Shape,
    Sinusoidal,
    SinusoidalSettings,
)
from poslens.errors import InputError
from poslens.model.attention import Attention, MultiHeadAttention
from poslens.model.gains import gain_settings, learn_gains
from poslens.model.latent_attention import LatentAttention, LatentSettings
from poslens.model.transformer import ExtraTable, ModelSettings, Transformer
from poslens.settings import convert
from poslens.tasks import Task

# The nine of the study and its neighbours, in the order tables and figures show them.
STUDY = (
    "nope",
    "sinusoidal",
    "learned",
    "t5",
    "alibi",
    "rope",
    "rope@1",
    "sinusoidal+rope",
    "mla",
)


@dataclass(frozen=True)
class Scheme:
    """A parsed scheme: which attention, and which encodings on how many heads (None: all)."""

    name: str
    attention: type[Attention]
    parts: tuple[tuple[str, int | None], ...]

    def encoding(self, shape: Shape, settings: dict[str, dict[str, Any]]) -> Encoding:
        """The scheme's encoding for queries and keys of `shape`.

        `settings` maps an encoding's name to values for its settings dataclass. Raises InputError
        for an unknown setting.
        """
        built = []
        for name, heads in self.parts:
            kind = ENCODINGS[name]
            encoding = kind(shape, convert(kind.Settings, settings.get(name, {}), name))
            built.append(encoding if heads is None else FirstHeads(shape, encoding, heads))
        whole = built[0]
        for encoding in built[1:]:
            whole = Both(shape, whole, encoding)
        return whole


def parse_scheme(name: str) -> Scheme:
    """Read a scheme's name. Raises InputError that names the close ones."""
    if name == "mla":
        return Scheme(name, LatentAttention, (("rope", None),))
    parts: list[tuple[str, int | None]] = []
    for part in name.split("+"):
        match = re.fullmatch(r"([a-z0-9-]+)(?:@(\d+))?", part)
        if match is None or match[1] not in ENCODINGS:
            known = [*STUDY, *(other for other in ENCODINGS if other not in STUDY)]
            close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.4) or known
            raise InputError(f"unknown scheme {name!r}; did you mean: {', '.join(close)}?")
        parts.append((match[1], None if match[2] is None else int(match[2])))
    if len(dict(parts)) < len(parts):
        raise InputError(f"scheme {name!r} names an encoding twice; name each once")
    return Scheme(name, MultiHeadAttention, tuple(parts))


def build(
    scheme: str,
    task: Task,
    settings: ModelSettings | None = None,
    parts: dict[str, dict[str, Any]] | None = None,
) -> Transformer:
    """A model of `scheme` for `task`, initialised from torch's global generator.

    `parts` sets what differs from the defaults of the scheme's parts, by name:
    `{"rope": {"base": 500000}}`, `{"mla": {"rotary_width": 4}}`,
    `{"rope": {"scaling": {"kind": "linear", "factor": 2.0}}}`. `{"gain": {}}` has heads learn their
    positional gains (`GainSettings`). Raises InputError for an unknown scheme, widths that do not
    fit, a part or setting that the scheme does not have, an extra table that it has already, or
    biases per layer where it learns none.
    """
    settings, parts = settings or ModelSettings(), parts or {}
    parsed = parse_scheme(scheme)
    have = [name for name, _ in parsed.parts]
    if settings.extra_table in have:
        raise InputError(f"scheme {scheme!r} has the table {settings.extra_table!r} already")
    latent = None
    if parsed.attention is LatentAttention:
        have.append("mla")
        latent = convert(LatentSettings, parts.get("mla", {}), "mla")
    have.append("gain")
    for name in parts:
        if name not in have:
            raise InputError(f"scheme {scheme!r} has no part {name!r}; it has: {', '.join(have)}")
    shape = settings.shape(task.max_length)
    inner = parsed.attention.encoding_shape(shape, latent)
    own = parsed.encoding(inner, parts)
    encoding = with_table(own, settings.extra_table)
    if settings.bias_per_layer and not learns_only_biases(encoding):
        raise InputError(
            "bias_per_layer is for encodings that learn biases and nothing else, such as t5; "
            f"{scheme!r} with extra_table {settings.extra_table!r} is none"
        )
    attentions = [parsed.attention(shape, own, latent) for _ in range(settings.layers)]
    gains = gain_settings(parts)
    if gains is not None:
        learn_gains(gains, attentions, encoding)
    upper = [
        with_table(parsed.encoding(inner, parts), settings.extra_table)
        for _ in range(1, settings.layers if settings.bias_per_layer else 1)
    ]
    return Transformer(settings, encoding, attentions, task.embeddings, task.classes, upper)


def with_table(encoding: Encoding, table: ExtraTable) -> Encoding:
    """The encoding and a table added to the input, of the kind that the study's code adds.

    "sinusoidal" has sines in the first half of the channels and cosines in the second; "learned"
    starts at zero.
    """
    shape = encoding.shape
    if table == "sinusoidal":
        return Both(shape, Sinusoidal(shape, SinusoidalSettings(layout="half")), encoding)
    if table == "learned":
        return Both(shape, Learned(shape, LearnedSettings(std=0.0)), encoding)
    return encoding


def learns_only_biases(encoding: Encoding) -> bool:
    """Whether the encoding has parameters, all of them in parts that make biases."""
    learning = [
        part
        for part in encoding.modules()
        if isinstance(part, Encoding) and any(True for _ in part.parameters(recurse=False))
    ]
    return bool(learning) and all(type(part).bias is not Encoding.bias for part in learning)
