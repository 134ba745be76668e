"""What the inner loop of `dot` multiplies: how operands are widened, paired and accumulated.

A *lane* is what one vector lane of an operand holds for one trip of the k loop: one float, one
double, or two 16-bit or four 8-bit numbers in an `i32` (several values of k at once).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tilewright.codegen.cpu.matmul_shape import DotTarget, DotType
from tilewright.codegen.cpu.matmul_writer import Writer, mangled, vector_type
from tilewright.errors import InternalError

__all__ = [
    "LaneFormat",
    "MultiplyAdd",
    "lane_format",
    "multiply_add",
    "narrow",
    "widen",
    "widen_across_k",
    "widen_along_k",
]


class MultiplyAdd(StrEnum):
    """How a lane of the accumulator takes in a lane of each operand."""

    FUSED = "llvm.fma"
    SEPARATE = "fmul, fadd"
    INTEGER = "mul, add"
    PAIRS = "pmaddwd, add"
    PAIRS_FUSED = "vpdpwssd"
    PAIRS_BFLOAT = "vdpbf16ps"
    QUADS = "vpdpbusd"
    TILES = "AMX, not by lanes"


@dataclass(frozen=True)
class LaneFormat:
    """The lanes of one `dot`: `lane` in LLVM's words, `group` values of k in each.

    `sum` is the type of the accumulator's lanes, in registers.
    """

    lane: str
    sum: str
    bytes: int
    group: int
    multiply_add: MultiplyAdd

    def is_memory_format(self, element: DotType) -> bool:
        """Whether the matrix in memory is already made of lanes, so needs no conversion."""
        return element.llvm == self.lane


def lane_format(a: DotType, b: DotType, target: DotTarget) -> LaneFormat:
    """The cheapest way to multiply these types on this machine.

    All but one are exact up to the rounding of float sums. `vdpbf16ps`, twice as fast as widening
    bf16 to float, takes denormal operands (below 2**-126) for zero; so do AMX and oneDNN.
    """
    differ = a.is_integer != b.is_integer or (a is DotType.DOUBLE) != (b is DotType.DOUBLE)
    if differ or DotType.INT32 in (a, b):
        raise InternalError(f"dot: there is no product of {a} and {b}")
    if a.is_integer:
        if target.is_arm:
            return LaneFormat("i32", "i32", 4, 1, MultiplyAdd.INTEGER)
        fused = "avx512vnni" in target.features and "avx512vl" in target.features
        if fused and (a, b) != (DotType.INT8, DotType.UINT8):
            return LaneFormat("i32", "i32", 4, 4, MultiplyAdd.QUADS)
        pairs = MultiplyAdd.PAIRS_FUSED if fused else MultiplyAdd.PAIRS
        return LaneFormat("i32", "i32", 4, 2, pairs)
    if a is b is DotType.BFLOAT and target.features >= {"avx512bf16", "avx512vl"}:
        return LaneFormat("i32", "float", 4, 2, MultiplyAdd.PAIRS_BFLOAT)
    multiply_add = MultiplyAdd.FUSED if target.has_fma else MultiplyAdd.SEPARATE
    if a is DotType.DOUBLE:
        return LaneFormat("double", "double", 8, 1, multiply_add)
    return LaneFormat("float", "float", 4, 1, multiply_add)


def widen_along_k(
    writer: Writer,
    lanes: LaneFormat,
    element: DotType,
    count: int,
    loaded: str,
    target: DotTarget,
) -> str:
    """`count` lanes from `count * group` neighbours along k, as they lie in memory."""
    if lanes.group == 1:
        return widen(writer, lanes.lane, element, count, loaded, target)
    part, parts = f"i{32 // lanes.group}", lanes.group * count
    neighbours = widen(writer, part, element, parts, loaded, target)
    return writer.value(f"bitcast <{parts} x {part}> {neighbours} to <{count} x i32>")


def widen_across_k(
    writer: Writer,
    lanes: LaneFormat,
    element: DotType,
    count: int,
    loaded: list[str],
    target: DotTarget,
) -> str:
    """`count` lanes from `group` vectors, one for each value of k that a lane holds."""
    if lanes.group == 1:
        return widen(writer, lanes.lane, element, count, loaded[0], target)
    kind, bits = vector_type(count, "i32"), 32 // lanes.group
    lane = "zeroinitializer"
    for position, vector in enumerate(loaded):
        part = widen(writer, "i32", element, count, vector, target)
        part = writer.value(f"and {kind} {part}, splat (i32 {2**bits - 1})")
        part = writer.value(f"shl {kind} {part}, splat (i32 {position * bits})")
        lane = writer.value(f"or {kind} {lane}, {part}")
    return lane


def widen(
    writer: Writer, lane: str, element: DotType, count: int, loaded: str, target: DotTarget
) -> str:
    """The same numbers in a wider type, exactly."""
    source, result = vector_type(count, element.llvm), vector_type(count, lane)
    if element.llvm == lane:
        return loaded
    if element is DotType.BFLOAT and lane == "i32":
        return writer.value(f"zext {source} {loaded} to {result}")
    if element in (DotType.INT8, DotType.UINT8):
        extension = "sext" if element is DotType.INT8 else "zext"
        return writer.value(f"{extension} {source} {loaded} to {result}")
    if element is DotType.HALF and target.has_half_conversion:
        return writer.value(f"fpext {source} {loaded} to {result}")
    if element is DotType.HALF:
        bits = writer.value(f"bitcast {source} {loaded} to <{count} x i16>")
        return widen_half_bits(writer, count, bits)
    bits = writer.value(f"zext {source} {loaded} to <{count} x i32>")
    shifted = writer.value(f"shl <{count} x i32> {bits}, splat (i32 16)")
    return writer.value(f"bitcast <{count} x i32> {shifted} to {result}")


def widen_half_bits(writer: Writer, count: int, bits: str) -> str:
    """Half to float with integer instructions, for x86 without F16C (no library call).

    The exponent and mantissa, moved to float's place, read as the value times 2**-112, also
    for denormals; infinity and NaN alone need their exponent raised to float's.
    """
    word, real = vector_type(count, "i32"), vector_type(count, "float")
    wide = writer.value(f"zext <{count} x i16> {bits} to {word}")
    magnitude = writer.value(f"and {word} {wide}, splat (i32 32767)")
    placed = writer.value(f"shl {word} {magnitude}, splat (i32 13)")
    small = writer.value(f"bitcast {word} {placed} to {real}")
    scaled = writer.value(f"fmul {real} {small}, splat (float 0x46F0000000000000)")
    finite = writer.value(f"bitcast {real} {scaled} to {word}")
    special = writer.value(f"or {word} {placed}, splat (i32 2139095040)")
    is_special = writer.value(f"icmp ugt {word} {magnitude}, splat (i32 31743)")
    chosen = writer.value(f"select <{count} x i1> {is_special}, {word} {special}, {word} {finite}")
    negative = writer.value(f"and {word} {wide}, splat (i32 32768)")
    sign = writer.value(f"shl {word} {negative}, splat (i32 16)")
    signed = writer.value(f"or {word} {chosen}, {sign}")
    return writer.value(f"bitcast {word} {signed} to {real}")


def narrow(
    writer: Writer, lane: str, element: DotType, count: int, wide: str, target: DotTarget
) -> str:
    """The nearest numbers of the accumulator's type in memory, ties to even."""
    if element.llvm == lane:
        return wide
    if target.has_half_conversion:
        source, result = vector_type(count, lane), vector_type(count, element.llvm)
        return writer.value(f"fptrunc {source} {wide} to {result}")
    return narrow_to_half_bits(writer, count, wide)


