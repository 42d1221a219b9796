"""Modules of `transformers`, or written in its style: rotary embeddings, attention, biases, tables.

Shapes: B batch, H heads, L positions, M keys, D head width. A class is built from a config of its
own family: the one given, or that family's default.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from poslens.certificate.calls import CallError, Rotary, guarded, refusal
from poslens.certificate.configs import expected_rotary, read_config
from poslens.certificate.signatures import from_maker, is_apply, positional
from poslens.certificate.targets import Options, Target
from poslens.errors import InputError

_APPLY = ("apply_rotary_pos_emb", "apply_rotary_emb", "apply_rotary_pos_emb_interleave")


def files_of(kind: type[Any]) -> list[Any]:
    """The files that a class and its bases are written in, if they apply rotary encodings."""
    files = {base.__module__: sys.modules.get(base.__module__) for base in kind.__mro__}
    return [
        file for file in files.values() if any(hasattr(file, apply_name) for apply_name in _APPLY)
    ]


def in_its_style(kind: Any) -> bool:
    """A rotary embedding or attention, made from a config, with a rotary function in its file."""
    if not (inspect.isclass(kind) and issubclass(kind, nn.Module)):
        return False
    named = any(word in kind.__name__ for word in ("Rotary", "Attention"))
    configured = any(word.name.endswith("config") for word in positional(kind) or [])
    return named and configured and bool(files_of(kind))


def recognise_transformers(thing: Any, name: str, options: Options) -> Target | None:
    """A target of the library, or None. Raises InputError where it cannot be judged alone."""
    if inspect.isfunction(thing):
        return _function(thing, name, options)
    if inspect.isclass(thing):
        thing = built(thing, name, options)
    if not isinstance(thing, nn.Module):
        return None
    module: Any = thing.eval()
    if not any(parameter.is_meta for parameter in module.parameters()):
        module = module.to(options.device)
    kind = type(module).__name__
    if hasattr(module, "compute_bias"):  # T5 and its relatives
        return Target(
            name, "bias", lambda queries, keys: module.compute_bias(queries, keys),
            module_config(module), heads=getattr(module, "n_heads", None),
        )  # fmt: skip
    if "Rotary" in kind:
        return Target(name, "rotary", rotary_module(module, name, options), module_config(module))
    if isinstance(module, nn.Embedding):
        return Target(name, "table", module.weight.detach(), module_config(module))
    if any(isinstance(part, nn.Linear) for part in module.children()) and "Attention" in kind:
        from poslens.certificate.attention import attention_module

        return attention_module(module, name, options)
    return None


def module_config(module: nn.Module) -> Any:
    return getattr(module, "config", None)


def _function(function: Callable[..., Any], name: str, options: Options) -> Target | None:
    """ALiBi tensors of BLOOM, Falcon and MPT; a rotary function alone has no frequencies."""
    names = [parameter.name for parameter in positional(function) or []]
    heads = options.heads or _config_heads(options) or 8
    if names[:2] == ["attention_mask", "num_heads"]:
        return Target(
            name, "bias", lambda queries, keys: function(
                torch.ones(1, keys, dtype=torch.long), heads, torch.float32
            ).reshape(heads, 1, keys), heads=heads,
        )  # fmt: skip
    if names[:2] == ["num_heads", "sequence_length"]:
        return Target(
            name, "bias", lambda queries, keys: function(heads, keys).reshape(heads, 1, keys),
            heads=heads,
        )  # fmt: skip
    if is_apply(function):
        raise InputError(
            f"{name} applies cosines and sines that a rotary embedding makes; hand over that "
            "class, which is judged with it (for example ...modeling_llama:LlamaRotaryEmbedding)"
        )
    return None


def _config_heads(options: Options) -> int | None:
    values = read_config(options.config) if options.config is not None else {}
    found = next((values[key] for key in ("n_head", "num_attention_heads") if key in values), None)
    return int(found) if found else None


def built(kind: type[Any], name: str, options: Options) -> Any:
    """An object of a class of the library, from the given config or its family's default."""
    parameters = {parameter.name: parameter for parameter in positional(kind) or []}
    config_name = next((word for word in parameters if word.endswith("config")), None)
    if config_name is None:
        raise InputError(f"{name} takes no config; hand over an object")
    config = _config(kind, parameters[config_name], name, options)
    more = {}
    if "layer_idx" in parameters:
        more["layer_idx"] = 0
    if "has_relative_attention_bias" in parameters:
        more["has_relative_attention_bias"] = True
    tries = [config]
    if hasattr(config, "get_text_config"):  # the whole is annotated where its text part is meant
        tries.append(config.get_text_config())
    reason = ""
    for part in tries:
        try:
            light = "Attention" in kind.__name__ and not hasattr(kind, "compute_bias")
            make = _light if light else _whole
            return guarded(make, kind, **{config_name: part}, **more)
        except CallError as error:
            reason = reason or str(error)
    raise refusal(name, reason)


