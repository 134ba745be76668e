"""The program's place in the grid, and new tiles."""

from __future__ import annotations

from typing import Any

from tilewright.frontend import semantic
from tilewright.frontend.builtin import builtin
from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.emit import emit
from tilewright.frontend.semantic import casts, shapes, values
from tilewright.frontend.tensor import Tensor, tensor_member
from tilewright.ops import NumPrograms, ProgramId

__all__ = [
    "arange", "cast", "full", "num_programs", "program_id", "to", "to_tensor", "zeros",
    "zeros_like",
]  # fmt: skip


@builtin
def program_id(axis: int | constexpr) -> Tensor:
    """Return this program's index along `axis` (0, 1 or 2) of the grid, an int32 scalar.

    >>> tl.program_id(0)
    0
    """
    return emit(ProgramId, semantic.to_constant(axis, "program_id: the axis"))


@builtin
def num_programs(axis: int | constexpr) -> Tensor:
    """Return the grid's extent along `axis` (0, 1 or 2), an int32 scalar.

    >>> tl.num_programs(0)
    1
    """
    return emit(NumPrograms, semantic.to_constant(axis, "num_programs: the axis"))


@builtin
def arange(start: int | constexpr, end: int | constexpr) -> Tensor:
    """Return the int32 numbers `start`, ..., `end - 1` as a tile of shape `(end - start,)`.

    Both are compile-time integers, with `start < end`; any length works, not only powers of two.

    >>> tl.arange(0, 5)
    tensor([0, 1, 2, 3, 4], i32[5])
    """
    return shapes.arange(start, end)


@builtin
def full(shape: Any, value: Any, dtype: Any = None) -> Tensor:
    """Return a tile of `shape` whose elements all equal `value`.

    `shape` is an int or a sequence of compile-time ints; `()` gives a scalar. `value` is a number,
    a scalar or a tile of one element. Without `dtype` the result has the type of `value`; of a
    number, that is int32 (a wider type where it does not fit) or fp32. An int wraps into `dtype`.

    >>> tl.full((2, 3), 0.5, tl.float16)
    tensor([[0.5, 0.5, 0.5],
            [0.5, 0.5, 0.5]], fp16[2, 3])
    """
    sizes = values.as_shape(shape, "full")
    if values.is_number(value):
        element = values.literal_dtype(value) if dtype is None else values.as_dtype(dtype, "full")
        return values.full_of(values.wrapped(value, element), element, sizes)
    scalar = values.as_tensor(value, "full: the value")
    if scalar.numel != 1:
        values.fail(
            f"full: the value must be a scalar, got {values.describe(scalar)}",
            hint="broadcast a tile: tl.broadcast_to(x, shape)",
        )
    scalar = shapes.reshape(scalar, ())
    scalar = scalar if dtype is None else casts.cast(scalar, dtype)
    return shapes.broadcast_to(scalar, sizes)


@builtin
def zeros(shape: Any, dtype: Any) -> Tensor:
    """Return a tile of zeros of `shape` (as in `full`) and `dtype`.

    >>> tl.zeros((3,), tl.int8)
    tensor([0, 0, 0], i8[3])
    """
    return values.full_of(0, values.as_dtype(dtype, "zeros"), values.as_shape(shape, "zeros"))


@builtin
def zeros_like(input: Any) -> Tensor:
    """Return a tile of zeros with the shape and dtype of `input`.

    >>> tl.zeros_like(tl.arange(0, 3))
    tensor([0, 0, 0], i32[3])
    """
    model = values.as_tensor(input, "zeros_like")
    return values.full_of(0, model.dtype, model.shape)


@tensor_member
@builtin
def cast(
    input: Any, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False
) -> Tensor:
    """Convert to `dtype`, by value or, with `bitcast`, by reinterpreting bits of the same width.

    Floats truncate to integers and saturate, NaN becomes 0; integers wrap; anything but 0 is true
    as a bool; narrowing to fp8 saturates. `fp_downcast_rounding` is `"rtne"` (nearest even, the
    default) or `"rtz"` (toward zero), for floats that get narrower. Pointers convert to and from
    int64.

    >>> tl.cast(tl.full((2,), -2.7, tl.float32), tl.int32)
    tensor([-2, -2], i32[2])
    >>> tl.cast(tl.full((), 1.0, tl.float32), tl.uint32, bitcast=True)
    1065353216
    """
    bits = values.to_flag(bitcast, "cast: bitcast")
    return casts.cast(input, dtype, fp_downcast_rounding, bitcast=bits)


@tensor_member
@builtin
def to(
    input: Any, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False
) -> Tensor:
    """Convert `input` to `dtype`: the member form of `cast`.

    >>> tl.arange(0, 3).to(tl.float32)
    tensor([0., 1., 2.], fp32[3])
    """
    return cast(input, dtype, fp_downcast_rounding, bitcast)


@builtin
def to_tensor(x: Any) -> Any:
    """Return a compile-time number as the scalar that binding it to a name would give.

    An int becomes the first of int32, uint32, int64 and uint64 that holds it, a float fp32, or fp64
    where its magnitude needs it. Everything else is returned as it is.

    >>> tl.to_tensor(3).dtype, tl.to_tensor(1e300).dtype
    (tilewright.language.int32, tilewright.language.float64)
    """
    return semantic.to_tensor(x)
