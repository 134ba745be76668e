"""The instructions, by theme. Importing this package fills the table of handlers."""

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
