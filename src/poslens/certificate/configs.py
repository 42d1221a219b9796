"""The rotary parameters that a transformers-style configuration asks for.

Both spellings are read: `rope_theta` with `rope_scaling` (`type` or `rope_type`), and the
`rope_parameters` of transformers 5, also one set for each type of layer. Frequencies are computed
by `poslens.encodings.scaling`, not by the library whose modules are judged.
"""

import contextlib
import dataclasses
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poslens.encodings.scaling import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    NTKScaling,
    Scaling,
    YaRNScaling,
)
from poslens.errors import InputError

_KINDS = ("default", "linear", "ntk", "dynamic", "yarn", "longrope", "llama3", "proportional")
_SAME = {"su": "longrope", "mrope": "default", "ntk-aware": "ntk"}
# Other names that families have given the same thing.
_PARTIAL = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percentage")
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")


@dataclasses.dataclass(frozen=True)
class Expected:
    """What a configuration implies: `count` pairs, exponents 2f / `width`, scaled by `scaling`.

    `length` is the trained length after scaling (max_position_embeddings), `original_length` that
    before it; `interleaved` is None where the configuration does not say. `magnitudes` are the
    attention factors of short and long calls where they are given outright.
    """

    kind: str
    base: float
    head_dim: int
    count: int
    width: int
    scaling: Scaling
    length: int | None = None
    original_length: int | None = None
    interleaved: bool | None = None
    magnitudes: tuple[float, float] | None = None

    def frequencies(self, length: int) -> tuple[np.ndarray, float]:
        """The pairs' frequencies and the attention factor in calls of this length."""
        theta_F, magnitude = self.scaling.frequencies(self.base, self.width, torch.tensor(length))
        if self.magnitudes is not None and self.original_length is not None:
            magnitude = self.magnitudes[length > self.original_length]
        return theta_F.numpy()[: self.count], magnitude

    @property
    def by_length(self) -> bool:
        return isinstance(self.scaling, DynamicNTKScaling | LongRoPEScaling)

    @property
    def words(self) -> str:
        """The constants, as they would be written in a configuration."""
        settings = {
            name: value
            for name, value in vars(self.scaling).items()
            if value is not None and not isinstance(value, tuple)
        }
        parts = [f"base {self.base:,.10g}", f"{2 * self.count} of {self.head_dim} channels"]
        if self.kind != "default":
            parts.append(self.kind)
        parts += [f"{name} {value}" for name, value in settings.items()]
        return ", ".join(parts)


def read_config(source: Any) -> dict[str, Any]:
    """A configuration as a dictionary: from a path, a mapping, or an object with `to_dict`.

    Where it names a model type that an installed transformers knows, what it leaves out is filled
    in from that. Raises InputError for a file that is missing or is no JSON object.
    """
    if isinstance(source, str | Path):
        values = _read_json(Path(source))
    elif isinstance(source, Mapping):
        values = dict(source)
    elif hasattr(source, "to_dict"):
        return _with_head_dim(dict(source.to_dict()), source)
    else:
        raise InputError(
            f"a configuration is a path, a dictionary or a config object, not {source!r}"
        )
    return _filled(values)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; give a config.json that is there") from error
    except (ValueError, IsADirectoryError) as error:
        raise InputError(f"{path} is no JSON file ({error})") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold a JSON object, as a model's config.json does")
    return values


def config_class(model_type: str) -> Any:
    """The config class of a model type in the installed transformers, or None."""
    try:
        auto = importlib.import_module("transformers.models.auto.configuration_auto")
        return auto.CONFIG_MAPPING[model_type]
    except (ImportError, KeyError):
        return None


def _filled(values: dict[str, Any]) -> dict[str, Any]:
    """The class's defaults under the values; as they are where it cannot be made from them."""
    kind = config_class(str(values.get("model_type", "")))
    if kind is None:
        return values
    try:
        made = kind(**{name: value for name, value in values.items() if name != "model_type"})
    except Exception:  # whatever a config class objects to, the values say what is expected
        return values
    return _with_head_dim({**values, **made.to_dict()}, made)


def _with_head_dim(values: dict[str, Any], config: Any) -> dict[str, Any]:
    """With a head width that a config object computes but does not list, if it has one."""
    if values.get("head_dim") is None:
        with contextlib.suppress(Exception):  # some have none, or another one for each layer
            values["head_dim"] = config.head_dim
    return values


