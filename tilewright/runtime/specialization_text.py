"""What a kernel was specialised for, as a text that another process can compile from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tilewright.errors import LaunchError
from tilewright.frontend.parameters import element_type_from_text
from tilewright.frontend.trace import Constant, Described, Runtime
from tilewright.ir.types import DTYPES, DType, TileType
from tilewright.ops.descriptor import Padding
from tilewright.runtime.arguments import Specialization

__all__ = ["read_specialization_data", "specialization_data"]

_FACTS = tuple(f.name for f in fields(Specialization) if f.name not in {"traced", "items"})


class _NoText(Exception):
    """A value that other processes do not know."""


def specialization_data(
    kernel: Any,
    gpu: int | None,
    specializations: Mapping[str, Specialization],
    options: Mapping[str, Any],
) -> str | None:
    """Return a text in JSON for `JITFunction.preload`.

    None where something has no such text: functions among the arguments, or named tuples.
    """
    try:
        parameters = {name: _parameter(known) for name, known in specializations.items()}
        chosen = {name: _written(Constant(value)) for name, value in options.items()}
    except _NoText:
        return None
    facts = {"name": _name(kernel), "cache_key": kernel.cache_key, "gpu": gpu}
    return json.dumps({**facts, "parameters": parameters, "options": chosen})


def read_specialization_data(
    kernel: Any, text: str
) -> tuple[int | None, dict[str, Specialization], dict[str, Any]]:
    """Return the GPU (None: the CPU), the specializations and the options in such a text.

    Raises `LaunchError` where it is of another kernel, or of another text of this one.
    """
    data = json.loads(text)
    if data["name"] != _name(kernel):
        raise LaunchError(
            f"{kernel.name}: this was compiled for the kernel `{data['name']}`",
            location=kernel.location,
            hint="give it to the kernel of that name",
        )
    if data["cache_key"] != kernel.cache_key:
        raise LaunchError(
            f"{kernel.name}: this was compiled for another text of the kernel",
            location=kernel.location,
            hint="run the program once more that wrote it",
        )
    known = {name: _read_parameter(one) for name, one in data["parameters"].items()}
    options = {name: _read(value).value for name, value in data["options"].items()}
    return data["gpu"], known, options


def _name(kernel: Any) -> str:
    return f"{kernel.__module__}.{kernel.__qualname__}"


def _parameter(known: Specialization) -> dict[str, Any]:
    return {
        "traced": _written(known.traced),
        "items": list(map(_parameter, known.items)),
        **{fact: _plain(getattr(known, fact)) for fact in _FACTS},
    }


def _read_parameter(data: Mapping[str, Any]) -> Specialization:
    return Specialization(
        _read(data["traced"]),
        items=tuple(map(_read_parameter, data["items"])),
        **{fact: data[fact] for fact in _FACTS},
    )


def _plain(value: Any) -> Any:
    if value is not None and type(value) not in {bool, str}:
        raise _NoText
    return value


# ---- what the frontend sees -----------------------------------------------------------------


def _written(traced: Any) -> Any:
    match traced:
        case Runtime(type=kind, divisible_by=divisor):
            return ["runtime", str(kind.element), divisor]
        case Constant(value=None | bool() | int() | float() | str() as value):
            return ["constant", value]
        case Constant(value=DType() as dtype):
            return ["dtype", dtype.short_name]
        case Constant(value=tuple() as items) if type(items) is tuple:
            return ["constants", [_written(Constant(item)) for item in items]]
        case Described():
            parts = [_written(part) for part in traced.parts.values()]
            padding = str(traced.padding)
            return ["descriptor", parts, traced.block_shape, padding, traced.round_f32_to_tf32]
    if type(traced) is tuple:
        return ["tuple", [_written(item) for item in traced]]
    raise _NoText


def _read(written: Any) -> Any:
    match written:
        case ["runtime", name, divisor]:
            element = element_type_from_text(name)
            assert element is not None
            return Runtime(TileType(element), divisor)
        case ["constant", value]:
            return Constant(value)
        case ["dtype", name]:
            return Constant(DTYPES[name])
        case ["constants", items]:
            return Constant(tuple(_read(item).value for item in items))
        case ["descriptor", parts, block, padding, rounds]:
            base, *numbers = map(_read, parts)
            sizes, strides = numbers[: len(block)], numbers[len(block) :]
            return Described(
                base, tuple(sizes), tuple(strides), tuple(block), Padding(padding), rounds
            )
        case ["tuple", items]:
            return tuple(map(_read, items))
    raise ValueError(f"{written!r} is no specialization")
