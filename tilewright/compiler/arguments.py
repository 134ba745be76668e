"""The values of a call as arguments of a kernel whose types were written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.errors import LaunchError
from tilewright.frontend.parameters import Parameter
from tilewright.frontend.trace import Described
from tilewright.ir.types import PointerType
from tilewright.runtime.arguments import ALIGNMENT, Argument, Specialization, specialize
from tilewright.runtime.arrays import view_array

__all__ = ["launch_arguments"]

_WRITTEN = "the signature that was compiled says so: compile the kernel for another one"


def launch_arguments(
    specializations: Mapping[str, Specialization], values: Sequence[Any]
) -> list[Argument]:
    """Return the arguments for values in the order of the parameters.

    Raises `LaunchError` for a value that the kernel was not compiled for. What the elements of an
    array are is the caller's word: the memory is taken for what the kernel expects.
    """
    if len(values) != len(specializations):
        raise LaunchError(
            f"{len(specializations)} arguments are needed, not {len(values)}",
            hint="pass one for each parameter, constants included",
        )
    pairs = zip(specializations.items(), values, strict=True)
    return [_argument(name, known, value) for (name, known), value in pairs]


def _argument(name: str, known: Specialization, value: Any) -> Argument:
    traced, element = known.traced, known.element
    if isinstance(traced, tuple):
        items = (_argument(name, *pair) for pair in zip(known.items, value, strict=True))
        return Argument(name, known, value, items=tuple(items))
    if isinstance(traced, Described):
        return specialize(Parameter(0, name), value)
    if element is None:
        return Argument(name, known, value)
    if isinstance(element, PointerType):
        return _pointer(name, known, value)
    if not isinstance(value, int | float):
        raise LaunchError(f"`{name}` is {element}: it takes a number, not {value!r}", hint=_WRITTEN)
    if not element.is_floating() and not element.is_bool():
        low, high = element.integer_range
        if not low <= value <= high:
            raise LaunchError(f"`{name}` is {element}: {value} does not fit", hint=_WRITTEN)
    return Argument(name, known, value)


def _pointer(name: str, known: Specialization, value: Any) -> Argument:
    if value is None or isinstance(value, int):
        view, address = None, int(value or 0)
    else:
        view = view_array(value, name)
        if view is None:
            raise LaunchError(
                f"`{name}` is {known.element}: it takes an array, not {value!r}", hint=_WRITTEN
            )
        address = view.address
    if known.divisible_by_16 and address % ALIGNMENT:
        raise LaunchError(
            f"`{name}`: the kernel was compiled for arrays at multiples of {ALIGNMENT} bytes, "
            f"and this one is at {address:#x}",
            hint="pass a copy of the array",
        )
    return Argument(name, known, address, view)