def expected_rotary(
    source: Any, layer_type: str | None = None, head_dim: int | None = None
) -> Expected:
    """What the configuration implies for `layer_type`, where it differs between layers.

    `head_dim` serves configurations that do not say it. Raises InputError for a kind of scaling
    that is not known, and for what is missing.
    """
    values = read_config(source)
    if isinstance(values.get("text_config"), dict):
        values = {**values, **_filled(values["text_config"])}
    rope = _parameters(values, layer_type)
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    kind = _SAME.get(kind, kind)
    if kind not in _KINDS:
        raise InputError(f"the configuration's rope_type {kind!r} is none of: {', '.join(_KINDS)}")
    share = _first(rope, _PARTIAL) or _first(values, _PARTIAL)
    head = _head_dim(values, share is not None, layer_type) or head_dim
    if head is None:
        raise InputError(
            "the configuration has no head_dim, nor hidden_size and num_attention_heads"
        )
    base = _first(rope, ("rope_theta",)) or _first(
        values, ("rope_theta", "rotary_emb_base", "rope_base")
    )
    share = share or 1.0
    rotated = values.get("rotary_dim") or int(head * share)
    across = kind == "proportional"
    length = values.get("max_position_embeddings")
    original = (
        rope.get("original_max_position_embeddings")
        or values.get("original_max_position_embeddings")
        or length
    )
    marks = ("short_mscale", "long_mscale")
    return Expected(
        kind,
        float(base or 10_000.0),
        head,
        # An odd width has one pair more, as torch.arange(0, width, 2) has it.
        int(share * head // 2) if across else -(-rotated // 2),
        head if across else rotated,
        _scaling(kind, rope, length, original),
        length,
        original,
        _first(values, ("rope_interleave", "rotary_interleaved", "rope_interleaved")),
        tuple(float(rope[mark]) for mark in marks) if all(rope.get(m) for m in marks) else None,  # type: ignore[arg-type]
    )


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _parameters(values: dict[str, Any], layer_type: str | None) -> dict[str, Any]:
    """The set of rotary parameters that holds for the layer type."""
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    nested = {name: part for name, part in rope.items() if isinstance(part, dict)}
    if not nested:
        return dict(rope)
    if layer_type is None:
        layer_type = next(iter(nested))
    if layer_type not in nested:
        raise InputError(
            f"the configuration has no rotary parameters for layer type {layer_type!r}; "
            f"it has: {', '.join(nested)}"
        )
    return dict(nested[layer_type])


def _head_dim(values: dict[str, Any], partial: bool, layer_type: str | None) -> int | None:
    """The head's width; for latent attention that of its rotary part, unless a share is given."""
    types = values.get("layer_types") or []
    for layer, own in (values.get("per_layer_config") or {}).items():  # Gemma 4
        if int(layer) < len(types) and types[int(layer)] == layer_type and own.get("head_dim"):
            return int(own["head_dim"])
    names = ("head_dim", "qk_rope_head_dim") if partial else ("qk_rope_head_dim", "head_dim")
    if found := _first(values, names):
        return int(found)
    hidden, heads = _first(values, _HIDDEN), _first(values, _HEADS)
    return int(hidden) // int(heads) if hidden and heads else None


def _scaling(kind: str, rope: dict[str, Any], length: int | None, original: int | None) -> Scaling:
    """The scaling of this kind. Raises InputError for a constant that is missing or impossible."""

    def need(name: str, fallback: Any = None) -> Any:
        value = rope.get(name)
        value = fallback if value is None else value
        if value is None:
            raise InputError(f"the configuration's rope_type {kind!r} needs {name!r}")
        return value

    if kind == "default":
        return Scaling()
    if kind == "proportional":
        return LinearScaling(float(rope.get("factor") or 1.0))
    if kind == "linear":
        return LinearScaling(float(need("factor")))
    if kind == "ntk":
        return NTKScaling(float(need("factor")))
    if kind == "dynamic":
        return DynamicNTKScaling(float(need("factor")), int(need("length", length)))
    trained = int(need("original_max_position_embeddings", original))
    factor = float(need("factor", length / trained if length else None))
    if kind == "llama3":
        return Llama3Scaling(
            factor, trained, float(need("low_freq_factor")), float(need("high_freq_factor"))
        )
    if kind == "longrope":
        short, long = (tuple(map(float, need(name))) for name in ("short_factor", "long_factor"))
        return LongRoPEScaling(short, long, trained, factor, rope.get("attention_factor"))
    return YaRNScaling(
        factor,
        trained,
        float(rope.get("beta_fast") or 32),
        float(rope.get("beta_slow") or 1),
        rope.get("attention_factor"),
        rope.get("mscale") or None,
        rope.get("mscale_all_dim") or None,
        bool(rope.get("truncate", True)),
    )
