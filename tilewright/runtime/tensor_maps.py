"""Tensor maps: built for a launch, from the values of the kernel's parameters.

A tensor map is 128 bytes that tell a GPU how an array lies in memory, and which box of it a copy
moves; `codegen/gpu/tensor_map.py` says what of it a kernel fixes. What the bytes mean only the
driver knows, and the emulator for those of its own. Both count dimensions from the innermost.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from ctypes import c_uint32, c_uint64, c_void_p
from dataclasses import astuple
from typing import Any, NamedTuple

from tilewright.codegen.nvidia.tensor_map import (
    MAP_ALIGNMENT,
    MAP_BYTES,
    Extent,
    Parameter,
    Product,
    TensorMap,
)
from tilewright.errors import LaunchError, Location
from tilewright.ir.types import DTYPES, DType
from tilewright.ops.descriptor import ALIGNMENT_BYTES, PAD_ROWS, stride_mistake
from tilewright.runtime.cuda import Device, driver

__all__ = [
    "L2_PROMOTION",
    "MappedArray",
    "TensorMaps",
    "element_number",
    "from_literal",
    "swizzle_number",
    "to_literal",
    "with_driver",
]

# CU_TENSOR_MAP_L2_PROMOTION_L2_128B
L2_PROMOTION = 2

_LARGEST_STRIDE = 2**40
# Of one kernel.
_MOST_KEPT = 256

# CU_TENSOR_MAP_DATA_TYPE_*: all types of one byte are 0.
_ELEMENT_NUMBERS = {
    "i16": 1,
    "u16": 1,
    "u32": 2,
    "i32": 3,
    "u64": 4,
    "i64": 5,
    "fp16": 6,
    "fp32": 7,
    "fp64": 8,
    "bf16": 9,
}
_SWIZZLE_NUMBERS = {0: 0, 32: 1, 64: 2, 128: 3}


class MappedArray(NamedTuple):
    """What is encoded as a tensor map: dimensions innermost first.

    `strides` are in bytes, of all but the innermost dimension. `element` and `swizzle` are numbers
    of the driver.
    """

    element: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    fills_nan: bool


class TensorMaps:
    """The tensor maps of a kernel: `encode` turns them into bytes, which are kept for a while.

    `locate` returns the place of the kernel, for errors.
    """

    def __init__(
        self,
        maps: Sequence[TensorMap],
        kernel: str,
        encode: Callable[[MappedArray], bytes],
        locate: Callable[[], Location | None] = lambda: None,
    ) -> None:
        self.maps, self._kernel, self._encode = tuple(maps), kernel, encode
        self._locate = locate
        self._known: dict[MappedArray, bytes] = {}

    def fit(self, values: Sequence[Any]) -> bool:
        """Whether all arrays have elements: of one without any a GPU has no map."""
        extents = [extent for tensor_map in self.maps for extent in tensor_map.sizes]
        return all(_value(extent, values) > 0 for extent in extents)

    def of_launch(self, values: Sequence[Any], names: Sequence[str]) -> list[bytes]:
        """Return the maps for the values of all parameters of the kernel.

        Raises `LaunchError`, which names the parameter of the array, for one that cannot be copied
        so.
        """
        return [self._encoded(tensor_map, values, names) for tensor_map in self.maps]

    def _encoded(self, tensor_map: TensorMap, values: Sequence[Any], names: Sequence[str]) -> bytes:
        array = _located(tensor_map, values)
        known = self._known.get(array)
        if known is None:
            try:
                _check(array, tensor_map, f"{self._kernel}: `{names[tensor_map.base]}`")
            except LaunchError as error:
                error.at(self._locate())
                raise
            known = self._encode(array)
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[array] = known
        return known


def _value(extent: Extent, values: Sequence[Any]) -> int:
    match extent:
        case Parameter(number):
            return int(values[number])
        case Product(numbers, factor, bits):
            whole = factor * math.prod(int(values[number]) for number in numbers)
            return (whole + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    return extent


def _located(tensor_map: TensorMap, values: Sequence[Any]) -> MappedArray:
    size = tensor_map.element.itemsize
    return MappedArray(
        element_number(tensor_map.element),
        int(values[tensor_map.base]),
        tuple(_value(extent, values) for extent in reversed(tensor_map.sizes)),
        tuple(size * _value(extent, values) for extent in reversed(tensor_map.strides)),
        tensor_map.box[::-1],
        swizzle_number(tensor_map.swizzle),
        tensor_map.fills_nan,
    )


def element_number(element: DType) -> int:
    """Return how the driver numbers an element type."""
    return _ELEMENT_NUMBERS.get(element.short_name, 0)


def swizzle_number(swizzle_bytes: int) -> int:
    """Return how the driver numbers a swizzle."""
    return _SWIZZLE_NUMBERS[swizzle_bytes]


def _check(array: MappedArray, tensor_map: TensorMap, where: str) -> None:
    """Raise `LaunchError` for an array that a GPU has no tensor map of."""
    described = f"{where}: tensor descriptor"
    if array.address % ALIGNMENT_BYTES:
        raise LaunchError(
            f"{described}: the address of the array, {array.address:#x}, is not a multiple of "
            f"{ALIGNMENT_BYTES} bytes",
            hint="pass the whole array, or a copy of the part",
        )
    if min(array.sizes) < 1:
        raise LaunchError(
            f"{described}: the code is for arrays that have elements, but the sizes are "
            f"{list(array.sizes[::-1])}",
            hint="let the values decide: `kernel[grid](...)`",
        )
    for axis, stride in enumerate(array.strides[::-1]):
        elements = stride // tensor_map.element.itemsize
        mistake = stride_mistake(axis, elements, tensor_map.element)
        if mistake:
            raise LaunchError(f"{described}: {mistake}", hint=PAD_ROWS)
        if not 0 <= stride < _LARGEST_STRIDE:
            raise LaunchError(
                f"{described}: the stride of axis {axis}, {stride} bytes, is not from 0 to 2**40",
                hint="read the array through pointers",
            )


def with_driver(gpu: Device, kernel: str) -> Callable[[MappedArray], bytes]:
    """Return the function that lets the driver encode maps for a kernel on a GPU."""

    def encode(array: MappedArray) -> bytes:
        rank = len(array.sizes)
        memory = (ctypes.c_char * (MAP_BYTES + MAP_ALIGNMENT))()
        start = ctypes.addressof(memory)
        place = start + -start % MAP_ALIGNMENT
        with gpu.active():
            driver().call(
                "cuTensorMapEncodeTiled",
                c_void_p(place),
                array.element,
                c_uint32(rank),
                c_void_p(array.address),
                (c_uint64 * rank)(*array.sizes),
                (c_uint64 * rank)(*array.strides),
                (c_uint32 * rank)(*array.box),
                (c_uint32 * rank)(*[1] * rank),
                0,
                array.swizzle,
                L2_PROMOTION,
                int(array.fills_nan),
                doing=f"launching {kernel}: making the tensor map of {array}",
            )
        return ctypes.string_at(place, MAP_BYTES)

    return encode


# ---- in the disk cache ------------------------------------------------------------------------


def to_literal(tensor_map: TensorMap) -> tuple[Any, ...]:
    """Return a map as literals of Python, parameters and products as tuples of their fields."""

    def literals(extents: Sequence[Extent]) -> tuple[Any, ...]:
        return tuple(e if isinstance(e, int) else astuple(e) for e in extents)

    return (
        tensor_map.base,
        literals(tensor_map.sizes),
        literals(tensor_map.strides),
        tensor_map.box,
        tensor_map.element.short_name,
        tensor_map.swizzle,
        tensor_map.fills_nan,
    )


def from_literal(literal: tuple[Any, ...]) -> TensorMap:
    """Return the map that `to_literal` has written."""
    base, sizes, strides, box, element, swizzle, fills_nan = literal

    def extents(literals: Sequence[Any]) -> tuple[Extent, ...]:
        return tuple(map(extent, literals))

    def extent(literal: Any) -> Extent:
        if isinstance(literal, int):
            return literal
        return Parameter(*literal) if len(literal) == 1 else Product(*literal)

    return TensorMap(
        base, extents(sizes), extents(strides), box, DTYPES[element], swizzle, fills_nan
    )
