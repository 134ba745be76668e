"""What holds several values, and the names of types."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

from tilewright.frontend.aggregates import aggregate, aggregate_replace
from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.parameters import element_type_from_text
from tilewright.frontend.semantic import TensorDescriptorType
from tilewright.frontend.tensor import BlockType
from tilewright.ir.types import ElementType

__all__ = [
    "aggregate", "aggregate_replace", "constexpr_type", "slice", "str_to_ty", "tuple", "tuple_type",
]  # fmt: skip

slice = builtins.slice
tuple: Any = builtins.tuple


@dataclass(frozen=True)
class tuple_type:
    """The type of a tuple: those of its items, and their names where it has some."""

    types: builtins.tuple[Any, ...]
    fields: builtins.tuple[str, ...] | None = None


@dataclass(frozen=True)
class constexpr_type:
    """The type of a value that is known when a kernel is compiled."""

    value: Any


def str_to_ty(name: Any, c: Any = None) -> Any:
    """Return the type that a text stands for in the signature of a kernel.

    `c` is the value, where `name` is "constexpr". A tuple of texts gives the type of a tuple.
    Raises `ValueError` for other texts.

    >>> str_to_ty("u8"), str_to_ty("tensordesc<fp16[8, 16]>").block_type.shape
    (tilewright.language.uint8, (8, 16))
    """
    if isinstance(name, builtins.tuple):
        fields = getattr(name, "_fields", None)
        return tuple_type(builtins.tuple(str_to_ty(item, c) for item in name), fields)
    if name == "constexpr":
        return constexpr_type(c.value if isinstance(c, constexpr) else c)
    if name.startswith("tensordesc<"):
        element, _, shape = name.removeprefix("tensordesc<").partition("[")
        sizes = shape.partition("]")[0].split(",")
        block = BlockType(_element_type(element), builtins.tuple(map(int, sizes)))
        return TensorDescriptorType(block)
    return _element_type(name)


def _element_type(text: str) -> ElementType:
    found = element_type_from_text(text)
    if found is None:
        raise ValueError(f"{text!r} is no type of a kernel's argument")
    return found
