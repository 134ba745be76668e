"""Loads, stores and atomics."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.emit import emit, emit_all
from tilewright.frontend.extensions import extension
from tilewright.frontend.semantic.block_pointer import BlockPointer, block_mask, block_pointers
from tilewright.frontend.semantic.casts import cast
from tilewright.frontend.semantic.shapes import broadcast_tensors, broadcast_to
from tilewright.frontend.semantic.values import (
    as_tensor,
    describe,
    fail,
    full_of,
    is_number,
    to_flag,
    wrapped,
)
from tilewright.frontend.tensor import Tensor
from tilewright.ir.types import DTYPES, DType, PointerType
from tilewright.ops import AtomicCas, AtomicKind, AtomicRmw, Load, Store

__all__ = ["atomic_cas", "atomic_rmw", "load", "store"]

LOAD_CACHE_MODIFIERS = ("", ".ca", ".cg", ".cs", ".cv")
STORE_CACHE_MODIFIERS = ("", ".wb", ".cg", ".cs", ".wt")
EVICTION_POLICIES = ("", "evict_first", "evict_last", "evict_normal")
PADDING_OPTIONS = ("", "zero", "nan")
MEMORY_ORDERS = ("acquire", "release", "acq_rel", "relaxed")
SCOPES = ("gpu", "cta", "sys")


def _choice(value: Any, choices: tuple[str, ...], what: str) -> str:
    chosen = value or ""
    if chosen not in choices:
        fail(f"{what} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return str(chosen)


def _pointer(name: str, pointer: Any) -> tuple[Tensor, DType]:
    if not (isinstance(pointer, Tensor) and isinstance(pointer.dtype, PointerType)):
        hint = "pass an array, or annotate the parameter as a pointer: `x_ptr: '*fp32'`"
        if isinstance(pointer, Tensor) and pointer.shape:
            hint = f"add the offsets to a pointer: tl.{name}(x_ptr + offsets, ...)"
        fail(
            f"{name}: expected a pointer, got {describe(pointer)}",
            hint,
            about=(None,) if pointer is None else (),
        )
    return pointer, pointer.dtype.element_ty


def _writable(name: str, pointer: Any) -> tuple[Tensor, DType]:
    tensor, element = _pointer(name, pointer)
    if isinstance(tensor.dtype, PointerType) and tensor.dtype.const:
        fail(f"{name}: the pointer is declared const", "take `const` from the parameter's type")
    return tensor, element


def _mask(name: str, mask: Any, pointer: Tensor) -> Tensor | None:
    """Check a mask; True stands for none."""
    if mask is None or mask is True:
        return None
    tensor = as_tensor(mask, f"{name}: the mask")
    if tensor.dtype is not DTYPES["i1"]:
        fail(
            f"{name}: the mask must be a bool, got {describe(mask)}",
            "compare it with 0: mask=m != 0",
        )
    if tensor.shape and not pointer.shape:
        fail(
            f"{name}: the pointer is a scalar and the mask a tile of shape {list(tensor.shape)}",
            "add a tile of offsets to the pointer: ptr + tl.arange(0, BLOCK)",
        )
    return tensor


def _fitted(name: str, what: str, x: Any, pointer: Tensor) -> Tensor:
    """Bring an operand to the pointer's shape, which must not grow."""
    tensor = as_tensor(x, f"{name}: {what}")
    if tensor.shape and not pointer.shape:
        fail(
            f"{name}: the pointer is a scalar and {what} a tile of shape {list(tensor.shape)}",
            "add a tile of offsets to the pointer: ptr + tl.arange(0, BLOCK)",
        )
    return broadcast_to(tensor, pointer.shape, f"{name}: {what}")


def _converted(name: str, what: str, x: Any, element: DType, pointer: Tensor) -> Tensor:
    if is_number(x):
        return full_of(wrapped(x, element), element, pointer.shape)
    tensor = as_tensor(x, f"{name}: {what}")
    if isinstance(tensor.dtype, PointerType):
        fail(
            f"{name}: {what} is a pointer ({describe(x)}), the memory holds {element}",
            "convert it with .to(tl.int64)",
        )
    return _fitted(name, what, cast(tensor, element), pointer)


