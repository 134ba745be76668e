"""Between Python values and tensors: decay of literals, constants, and what counts as a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.errors import CompileError
from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.emit import emit
from tilewright.frontend.tensor import Tensor, constant_array
from tilewright.ir.types import (
    DTYPES,
    DType,
    ElementType,
    PointerType,
    TileType,
    dtype_of_numpy,
)
from tilewright.ops import Full
from tilewright.ops.numerics import is_narrow_float, narrow, widen
from tilewright.spelling import integer_text

__all__ = [
    "Number", "as_dtype", "as_shape", "as_tensor", "describe", "fail", "full_of", "is_number",
    "literal_dtype", "to_constant", "to_constants", "to_flag", "to_tensor", "wrapped",
]  # fmt: skip

Number = bool | int | float

SMALLEST_NORMAL_FP32 = 2.0**-126
LARGEST_FP32 = (2 - 2.0**-23) * 2.0**127


def fail(message: str, hint: str = "", *, about: tuple[object, ...] = ()) -> NoReturn:
    """Raise the error of a user's mistake; `about` has the values whose names it should say."""
    error = CompileError(message, hint=hint)
    error.culprits = about
    raise error


def is_number(x: object) -> bool:
    """Whether `x` is a Python number or bool: a scalar that no op has converted yet."""
    return isinstance(x, bool | int | float)


def describe(x: object) -> str:
    """Return how a message names a value: the type of a tensor, the text of anything else."""
    return str(x.value.type) if isinstance(x, Tensor) else repr(x)


def literal_dtype(x: Number) -> DType:
    """Return the type that a compile-time number has on its own.

    An int takes the first of i32, u32, i64, u64 that holds it; a float is fp32 unless its magnitude
    needs fp64.
    """
    if isinstance(x, bool):
        return DTYPES["i1"]
    if isinstance(x, int):
        for name in ("i32", "u32", "i64", "u64"):
            low, high = DTYPES[name].integer_range
            if low <= x <= high:
                return DTYPES[name]
        fail(
            f"the integer {integer_text(x)} does not fit 64 bits",
            hint="write it as a float, or in parts",
        )
    magnitude = abs(x)
    is_special = magnitude in {0.0, math.inf} or math.isnan(x)
    is_single = is_special or SMALLEST_NORMAL_FP32 <= magnitude <= LARGEST_FP32
    return DTYPES["fp32" if is_single else "fp64"]


def full_of(value: Number, element: ElementType, shape: tuple[int, ...] = ()) -> Tensor:
    """Return a tile (or scalar) of a compile-time number, converted as a cast would."""
    if isinstance(element, PointerType):
        if value != 0:
            fail(f"a pointer cannot be made from the number {value!r}", "only 0 is a null pointer")
        return emit(Full, 0, TileType(element, shape))
    return emit(Full, _converted(value, element), TileType(element, shape))


def _converted(value: Number, element: DType) -> Number:
    if element.is_bool():
        return bool(value != 0)
    if element.is_int():
        return _whole(value, element)
    # Rounded here, from the full precision of the literal, by the rules of the format.
    exact = np.asarray(value, np.float64)
    with np.errstate(over="ignore"):
        if is_narrow_float(element):
            return float(widen(narrow(exact, element), element))
        return float(exact.astype(element.numpy))


def _whole(value: Number, element: DType) -> int:
    low, high = element.integer_range
    if isinstance(value, float):  # as Cast: truncated and saturated, NaN gives 0
        return 0 if math.isnan(value) else int(min(max(value, low), high))
    if not low <= value <= high:
        fail(
            f"the number {value} is out of range for {element} ({low} to {high})",
            hint="convert the tile to a wider type first: x.to(tl.int64)",
        )
    return int(value)


def wrapped(value: Number, element: ElementType) -> Number:
    """Wrap an int into an integer type as a cast would: -1 as uint32 is 0xffffffff."""
    if not isinstance(value, int) or not element.is_int() or element is DTYPES["i1"]:
        return value
    low, _ = element.integer_range
    return (value - low) % (1 << element.primitive_bitwidth) + low


