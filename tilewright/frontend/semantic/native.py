"""What only GPUs have: inline assembly, and functions of their libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.emit import emit, emit_all
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
from tilewright.ops import ForeignCall, InlineAssembly

__all__ = ["call_foreign", "inline_assembly"]

_NAME = "inline_asm_elementwise"
_CALL = "extern_elementwise"


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


def call_foreign(library: Any, path: Any, args: Any, symbols: Any, is_pure: Any) -> Tensor:
    """Call the function of a library that there is for the types of the arguments."""
    names = [_text(x, what) for x, what in ((library, "lib_name"), (path, "lib_path"))]
    table = unwrap(symbols)
    if not isinstance(table, Mapping) or not isinstance(unwrap(args), Sequence):
        fail(f"{_CALL}: args are a list, and arg_type_symbol_dict a dict")
    tensors = tuple(as_tensor(x, f"{_CALL}: each argument") for x in unwrap(args))
    if len(tensors) > 1:
        tensors = broadcast_tensors(_CALL, *tensors)
    types = tuple(tensor.dtype for tensor in tensors)
    if types not in table:
        known = ", ".join(f"({', '.join(map(str, key))})" for key in table)
        found = ", ".join(map(str, types))
        fail(f"{_CALL}: there is no function for ({found})", f"there are those for {known}")
    symbol, result = table[types]
    element = _element(result)
    return emit(
        ForeignCall, tensors, *names, symbol, element, to_flag(is_pure, f"{_CALL}: is_pure")
    )


def _text(x: Any, what: str) -> str:
    text = unwrap(x)
    if text is not None and not isinstance(text, str):
        fail(f"{_CALL}: {what} must be a string, got {describe(text)}")
    return text or ""


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
