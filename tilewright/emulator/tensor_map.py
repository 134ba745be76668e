"""Tensor maps: how a bulk tensor copy sees an array in global memory.

The driver's own form of the 128 bytes is not public, so the emulator has its own, little-endian:

====== ===== =================================================================
offset bytes what
====== ===== =================================================================
0      8     the mark `TILEMAP1`
8      8     address
16     1     rank, 1 to 5
17     1     element type, numbered as in the driver's `CUtensorMapDataType`
18     1     swizzle: 0 none, 1 32 bytes, 2 64 bytes, 3 128 bytes
19     1     fill: 0 zeros, 1 NaN
24     40    extents, five of 8 bytes, innermost first
64     32    strides in bytes, four of 8 bytes, of all but the innermost dimension
96     10    box, five of 2 bytes, innermost first
106    5     element strides, five of 1 byte, innermost first
====== ===== =================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tilewright.emulator.floats import Array
from tilewright.emulator.program import EmulatorError

__all__ = ["BoxedView", "TensorMap", "decode_tensor_map", "encode_tensor_map", "swizzled"]

_MARK = b"TILEMAP1"
_PIECE_BYTES = 16
_FORMAT = struct.Struct("<8sQBBBB4x5Q4Q5H5B17x")
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_INTEGERS = ("u8", "u16", "u32", "s32", "u64", "s64")
_FLUSHED_AND_TF32 = ("f32", "f32", "f32")
_TYPES = (*_INTEGERS, "f16", "f32", "f64", "bf16", *_FLUSHED_AND_TF32)
_SIZES = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)
_TYPE_OF_DTYPE = {
    np.dtype(np.uint8): 0,
    np.dtype(np.int8): 0,
    np.dtype(ml_dtypes.float8_e4m3fn): 0,
    np.dtype(ml_dtypes.float8_e5m2): 0,
    np.dtype(np.uint16): 1,
    np.dtype(np.int16): 1,
    np.dtype(np.uint32): 2,
    np.dtype(np.int32): 3,
    np.dtype(np.uint64): 4,
    np.dtype(np.int64): 5,
    np.dtype(np.float16): 6,
    np.dtype(np.float32): 7,
    np.dtype(np.float64): 8,
    np.dtype(ml_dtypes.bfloat16): 9,
}


def encode_tensor_map(
    address: int,
    element_type: int,
    extents: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    *,
    element_strides: Sequence[int] = (),
    fill_nan: bool = False,
) -> bytes:
    """Return the 128 bytes; dimensions innermost first, `strides` in bytes without the innermost.

    `element_type` and `swizzle` are numbered as in the driver's `cuTensorMapEncodeTiled`, whose
    rules are checked here.
    """
    rank, size = len(extents), _SIZES[element_type]
    steps = tuple(element_strides) or (1,) * rank
    _check(address, extents, strides, box, size, swizzle)

    def pad(values: Sequence[int], length: int, filler: int) -> tuple[int, ...]:
        return (*values, *(filler,) * (length - len(values)))

    return _FORMAT.pack(
        _MARK,
        address,
        rank,
        element_type,
        swizzle,
        int(fill_nan),
        *pad(extents, 5, 1),
        *pad(strides, 4, 0),
        *pad(box, 5, 1),
        *pad(steps, 5, 1),
    )


def _check(
    address: int,
    extents: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    size: int,
    swizzle: int,
) -> None:
    rank = len(extents)
    if not 1 <= rank <= 5 or len(strides) != rank - 1 or len(box) != rank:
        raise EmulatorError(
            f"a tensor map of rank {rank} has {rank - 1} strides and a box of {rank}"
        )
    if address % 16:
        raise EmulatorError(f"the address {address:#x} of a tensor map is no multiple of 16")
    if any(stride % 16 or stride >= 1 << 40 for stride in strides):
        raise EmulatorError(f"the strides {tuple(strides)} of a tensor map are no multiples of 16")
    if any(not 1 <= extent <= 1 << 32 for extent in extents):
        raise EmulatorError(
            f"the sizes {tuple(extents)} of a tensor map are not all from 1 to 2^32"
        )
    if any(not 1 <= extent <= 256 for extent in box):
        raise EmulatorError(f"the box {tuple(box)} of a tensor map is not within 1 to 256")
    inner = box[0] * size
    if inner % 16:
        raise EmulatorError(f"the inner box of a tensor map has {inner} bytes: no multiple of 16")
    if swizzle and inner > 16 << swizzle:
        raise EmulatorError(f"the inner box has {inner} bytes: the swizzle allows {16 << swizzle}")


@dataclass(frozen=True, eq=False)
class TensorMap:
    """An argument of a launch: an array, and the box that one copy moves.

    `box` is in the order of the array's dimensions; `swizzle` is 0, 32, 64 or 128 bytes. Elements
    outside of the array read as zero, or as NaN with `fill_nan`.
    """

    array: Array
    box: tuple[int, ...]
    swizzle: int = 0
    fill_nan: bool = False

    def encode(self) -> bytes:
        """Return the 128 bytes that the kernel's parameter holds."""
        array = self.array
        if array.dtype not in _TYPE_OF_DTYPE:
            raise EmulatorError(f"a tensor map has no element type {array.dtype}")
        if self.swizzle not in _SWIZZLES:
            raise EmulatorError(f"a swizzle has 0, 32, 64 or 128 bytes, not {self.swizzle}")
        if array.ndim and array.strides[-1] != array.itemsize:
            raise EmulatorError("the last dimension of a tensor map must be contiguous")
        return encode_tensor_map(
            array.ctypes.data,
            _TYPE_OF_DTYPE[array.dtype],
            array.shape[::-1],
            array.strides[-2::-1] if array.ndim > 1 else (),
            self.box[::-1],
            _SWIZZLES[self.swizzle],
            fill_nan=self.fill_nan,
        )


