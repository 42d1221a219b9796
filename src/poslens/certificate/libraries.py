"""Ready-made modules of known libraries, recognised without adapter code.

Shapes: B batch, H heads, L positions, D head width. Nothing is imported here but what the target
has imported already: a module is known by where its class was defined.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from poslens.certificate.calls import Rotary
from poslens.certificate.signatures import adapt, in_runs, positional
from poslens.certificate.targets import Kind, Options, Target
from poslens.certificate.transformers_modules import in_its_style, recognise_transformers
from poslens.encodings.base import Encoding, Shape
from poslens.errors import InputError


def recognise(thing: Any, name: str, options: Options) -> Target | None:
    """A target of a known library, or None. Raises InputError where it cannot be judged."""
    owner = thing if inspect.isclass(thing) or inspect.isfunction(thing) else type(thing)
    library = str(getattr(owner, "__module__", "")).partition(".")[0]
    if isinstance(thing, Encoding) or (inspect.isclass(thing) and issubclass(thing, Encoding)):
        return _poslens(thing, name, options)
    if library == "transformers" or in_its_style(owner):
        return recognise_transformers(thing, name, options)
    if library in ("x_transformers", "rotary_embedding_torch") and inspect.isclass(thing):
        from poslens.certificate.targets import build

        thing = build(thing, name, options)
    if library == "x_transformers":
        return _x_transformers(thing, name, options)
    if library == "rotary_embedding_torch":
        return _rotary_embedding_torch(thing, name, options)
    return None


def _poslens(thing: Any, name: str, options: Options) -> Target:
    """Our own encodings, by the door they open; with two doors, --kind says which."""
    if inspect.isclass(thing):
        heads, width = options.heads or 4, options.head_dim or 64
        made: Any = thing
        thing = made(Shape(heads * width, heads, width, max_length=4096))
    encoding: Encoding = thing.eval()
    kind = options.kind
    if kind is None:
        opened = type(encoding)
        doors: dict[Kind, bool] = {
            "rotary": opened.rotate is not Encoding.rotate,
            "bias": opened.bias is not Encoding.bias,
            "table": opened.embed is not Encoding.embed,
        }
        kind = next((door for door, is_open in doors.items() if is_open), "rotary")
    shape = encoding.shape
    if kind == "rotary":
        rotary = adapt(
            lambda q, k, positions: encoding.rotate(q, k, positions, positions),
            name, shape.head_width, shape.heads, options.device, (2,),
        )  # fmt: skip
        return Target(name, "rotary", rotary)
    if kind == "bias":

        def bias(queries: int, keys: int) -> Tensor | None:
            return encoding.bias(torch.arange(keys - queries, keys), torch.arange(keys))

        return Target(name, "bias", bias, heads=shape.heads)
    return Target(
        name, "table", lambda positions: encoding.embed(
            torch.zeros(1, len(positions), shape.width), positions
        )[0],
    )  # fmt: skip


def _x_transformers(thing: Any, name: str, options: Options) -> Target | None:
    """Its rotary embedding (xPos too), its biases (i, j) and its absolute tables."""
    kind = type(thing).__name__
    if kind == "RotaryEmbedding":
        apply: Callable[..., Tensor] = sys.modules[type(thing).__module__].apply_rotary_pos_emb

        def turn(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
            freqs, scale = thing(positions)
            inverse = scale**-1 if isinstance(scale, Tensor) else 1.0
            return apply(q, freqs, scale), apply(k, freqs, inverse)

        width = options.head_dim or 2 * thing.inv_freq.numel()
        return Target(name, "rotary", adapt(turn, name, width, options.heads, options.device, (2,)))
    if [parameter.name for parameter in positional(thing.forward) or []][:2] == ["i", "j"]:
        return Target(name, "bias", thing.forward, heads=getattr(thing, "total_heads", None))
    if kind in ("AbsolutePositionalEmbedding", "ScaledSinusoidalEmbedding"):

        def rows(positions: Tensor) -> Tensor:
            return torch.as_tensor(thing(positions[None], pos=positions))

        return Target(name, "table", rows)
    return None


def _rotary_embedding_torch(thing: Any, name: str, options: Options) -> Target:
    """Called as its users call it: consecutive positions from an offset on."""
    if not hasattr(thing, "rotate_queries_or_keys"):
        raise InputError(f"{name} is no rotary embedding; hand over a RotaryEmbedding")
    turn = _by_centre(thing) if thing.use_xpos else _by_runs(thing)
    width = options.head_dim or 2 * thing.freqs.numel()
    rotary = Rotary(name, turn, width, options.heads or 1, device=options.device, rows=True)
    return Target(name, "rotary", rotary)


def _by_runs(thing: Any) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """`rotate_queries_or_keys` takes an offset, so every run of positions is a call of its own."""

    def turn(x: Tensor, offset: int) -> tuple[Tensor]:
        return (thing.rotate_queries_or_keys(x, offset=offset),)

    def one(x_BHLD: Tensor, positions: Tensor) -> Tensor:
        if positions.ndim == 2:
            rows = [one(x_BHLD[b : b + 1], positions[b]) for b in range(len(positions))]
            return torch.cat(rows)
        if thing.seq_before_head_dim:
            return in_runs(turn, [x_BHLD.transpose(1, 2)], positions, 1)[0].transpose(1, 2)
        return in_runs(turn, [x_BHLD], positions, 2)[0]

    return lambda q, k, positions: (one(q, positions), one(k, positions))


def _by_centre(thing: Any) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """With xPos, as `rotate_queries_with_cached_keys`: the scale is centred on all positions."""
    apply = sys.modules[type(thing).__module__].apply_rotary_emb

    def turn(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        whole = thing.get_seq_pos(int(positions.max()) + 1)
        scale = thing.get_scale(whole)[positions]
        freqs = thing(whole[positions])
        if positions.ndim == 2:
            scale, freqs = scale[:, None], freqs[:, None]
        return apply(freqs, q, scale=scale), apply(freqs, k, scale=scale**-1)

    return turn
