"""Compile-time values as texts: equal texts for equal values, in every process."""

from __future__ import annotations

import enum
import struct
from typing import Any

from tilewright.frontend.function import KernelFunction
from tilewright.ir.types import DType, PointerType, TileType

__all__ = ["constant_text", "is_function", "type_text"]


def constant_text(value: Any) -> str | None:
    """Return a text that stands for a constant in every process, or None where there is none."""
    match value:
        case enum.Enum():
            inner = constant_text(value.value)
            return None if inner is None else f"{type_text(type(value))}.{value.name}={inner}"
        case float() if type(value) is float:
            # Unlike a comparison, the bits tell -0.0 from 0.0, and one NaN from another.
            return f"float:{struct.pack('>d', value).hex()}"
        case DType() | PointerType() | TileType():
            return f"{type(value).__name__}:{value}"
        case tuple():
            return _tuple_text(value)
    if type(value) is int:  # Python writes no more than some thousand decimal digits
        return repr(value) if value.bit_length() < 1024 else hex(value)
    if type(value) in _PLAIN:  # a subclass may mean something else by the same text
        return repr(value)
    if is_function(value):
        return f"function:{value.cache_key}"
    is_torch_dtype = type(value).__module__ == "torch" and type(value).__name__ == "dtype"
    return str(value) if is_torch_dtype else None


_PLAIN = frozenset({type(None), bool, complex, str, bytes})


def _tuple_text(value: tuple[Any, ...]) -> str | None:
    if type(value) is not tuple and not hasattr(value, "_fields"):
        return None
    texts = [constant_text(item) for item in value]
    known = [text for text in texts if text is not None]
    return f"{type_text(type(value))}({', '.join(known)})" if len(known) == len(texts) else None


def type_text(kind: type) -> str:
    """Return the name of a kind of tuple, or of enumeration, with the names of its fields."""
    if kind is tuple:
        return "tuple"
    fields = ",".join(getattr(kind, "_fields", ()))
    return f"{kind.__module__}.{kind.__qualname__}[{fields}]"


def is_function(value: Any) -> bool:
    """Whether a value is a function that kernels can call."""
    return isinstance(value, KernelFunction) or (callable(value) and hasattr(value, "cache_key"))
