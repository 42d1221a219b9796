"""Attention modules: what reaches the dot product in those of `transformers`, outputs in others.

Shapes: B batch, H heads, L positions, D head width, E model width.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from poslens.certificate.calls import CallError, guarded, refusal
from poslens.certificate.finding import Finding
from poslens.certificate.signatures import adapt, count_before
from poslens.certificate.targets import Options, Target
from poslens.errors import InputError

_INTERFACE = "poslens_certificate"


class _Reached(Exception):
    """Queries, keys and values at the dot product; nothing after it is needed."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        self.q, self.k, self.v = q, k, v


def attention_module(module: nn.Module, name: str, options: Options) -> Target:
    """An attention module of `transformers` as the rotary encoding it applies.

    Projections answer zero, the content is put in where the module first calls its rotary function,
    and what reaches the attention function is read off: everything the module does to it in
    between counts. Raises InputError where the module has no such steps.
    """
    from poslens.certificate.transformers_modules import files_of, maker, module_config

    config, files = module_config(module), files_of(type(module))
    rotary_class = next(
        (
            kind for file in files for word, kind in vars(file).items()
            if inspect.isclass(kind) and "Rotary" in word and "Vision" not in word
        ),
        None,
    )  # fmt: skip
    if (
        rotary_class is None
        or "position_embeddings" not in inspect.signature(module.forward).parameters
    ):
        raise InputError(
            f"{name} has no rotary step that can be seen from outside; hand over its rotary "
            "embedding or function"
        )
    layer_type = options.layer_type or getattr(module, "layer_type", None)
    try:
        make = maker(guarded(rotary_class, config), layer_type)
    except CallError as error:
        raise refusal(name, str(error)) from error
    run = _Run(module, files, make)
    heads = options.heads or int(getattr(config, "num_attention_heads", 1))
    widths = [options.head_dim, *run.widths(heads)]
    for width in dict.fromkeys(width for width in widths if width):
        try:
            rotary = adapt(run.turn, name, width, heads, options.device, (2,))
        except InputError:
            continue
        return Target(name, "attention", rotary, config)
    raise InputError(
        f"{name}: its rotary step could not be reached; hand over its rotary embedding or function"
    )