def narrow_to_half_bits(writer: Writer, count: int, value: str) -> str:
    """Float to half with integer instructions, the inverse of `widen_half_bits`.

    Adding 0.5 lets the processor round a result that is denormal in half: the last mantissa bit of
    0.5 weighs 2**-24, as does half's. Normal results are rounded by adding just under half a unit,
    and a carry into the exponent is right. Method: Fabian Giesen, "float_to_half_fast3_rtne".
    """
    word, real = vector_type(count, "i32"), vector_type(count, "float")
    bits = writer.value(f"bitcast {real} {value} to {word}")
    magnitude = writer.value(f"and {word} {bits}, splat (i32 2147483647)")
    as_real = writer.value(f"bitcast {word} {magnitude} to {real}")
    shifted = writer.value(f"fadd {real} {as_real}, splat (float 5.000000e-01)")
    shifted_bits = writer.value(f"bitcast {real} {shifted} to {word}")
    denormal = writer.value(f"sub {word} {shifted_bits}, splat (i32 {0x3F000000})")
    unit = writer.value(f"lshr {word} {magnitude}, splat (i32 13)")
    odd = writer.value(f"and {word} {unit}, splat (i32 1)")
    rebased = writer.value(f"add {word} {magnitude}, splat (i32 {0xFFF - (112 << 23)})")
    rounded = writer.value(f"add {word} {rebased}, {odd}")
    normal = writer.value(f"lshr {word} {rounded}, splat (i32 13)")
    is_nan = writer.value(f"icmp ugt {word} {magnitude}, splat (i32 {0x7F800000})")
    special = writer.value(
        f"select <{count} x i1> {is_nan}, {word} splat (i32 {0x7E00}), {word} splat (i32 {0x7C00})"
    )
    is_small = writer.value(f"icmp ult {word} {magnitude}, splat (i32 {0x38800000})")
    is_large = writer.value(f"icmp uge {word} {magnitude}, splat (i32 {0x47800000})")
    chosen = writer.value(f"select <{count} x i1> {is_small}, {word} {denormal}, {word} {normal}")
    chosen = writer.value(f"select <{count} x i1> {is_large}, {word} {special}, {word} {chosen}")
    sign = writer.value(f"lshr {word} {bits}, splat (i32 16)")
    sign = writer.value(f"and {word} {sign}, splat (i32 32768)")
    signed = writer.value(f"or {word} {chosen}, {sign}")
    halves = writer.value(f"trunc {word} {signed} to <{count} x i16>")
    return writer.value(f"bitcast <{count} x i16> {halves} to <{count} x half>")


