"""A rotary encoding as the checks call it, and the guard around every call.

Shapes: B batch, H query heads, K key heads, L positions, D head width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from poslens.errors import InputError

Call = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
Values = Callable[[Tensor, Tensor], Tensor]


class CallError(Exception):
    """A target failed at a call; the message is one line."""


@dataclass(frozen=True)
class Rotary:
    """One calling convention for all rotary encodings.

    `call(q_BHLD, k_BKLD, positions)` returns both turned, for int64 positions (L,), and (B, L)
    where `rows` is true. `values` turns values likewise where the target takes them. `heads` is
    the number of heads it is called with; `fixed_heads` says it takes no other. `dtype` is the
    precision it is probed in, `device` where.
    """

    name: str
    call: Call
    head_dim: int
    heads: int = 1
    fixed_heads: bool = False
    rows: bool = False
    values: Values | None = None
    dtype: torch.dtype = torch.float32
    device: torch.device | str = "cpu"

    def __call__(self, q_BHLD: Tensor, k_BKLD: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """`call` without gradients. Raises CallError where it raises or the shapes change."""
        made = guarded(self.call, q_BHLD, k_BKLD, positions.to(self.device))
        for given, returned in zip((q_BHLD, k_BKLD), made, strict=True):
            same_shape(given, returned)
        return made


def guarded(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The function's answer; any exception becomes a CallError of one line."""
    try:
        with torch.no_grad():
            return function(*arguments, **named)
    except CallError:
        raise
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        raise CallError(one_line(error)) from error


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def same_shape(given: Tensor, returned: Any) -> None:
    """Raises CallError unless what came back is a tensor shaped as what was given."""
    if not isinstance(returned, Tensor):
        raise CallError(f"a tensor was expected back, got {type(returned).__name__}")
    if returned.shape != given.shape:
        raise CallError(f"shape {tuple(given.shape)} came back as {tuple(returned.shape)}")


def needs_gpu(message: str) -> bool:
    """Whether an error message is that of a target that wants a GPU where there is none."""
    wants = ("cuda", "nvidia", "hip", "triton", "0 active drivers")
    return any(word in message.lower() for word in wants) and not torch.cuda.is_available()


def refusal(name: str, message: str) -> InputError:
    """What the user is told when a target cannot be called at all."""
    if needs_gpu(message):
        return InputError(
            f"{name} needs a GPU, and there is none here ({message}); "
            "run this where there is one, with --device cuda"
        )
    return InputError(
        f"{name} could not be called ({message}); expected (q, k, positions), (x, positions) or "
        "(q, k, v, positions) with q of shape (batch, heads, length, head width) and integer "
        "positions; --head-dim, --heads and --kind say more"
    )


def trial(rotary: Rotary) -> None:
    """Calls it on random content before anything is measured.

    Raises InputError where it raises, changes its input, returns NaN or infinity, or answers the
    same call differently: none of these can be judged.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (2, rotary.heads, 5, rotary.head_dim)
    q, k = (
        torch.randn(shape, generator=generator).to(rotary.device, rotary.dtype) for _ in range(2)
    )
    positions = torch.arange(5, device=rotary.device)
    given = [x.clone() for x in (q, k, positions)]
    try:
        first = [x.clone() for x in rotary(q, k, positions)]
        if not all(torch.equal(x, y) for x, y in zip((q, k, positions), given, strict=True)):
            raise InputError(
                f"{rotary.name} changes its input in place, so a cached key would be turned again "
                "at every step; return new tensors"
            )
        second = rotary(q, k, positions)
    except CallError as error:
        raise refusal(rotary.name, str(error)) from error
    if not all(x.isfinite().all() for x in first):
        raise InputError(
            f"{rotary.name} returns NaN or infinity for ordinary input; mend that first"
        )
    if not all(torch.equal(x, y) for x, y in zip(first, second, strict=True)):
        raise InputError(
            f"{rotary.name} answers the same call differently; fix its seed or switch dropout off"
        )
