"""From the values of a call to what a kernel is compiled for, and to the bytes it is called with.

The rules are Triton's. An int is a constant where it is 1, else i32, i64 or u64 by its range, and
it matters whether 16 divides it; a float is fp32; an array is a pointer, and it matters whether 16
divides its address; `None`, functions and the values of `tl.constexpr` parameters are constants;
tuples go item by item, and tensor descriptors part by part: an address, sizes and strides, while
the shape of the block is a constant. An annotation (`n: tl.int64`, `x_ptr: "*fp32"`) fixes the
type.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import LaunchError, Location
from tilewright.frontend.constexpr import constexpr, unwrap
from tilewright.frontend.parameters import Parameter
from tilewright.frontend.tensor import Tensor
from tilewright.frontend.trace import Constant, Described, Runtime
from tilewright.interpreter import FIRST_PAGE_BYTES
from tilewright.ir.types import DTYPES, DType, ElementType, Kind, PointerType, TileType
from tilewright.ops.descriptor import Padding
from tilewright.runtime.arrays import ArrayView, view_array
from tilewright.runtime.constants import constant_text, is_function, type_text
from tilewright.runtime.tensor_descriptor import TensorDescriptor, checked_parts
from tilewright.runtime.wrappers import MockTensor
from tilewright.spelling import integer_text

__all__ = [
    "ALIGNMENT",
    "Argument",
    "Specialization",
    "gpu_of",
    "leaves",
    "null_access",
    "place_text",
    "require_memory",
    "specialize",
    "specialize_type",
    "traced_constant",
]

ALIGNMENT = 16  # in bytes: what addresses and numbers are specialised on
_I32 = range(-(2**31), 2**31)
_I64 = range(-(2**63), 2**63)
_U64 = range(2**64)
_INTEGERS = (("i32", _I32), ("i64", _I64), ("u64", _U64))


@dataclass(frozen=True, slots=True)
class Specialization:
    """What a kernel knows of one parameter when it is compiled.

    `traced` is what the frontend sees. Equal `key`s mean equal code; a text is the same in every
    process. `divisible_by_16` is what the address or the number must be (None: anything) and
    `chosen_by_value` says that an int's width, and that it is not 1, came from its value. `items`
    are those of a tuple.
    """

    traced: Any
    key: Hashable
    divisible_by_16: bool | None = None
    chosen_by_value: bool = False
    excludes_one: bool = False
    is_address: bool = False
    items: tuple[Specialization, ...] = ()

    @property
    def element(self) -> ElementType | None:
        """The type of a runtime scalar; None for constants and tuples."""
        return self.traced.type.element if isinstance(self.traced, Runtime) else None


@dataclass(slots=True)
class Argument:
    """One argument of a call: `value` is a constant, a number, or the address of an array."""

    name: str
    specialization: Specialization
    value: Any
    view: ArrayView | None = None
    items: tuple[Argument, ...] = ()


def leaves(arguments: Sequence[Argument]) -> Iterator[Argument]:
    """The arguments that are passed at run time, tuples flattened, in order."""
    for argument in arguments:
        if argument.items:
            yield from leaves(argument.items)
        elif argument.specialization.element is not None:
            yield argument


def gpu_of(kernel: str, arguments: Sequence[Argument]) -> int | None:
    """Return the number of the GPU that a call's arrays are on, None for the CPU.

    Raises `LaunchError` where they are not all on one device, which names the first on each.
    """
    devices: dict[int | None, str] = {}
    for argument in leaves(arguments):
        if argument.view is not None:
            devices.setdefault(argument.view.gpu, argument.name)
    if len(devices) > 1:
        places = ", ".join(f"`{name}` is on {place_text(gpu)}" for gpu, name in devices.items())
        raise LaunchError(
            f"{kernel}: the arrays are on several devices: {places}",
            hint="move all of them to one: `tensor.to(device)`",
        )
    return next(iter(devices), None)


def place_text(gpu: int | None) -> str:
    """Return what a message calls a device: the number of a GPU, None for the CPU."""
    return "the CPU" if gpu is None else f"GPU {gpu}"


def require_memory(argument: Argument) -> None:
    """Raise `LaunchError` for an array that is only there to compile for."""
    view = argument.view
    if view is not None and isinstance(view.array, MockTensor):
        raise LaunchError(
            f"`{argument.name}` is a MockTensor: it has no memory to run on",
            hint="pass an array, or compile with `kernel.warmup(...)`",
        )


def null_access(argument: Argument, location: Location | None) -> LaunchError:
    """Return the error about a null pointer that the kernel accesses at a place."""
    what = "is None" if argument.view is None else "has no elements"
    return LaunchError(
        f"`{argument.name}` {what}, and the kernel accesses it",
        location=location,
        hint="pass an array, or mask the access",
    )


# ---- one argument ---------------------------------------------------------------------------


def specialize(parameter: Parameter, value: Any) -> Argument:
    """Return what `value` means for a parameter.

    Raises `LaunchError` for values that no kernel can take; it names the parameter and says what
    to pass instead.
    """
    name = parameter.name
    if parameter.is_constexpr:
        return _constant(name, value)
    fixed = parameter.annotation_type
    if fixed is not None:
        return _of_fixed_type(parameter, fixed, value)
    return _by_value(
        name,
        value,
        by_alignment=not (parameter.do_not_specialize or parameter.do_not_specialize_on_alignment),
        by_one=not parameter.do_not_specialize,
        const=parameter.is_const,
    )


def specialize_type(
    parameter: Parameter, element: ElementType, *, is_divisible: bool = True
) -> Argument:
    """Return what a value of a type means that 16 divides (or not): for compiling without one."""
    aligned = not (parameter.do_not_specialize or parameter.do_not_specialize_on_alignment)
    known = _runtime(element, divisible=is_divisible and aligned, by_alignment=aligned)
    return Argument(parameter.name, known, 0)


def _by_value(
    name: str, value: Any, *, by_alignment: bool = True, by_one: bool = True, const: bool = False
) -> Argument:
    if type(value) is int:
        return _integer(name, value, by_alignment=by_alignment, by_one=by_one)
    if isinstance(value, np.generic):
        value = _number_of_numpy(name, value)
    if isinstance(value, bool):
        return Argument(name, _runtime(DTYPES["i1"]), value)
    if isinstance(value, int):
        return _integer(name, int(value), by_alignment=by_alignment, by_one=by_one)
    if isinstance(value, float):
        return Argument(name, _runtime(DTYPES["fp32"]), float(value))
    if value is None or isinstance(value, constexpr) or is_function(value):
        return _constant(name, value)
    if isinstance(value, tuple):
        return _tuple(name, value)
    if isinstance(value, TensorDescriptor):
        return _descriptor(name, value, const=const)
    view = view_array(value, name)
    if view is None:
        raise _refused(name, value)
    element = _pointer_type(view.dtype, const)
    aligned = view.address % ALIGNMENT == 0
    specialization = _runtime(element, divisible=aligned, by_alignment=by_alignment)
    return Argument(name, specialization, view.address, view)


@functools.cache
def _pointer_type(dtype: DType, const: bool) -> PointerType:
    return PointerType(dtype, const)


def _integer(name: str, value: int, *, by_alignment: bool, by_one: bool) -> Argument:
    if value == 1 and by_one:
        return Argument(name, _ONE, 1)
    dtype = _integer_type(name, value)
    specialization = _runtime(
        dtype,
        divisible=value % ALIGNMENT == 0,
        by_alignment=by_alignment,
        chosen_by_value=True,
        excludes_one=by_one,
    )
    return Argument(name, specialization, value)


def _integer_type(name: str, value: int) -> DType:
    for name_of_type, values in _INTEGERS:
        if value in values:
            return DTYPES[name_of_type]
    raise LaunchError(
        f"`{name}`: {integer_text(value)} does not fit in 64 bits",
        hint="pass it in parts, or as a float",
    )


def _tuple(name: str, value: tuple[Any, ...]) -> Argument:
    items = tuple(_by_value(f"{name}[{i}]", item) for i, item in enumerate(value))
    specializations = tuple(item.specialization for item in items)
    traced = tuple(s.traced for s in specializations)
    kind: Any = type(value) if hasattr(value, "_fields") else tuple
    keys = tuple(s.key for s in specializations)
    is_text = all(isinstance(key, str) for key in keys)
    key: Hashable = f"{type_text(kind)}({', '.join(map(str, keys))})" if is_text else (kind, keys)
    specialization = Specialization(
        kind(*traced) if kind is not tuple else traced, key, items=specializations
    )
    return Argument(name, specialization, value, items=items)


def _descriptor(name: str, value: TensorDescriptor, *, const: bool) -> Argument:
    """Take a descriptor as its parts, all of which bear its name.

    Of their values it matters only whether 16 bytes divide the last size: then they may be accessed
    16 at a time.
    """
    view, shape, strides, block_shape = checked_parts(value, name)
    specialization, parts = _described(
        _pointer_type(view.dtype, const),
        block_shape,
        str(value.padding),
        has_whole_rows=shape[-1] * view.dtype.itemsize % ALIGNMENT == 0,
        round_f32_to_tf32=bool(value.round_f32_to_tf32),
    )
    numbers = (view.address, *shape, *strides[:-1])
    items = tuple(Argument(name, *pair) for pair in zip(parts, numbers, strict=True))
    items[0].view = view
    return Argument(name, specialization, value, items=items)


@functools.lru_cache(maxsize=256)
def _described(
    pointer: PointerType,
    block_shape: tuple[int, ...],
    padding: str,
    *,
    has_whole_rows: bool,
    round_f32_to_tf32: bool,
) -> tuple[Specialization, tuple[Specialization, ...]]:
    """Return the specialization of a descriptor, and those of its parts."""
    number, stride = TileType(DTYPES["i32"]), TileType(DTYPES["i64"])
    elements = max(1, ALIGNMENT // pointer.element_ty.itemsize)
    others = len(block_shape) - 1
    traced = Described(
        Runtime(TileType(pointer), ALIGNMENT),
        (*[Runtime(number)] * others, Runtime(number, elements if has_whole_rows else 1)),
        (Runtime(stride, elements),) * others,
        block_shape,
        Padding(padding),
        round_f32_to_tf32,
    )
    marks = f":{padding}" if traced.padding is not Padding.ZERO else ""
    marks += ":16" * has_whole_rows + ":tf32" * round_f32_to_tf32
    key = f"descriptor({pointer}{list(block_shape)}){marks}"
    parts = (Specialization(part, str(part.type)) for part in traced.parts.values())
    return Specialization(traced, key), tuple(parts)


@functools.lru_cache(maxsize=256)
def _runtime(
    element: ElementType,
    *,
    divisible: bool = False,
    by_alignment: bool = False,
    chosen_by_value: bool = False,
    excludes_one: bool = False,
    is_address: bool = False,
) -> Specialization:
    """Return the specialization of a scalar: one object for each meaning."""
    is_divisible = divisible and by_alignment
    marks = (":16" if is_divisible else "") + ("" if by_alignment else ":any")
    flags = {"ranged": chosen_by_value, "not1": excludes_one, "address": is_address}
    marks += "".join(f":{flag}" for flag, holds in flags.items() if holds)
    return Specialization(
        Runtime(TileType(element), ALIGNMENT if is_divisible else 1),
        f"{element}{marks}",
        divisible if by_alignment else None,
        chosen_by_value,
        excludes_one and not is_divisible,
        is_address,
    )


# ---- annotated parameters -------------------------------------------------------------------


def _of_fixed_type(parameter: Parameter, element: ElementType, value: Any) -> Argument:
    name, value = parameter.name, unwrap(value)
    if isinstance(value, np.generic):
        value = _number_of_numpy(name, value)
    by_alignment = not (parameter.do_not_specialize or parameter.do_not_specialize_on_alignment)
    if isinstance(element, PointerType):
        return _pointer(name, element, value, by_alignment=by_alignment)
    if not isinstance(value, int | float):
        raise LaunchError(
            f"`{name}` is annotated as {element}, so it takes a number, not {_article(value)}",
            hint="pass an int or a float, or annotate an array as a pointer: `'*fp32'`",
        )
    if element.is_bool():
        return Argument(name, _runtime(element), bool(value))
    if element.is_floating():
        return Argument(name, _runtime(element), float(value))
    if isinstance(value, float):
        raise LaunchError(
            f"`{name}` is annotated as {element}, so it takes an int, not {value!r}",
            hint=f"round it: `int({name})`",
        )
    low, high = element.integer_range
    if not low <= value <= high:
        raise LaunchError(
            f"`{name}` is annotated as {element}, which has {low} to {high}: {value} does not fit",
            hint="annotate a wider type, or none",
        )
    divisible = value % ALIGNMENT == 0
    return Argument(
        name, _runtime(element, divisible=divisible, by_alignment=by_alignment), int(value)
    )


def _pointer(name: str, element: PointerType, value: Any, *, by_alignment: bool) -> Argument:
    if value is None:
        value = 0
    if isinstance(value, int) and not isinstance(value, bool):
        if value not in _U64 or 0 < value < FIRST_PAGE_BYTES:
            raise LaunchError(
                f"`{name}` is annotated as {element}: {value} is no address",
                hint="pass the array, or its `data_ptr()`",
            )
        view, address = None, int(value)
    else:
        view = view_array(value, name)
        if view is None:
            raise _refused(name, value)
        if view.dtype is not element.element_ty:
            raise LaunchError(
                f"`{name}` is annotated as {element}, but the array has elements of {view.dtype}",
                hint="convert the array, or leave the annotation out",
            )
        address = view.address
    aligned = address % ALIGNMENT == 0
    specialization = _runtime(
        element, divisible=aligned, by_alignment=by_alignment, is_address=view is None
    )
    return Argument(name, specialization, address, view)


# ---- constants ------------------------------------------------------------------------------


def _constant(name: str, value: Any) -> Argument:
    value = unwrap(value)
    if isinstance(value, np.generic):
        value = _number_of_numpy(name, value)
    text = constant_text(value)
    if text is None:
        try:
            hash(value)
        except TypeError:
            raise LaunchError(
                f"`{name}` is a constant of the kernel, so its value must be hashable, "
                f"not {_article(value)}",
                hint="pass a tuple instead of a list or an array",
            ) from None
    key = (type(value), value) if text is None else f"={text}"
    return Argument(name, Specialization(Constant(value), key), value)


_ONE = Specialization(Constant(1), "=1")


def traced_constant(traced: Any) -> Constant | None:
    """Return a constant, or a tuple of nothing but constants, as one; None for anything else."""
    if isinstance(traced, Constant):
        return traced
    if type(traced) is not tuple:
        return None
    items = [traced_constant(item) for item in traced]
    known = [item.value for item in items if item is not None]
    return Constant(tuple(known)) if len(known) == len(items) else None


# ---- what is refused ------------------------------------------------------------------------


def _number_of_numpy(name: str, value: np.generic) -> Any:
    if value.dtype.kind in "biuf" or _is_small_float(value):
        return value.item() if value.dtype.kind in "biu" else float(value)
    raise LaunchError(
        f"`{name}`: a kernel cannot take a NumPy scalar of type {type(value).__name__}",
        hint="pass a bool, an int or a float",
    )


def _is_small_float(value: np.generic) -> bool:
    """Whether a NumPy scalar is of one of the floating types of `ml_dtypes`."""
    dtype = next((d for d in DTYPES.values() if d.numpy == value.dtype), None)
    return dtype is not None and dtype.element_kind is Kind.FLOAT


def _refused(name: str, value: Any) -> LaunchError:
    what = _article(value)
    match value:
        case str():
            hint = (
                "pass an array or a number; a text is a constant of the kernel, annotated "
                f"`{name}: tl.constexpr`"
            )
        case DType() | type():
            hint = f"annotate it as a constant of the kernel: `{name}: tl.constexpr`"
        case list() | set() | range():
            hint = "pass a tuple of numbers, or an array: `np.array(...)`"
        case dict():
            hint = "pass its values one by one"
        case Tensor():
            return LaunchError(
                f"`{name}`: a kernel cannot launch another one with its own values",
                hint="call it like a function: `other(x_ptr, n)`",
            )
        case complex():
            hint = "pass the real and the imaginary part as two floats"
        case _ if callable(value):
            hint = "functions that a kernel calls are decorated with @jit"
        case _ if hasattr(value, "__array__"):
            hint = "pass the array itself: `np.asarray(value)`"
        case _:
            hint = "arrays, descriptors, ints, floats, bools, None and tuples of these are taken"
    return LaunchError(f"`{name}`: a kernel cannot take {what}", hint=hint)


def _article(value: Any) -> str:
    kind = type(value).__name__
    text = repr(value)
    shown = f" ({text})" if len(text) <= 40 and not callable(value) else ""
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}{shown}"
