"""Inline assembly as a block of ops on tiles."""

from __future__ import annotations

import functools
from math import prod

from tilewright.errors import TilewrightError
from tilewright.ir.core import Block, Param, Value
from tilewright.ir.types import DTYPES, DType, ElementType, PointerType, TileType
from tilewright.ops.convert import Bitcast, Cast
from tilewright.ops.elementwise import Minimum
from tilewright.ops.ptx.conversions import convert
from tilewright.ops.ptx.instructions import INSTRUCTIONS
from tilewright.ops.ptx.registers import Registers, Signature, read_constraints
from tilewright.ops.ptx.text import parse
from tilewright.ops.ptx.values import Values, unknown
from tilewright.ops.shape import Arange, Full, Gather, Join, Reshape, Split

__all__ = ["expansion"]

_RULES = {**INSTRUCTIONS, "cvt": convert}


@functools.lru_cache(maxsize=64)
def expansion(text: str, signature: Signature, shape: tuple[int, ...]) -> Block:
    """Return what assembly computes, over tiles of one shape.

    Raises `Unsupported` for an instruction that only GPUs have, and `CompileError` for constraints
    that do not fit.
    """
    outputs, inputs = read_constraints(signature)
    params = tuple(Param(TileType(element, shape)) for element in signature.arguments)
    block = Block(params)
    groups = -(-prod(shape) // signature.pack)
    values = Values(block.ops, shape if signature.pack == 1 else (groups,))
    number = 0
    for registers in outputs:
        for _ in range(registers.count):
            values.widths[f"${number}"] = registers.bits
            number += 1
    for param, registers in zip(params, inputs, strict=True):
        for bits in _to_registers(values, param, registers, signature.pack):
            values.widths[f"${number}"] = registers.bits
            values.names[f"${number}"] = bits
            number += 1
    try:
        for instruction in parse(text):
            rule = _RULES.get(instruction.opcode)
            if rule is None or not instruction.operands:
                raise unknown(instruction)
            values.write(instruction.operands[0], rule(values, instruction), instruction)
    except TilewrightError as error:
        error.at(signature.location)
        raise
    block.yields = tuple(_results(values, outputs, signature, shape))
    return block


def _results(
    values: Values, outputs: list[Registers], signature: Signature, shape: tuple[int, ...]
) -> list[Value]:
    results, number = [], 0
    for registers in outputs:
        words = []
        for _ in range(registers.count):
            # What no instruction has written is whatever was there.
            name, width = f"${number}", registers.bits
            zero = values.number(0, DTYPES[f"u{width}"]) if name not in values.names else None
            words.append(zero or values.names[name])
            number += 1
        results.append(_from_registers(values, words, registers, signature.pack, shape))
    return results


def _to_registers(values: Values, x: Value, registers: Registers, pack: int) -> list[Value]:
    """Return the bits of every `pack` elements, as they lie in the registers."""
    elements = _parts(values, _filled_up(values, _as_bits(values, x), pack), pack)
    together = min(pack, registers.bits // registers.element_bits)
    if not together:  # each element takes several
        count = registers.element_bits // registers.bits
        return [word for element in elements for word in values.split(element, count)]
    groups = [elements[i : i + together] for i in range(0, pack, together)]
    return [values.resized(values.joined(group), registers.bits) for group in groups]


def _from_registers(
    values: Values, words: list[Value], registers: Registers, pack: int, shape: tuple[int, ...]
) -> Value:
    """Return the tile of the elements that lie in registers."""
    together = min(pack, registers.bits // registers.element_bits)
    elements: list[Value] = []
    if not together:
        count = registers.element_bits // registers.bits
        elements = [values.joined(words[i : i + count]) for i in range(0, len(words), count)]
    for word in words if together else ():
        bits = values.resized(word, together * registers.element_bits)
        elements += values.split(bits, together)
    whole = _whole(values, elements)
    size = prod(shape)
    if pack > 1:
        if whole.shape[0] != size:
            whole = values.add(Gather(whole, values.add(Arange(0, size)), 0))
        whole = values.add(Reshape(whole, shape))
    return _from_bits(values, whole, registers.element)


def _as_bits(values: Values, x: Value) -> Value:
    """Return elements as unsigned integers: a pointer is a number, a bool a byte."""
    element = x.type.element
    if isinstance(element, PointerType):
        bits = values.add(Bitcast(x, DTYPES["u64"]))
    elif element.is_bool():
        bits = values.add(Cast(x, DTYPES["u8"]))
    else:
        bits = values.bits_of(x)
    return bits


def _from_bits(values: Values, bits: Value, element: ElementType) -> Value:
    if isinstance(element, DType) and element.is_bool():
        return values.add(Cast(bits, element))
    return bits if bits.type.element is element else values.add(Bitcast(bits, element))


def _filled_up(values: Values, bits: Value, pack: int) -> Value:
    """Return elements, flat, up to a multiple of `pack`: the last one again and again."""
    if pack == 1:
        return bits
    (groups,), size = values.shape, prod(bits.shape)
    flat = values.add(Reshape(bits, (size,)))
    if groups * pack == size:
        return flat
    places = values.add(Arange(0, groups * pack))
    last = values.add(Full(size - 1, places.type))
    return values.add(Gather(flat, values.add(Minimum(places, last)), 0))


def _parts(values: Values, flat: Value, count: int) -> list[Value]:
    """Return tiles of every `count`-th element, from the first, the second, ... on."""
    if count == 1:
        return [flat]
    split = Split(values.add(Reshape(flat, (flat.shape[0] // 2, 2))))
    values.add(split)
    halves = [_parts(values, half, count // 2) for half in split.results]
    return [part for pair in zip(*halves, strict=True) for part in pair]


def _whole(values: Values, parts: list[Value]) -> Value:
    """Return what `_parts` was given."""
    if len(parts) == 1:
        return parts[0]
    even, odd = _whole(values, parts[::2]), _whole(values, parts[1::2])
    return values.add(Reshape(values.add(Join(even, odd)), (2 * even.shape[0],)))
