"""What only GPUs have: inline assembly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.emit import emit_all
from tilewright.frontend.semantic.shapes import broadcast_tensors
from tilewright.frontend.semantic.values import (
    as_dtype,
    as_tensor,
    describe,
    fail,
    to_constant,
    to_flag,
)
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DType
from tilewright.ops import InlineAssembly

__all__ = ["inline_assembly"]

_NAME = "inline_asm_elementwise"


def inline_assembly(
    assembly: Any, constraints: Any, args: Any, dtype: Any, is_pure: Any, pack: Any
) -> Tensor | tuple[Tensor, ...]:
    """Compute elements by assembly; a tuple of types gives a tuple of tiles."""
    text, names = (
        _string(x, what) for x, what in ((assembly, "asm"), (constraints, "constraints"))
    )
    args, dtype = unwrap(args), unwrap(dtype)
    if not isinstance(args, Sequence):
        fail(f"{_NAME}: args must be a list of tiles and numbers, got {describe(args)}")
    tensors = tuple(as_tensor(x, f"{_NAME}: each argument") for x in args)
    if tensors:
        tensors = broadcast_tensors(_NAME, *tensors)
    several = isinstance(dtype, Sequence) and not isinstance(dtype, str)
    elements = tuple(_element(one) for one in (dtype if several else (dtype,)))
    results = emit_all(
        InlineAssembly,
        tensors,
        text,
        names,
        elements,
        to_flag(is_pure, f"{_NAME}: is_pure"),
        to_constant(pack, f"{_NAME}: pack"),
    )
    return results if several else results[0]


def _string(x: Any, what: str) -> str:
    text = unwrap(x)
    if not isinstance(text, str):
        fail(f"{_NAME}: {what} must be a string, got {describe(text)}")
    return text


def _element(x: Any) -> DType:
    element = as_dtype(x, f"{_NAME}: dtype")
    if not isinstance(element, DType):
        fail(f"{_NAME}: results are numbers, not {element}", "return tl.int64 and convert it")
    return element
