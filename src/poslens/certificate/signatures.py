"""From any callable that turns queries and keys to the one convention of `calls.Rotary`.

Shapes: B batch, H heads, L positions, D head width. What a callable takes is found by calling it:
which axes hold heads and positions, whether positions may differ from row to row, and where not
given its head width. Sizes of the trial differ on every axis, so that nothing broadcasts by luck.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from poslens.certificate.calls import CallError, Rotary, guarded, refusal, same_shape
from poslens.errors import InputError

# Head widths to try where none is given: the usual ones first.
_WIDTHS = (64, 128, 96, 80, 256, 32, 16, 8, 48, 40, 24, 192, 160, 112, 72, 512)
_PRECISIONS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_BATCH, _HEADS, _LENGTH = 3, 2, 5
POSITION_WORDS = ("pos", "offset", "start", "indices", "idx", "index")
# Names of what a cos/sin maker makes, as apply functions call it.
_MADE_WORDS = ("cos", "sin", "freq", "rope", "rotary", "emb")


@dataclass(frozen=True)
class Axes:
    """How a tensor (B, H, L, D) is handed to a callable, and read back; `length` is its axis."""

    name: str
    length: int
    give: Callable[[Tensor], Tensor]
    take: Callable[[Tensor], Tensor]

    @property
    def batched(self) -> bool:
        return "batch" in self.name


def _swap(x: Tensor) -> Tensor:
    return x.transpose(1, 2)


AXES = (
    Axes("batch, heads, length, width", 2, lambda x: x, lambda x: x),
    Axes("batch, length, heads, width", 1, _swap, _swap),
    Axes("batch, length, heads, width", 1, lambda x: _swap(x).contiguous(), _swap),
    Axes("batch, length, width", 1, lambda x: x.squeeze(1), lambda x: x.unsqueeze(1)),
    Axes("heads, length, width", 1, lambda x: x.squeeze(0), lambda x: x.unsqueeze(0)),
    Axes("length, width", 0, lambda x: x[0, 0], lambda x: x[None, None]),
)


def positional(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Parameters that can be given by place; None where the signature cannot be read."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter for parameter in parameters if parameter.kind in places]


def count_before(function: Callable[..., Any], words: Iterable[str]) -> int | None:
    """How many places come before the first whose name holds one of the words; None for none."""
    for place, parameter in enumerate(positional(function) or []):
        if any(word in parameter.name.lower() for word in words):
            return place
    return None


def required(function: Callable[..., Any]) -> int | None:
    """How many places must be given; None where the signature cannot be read."""
    parameters = positional(function)
    if parameters is None:
        return None
    return sum(parameter.default is inspect.Parameter.empty for parameter in parameters)


def tensors_before_positions(function: Callable[..., Any]) -> tuple[int, ...]:
    """How many tensors it may take before the positions: candidates, the likeliest first."""
    before = count_before(function, POSITION_WORDS)
    if before in (1, 2, 3):
        return (before,)
    needed = required(function)
    if needed in (2, 3, 4):
        return (needed - 1,)
    return (2, 1, 3)


def takes_offset(function: Callable[..., Any]) -> bool:
    """Whether it takes the first position as a whole number instead of all positions."""
    before = count_before(function, POSITION_WORDS)
    if not before:
        return False
    parameter = (positional(function) or [])[before]
    named = any(word in parameter.name.lower() for word in ("offset", "start"))
    return named and (type(parameter.default) is int or parameter.annotation in (int, "int"))


def in_runs(
    turn: Callable[..., Sequence[Tensor]], tensors: list[Tensor], positions: Tensor, axis: int
) -> list[Tensor]:
    """Turns tensors by a callable of an offset, one call for every run of positions (L,)."""
    breaks = (positions.diff() != 1).nonzero()[:, 0].cpu() + 1
    runs = torch.tensor_split(torch.arange(len(positions)), breaks)
    parts = [
        turn(*(x.narrow(axis, int(run[0]), len(run)) for x in tensors), int(positions[run[0]]))
        for run in runs
    ]
    return [torch.cat(side, axis) for side in zip(*parts, strict=True)]


def adapt(
    function: Callable[..., Any],
    name: str,
    head_dim: int | None = None,
    heads: int | None = None,
    device: torch.device | str = "cpu",
    tensors: tuple[int, ...] | None = None,
) -> Rotary:
    """A callable of `tensors` tensors and positions, or the first position, as a `Rotary`.

    Raises InputError, with the first reason met, where no way of calling it works.
    """
    counts = tensors or tensors_before_positions(function)
    offset = tensors is None and takes_offset(function)
    widths = (head_dim,) if head_dim else _WIDTHS
    for dtype in _PRECISIONS:
        for width in widths:
            for count in counts:
                for axes in AXES:
                    one_head = "heads" not in axes.name
                    if one_head and (heads or 1) > 1:
                        continue
                    number = 1 if one_head else heads or _HEADS
                    at = _Trial(width, number, dtype, device, axes, offset)
                    rotary = at.adapted(function, name, count)
                    if rotary is not None:
                        return rotary if heads or one_head else at.with_one_head(rotary)
    raise refusal(name, _first_reason(function, counts[0], widths[0], heads or _HEADS, device))


def _first_reason(
    function: Callable[..., Any], count: int, width: int, heads: int, device: torch.device | str
) -> str:
    """Why the plainest call fails."""
    at = _Trial(width, heads, torch.float32, device, AXES[0], False)
    x, positions = at.content(), torch.arange(_LENGTH, device=device)
    try:
        made = guarded(function, *[x.clone() for _ in range(count)], positions)
        for returned in _as_tuple(made, count):
            same_shape(x, returned)
    except CallError as error:
        return str(error)
    return "its output has no shape that fits"


@dataclass(frozen=True)
class _Trial:
    """One way of calling: width, heads, precision, axes, and positions or their offset."""

    width: int
    heads: int
    dtype: torch.dtype
    device: torch.device | str
    axes: Axes
    offset: bool

    def content(self, heads: int | None = None) -> Tensor:
        """One token everywhere: which axis it is turned along shows where positions stand."""
        batch = _BATCH if self.axes.batched else 1
        shape = (batch, heads or self.heads, _LENGTH, self.width)
        generator = torch.Generator().manual_seed(1)
        token = torch.randn(self.width, generator=generator)
        return token.expand(shape).to(self.device, self.dtype).contiguous()

    def adapted(self, function: Callable[..., Any], name: str, count: int) -> Rotary | None:
        """The callable in our convention if it can be called this way."""
        for rows_only in (False,) if self.offset else (False, True):
            call, values = _convention(function, count, self.axes, rows_only, self.offset)
            rotary = Rotary(
                name, call, self.width, self.heads, True, False, values, self.dtype, self.device
            )
            if self._works(rotary, torch.arange(_LENGTH)):
                rows = self._works(rotary, torch.arange(_LENGTH).expand(_BATCH, -1))
                return dataclasses.replace(rotary, rows=rows and self.axes.batched)
        return None

    def with_one_head(self, rotary: Rotary) -> Rotary:
        """The same called with one head, which is cheaper to probe, where it takes any number."""
        free = dataclasses.replace(rotary, heads=1, fixed_heads=False)
        x = self.content(1)
        try:
            free(x, x.clone(), torch.arange(_LENGTH))
        except CallError:
            return rotary
        return free

    def _works(self, rotary: Rotary, positions: Tensor) -> bool:
        x = self.content()
        try:
            turned = rotary(x, x.clone(), positions)
        except CallError:
            return False
        # All heads of a token turn alike unless the length was looked for on another axis.
        return not self.offset or all(torch.equal(y, y[:, :1].expand_as(y)) for y in turned)


def _convention(
    function: Callable[..., Any], count: int, axes: Axes, rows_only: bool, offset: bool
) -> tuple[Any, Any]:
    """`call` and `values` of a Rotary for a callable of `count` tensors before the positions."""

    def turn(*arguments: Any) -> tuple[Tensor, ...]:
        answer = _as_tuple(function(*arguments), count)
        for given, returned in zip(arguments, answer, strict=False):
            same_shape(given, returned)
        return answer

    def ask(tensors: list[Tensor], positions: Tensor) -> list[Tensor]:
        given = [axes.give(x) for x in tensors]
        if offset:
            return [axes.take(x) for x in in_runs(turn, given, positions, axes.length)]
        if rows_only and positions.ndim == 1:
            positions = positions.expand(len(tensors[0]), -1)
        return [axes.take(x) for x in turn(*given, positions)]

    def by_row(tensors: list[Tensor], positions: Tensor) -> list[Tensor]:
        """One call for each row where the axes have no batch, or rows have positions each."""
        if axes.batched and not (offset and positions.ndim == 2):
            return ask(tensors, positions)
        rows = [
            ask([x[b : b + 1] for x in tensors], positions[b] if positions.ndim == 2 else positions)
            for b in range(len(tensors[0]))
        ]
        return [torch.cat(parts) for parts in zip(*rows, strict=True)]

    def call(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        if count == 1:
            return by_row([q], positions)[0], by_row([k], positions)[0]
        turned = by_row([q, k, *([k.clone()] * (count - 2))], positions)
        return turned[0], turned[1]

    def values(v: Tensor, positions: Tensor) -> Tensor:
        return by_row([v.clone(), v.clone(), v], positions)[2]

    return call, values if count == 3 else None


def _as_tuple(answer: Any, count: int) -> tuple[Any, ...]:
    if count == 1 and isinstance(answer, Tensor):
        return (answer,)
    if not isinstance(answer, tuple | list) or len(answer) != count:
        kind = (
            f"{len(answer)} values" if isinstance(answer, tuple | list) else type(answer).__name__
        )
        raise CallError(f"{count} tensors were expected back, got {kind}")
    return tuple(answer)


def is_apply(function: Callable[..., Any]) -> bool:
    """Whether a function applies cosines and sines that another has to make."""
    names = [parameter.name.lower() for parameter in positional(function) or []]
    return any(name.startswith(("cos", "sin", "freqs")) for name in names[1:])


def from_maker(
    maker: Callable[..., Any],
    apply: Callable[..., Any],
    name: str,
    head_dim: int | None = None,
    heads: int | None = None,
    device: torch.device | str = "cpu",
) -> Rotary:
    """A maker of cosines and sines with the function that applies them, as a `Rotary`.

    The maker takes (x, positions), (x, length), (positions) or (length), and what it makes is
    handed on in the order it came: `apply(q, k, *made)` or `apply(x, *made)`; where `apply` needs
    `position_ids` it is given them. Raises InputError as `adapt` does.
    """
    make, by_length = _maker(maker, name)
    count = count_before(apply, _MADE_WORDS)
    if count not in (1, 2):
        raise InputError(
            f"{name}: the apply function must take (q, k, cos, sin) or (x, cos, sin), not "
            f"({', '.join(parameter.name for parameter in positional(apply) or [])})"
        )
    wants_positions = any(
        parameter.name == "position_ids" and parameter.default is inspect.Parameter.empty
        for parameter in positional(apply) or []
    )

    def turn(*arguments: Tensor) -> Any:
        *tensors, positions = arguments
        made = make(tensors[0], positions)
        made = tuple(made) if isinstance(made, tuple | list) else (made,)
        if by_length and not wants_positions:  # tables from position 0 on
            made = tuple(table[positions] for table in made)
        more = (positions,) if wants_positions else ()
        return apply(*tensors, *made, *more)

    return adapt(turn, name, head_dim, heads, device, (count,))


def _maker(maker: Callable[..., Any], name: str) -> tuple[Callable[[Tensor, Tensor], Any], bool]:
    """The maker as a function of (x, positions), and whether it is told a length instead."""
    target = maker.forward if isinstance(maker, torch.nn.Module) else maker
    names = [parameter.name.lower() for parameter in positional(target) or []]
    by_length = any("len" in word for word in names[:2])
    needed = required(target) or 1
    if needed > 2:
        raise InputError(
            f"{name}: a maker of cosines and sines takes (x, positions) or (positions), "
            f"not ({', '.join(names)})"
        )
    alone = len(names) == 1 or (needed == 1 and not any("pos" in word for word in names[1:2]))

    def make(x: Tensor, positions: Tensor) -> Any:
        told: Any = int(positions.max()) + 1 if by_length else positions
        return maker(told) if alone and not (by_length and len(names) > 1) else maker(x, told)

    return make, by_length
