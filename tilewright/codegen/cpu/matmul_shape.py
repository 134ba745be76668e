"""What `dot` is asked for: sizes, types and layout of the matrices, on which machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tilewright.codegen.cpu.buffers import CACHE_LINE_BYTES
from tilewright.codegen.cpu.matmul_writer import Index

__all__ = ["DotShape", "DotTarget", "DotType", "preferred_row_stride", "stride_of"]


class DotType(StrEnum):
    """Type of a matrix in memory. `bf16` is held as its bits, in an `i16`."""

    DOUBLE = "double"
    FLOAT = "float"
    HALF = "half"
    BFLOAT = "bf16"
    INT8 = "i8"
    UINT8 = "u8"
    INT32 = "i32"

    @property
    def llvm(self) -> str:
        return {"bf16": "i16", "u8": "i8"}.get(self.value, self.value)

    @property
    def bytes(self) -> int:
        return {"double": 8, "float": 4, "i32": 4, "half": 2, "bf16": 2}.get(self.value, 1)

    @property
    def is_integer(self) -> bool:
        return self in (DotType.INT8, DotType.UINT8, DotType.INT32)


@dataclass(frozen=True)
class DotTarget:
    """The facts about a CPU that `dot` depends on; features are spelt as LLVM spells them."""

    features: frozenset[str]
    vector_bits: int
    has_amx: bool = False

    @property
    def is_arm(self) -> bool:
        return "neon" in self.features

    @property
    def has_fma(self) -> bool:
        return "fma" in self.features or self.is_arm

    @property
    def has_half_conversion(self) -> bool:
        return bool(self.features & {"f16c", "avx512f", "neon"})

    @property
    def vector_registers(self) -> int:
        return 32 if self.features & {"avx512f", "neon"} else 16


@dataclass(frozen=True)
class DotShape:
    """Sizes, types and layout of one tile product.

    A is `m` by `k` in memory, or `k` by `m` when `a_transposed`; B likewise. Row strides
    count elements; `None` means that the function takes the stride from its argument.
    `acc_is_zero`: the initial accumulator is zero and `acc_in` is not read.
    """

    m: int
    n: int
    k: int
    a_type: DotType
    b_type: DotType
    acc_type: DotType
    a_transposed: bool = False
    b_transposed: bool = False
    a_row_stride: int | None = None
    b_row_stride: int | None = None
    acc_in_row_stride: int | None = None
    acc_out_row_stride: int | None = None
    acc_is_zero: bool = False


def preferred_row_stride(columns: int, element_bytes: int) -> int:
    """The row stride, in elements, at which to keep a tile of this many columns in scratch.

    Whole cache lines, so that rows are aligned, and an odd number of them, so that the rows of a
    column spread over all sets of the first-level cache.

    >>> preferred_row_stride(128, 4)
    144
    """
    lines = -(-columns * element_bytes // CACHE_LINE_BYTES)
    if lines > 1 and lines % 2 == 0:
        lines += 1
    return lines * CACHE_LINE_BYTES // element_bytes


def stride_of(operand: str, known: int | None) -> Index:
    """Return the row stride of an operand: a literal if it is known, else the argument."""
    return f"%{operand}_row_stride" if known is None else known
