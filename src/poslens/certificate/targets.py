"""What may be handed over, and what it is taken for.

A target is `package.module:name`, `package.module:maker,apply`, or an object: a function, a module,
a table, a pair (maker, apply), or a class, which is built first.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from poslens.certificate.calls import CallError, guarded, needs_gpu, one_line, refusal
from poslens.certificate.signatures import (
    POSITION_WORDS,
    adapt,
    count_before,
    from_maker,
    is_apply,
    positional,
)
from poslens.errors import InputError

Kind = Literal["rotary", "bias", "table", "attention"]
KINDS: tuple[Kind, ...] = ("rotary", "bias", "table", "attention")


@dataclass(frozen=True)
class Options:
    """What the user says about a target; None where it is to be found out."""

    kind: Kind | None = None
    head_dim: int | None = None
    heads: int | None = None
    config: Any = None
    layer_type: str | None = None
    device: str = "cpu"


@dataclass(frozen=True)
class Target:
    """A target ready to be judged.

    `subject` is a `Rotary`, a bias function (query_len, key_len) -> (H, L, M), a table or function
    of positions, or an attention module (x, positions) -> x. `config` is what it was built from.
    """

    name: str
    kind: Kind
    subject: Any
    config: Any = None
    heads: int | None = None


def resolve(target: Any, options: Options) -> Target:
    """Imports, builds and recognises a target. Raises InputError where that fails, saying how."""
    from poslens.certificate.libraries import recognise

    if options.kind not in (None, *KINDS):
        raise InputError(f"unknown kind {options.kind!r}; one of: {', '.join(KINDS)}")
    if options.head_dim is not None and (options.head_dim < 2 or options.head_dim % 2):
        raise InputError(
            f"the head width must be even and at least 2 for channels to pair up, got "
            f"{options.head_dim}"
        )
    if options.heads is not None and options.heads < 1:
        raise InputError(f"the number of heads must be at least 1, got {options.heads}")
    name = target if isinstance(target, str) else name_of(target)
    thing = load(target) if isinstance(target, str) else target
    known = recognise(thing, name, options)
    if known is not None:
        return known
    if inspect.isclass(thing):
        thing = build(thing, name, options)
    if isinstance(thing, nn.Module):
        thing = thing.to(options.device).eval()
    return _plain(thing, name, options)


def name_of(thing: Any) -> str:
    if isinstance(thing, tuple | list):
        return ", ".join(name_of(part) for part in thing)
    name = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    return str(name)


def load(spec: str) -> Any:
    """The object that `package.module:name` names; two for `package.module:maker,apply`.

    The working directory is searched as well. Raises InputError with the reason in one line.
    """
    path, colon, names = spec.partition(":")
    if not (path and colon and names):
        raise InputError(f"{spec!r} names no target; write package.module:name")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if needs_gpu(str(error)):
            raise refusal(spec, one_line(error)) from error
        raise InputError(f"{path} cannot be imported ({one_line(error)})") from error
    found = [_attribute(module, part.strip(), spec) for part in names.split(",")]
    return found[0] if len(found) == 1 else tuple(found)


def _attribute(module: Any, path: str, spec: str) -> Any:
    thing = module
    for part in path.split("."):
        if not hasattr(thing, part):
            import difflib

            close = difflib.get_close_matches(part, dir(thing), n=3)
            hint = f"; it has: {', '.join(close)}" if close else ""
            raise InputError(f"{spec}: {module.__name__} has no {path!r}{hint}")
        thing = getattr(thing, part)
    return thing


# What the usual parameters of constructors stand for.
_HEAD_WIDTH = ("head_dim", "dim", "rotary_dim", "head_size", "head_width", "d", "rope_dim")
_HEAD_COUNT = ("heads", "num_heads", "n_heads", "num_attention_heads", "n_head")


def build(kind: type[Any], name: str, options: Options) -> Any:
    """An object of a class: parameters by name from --config, then head width and heads.

    Raises InputError naming what it still needs.
    """
    from poslens.certificate.configs import read_config

    values = read_config(options.config) if options.config is not None else {}
    made: dict[str, Any] = {}
    missing = []
    for parameter in positional(kind) or []:
        if parameter.name in values:
            made[parameter.name] = values[parameter.name]
        elif parameter.default is not inspect.Parameter.empty:
            continue
        elif parameter.name in _HEAD_WIDTH:
            made[parameter.name] = options.head_dim or 64
        elif parameter.name in _HEAD_COUNT and options.heads:
            made[parameter.name] = options.heads
        else:
            missing.append(parameter.name)
    if missing:
        raise InputError(
            f"{name} is a class that needs {', '.join(missing)}; give them in --config "
            "config.json, or hand over an object"
        )
    try:
        return guarded(kind, **made)
    except CallError as error:
        raise refusal(name, str(error)) from error


def _plain(thing: Any, name: str, options: Options) -> Target:
    """A target without a library known to us."""
    if isinstance(thing, tuple | list) and len(thing) == 2 and all(map(callable, thing)):
        return _pair(thing[0], thing[1], name, options)
    if isinstance(thing, Tensor | np.ndarray):
        return Target(name, options.kind or "table", thing)
    if isinstance(thing, nn.Embedding):
        return Target(name, "table", thing.weight.detach())
    if not callable(thing):
        raise InputError(
            f"{name} is {type(thing).__name__}; hand over a function, a module, a table or a pair "
            "(maker, apply)"
        )
    function = thing.forward if isinstance(thing, nn.Module) else thing
    if is_apply(function):
        raise InputError(
            f"{name} applies cosines and sines that something else makes; give both, as "
            "package.module:maker,apply or (maker, apply)"
        )
    kind = options.kind or _guess(thing, function, options)
    if kind == "rotary":
        rotary = adapt(function, name, options.head_dim, options.heads, options.device)
        return Target(name, kind, rotary)
    if kind == "bias":
        return Target(name, kind, as_bias(function), heads=options.heads)
    if kind == "table":
        return Target(name, kind, function)
    return Target(name, kind, function, heads=options.heads)


def _pair(maker: Any, apply: Any, name: str, options: Options) -> Target:
    """A cos/sin maker, built first if it is a class, with the function that applies it."""
    from poslens.certificate import transformers_modules as library

    config = None
    if str(getattr(maker, "__module__", type(maker).__module__)).startswith("transformers."):
        module = library.built(maker, name, options) if inspect.isclass(maker) else maker
        maker, config = library.maker(module, options.layer_type), library.module_config(module)
    elif inspect.isclass(maker):
        maker = build(maker, name, options)
    rotary = from_maker(maker, apply, name, options.head_dim, options.heads, options.device)
    return Target(name, "rotary", rotary, config)


def _guess(thing: Any, function: Callable[..., Any], options: Options) -> Kind:
    """The kind of a callable, by what its parameters are called, then by calling it."""
    if isinstance(thing, nn.Module) and any(isinstance(m, nn.Linear) for m in thing.modules()):
        return "attention"
    names = [parameter.name.lower() for parameter in positional(function) or []]
    needed = [
        parameter for parameter in positional(function) or []
        if parameter.default is inspect.Parameter.empty
    ]  # fmt: skip
    if _takes_two_positions(function):
        return "bias"
    if len(names) > 1 and all(_is_length(name) for name in names[:2]):
        return "bias"
    if count_before(function, POSITION_WORDS) in (1, 2, 3):
        return "rotary"
    if len(needed) == 1:
        return "table"
    if len(needed) == 2 and _gives_bias(function):
        return "bias"
    return "rotary"


def _takes_two_positions(function: Callable[..., Any]) -> bool:
    names = [parameter.name.lower() for parameter in positional(function) or []]
    return len(names) > 1 and all("pos" in name for name in names[:2])


def _is_length(name: str) -> bool:
    return "len" in name or name in ("i", "j", "l", "m", "n", "queries", "keys")


def _gives_bias(function: Callable[..., Any]) -> bool:
    try:
        made = guarded(function, 5, 7)
    except CallError:
        return False
    return isinstance(made, Tensor) and made.ndim >= 2 and made.shape[-1] == 7


def as_bias(function: Callable[..., Any]) -> Callable[[int, int], Any]:
    """A bias as a function of two lengths, also where it takes positions.

    The queries are the last ones, as in decoding with a cache.
    """
    if _takes_two_positions(function):
        return lambda queries, keys: function(
            torch.arange(keys - queries, keys), torch.arange(keys)
        )
    return function
