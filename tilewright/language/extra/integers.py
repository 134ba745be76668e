"""Functions of integers and their bits."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.semantic.values import as_tensor
from tilewright.frontend.tensor import Tensor
from tilewright.language.extra.declare import of_integers, of_types
from tilewright.passes.expression import Expression, choose

__all__ = ["brev", "byte_perm", "clz", "ffs", "hadd", "mul24", "mulhi", "popc", "rhadd", "sad"]

# Bits by twos, fours, eights, ...: the lower half of each group.
HALVES = (
    (1, 0x5555555555555555),
    (2, 0x3333333333333333),
    (4, 0x0F0F0F0F0F0F0F0F),
    (8, 0x00FF00FF00FF00FF),
    (16, 0x0000FFFF0000FFFF),
    (32, 0x00000000FFFFFFFF),
)


def _unsigned(x: Expression) -> tuple[Expression, int, list[tuple[int, int]]]:
    """Return the bits of `x` as unsigned, their number, and the groups that there are."""
    bits = x.dtype.primitive_bitwidth
    name = f"u{bits}"
    value = x if x.dtype.short_name == name else x.bitcast(name)
    return value, bits, [(half, mask & (1 << bits) - 1) for half, mask in HALVES if half < bits]


def _count(x: Expression) -> Expression:
    value, _, groups = _unsigned(x)
    for half, mask in groups:
        value = (value & mask) + (value >> half & mask)
    return value.cast("i32")


@of_integers()
def popc(x: Expression) -> Expression:
    """Return the number of bits of `x` that are 1, as int32.

    >>> tl.extra.libdevice.popc(tl.arange(0, 4))
    tensor([0, 1, 1, 2], i32[4])
    """
    return _count(x)


@of_integers()
def clz(x: Expression) -> Expression:
    """Return the number of zeros before the first 1, from the highest bit, as int32.

    >>> tl.extra.libdevice.clz(tl.arange(0, 4))
    tensor([32, 31, 30, 30], i32[4])
    """
    value, bits, groups = _unsigned(x)
    for half, _ in groups:
        value = value | value >> half
    return bits - _count(value)


@of_integers()
def ffs(x: Expression) -> Expression:
    """Return the place of the lowest 1, counted from 1, as int32; 0 for 0."""
    value, _, _ = _unsigned(x)
    below = _count((value & -value) - 1)
    return choose(value.equals(0), 0, below + 1)


@of_integers()
def brev(x: Expression) -> Expression:
    """Return `x` with its bits in reverse order."""
    value, _, groups = _unsigned(x)
    for half, mask in groups:
        value = (value >> half & mask) | ((value & mask) << half)
    return value if value.dtype is x.dtype else value.bitcast(x.dtype.short_name)


@of_types("i32", "i32", "i32")
def byte_perm(x: Expression, y: Expression, s: Expression) -> Expression:
    """Return four of the eight bytes of `x` (0 to 3) and `y` (4 to 7), as int32.

    The lowest four bits of `s` say which is the lowest byte, the next four which is the next, ...;
    of each only three bits count.
    """
    both = x.bitcast("u32").cast("u64") | (y.bitcast("u32").cast("u64") << 32)
    chosen = s.bitcast("u32").cast("u64")
    result = both.constant(0)
    for place in range(4):
        start = (chosen >> 4 * place & 7) << 3
        result = result | ((both >> start & 0xFF) << 8 * place)
    return result.cast("u32").bitcast("i32")


@of_integers()
def mulhi(x: Expression, y: Expression) -> Expression:
    """Return the upper half of the double-width product, signed or unsigned as the operands."""
    return x.upper_product(y)


@of_integers(widths=(32,))
def mul24(x: Expression, y: Expression) -> Expression:
    """Return the lower 32 bits of the product of the lower 24 bits, signed as the operands."""
    return (x << 8 >> 8) * (y << 8 >> 8)


@of_integers(widths=(32,))
def hadd(x: Expression, y: Expression) -> Expression:
    """Return the mean rounded down, without overflow."""
    return (x & y) + ((x ^ y) >> 1)


@of_integers(widths=(32,))
def rhadd(x: Expression, y: Expression) -> Expression:
    """Return the mean rounded up, without overflow."""
    return (x | y) - ((x ^ y) >> 1)


@builtin
def sad(x: Any, y: Any, z: Any) -> Tensor:
    """Return `|x - y| + z`, modulo 2^32: int32, or uint32 where `x` and `y` are.

    >>> tl.extra.libdevice.sad(tl.arange(0, 3), 1, 10)
    tensor([11, 10, 11], i32[3])
    """
    unsigned = all(as_tensor(value, "sad").dtype.is_int_unsigned() for value in (x, y))
    return (_sad_unsigned if unsigned else _sad_signed)(x, y, z)


@of_types("i32", "i32", "u32")
def _sad_signed(x: Expression, y: Expression, z: Expression) -> Expression:
    return choose(x > y, x - y, y - x) + z.bitcast("i32")


@of_types("u32", "u32", "u32")
def _sad_unsigned(x: Expression, y: Expression, z: Expression) -> Expression:
    return choose(x > y, x - y, y - x) + z