@dataclass(frozen=True)
class BoxedView:
    """A tensor map, decoded; dimensions innermost first."""

    address: int
    type: str
    itemsize: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int
    fill_nan: bool

    @property
    def size_bytes(self) -> int:
        """The bytes that one copy moves, those out of bounds included."""
        return int(np.prod(self.box)) * self.itemsize

    def locate(
        self, coordinates: Sequence[int], *, whole_pieces: bool = False
    ) -> tuple[Array, Array]:
        """Return the addresses of the box's elements, in shared-memory order, and which exist.

        With `whole_pieces` so do those behind the end of a row, up to a multiple of 16 bytes, which
        copies to global memory write.
        """
        offsets: Array = np.zeros(1, np.int64)
        inside: Array = np.ones(1, bool)
        for d in reversed(range(len(self.box))):
            index = coordinates[d] + np.arange(self.box[d]) * self.element_strides[d]
            end = self.extents[d]
            if whole_pieces and d == 0:
                end += -end % (_PIECE_BYTES // self.itemsize)
            valid = (index >= 0) & (index < end)
            offsets = (offsets[:, None] + index * self.strides[d]).reshape(-1)
            inside = (inside[:, None] & valid).reshape(-1)
        return (self.address + offsets).astype(np.uint64), inside

    def fill(self) -> Array:
        """Return the element (unsigned) that stands for what is out of bounds."""
        value = np.nan if self.fill_nan and self.type[0] in "fb" else 0.0
        patterns = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": (1 << 63) - 1}
        bits = patterns[self.type] if np.isnan(value) else 0
        return np.array([bits], f"u{self.itemsize}")


def decode_tensor_map(raw: bytes) -> BoxedView:
    """Read the 128 bytes."""
    mark, address, rank, kind, swizzle, fill, *rest = _FORMAT.unpack(raw)
    if mark != _MARK:
        raise EmulatorError("the 128 bytes are not a tensor map of the emulator")
    size = _SIZES[kind]
    return BoxedView(
        address,
        _TYPES[kind],
        size,
        tuple(rest[:rank]),
        (size, *rest[5 : 5 + rank - 1]),
        tuple(rest[9 : 9 + rank]),
        tuple(rest[14 : 14 + rank]),
        swizzle,
        bool(fill),
    )


def swizzled(addresses: Array, swizzle: int) -> Array:
    """Exchange 16-byte chunks as the hardware does: address bits 4.. take bits 7.. by xor.

    `swizzle` is 0 (none), 1 (32 bytes: one bit), 2 (64: two bits) or 3 (128: three bits).
    """
    mask = (1 << swizzle) - 1
    return np.asarray(addresses ^ (((addresses >> 7) & mask) << 4))