class _Run:
    """One attention module, run with contents put into its rotary step."""

    def __init__(self, module: nn.Module, files: list[Any], make: Callable[..., Any]) -> None:
        self.module, self.make = module, make
        self.applies = [
            (file, word) for file in files for word, thing in vars(file).items()
            if word.startswith("apply_rotary") and callable(thing)
        ]  # fmt: skip
        self.rows: tuple[Tensor, Tensor] | None = None
        self.length_axis = 2

    def widths(self, heads: int) -> list[int]:
        """Widths of what the rotary step is given, by looking at one run."""
        seen: list[torch.Size] = []

        def look(x: Tensor, place: int) -> Tensor:
            seen.append(x.shape)
            return x

        length = heads + 3  # no number of heads of queries or keys
        try:
            self._reach(look, 1, torch.arange(length))
        except CallError:
            return []
        self.length_axis = 2 if seen and seen[0][2] == length else 1
        return [shape[-1] for shape in seen]

    def turn(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The content at the dot product, its rotated channels only."""
        contents = (q, k)

        def put(x: Tensor, place: int) -> Tensor:
            content = contents[place][:, : x.shape[3 - self.length_axis]]
            if self.length_axis == 1:
                content = content.transpose(1, 2)
            return content.to(x.dtype).contiguous()

        reached = self._reach(put, q.shape[0], positions)
        if self.rows is None or self.rows[0].numel() != q.shape[-1]:
            nothing = self._reach(lambda x, place: x, q.shape[0], positions)
            self.rows = (self._changed(reached.q, nothing.q), self._changed(reached.k, nothing.k))
        return self._read(reached.q, self.rows[0], q), self._read(reached.k, self.rows[1], k)

    def _changed(self, with_: Tensor, without: Tensor) -> Tensor:
        """Channels at the dot product that the content put in has any part in."""
        return (with_ != without).flatten(0, -2).any(0).nonzero()[:, 0]

    def _read(self, reached: Tensor, rows: Tensor, content: Tensor) -> Tensor:
        found = reached[..., rows]
        if found.shape[-1] != content.shape[-1]:
            raise CallError(f"{content.shape[-1]} channels come out as {found.shape[-1]}")
        # Keys of fewer heads are repeated, so that answers have the shape of questions.
        return found[:, torch.arange(content.shape[1]) % found.shape[1]]

    def _reach(
        self, put: Callable[[Tensor, int], Tensor], batch: int, positions: Tensor
    ) -> _Reached:
        config: Any = self.module.config
        length = positions.shape[-1]
        x = torch.zeros(batch, length, config.hidden_size)
        made = self.make(x, positions)
        arguments: dict[str, Any] = {"position_embeddings": made, "attention_mask": None}
        if "position_ids" in inspect.signature(self.module.forward).parameters:
            arguments["position_ids"] = positions.reshape(-1, length)
        with self._patched(put):
            try:
                guarded(self._call, x, arguments)
            except CallError as error:
                if isinstance(error.__cause__, _Reached):
                    return error.__cause__
                raise
        raise CallError("the attention function of transformers was never called")

    def _call(self, x: Tensor, arguments: dict[str, Any]) -> None:
        self.module(x, **arguments)

    @contextmanager
    def _patched(self, put: Callable[[Tensor, int], Tensor]) -> Iterator[None]:
        """Zero projections, content at each side's first rotary call, a stop at the product."""
        from transformers import AttentionInterface

        def stop(module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Any:
            raise _Reached(query, key, value)

        AttentionInterface.register(_INTERFACE, stop)
        placed = [0]
        with ExitStack() as stack:
            config: Any = self.module.config
            stack.callback(setattr, config, "_attn_implementation", config._attn_implementation)
            config._attn_implementation = _INTERFACE
            for part in self.module.modules():
                if isinstance(part, nn.Linear):
                    stack.enter_context(patch.object(part, "forward", _zeros(part.out_features)))
            for file, word in self.applies:
                original = getattr(file, word)
                stack.enter_context(patch.object(file, word, _putting(original, put, placed)))
            yield


def _zeros(width: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x.new_zeros(*x.shape[:-1], width)


def _putting(
    original: Callable[..., Any], put: Callable[[Tensor, int], Tensor], placed: list[int]
) -> Callable[..., Any]:
    """A rotary function whose first query and first key are replaced by content."""
    count = count_before(original, ("cos", "sin", "freq")) or 2

    def apply(*given: Any, **named: Any) -> Any:
        given_list = list(given)
        for place in range(min(count, len(given_list))):
            if placed[0] < 2:
                given_list[place] = put(given_list[place], placed[0])
                placed[0] += 1
        return original(*given_list, **named)

    return apply


def judge_outputs(
    attend: Callable[..., Any], name: str, width: int | None, device: str
) -> tuple[list[Finding], dict[str, Any], dict[str, Any]]:
    """An attention module (x, positions) -> x that is known by its outputs alone.

    What can be told is whether they stay the same when all positions move. Raises InputError where
    it cannot be called so.
    """
    generator = torch.Generator().manual_seed(6)
    widths = (width,) if width else (64, 128, 256, 512, 768, 32, 16)
    reason = ""
    for size in widths:
        x = torch.randn(2, 16, size, generator=generator).to(device)
        try:
            outputs = [
                _first_tensor(guarded(attend, x.clone(), torch.arange(16, device=device) + shift))
                for shift in (0, 0, 1, 100)
            ]
        except CallError as error:
            reason = reason or str(error)
            continue
        return _outputs(outputs, name), {"width": size}, {}
    raise refusal(name, reason or "no width fits")


def _first_tensor(answer: Any) -> Tensor:
    found = answer[0] if isinstance(answer, tuple | list) else answer
    if not isinstance(found, Tensor):
        raise CallError(f"a tensor was expected back, got {type(found).__name__}")
    return found.double()


def _outputs(outputs: list[Tensor], name: str) -> list[Finding]:
    first, again, *moved = outputs
    if not torch.equal(first, again):
        raise InputError(f"{name} answers the same call differently; switch dropout off")
    if not first.isfinite().all():
        raise InputError(f"{name} returns NaN or infinity for ordinary input; mend that first")
    size = float(first.abs().max())
    off = max(float((other - first).abs().max()) for other in moved) / size
    numbers = {"difference": off}
    # Phases at 116 may be off by 4 eps 116 = 6e-5, logits of size 8 by eight times that, and a
    # softmax passes on at most twice what its logits are off by.
    if off <= 1e-3:
        finding = Finding(
            "relative", "shift", "right", "outputs stay the same when all positions move",
            "What it is can be told from the rotary function or bias alone.", numbers=numbers,
        )  # fmt: skip
    else:
        finding = Finding(
            "relative", "shift", "wrong",
            f"outputs change by {off:.2g} of their size when all positions move",
            "What a model does depends on where in the sequence it does it.",
            "Hand over the rotary function or bias alone to see what is wrong with it.", numbers,
        )  # fmt: skip
    return [finding]
