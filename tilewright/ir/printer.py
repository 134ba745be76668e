"""The text form of a function, from the declarations of its ops; `parser` reads it back.

One op is one line: results, name, operands in field order (an absent one is `_`, a variadic field
stands in brackets), the attributes that differ from their defaults in braces, regions, types of the
results:

    %acc_3 = dot %a, %b, %acc {input_precision="tf32"} : fp32[64, 64]
    %sum = for %start, %stop, %step, [%zero] (%i: i32, %s: fp32) {
      %next = add %s, %s : fp32
      yield %next
    } : fp32

Names are those of the values, made unique by a number; a value without a name is a number. An op
with several regions names them. Functions that are called stand before their callers.
"""

from __future__ import annotations

import enum
import json
import math
import re
import struct
from collections.abc import Iterator
from typing import Any

from tilewright.errors import Location
from tilewright.ir.core import Block, Function, Op, Param, Value
from tilewright.ir.types import DType, PointerType, TileType

__all__ = ["to_text"]

_PLAIN_NAN = struct.pack("<d", math.nan)


def to_text(function: Function, *, locations: bool = False) -> str:
    """Return the text of `function`, the functions it calls before it.

    With `locations`, lines end in `loc("file":line:column)`, where that is known.
    """
    order = list(_callees_first(function, set()))
    names = _unique_names(order)
    return "\n".join(_Printer(names, locations=locations).function(f) for f in order)


def _callees_first(function: Function, seen: set[Function]) -> Iterator[Function]:
    seen.add(function)
    for op in function.body.walk():
        for value in op.attributes.values():
            if isinstance(value, Function) and value not in seen:
                yield from _callees_first(value, seen)
    yield function


def _unique_names(functions: list[Function]) -> dict[Function, str]:
    namer = _Namer()
    return {f: namer.unique(f.name) for f in functions}


class _Namer:
    """Gives out names once each; a name that is free stays as it is."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        name = re.sub(r"\W", "_", wanted)
        name = f"_{name}" if name[:1].isdigit() else name
        if name not in self.taken:
            self.taken[name] = 0
            return name
        number = self.taken[name] + 1
        while f"{name}_{number}" in self.taken:
            number += 1
        self.taken[name] = number
        self.taken[f"{name}_{number}"] = 0
        return f"{name}_{number}"


class _Printer:
    def __init__(self, functions: dict[Function, str], *, locations: bool) -> None:
        self.functions = functions
        self.locations = locations
        self.namer = _Namer()
        self.unnamed = 0
        self.names: dict[Value, str] = {}

    def function(self, function: Function) -> str:
        self.namer, self.unnamed, self.names = _Namer(), 0, {}
        keyword = "noinline func" if function.noinline else "func"
        params, location = self.params(function.params), self.location(function.location)
        lines = [f"{keyword} @{self.functions[function]}{params}{location} {{"]
        self.block(function.body, "  ", lines)
        return "\n".join([*lines, "}", ""])

    def define(self, value: Value) -> str:
        if value.name:
            name = f"%{self.namer.unique(value.name)}"
        else:
            name = f"%{self.unnamed}"
            self.unnamed += 1
        self.names[value] = name
        return name

    def use(self, value: Value) -> str:
        # A value that nothing defined is a fault, and the text is what shows it.
        return self.names.get(value, f"%<undefined {value.name}>")

    def uses(self, values: tuple[Value, ...]) -> str:
        return ", ".join(map(self.use, values))

    def params(self, params: tuple[Param, ...]) -> str:
        texts = [
            f"{self.define(p)}: {p.type}"
            + (f" {{divisible_by={p.divisible_by}}}" if p.divisible_by != 1 else "")
            for p in params
        ]
        return f"({', '.join(texts)})"

    def block(self, block: Block, indent: str, lines: list[str]) -> None:
        for op in block.ops:
            self.op(op, indent, lines)
        if block.yields:
            lines.append(f"{indent}yield {self.uses(block.yields)}")

    def op(self, op: Op, indent: str, lines: list[str]) -> None:
        parts = [op.op_name]
        if operands := ", ".join(self.operands(op)):
            parts.append(operands)
        if attributes := ", ".join(self.attributes(op)):
            parts.append(f"{{{attributes}}}")
        head = len(lines)
        text = " ".join(parts)
        for name in op.region_fields:
            region: Block = getattr(op, name)
            label = f" {name}" if len(op.region_fields) > 1 else ""
            lines.append(f"{text}{label} {self.params(region.params)} {{")
            self.block(region, f"{indent}  ", lines)
            text = f"{indent}}}"
        results = ", ".join(map(self.define, op.results))
        if results:
            text += f" : {', '.join(str(r.type) for r in op.results)}"
        lines.append(text + self.location(op.location))
        lines[head] = f"{indent}{f'{results} = ' if results else ''}{lines[head]}"

    def operands(self, op: Op) -> Iterator[str]:
        for name, variadic in op.operand_fields:
            operand = getattr(op, name)
            if variadic:
                yield f"[{self.uses(operand)}]"
            else:
                yield "_" if operand is None else self.use(operand)

    def attributes(self, op: Op) -> Iterator[str]:
        for name, value in op.attributes.items():
            text = self.attribute(value)
            if name not in op.defaults or text != self.attribute(op.defaults[name]):
                yield f"{name.rstrip('_')}={text}"

    def attribute(self, value: Any) -> str:
        match value:
            case None:
                return "none"
            case enum.Enum():
                return self.attribute(value.value)
            case bool():
                return "true" if value else "false"
            case int():
                return int.__repr__(value)
            case float():
                return _float(value)
            case str():
                return json.dumps(value)
            case tuple() | list():
                return f"[{', '.join(map(self.attribute, value))}]"
            case DType() | PointerType() | TileType():
                return str(value)
            case Function():
                return f"@{self.functions[value]}"
        message = f"no text form for an attribute of type {type(value).__name__}"
        raise TypeError(message)

    def location(self, location: Location | None) -> str:
        if location is None or not self.locations:
            return ""
        return f" loc({json.dumps(location.file)}:{location.line}:{location.column + 1})"


def _float(value: float) -> str:
    bits = struct.pack("<d", value)
    if math.isnan(value) and bits != _PLAIN_NAN:
        return f"nan:0x{int.from_bytes(bits, 'little'):016x}"  # sign and payload
    return float.__repr__(float(value))
