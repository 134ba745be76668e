"""Matrix products."""

from __future__ import annotations

import enum

import numpy as np

from tilewright.ir.core import Op, Value, require
from tilewright.ir.types import DTYPES, DType, ElementType, TileType
from tilewright.ops.numerics import Array, widen, with_dtype

__all__ = ["PRECISIONS", "Dot", "InputPrecision"]


class InputPrecision(enum.StrEnum):
    """How much of fp32 operands a tensor core may drop; a target without them computes in fp32.

    `DEFAULT` is what the launch says (`default_dot_input_precision`).
    """

    DEFAULT = "default"
    TF32 = "tf32"
    TF32X3 = "tf32x3"
    IEEE = "ieee"
    BF16X3 = "bf16x3"
    BF16X6 = "bf16x6"


# What a user may ask for.
PRECISIONS = tuple(p.value for p in InputPrecision if p is not InputPrecision.DEFAULT)


class Dot(Op):
    """`a @ b + acc` with `a` (..., m, k), `b` (..., k, n) and `acc` (..., m, n).

    Products are summed in fp32 (fp64 for fp64, int32 for 8-bit integers), in any order, and rounded
    to the type of `acc` once.
    """

    a: Value
    b: Value
    acc: Value
    input_precision: InputPrecision = InputPrecision.IEEE
    max_num_imprecise_acc: int = 0

    def infer(self) -> TileType:
        a, b, acc = self.a.type, self.b.type, self.acc.type
        require(
            a.rank == b.rank >= 2,
            f"dot: both operands need the same rank of at least 2, got {a} and {b}",
            hint="add an axis: x[None, :] or x[:, None]",
        )
        require(
            a.shape[-1] == b.shape[-2],
            f"dot: inner sizes differ: a is {list(a.shape)}, b is {list(b.shape)}",
            hint="transpose one, b.trans(), or load as many columns of a as rows of b",
        )
        require(
            a.shape[:-2] == b.shape[:-2],
            f"dot: batch sizes differ: a is {list(a.shape)}, b is {list(b.shape)}",
            hint="broadcast one: tl.broadcast_to(x, shape)",
        )
        expected = (*a.shape[:-1], b.shape[-1])
        require(
            acc.shape == expected,
            f"dot: the accumulator must be {list(expected)}, got {list(acc.shape)}",
            hint=f"start from tl.zeros({list(expected)}, tl.float32)",
        )
        _check_elements(a, b, acc)
        return acc

    def evaluate(self, a: Array, b: Array, acc: Array) -> Array:
        dtype = self.acc.type.element
        a_type, b_type = self.a.type.element, self.b.type.element
        assert isinstance(dtype, DType)  # infer has checked it
        assert isinstance(a_type, DType)
        assert isinstance(b_type, DType)
        wide = np.float64 if dtype.is_floating() else np.int64
        a, b = widen(a, a_type).astype(wide), widen(b, b_type).astype(wide)
        total = a @ b + widen(acc, dtype).astype(wide)
        if dtype.is_floating() and dtype.primitive_bitwidth < 64:
            total = total.astype(np.float32)
        return with_dtype(total, dtype)


def _check_elements(a: TileType, b: TileType, acc: TileType) -> None:
    x, y, z = a.element, b.element, acc.element
    require(
        isinstance(x, DType) and isinstance(y, DType) and _accumulates(x, y, z),
        f"dot: no product of {x} and {y} accumulated in {z}",
        hint="floats of one type accumulate in fp32 (fp64 in fp64, fp16 also in fp16), "
        "i8 and u8 in i32",
    )


def _accumulates(x: DType, y: DType, acc: ElementType) -> bool:
    if x.is_fp8() and y.is_fp8():
        return acc in {DTYPES["fp32"], DTYPES["fp16"]}
    if x.short_name in {"i8", "u8"}:
        return x == y and acc is DTYPES["i32"]
    wide = DTYPES["fp64"] if x is DTYPES["fp64"] else DTYPES["fp32"]
    narrow = x is DTYPES["fp16"] and acc is x
    return x == y and x.is_standard_floating() and (acc is wide or narrow)