def to_tensor(x: Any) -> Any:
    """Return the runtime value that a compile-time number becomes when it is bound to a plain name.

    Tensors, None, dtypes, strings, functions and tuples stay what they are.
    """
    x = unwrap(x)
    if isinstance(x, np.generic):
        x = x.item()
    return full_of(x, literal_dtype(x)) if is_number(x) else x


def as_tensor(x: Any, what: str) -> Tensor:
    """Return `x` as a tensor, or raise; `what` names the function and the argument."""
    result = to_tensor(x)
    if result is None:
        fail(
            f"{what}: expected a number or a tile, got None",
            "an argument that is None is a constant of the kernel: branch on `x is None`",
            about=(None,),
        )
    if not isinstance(result, Tensor):
        fail(
            f"{what}: expected a number or a tile, got {type(result).__name__} {result!r}",
            hint=(hint := getattr(result, "IN_PLACE_OF_A_TILE", "")),
            about=() if hint else (x,),
        )
    return result


def to_constant(x: Any, what: str) -> int:
    """Return a compile-time int; `what` says which one, as in `arange: the end`.

    A runtime value is accepted where it is a known constant.
    """
    x = unwrap(x)
    if isinstance(x, np.integer):
        return int(x)
    if isinstance(x, int):
        return int(x)
    if isinstance(x, Tensor):
        array = constant_array(x.value)
        if array is None:
            fail(
                f"{what} must be a compile-time constant, got a value of type {x.value.type}",
                "annotate the parameter it comes from as tl.constexpr",
            )
        if array.size == 1 and x.dtype.is_int():
            return int(array.reshape(())[()])
    fail(
        f"{what} must be an integer, got {describe(x)}",
        hint="convert it: x.to(tl.int32), or int(x) of a constant",
        about=() if isinstance(x, Tensor) else (x,),
    )


def to_constants(x: Any, what: str) -> tuple[int, ...]:
    """Return a tuple of compile-time ints from a sequence of them or from one."""
    x = unwrap(x)
    if isinstance(x, Sequence) and not isinstance(x, str):
        return tuple(to_constant(item, what) for item in x)
    return (to_constant(x, what),)


def to_flag(x: Any, what: str) -> bool:
    """Return a compile-time bool."""
    if isinstance(x, bool):
        return x
    return bool(to_constant(x, what))


def as_shape(shape: Any, name: str) -> tuple[int, ...]:
    """Return a shape from an int, a sequence, or the arguments of a variadic function."""
    shape = unwrap(shape)
    if isinstance(shape, Sequence) and len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = shape[0]
    return to_constants(shape, f"{name}: each size")


def as_dtype(dtype: Any, name: str) -> ElementType:
    """Return an element type, given as one, by its name, or as NumPy's or torch's."""
    dtype = unwrap(dtype)
    if isinstance(dtype, DType | PointerType):
        return dtype
    found = _dtype_like(dtype)
    if found is None:
        fail(f"{name}: expected a dtype such as tl.float32, got {dtype!r}")
    return found


def _dtype_like(dtype: Any) -> DType | None:
    if isinstance(dtype, str):
        return DTYPES.get(dtype) or _LONG_NAMES.get(dtype)
    # Python's `float` is no name for a type: NumPy takes it for fp64, and annotations for fp32.
    is_numpy = isinstance(dtype, type) and issubclass(dtype, np.generic)
    if isinstance(dtype, np.dtype) or is_numpy:
        return dtype_of_numpy(np.dtype(dtype))
    text = str(dtype)
    return _LONG_NAMES.get(text.removeprefix("torch.")) if text.startswith("torch.") else None


_LONG_NAMES = {dtype.long_name: dtype for dtype in DTYPES.values()} | {"bool": DTYPES["i1"]}
