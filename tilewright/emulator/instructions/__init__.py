"""The instructions, by theme. Each module enters its opcodes into `HANDLERS`."""

from tilewright.emulator.binding import HANDLERS
from tilewright.emulator.instructions import (
    asynchronous,
    atomics,
    barriers,
    bits,
    control,
    convert,
    floating,
    integer,
    matrix,
    mbarrier,
    memory,
    moves,
    tensor_copy,
    warp,
    warpgroup,
)

__all__ = [
    "HANDLERS",
    "asynchronous",
    "atomics",
    "barriers",
    "bits",
    "control",
    "convert",
    "floating",
    "integer",
    "matrix",
    "mbarrier",
    "memory",
    "moves",
    "tensor_copy",
    "warp",
    "warpgroup",
]
