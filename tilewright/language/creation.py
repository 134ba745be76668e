"""The program's place in the grid, and new tiles."""

from __future__ import annotations

from typing import Any

from tilewright.frontend import semantic
from tilewright.frontend.builtin import builtin
from tilewright.frontend.emit import emit
from tilewright.frontend.semantic import casts, shapes, values
from tilewright.frontend.tensor import Tensor, tensor_member
from tilewright.ops import NumPrograms, ProgramId

__all__ = [
    "arange", "cast", "full", "num_programs", "program_id", "to", "to_tensor", "zeros",
    "zeros_like",
]  # fmt: skip


@builtin
def program_id(axis: int) -> Tensor:
    """Return this program's index along `axis` (0, 1 or 2) of the grid, an int32 scalar."""
    return emit(ProgramId, semantic.to_constant(axis, "program_id: the axis"))


@builtin
def num_programs(axis: int) -> Tensor:
    """Return the grid's extent along `axis` (0, 1 or 2), an int32 scalar."""
    return emit(NumPrograms, semantic.to_constant(axis, "num_programs: the axis"))


@builtin
def arange(start: int, end: int) -> Tensor:
    """Return the int32 numbers `start`, ..., `end - 1`; both are compile-time constants.

    Any length works: `tl.arange(0, 100)` has shape `(100,)`.
    """
    return shapes.arange(start, end)


@builtin
def full(shape: Any, value: Any, dtype: Any = None) -> Tensor:
    """Return a tile of `shape` whose elements all equal `value`, a number or a scalar.

    `shape` is an int or a sequence of compile-time ints; `()` gives a scalar.
    """
    sizes = values.as_shape(shape, "full")
    if values.is_number(value):
        element = values.literal_dtype(value) if dtype is None else values.as_dtype(dtype, "full")
        return values.full_of(value, element, sizes)
    scalar = values.as_tensor(value, "full: the value")
    if scalar.numel != 1:
        values.fail(f"full: the value must be a scalar, got {values.describe(scalar)}")
    scalar = shapes.reshape(scalar, ())
    scalar = scalar if dtype is None else casts.cast(scalar, dtype)
    return shapes.broadcast_to(scalar, sizes)


@builtin
def zeros(shape: Any, dtype: Any) -> Tensor:
    """Return a tile of zeros of `shape` and `dtype`."""
    return values.full_of(0, values.as_dtype(dtype, "zeros"), values.as_shape(shape, "zeros"))


@builtin
def zeros_like(input: Any) -> Tensor:
    """Return a tile of zeros with the shape and dtype of `input`."""
    model = values.as_tensor(input, "zeros_like")
    return values.full_of(0, model.dtype, model.shape)


@tensor_member
@builtin
def cast(
    input: Any, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False
) -> Tensor:
    """Convert to `dtype`, by value or, with `bitcast`, by reinterpreting bits of the same width.

    Floats truncate to integers; anything but 0 is true as a bool; narrowing to fp8 saturates.
    `fp_downcast_rounding` is `"rtne"` (nearest even, the default) or `"rtz"` (toward zero), for
    floats that get narrower. Pointers convert to and from int64.
    """
    bits = values.to_flag(bitcast, "cast: bitcast")
    return casts.cast(input, dtype, fp_downcast_rounding, bitcast=bits)


@tensor_member
@builtin
def to(
    input: Any, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False
) -> Tensor:
    """Convert `input` to `dtype`: the member form of `cast`, `x.to(tl.float16)`."""
    bits = values.to_flag(bitcast, "cast: bitcast")
    return casts.cast(input, dtype, fp_downcast_rounding, bitcast=bits)


@builtin
def to_tensor(x: Any) -> Any:
    """Return a compile-time number as the scalar that binding it to a name would give."""
    return semantic.to_tensor(x)