def multiply_add(
    writer: Writer, lanes: LaneFormat, count: int, a: str, b: str, accumulator: str
) -> str:
    """`accumulator + a * b` in every lane."""
    kind = vector_type(count, lanes.lane)
    match lanes.multiply_add:
        case MultiplyAdd.FUSED:
            suffix = mangled(lanes.lane, count)
            return writer.value(
                f"call {kind} @llvm.fma.{suffix}({kind} {a}, {kind} {b}, {kind} {accumulator})"
            )
        case MultiplyAdd.SEPARATE:
            product = writer.value(f"fmul {kind} {a}, {b}")
            return writer.value(f"fadd {kind} {accumulator}, {product}")
        case MultiplyAdd.INTEGER:
            product = writer.value(f"mul {kind} {a}, {b}")
            return writer.value(f"add {kind} {accumulator}, {product}")
        case MultiplyAdd.QUADS:
            quads = vector_type(4 * count, "i8")
            left = writer.value(f"bitcast {kind} {a} to {quads}")
            right = writer.value(f"bitcast {kind} {b} to {quads}")
            return writer.value(
                f"call {kind} @llvm.x86.avx512.vpdpbusd.{32 * count}"
                f"({kind} {accumulator}, {quads} {left}, {quads} {right})"
            )
        case MultiplyAdd.PAIRS_BFLOAT:
            pairs, sums = vector_type(2 * count, "bfloat"), vector_type(count, "float")
            left = writer.value(f"bitcast {kind} {a} to {pairs}")
            right = writer.value(f"bitcast {kind} {b} to {pairs}")
            return writer.value(
                f"call {sums} @llvm.x86.avx512bf16.dpbf16ps.{32 * count}"
                f"({sums} {accumulator}, {pairs} {left}, {pairs} {right})"
            )
        case MultiplyAdd.PAIRS:
            return add_pairs(writer, count, a, b, accumulator)
        case MultiplyAdd.TILES:
            raise InternalError("dot: AMX multiplies tiles, not lanes")
        case MultiplyAdd.PAIRS_FUSED:
            pairs = vector_type(2 * count, "i16")
            left = writer.value(f"bitcast {kind} {a} to {pairs}")
            right = writer.value(f"bitcast {kind} {b} to {pairs}")
            return writer.value(
                f"call {kind} @llvm.x86.avx512.vpdpwssd.{32 * count}"
                f"({kind} {accumulator}, {pairs} {left}, {pairs} {right})"
            )


def add_pairs(writer: Writer, count: int, a: str, b: str, accumulator: str) -> str:
    """`pmaddwd` and an addition. A pair of 8-bit products cannot overflow its 32 bits."""
    name = {16: "avx512.pmaddw.d.512", 8: "avx2.pmadd.wd", 4: "sse2.pmadd.wd"}[count]
    kind, pairs = vector_type(count, "i32"), vector_type(2 * count, "i16")
    left = writer.value(f"bitcast {kind} {a} to {pairs}")
    right = writer.value(f"bitcast {kind} {b} to {pairs}")
    product = writer.value(f"call {kind} @llvm.x86.{name}({pairs} {left}, {pairs} {right})")
    return writer.value(f"add {kind} {accumulator}, {product}")
