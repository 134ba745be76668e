"""What a kernel says to people and to the compiler: prints, assertions, hints."""

from __future__ import annotations

from typing import Any

from tilewright.errors import CompileTimeAssertionFailure
from tilewright.frontend.emit import emit, emit_all
from tilewright.frontend.semantic.casts import to_bool
from tilewright.frontend.semantic.comparison import condition
from tilewright.frontend.semantic.shapes import broadcast_tensors
from tilewright.frontend.semantic.values import as_tensor, describe, fail, to_constants, to_flag
from tilewright.frontend.tensor import Tensor, constant_array
from tilewright.ops import Assert, Assume, Hint, Print

__all__ = ["assume", "device_assert", "device_print", "hint", "static_assert"]


def device_print(prefix: Any, values: tuple[Any, ...], *, hexadecimal: Any = False) -> None:
    """Print each element with its place in the grid and in the tile."""
    if not isinstance(prefix, str):
        fail(
            f"device_print: the prefix must be a string, got {describe(prefix)}",
            hint="write it first: tl.device_print('x = ', x)",
        )
    tensors = tuple(as_tensor(v, "device_print") for v in values)
    text = prefix
    if tensors and not text.endswith(": "):
        text = text.removesuffix(" ").removesuffix(":") + ": "
    if len(text) > 2 and not text.startswith(" "):
        text = f" {text}"
    emit_all(Print, text, tensors, to_flag(hexadecimal, "device_print: hex"))


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
