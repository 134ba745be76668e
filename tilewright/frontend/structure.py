"""Values of the kernel's world as trees: tensors at the leaves, compile-time objects around.

Tuples, named tuples and dataclasses may hold tensors; everything else is one compile-time value.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.frontend.constexpr import same_tuple
from tilewright.frontend.semantic import to_tensor
from tilewright.frontend.tensor import Tensor
from tilewright.ir.core import Value
from tilewright.ir.types import DType, PointerType, TileType

__all__ = [
    "Unusable",
    "decay",
    "describe",
    "fits",
    "has_tensor",
    "key_of",
    "leaves",
    "rebuild",
    "rename",
]


@dataclass(frozen=True)
class Unusable:
    """Stands for a name that has no value here; using it is an error that says why.

    `{name}` in the texts stands for the name.
    """

    reason: str
    hint: str = ""

    def reason_for(self, name: str) -> str:
        return self.reason.replace("{name}", name)

    def hint_for(self, name: str) -> str:
        return self.hint.replace("{name}", name)


def _fields(value: Any) -> list[str] | None:
    """The names of a dataclass's fields if it may hold tensors."""
    if not dataclasses.is_dataclass(value) or isinstance(
        value, type | DType | PointerType | TileType | Unusable
    ):
        return None
    return [field.name for field in dataclasses.fields(value)]


def leaves(value: Any) -> Iterator[Tensor]:
    """The tensors inside a value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from leaves(item)
    elif (fields := _fields(value)) is not None:
        for name in fields:
            yield from leaves(getattr(value, name))


def has_tensor(value: Any) -> bool:
    """Whether anything in a value is known only when the kernel runs."""
    return next(leaves(value), None) is not None


def _map_leaves(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return the value with every tensor replaced."""
    if isinstance(value, Tensor):
        return function(value)
    if not has_tensor(value):
        return value
    if isinstance(value, tuple):
        return same_tuple(value, [_map_leaves(item, function) for item in value])
    new = copy.copy(value)
    for name in _fields(value) or ():
        object.__setattr__(new, name, _map_leaves(getattr(value, name), function))
    return new


def rebuild(value: Any, new: Iterator[Value]) -> Any:
    """Return the value with its tensors replaced, in order, by those of `new`."""
    return _map_leaves(value, lambda _: Tensor(next(new)))


def rename(value: Any, name: str) -> None:
    """Name the IR values of a value that have no name yet, for the reader of the IR."""
    found = list(leaves(value))
    for index, leaf in enumerate(found):
        if not leaf.value.name:
            leaf.value.name = name if len(found) == 1 else f"{name}.{index}"


def decay(value: Any) -> Any:
    """Turn every compile-time number in a value into a tensor, in tuples too."""
    if isinstance(value, tuple):
        return same_tuple(value, map(decay, value))
    return value if isinstance(value, str) else to_tensor(value)


def fits(value: Any, template: Any) -> bool:
    """Whether a value can take the place of another: same structure, same types, same constants."""
    if isinstance(template, Tensor):
        return isinstance(value, Tensor) and value.value.type == template.value.type
    if isinstance(value, Tensor) or type(value) is not type(template):
        return False
    if isinstance(template, tuple):
        return len(value) == len(template) and all(map(fits, value, template))
    if (fields := _fields(template)) is not None:
        return all(fits(getattr(value, n), getattr(template, n)) for n in fields)
    if isinstance(template, float):  # 0.0 and -0.0 differ, NaN equals itself
        return repr(value) == repr(template)
    return value is template or bool(value == template)


def key_of(value: Any) -> Any:
    """Return what a function is specialised on for an argument: types of tensors, other values."""
    if isinstance(value, Tensor):
        return Tensor, value.value.type
    if isinstance(value, tuple):
        return type(value), tuple(map(key_of, value))
    if (fields := _fields(value)) is not None:
        return type(value), tuple(key_of(getattr(value, name)) for name in fields)
    if isinstance(value, float):
        return float, repr(value)
    try:
        hash(value)
    except TypeError:
        return type(value), id(value)
    return type(value), value


def describe(value: Any) -> str:
    """Return how a message calls a value: by its type, or as the constant it is."""
    if isinstance(value, Tensor):
        return str(value.value.type)
    if isinstance(value, tuple):
        return f"({', '.join(map(describe, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, Unusable):
        return "nothing"
    if has_tensor(value):
        return f"a {type(value).__name__}"
    if value is None:
        return "None"
    return f"the compile-time value {value!r}"