def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: Any = "",
    cache_modifier: Any = "",
    eviction_policy: Any = "",
    *,
    volatile: Any = False,
) -> Tensor:
    """Return the elements at a pointer, a tile of pointers or a block pointer."""
    hints = (
        _choice(cache_modifier, LOAD_CACHE_MODIFIERS, "load: cache_modifier"),
        _choice(eviction_policy, EVICTION_POLICIES, "load: eviction_policy"),
        to_flag(volatile, "load: volatile"),
    )
    if isinstance(pointer, BlockPointer):
        if mask is not None or other is not None:
            fail(
                "load: a block pointer takes no mask and no other",
                "use boundary_check and padding_option",
            )
        return _load_block(pointer, boundary_check, padding_option, hints)
    tensor, element = _pointer("load", pointer)
    if boundary_check or padding_option:
        fail("load: boundary_check and padding_option are for block pointers", "use mask and other")
    if other is not None and mask is None:
        fail("load: `other` needs a mask", "leave it out: without a mask every lane is loaded")
    lanes = _mask("load", mask, tensor)
    if lanes is None:
        return emit(Load, tensor, None, None, *hints)
    tensor, lanes = broadcast_tensors("load: the pointer and the mask", tensor, lanes)
    default = None
    if other is not None:
        default = _converted("load", "other", other, element, tensor)
    return emit(Load, tensor, lanes, default, *hints)


def _load_block(
    block: BlockPointer, boundary_check: Any, padding_option: Any, hints: tuple[Any, ...]
) -> Tensor:
    padding = _choice(padding_option, PADDING_OPTIONS, "load: padding_option")
    pointers, element = _pointer("load", block_pointers(block))
    mask = block_mask(block, boundary_check, "load")
    default = None
    if padding == "nan":
        if not element.is_floating():
            fail(
                f"load: padding_option 'nan' needs floats, the memory holds {element}",
                hint="leave it out: what is outside reads as zero",
            )
        if mask is not None:
            default = full_of(float("nan"), element, block.block_shape)
    return emit(Load, pointers, mask, default, *hints)


def store(
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: Any = "",
    eviction_policy: Any = "",
) -> None:
    """Write elements through a pointer, a tile of pointers or a block pointer."""
    hints = (
        _choice(cache_modifier, STORE_CACHE_MODIFIERS, "store: cache_modifier"),
        _choice(eviction_policy, EVICTION_POLICIES, "store: eviction_policy"),
    )
    if isinstance(pointer, BlockPointer):
        if mask is not None:
            fail("store: a block pointer takes no mask", "use boundary_check")
        tensor, element = _writable("store", block_pointers(pointer))
        lanes = block_mask(pointer, boundary_check, "store")
    else:
        if boundary_check:
            fail("store: boundary_check is for block pointers", "use a mask")
        tensor, element = _writable("store", pointer)
        lanes = _mask("store", mask, tensor)
        lanes = None if lanes is None else _fitted("store", "the mask", lanes, tensor)
    emit_all(Store, tensor, _converted("store", "the value", value, element, tensor), lanes, *hints)


def atomic_rmw(
    kind: AtomicKind, pointer: Any, value: Any, mask: Any, sem: Any, scope: Any
) -> Tensor:
    """Modify memory in one step for each lane and return the old elements."""
    name = f"atomic_{kind}"
    tensor, element = _writable(name, pointer)
    lanes = _mask(name, mask, tensor)
    if element.is_floating() and element.primitive_bitwidth == 16 and kind != "add":
        extension(f"{name} of {element}", "keep what is changed in fp32, and convert it at the end")
    return emit(
        AtomicRmw,
        kind,
        tensor,
        _converted(name, "the value", value, element, tensor),
        None if lanes is None else _fitted(name, "the mask", lanes, tensor),
        *_ordering(name, sem, scope),
    )


def atomic_cas(pointer: Any, compare: Any, value: Any, sem: Any, scope: Any) -> Tensor:
    """Compare and swap in one step for each lane and return the old elements."""
    tensor, element = _writable("atomic_cas", pointer)
    return emit(
        AtomicCas,
        tensor,
        _converted("atomic_cas", "the comparand", compare, element, tensor),
        _converted("atomic_cas", "the value", value, element, tensor),
        *_ordering("atomic_cas", sem, scope),
    )


def _ordering(name: str, sem: Any, scope: Any) -> tuple[str, str]:
    return (
        _choice("acq_rel" if sem is None else sem, MEMORY_ORDERS, f"{name}: sem"),
        _choice("gpu" if scope is None else scope, SCOPES, f"{name}: scope"),
    )