def _whole(kind: type[Any], **arguments: Any) -> Any:
    return kind(**arguments)


def _light(kind: type[Any], **arguments: Any) -> Any:
    """An attention module without the weights of its projections, which are never used here.

    Buffers are computed by the constructor, so a module that has any is built as usual.
    """
    with torch.device("meta"):
        module = kind(**arguments)
    if any(True for _ in module.buffers()):
        return kind(**arguments)
    for part in module.modules():
        if not isinstance(part, nn.Linear):
            part.to_empty(device="cpu", recurse=False)
            for parameter in part.parameters(recurse=False):
                nn.init.ones_(parameter)
    return module


def _config(kind: type[Any], parameter: inspect.Parameter, name: str, options: Options) -> Any:
    """The config object: given, from a file, or the default of the class that is annotated."""
    module = sys.modules[kind.__module__]
    config_class: Any = parameter.annotation
    if isinstance(config_class, str):
        config_class = getattr(module, config_class, None)
    if not inspect.isclass(config_class) or config_class is inspect.Parameter.empty:
        configs = [word for word in dir(module) if word.endswith("Config")]
        prefixes = [word.removesuffix("Config") for word in configs]
        fitting = [word for word in prefixes if kind.__name__.startswith(word)]
        best = max(fitting, key=len, default="") + "Config"
        config_class = getattr(module, best, None)
    if not inspect.isclass(config_class):
        raise InputError(f"{name}: its config class cannot be found; hand over an object")
    family: Any = config_class
    if options.config is None:
        return family()
    if isinstance(options.config, family):
        return options.config
    values = read_config(options.config)
    if "text_config" in values and not getattr(family, "sub_configs", {}):
        values = values["text_config"]
    try:
        return guarded(family.from_dict, dict(values))
    except CallError as error:
        raise InputError(f"{name}: the config does not fit it ({error})") from error


def rotary_module(module: nn.Module, name: str, options: Options) -> Rotary:
    """A rotary embedding with the function that its own file applies it with.

    Where the file's attention splits the head before that, the function sees the rotated channels
    only, and they are what is judged. Raises InputError where there is no such function, and for
    positions in two or three dimensions.
    """
    config = module_config(module)
    apply = _apply_of(type(module), config, name)
    make = maker(module, options.layer_type)
    made = _made_width(make, options)
    widths = [options.head_dim, _head_dim(config, options), made, made and 2 * made]
    reason: InputError | None = None
    for width in dict.fromkeys(width for width in widths if width):
        try:
            return from_maker(make, apply, name, width, options.heads, options.device)
        except InputError as error:
            reason = reason or error
    raise reason or InputError(f"{name}: give --head-dim")


def _apply_of(kind: type[Any], config: Any, name: str) -> Callable[..., Any]:
    names = _APPLY[::-1] if getattr(config, "rope_interleave", False) else _APPLY
    for file in files_of(kind):
        for apply_name in names:
            if hasattr(file, apply_name):
                found: Callable[..., Any] = getattr(file, apply_name)
                return found
    raise InputError(
        f"{name}: its file has no function that applies it; give both, as (module, apply)"
    )


def maker(module: nn.Module, layer_type: str | None) -> Callable[[Tensor, Tensor], Any]:
    """The embedding as a function of (x, positions), positions always (B, L)."""
    parameters = [parameter.name for parameter in positional(module.forward) or []]
    more = {}
    if "layer_type" in parameters:
        known = getattr(module, "layer_types", None) or [None]
        more["layer_type"] = layer_type or next(iter(known))

    def make(x: Tensor, positions: Tensor) -> Any:
        return module(x, positions[None] if positions.ndim == 1 else positions, **more)

    return make


def _head_dim(config: Any, options: Options) -> int | None:
    try:
        return expected_rotary(config, options.layer_type).head_dim
    except InputError:
        return None


def _made_width(make: Callable[[Tensor, Tensor], Any], options: Options) -> int | None:
    """The width of the cosines it makes."""
    try:
        made = guarded(
            make, torch.zeros(1, 2, 3, 4, device=options.device),
            torch.arange(3, device=options.device),
        )  # fmt: skip
    except CallError:
        return None
    table = made[0] if isinstance(made, tuple | list) else made
    return int(table.shape[-1]) if isinstance(table, Tensor) else None
