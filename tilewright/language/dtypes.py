"""Element types under the names that kernels use, and the other words for types."""

from __future__ import annotations

from typing import Any

from tilewright.errors import CompileError
from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.tensor import BlockType
from tilewright.ir.types import DTYPES, DType, PointerType
from tilewright.ops.shape import MAX_TILE_ELEMENTS

__all__ = [
    "TRITON_MAX_TENSOR_NUMEL",
    "bfloat16",
    "block_type",
    "const",
    "dtype",
    "float8e4b8",
    "float8e4b15",
    "float8e4nv",
    "float8e5",
    "float8e5b16",
    "float16",
    "float32",
    "float64",
    "get_int_dtype",
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "pi32_t",
    "pointer_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "void",
]

int1 = DTYPES["i1"]
int8, int16, int32, int64 = (DTYPES[f"i{bits}"] for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (DTYPES[f"u{bits}"] for bits in (8, 16, 32, 64))
float16, bfloat16, float32, float64 = (DTYPES[n] for n in ("fp16", "bf16", "fp32", "fp64"))
float8e4nv, float8e5 = DTYPES["fp8e4nv"], DTYPES["fp8e5"]
float8e4b8, float8e5b16 = DTYPES["fp8e4b8"], DTYPES["fp8e5b16"]
float8e4b15 = DTYPES["fp8e4b15"]

dtype = DType

TRITON_MAX_TENSOR_NUMEL = MAX_TILE_ELEMENTS


class const:
    """Annotates a pointer parameter whose memory the kernel only reads: `x_ptr: tl.const`."""


class void:
    """The type of a function that returns nothing."""


def pointer_type(element_ty: DType, address_space: int = 1, const: bool = False) -> PointerType:
    """Return the type of a pointer to `element_ty`, for annotations and casts.

    >>> pointer_type(float32).element_ty
    tilewright.language.float32
    """
    return PointerType(unwrap(element_ty), bool(unwrap(const)))


def block_type(element_ty: Any, shape: Any) -> BlockType:
    """Return the type of a tile, which is what `x.type` of a tile equals.

    >>> block_type(float32, [4]) == tl.zeros((4,), float32).type
    True
    """
    sizes = tuple(int(n) for n in unwrap(tuple(shape)))
    if not sizes:
        raise CompileError("the type of a scalar is no block type", hint="use the element type")
    return BlockType(unwrap(element_ty), sizes)


def get_int_dtype(bitwidth: int, signed: bool) -> DType:
    """Return the integer type of 1, 8, 16, 32 or 64 bits; of 1 bit there is only one.

    >>> get_int_dtype(16, signed=False)
    tilewright.language.uint16
    """
    bits, is_signed = unwrap(bitwidth), unwrap(signed)
    name = "i1" if bits == 1 else f"{'i' if is_signed else 'u'}{bits}"
    if name not in DTYPES:
        raise CompileError(
            f"there is no integer type of {bits} bits", hint="integers have 1, 8, 16, 32 or 64 bits"
        )
    return DTYPES[name]


pi32_t = PointerType(int32)
