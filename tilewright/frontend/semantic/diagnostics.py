"""What a kernel says to people and to the compiler: prints, assertions, hints."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from tilewright.errors import CompileTimeAssertionFailure
from tilewright.frontend.emit import emit, emit_all
from tilewright.frontend.semantic.casts import to_bool
from tilewright.frontend.semantic.comparison import condition
from tilewright.frontend.semantic.shapes import broadcast_tensors
from tilewright.frontend.semantic.values import (
    as_tensor,
    describe,
    fail,
    is_number,
    to_constants,
    to_flag,
)
from tilewright.frontend.tensor import Tensor, constant_array
from tilewright.ir.types import DType, PointerType, TileType
from tilewright.ops import Assert, Assume, Hint, Print

__all__ = ["assume", "device_assert", "device_print", "hint", "static_assert"]


def device_print(
    prefix: Any, values: tuple[Any, ...], *, hexadecimal: Any = False, name: str = "device_print"
) -> None:
    """Print each element with its place in the grid and in the tile.

    Compile-time values that are no numbers, such as shapes and types, are shown as text in front.
    """
    if not isinstance(prefix, str):
        fail(
            f"{name}: the prefix must be a string, got {describe(prefix)}",
            hint="write it first: tl.device_print('x = ', x)",
        )
    texts = list(takewhile(_is_text, values))
    text = " ".join(filter(None, [prefix, *map(str, texts)]))
    for value in values[len(texts) :]:
        if _is_text(value):
            fail(
                f"{name} in a kernel takes one text, in front of the values, and {value!r} is text",
                hint=f"write it first: {name}('x', {value!r}, x); or see tl.static_print",
            )
    tensors = tuple(as_tensor(v, name) for v in values[len(texts) :])
    if tensors and not text.endswith(": "):
        text = text.removesuffix(" ").removesuffix(":") + ": "
    if len(text) > 2 and not text.startswith(" "):
        text = f" {text}"
    emit_all(Print, text, tensors, to_flag(hexadecimal, f"{name}: hex"))


def _is_text(value: Any) -> bool:
    """Whether a value is known at compile time, and is no number."""
    if isinstance(value, tuple):
        return all(_is_text(item) or is_number(item) for item in value)
    return value is None or isinstance(value, str | DType | PointerType | TileType)


def device_assert(cond: Any, message: Any = "", mask: Any = None) -> None:
    """Stop the launch where `cond` is false and `mask`, if any, is true."""
    if not isinstance(message, str):
        fail(
            f"device_assert: the message must be a string, got {describe(message)}",
            hint="write it as a literal",
        )
    checked = to_bool(as_tensor(cond, "device_assert: the condition"))
    if mask is None:
        emit_all(Assert, message, checked, None)
        return
    lanes = to_bool(as_tensor(mask, "device_assert: the mask"))
    emit_all(Assert, message, *broadcast_tensors("device_assert", checked, lanes))


def static_assert(cond: Any, message: Any = "") -> None:
    """Raise `CompileTimeAssertionFailure` unless a compile-time condition holds."""
    if isinstance(cond, Tensor) and constant_array(cond.value) is None:
        fail(
            f"static_assert: the condition is known only when the kernel runs ({describe(cond)})",
            "use tl.device_assert",
        )
    if not cond:
        raise CompileTimeAssertionFailure(f"static_assert: {message or 'the condition is false'}")


def assume(cond: Any) -> None:
    """Promise that a scalar condition holds."""
    if cond is True:
        return
    emit_all(Assume, condition(as_tensor(cond, "assume")))


def hint(kind: str, x: Any, values: Any) -> Tensor:
    """Attach a promise about the numbers in `x`, one for each axis."""
    promised = to_constants(values, f"{kind}: each value")
    return emit(Hint, as_tensor(x, kind), kind, promised)
