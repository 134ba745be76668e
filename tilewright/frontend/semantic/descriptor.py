"""Tensor descriptors: an array in memory, and the blocks in which it is loaded and stored.

A descriptor is a bundle of scalars that lives in the frontend only, as a block pointer is. Each of
its operations is an op that names the array by these scalars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.frontend.builtin import builtin
from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.emit import emit, emit_all
from tilewright.frontend.extensions import extension
from tilewright.frontend.semantic.casts import cast, convert
from tilewright.frontend.semantic.values import (
    as_tensor,
    describe,
    fail,
    full_of,
    to_constant,
    to_constants,
)
from tilewright.frontend.tensor import BlockType, Tensor, constant_array
from tilewright.ir.types import DTYPES, DType, PointerType
from tilewright.ops import (
    Add,
    And,
    AtomicKind,
    Bitcast,
    Compare,
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    Maximum,
    Minimum,
    Padding,
    Predicate,
    Select,
)
from tilewright.ops.descriptor import (
    ALIGNMENT_BYTES,
    MAX_DESCRIPTOR_RANK,
    PAD_ROWS,
    stride_mistake,
)

__all__ = ["TensorDescriptor", "TensorDescriptorType", "make_tensor_descriptor"]

_I32, _I64, _U32 = DTYPES["i32"], DTYPES["i64"], DTYPES["u32"]

# What Triton has; more is an extension.
_REDUCED = {
    AtomicKind.ADD: {"u32", "i32", "u64", "fp32", "fp16", "bf16"},
    AtomicKind.MIN: {"u32", "i32", "u64", "i64", "fp16", "bf16"},
    AtomicKind.MAX: {"u32", "i32", "u64", "i64", "fp16", "bf16"},
    AtomicKind.AND: {"u32", "i32", "u64", "i64"},
    AtomicKind.OR: {"u32", "i32", "u64", "i64"},
    AtomicKind.XOR: {"u32", "i32", "u64", "i64"},
}


@dataclass(frozen=True, slots=True)
class TensorDescriptorType:
    """The type of a tensor descriptor: that of the tiles it loads and stores."""

    block_type: BlockType


@dataclass(frozen=True, eq=False, repr=False)
class TensorDescriptor:
    """An array in memory (`shape`, `strides`), accessed in blocks of `block_shape`.

    Made by `tl.make_tensor_descriptor`, or passed to the kernel as a
    `tilewright.tools.tensor_descriptor.TensorDescriptor`. `offsets` are scalar integers, one for
    each axis: the indices of the block's first element. They may be negative. Elements outside the
    array load as 0, or NaN with the padding option `"nan"`; they are not stored.
    """

    IN_PLACE_OF_A_TILE: ClassVar = (
        "a descriptor is accessed by its methods: d.load([...]), d.store([...], value)"
    )

    base: Tensor
    shape: tuple[Tensor, ...]
    strides: tuple[Tensor | int, ...]
    block_shape: tuple[int, ...]
    padding: Padding = Padding.ZERO
    round_f32_to_tf32: bool = False

    def __repr__(self) -> str:
        return f"<blocks {list(self.block_shape)} of {self.dtype}>"

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        pointer = self.base.dtype
        assert isinstance(pointer, PointerType)
        return pointer.element_ty

    @property
    def block_type(self) -> BlockType:
        """The type of the tiles that are loaded and stored."""
        return BlockType(self.dtype, self.block_shape)

    @property
    def type(self) -> TensorDescriptorType:
        """The type of the descriptor."""
        return TensorDescriptorType(self.block_type)

    @builtin
    def load(self, offsets: Any) -> Tensor:
        """Return the block at `offsets`: a tile of `block_shape`."""
        name = "descriptor load"
        places = _offsets(name, self, offsets)
        tile = emit(DescriptorLoad, *_array(self), places, self.block_shape, self.padding)
        return _rounded(self, tile)

    @builtin
    def store(self, offsets: Any, value: Any) -> None:
        """Write `value`, a tile of `block_shape`, to the block at `offsets`, as `dtype`."""
        name = "descriptor store"
        places = _offsets(name, self, offsets)
        tile = _value(name, self, value, self.block_shape)
        emit_all(DescriptorStore, *_writable(name, self), places, tile)

    @builtin
    def gather(self, x_offsets: Any, y_offset: Any) -> Tensor:
        """Return the rows `x_offsets` (a 1-d tile of integers) of a matrix, from `y_offset` on.

        The block has one row, `block_shape == [1, columns]`; the tile has one for each offset.
        """
        name = "descriptor gather"
        rows, column, columns = _rows(name, self, x_offsets, y_offset)
        tile = emit(DescriptorGather, *_array(self), rows, column, columns, self.padding)
        return _rounded(self, tile)

    @builtin
    def scatter(self, value: Any, x_offsets: Any, y_offset: Any) -> None:
        """Write the rows of `value` to the rows `x_offsets` of a matrix, from `y_offset` on.

        The block has one row, `block_shape == [1, columns]`. Of equal offsets any may win.
        """
        name = "descriptor scatter"
        rows, column, columns = _rows(name, self, x_offsets, y_offset)
        tile = _value(name, self, value, (*rows.shape, columns))
        emit_all(DescriptorScatter, *_writable(name, self), rows, column, tile)

    @builtin
    def atomic_add(self, offsets: Any, value: Any) -> None:
        """Add `value` to the block at `offsets`, each element in one step."""
        _reduce(self, AtomicKind.ADD, offsets, value)

    @builtin
    def atomic_min(self, offsets: Any, value: Any) -> None:
        """Store the smaller of the block at `offsets` and `value`, each element in one step."""
        _reduce(self, AtomicKind.MIN, offsets, value)

    @builtin
    def atomic_max(self, offsets: Any, value: Any) -> None:
        """Store the larger of the block at `offsets` and `value`, each element in one step."""
        _reduce(self, AtomicKind.MAX, offsets, value)

    @builtin
    def atomic_and(self, offsets: Any, value: Any) -> None:
        """Combine the block at `offsets` with `value` by `&`, each element in one step."""
        _reduce(self, AtomicKind.AND, offsets, value)

    @builtin
    def atomic_or(self, offsets: Any, value: Any) -> None:
        """Combine the block at `offsets` with `value` by `|`, each element in one step."""
        _reduce(self, AtomicKind.OR, offsets, value)

    @builtin
    def atomic_xor(self, offsets: Any, value: Any) -> None:
        """Combine the block at `offsets` with `value` by `^`, each element in one step."""
        _reduce(self, AtomicKind.XOR, offsets, value)


# ---- making one ------------------------------------------------------------------------------


def make_tensor_descriptor(
    base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any
) -> TensorDescriptor:
    """Return a descriptor of an array; the rules of `tl.make_tensor_descriptor`."""
    name = "make_tensor_descriptor"
    if not (isinstance(base, Tensor) and isinstance(base.dtype, PointerType) and not base.shape):
        fail(
            f"{name}: the base must be a scalar pointer, got {describe(base)}",
            hint="pass the array's own parameter",
        )
    sizes = tuple(_to_i32(n, f"{name}: shape") for n in _items(shape))
    block = to_constants(block_shape, f"{name}: each size of the block")
    steps = _items(strides)
    rank = len(block)
    if not 1 <= rank <= MAX_DESCRIPTOR_RANK:
        fail(
            f"{name}: a descriptor has 1 to {MAX_DESCRIPTOR_RANK} axes, block_shape has {rank}",
            hint="join axes: describe the array by fewer, larger ones",
        )
    if not len(sizes) == len(steps) == rank:
        fail(
            f"{name}: shape and strides need {rank} entries, as block_shape has, got {len(sizes)} "
            f"and {len(steps)}",
            hint="give each a number for each axis",
        )
    if any(n < 1 for n in block):
        fail(
            f"{name}: the sizes of the block must be positive, got {list(block)}",
            hint="the block has a size of at least 1 along each axis",
        )
    strides = (*(_stride(s) for s in steps[:-1]), _last_stride(steps[-1]))
    padding = _padding(name, padding_option, base.dtype.element_ty)
    made = TensorDescriptor(base, sizes, strides, block, padding)
    _check_alignment(made)
    return made


def _items(values: Any) -> Sequence[Any]:
    values = unwrap(values)
    return values if isinstance(values, tuple | list) else (values,)


def _scalar(x: Any, what: str) -> Tensor:
    tensor = as_tensor(x, what)
    if tensor.shape or not tensor.dtype.is_int():
        fail(
            f"{what}: expected scalar integers, got {describe(tensor)}",
            hint="pass ints or scalar integers, for instance x.to(tl.int32)",
        )
    return tensor


def _to_i32(x: Any, what: str) -> Tensor:
    return _narrowed(_scalar(x, what))


def _narrowed(x: Tensor) -> Tensor:
    """Return integers as i32; those that it does not hold, and no array has, become its ends."""
    assert isinstance(x.dtype, DType)
    (low, high), (least, most) = _I32.integer_range, x.dtype.integer_range
    if most > high:
        x = emit(Minimum, x, full_of(high, x.dtype, x.shape))
    if least < low:
        x = emit(Maximum, x, full_of(low, x.dtype, x.shape))
    return convert(x, _I32)


def _stride(x: Any) -> Tensor:
    return convert(_scalar(x, "make_tensor_descriptor: strides"), _I64)


def _last_stride(x: Any) -> int:
    x = unwrap(x)
    is_known = not isinstance(x, Tensor) or constant_array(x.value) is not None
    if not is_known or to_constant(x, "make_tensor_descriptor: the last stride") != 1:
        fail(
            f"make_tensor_descriptor: the last stride must be the constant 1, got {describe(x)}",
            "write 1; an array whose last axis is not contiguous is read through pointers",
        )
    return 1


def _padding(name: str, option: Any, element: DType) -> Padding:
    try:
        padding = Padding(option or "zero")
    except ValueError:
        fail(f"{name}: padding_option must be 'zero' or 'nan', got {option!r}")
    if padding is Padding.NAN and not element.is_floating():
        fail(
            f"{name}: padding_option 'nan' needs floats, the memory holds {element}",
            hint="leave it out: what is outside reads as zero",
        )
    return padding


def _check_alignment(made: TensorDescriptor) -> None:
    """Check what is known already: everything in eager mode, constants in a compiled kernel."""
    name, what = "make_tensor_descriptor", f"a multiple of {ALIGNMENT_BYTES} bytes"
    base = constant_array(made.base.value)
    if base is not None and int(base) % ALIGNMENT_BYTES:
        fail(
            f"{name}: the address of the base, {int(base):#x}, is not {what}",
            hint="pass the whole array, or a copy of the part",
        )
    for axis, stride in enumerate(made.strides[:-1]):
        assert isinstance(stride, Tensor)
        known = constant_array(stride.value)
        mistake = known is not None and stride_mistake(axis, int(known), made.dtype)
        if mistake:
            fail(f"{name}: {mistake}", PAD_ROWS)


# ---- using one -------------------------------------------------------------------------------


def _array(descriptor: TensorDescriptor) -> tuple[Any, ...]:
    """The operands that name the array."""
    return descriptor.base, descriptor.shape, descriptor.strides[:-1]


def _writable(name: str, descriptor: TensorDescriptor) -> tuple[Any, ...]:
    pointer = descriptor.base.dtype
    if isinstance(pointer, PointerType) and pointer.const:
        fail(f"{name}: the pointer is declared const", "take `const` from the parameter's type")
    return _array(descriptor)


def _offsets(name: str, descriptor: TensorDescriptor, offsets: Any) -> tuple[Tensor, ...]:
    items = _items(offsets)
    rank = len(descriptor.block_shape)
    if len(items) != rank:
        fail(
            f"{name}: expected {rank} offsets, got {len(items)}",
            hint="give the place of the block along each axis",
        )
    tensors = tuple(_scalar(item, f"{name}: offsets") for item in items)
    for item, tensor in zip(items, tensors, strict=True):
        if isinstance(item, Tensor) and tensor.dtype in {_I64, DTYPES["u64"]}:
            extension(f"{name}: an offset of {tensor.dtype}", "convert it with .to(tl.int32)")
    return tuple(map(_narrowed, tensors))


def _value(name: str, descriptor: TensorDescriptor, x: Any, shape: tuple[int, ...]) -> Tensor:
    tensor = as_tensor(x, f"{name}: the value")
    if tensor.shape != shape:
        fail(
            f"{name}: the value must have the shape of the block, {list(shape)}, got "
            f"{describe(tensor)}",
            "tl.reshape or tl.broadcast_to bring a tile to another shape",
        )
    if isinstance(tensor.dtype, PointerType):
        fail(f"{name}: the value is a pointer ({describe(x)})", "convert it with .to(tl.int64)")
    return cast(tensor, descriptor.dtype)


def _rows(
    name: str, descriptor: TensorDescriptor, x_offsets: Any, y_offset: Any
) -> tuple[Tensor, Tensor, int]:
    block = descriptor.block_shape
    if len(block) != 2 or block[0] != 1:
        fail(
            f"{name}: the block must have one row, block_shape is {list(block)}",
            "make the descriptor with block_shape [1, columns]",
        )
    rows = as_tensor(x_offsets, f"{name}: x_offsets")
    if len(rows.shape) != 1 or not rows.dtype.is_int():
        fail(
            f"{name}: x_offsets must be a 1-d tile of integers, got {describe(rows)}",
            hint="flatten and convert it: x.reshape(n).to(tl.int32)",
        )
    return _narrowed(rows), _to_i32(y_offset, f"{name}: y_offset"), block[1]


def _reduce(descriptor: TensorDescriptor, kind: AtomicKind, offsets: Any, value: Any) -> None:
    name, element = f"descriptor atomic_{kind}", descriptor.dtype
    if element.short_name not in _REDUCED[kind]:
        extension(f"{name} of {element}", "use the atomics on pointers")
    places = _offsets(name, descriptor, offsets)
    tile = _value(name, descriptor, value, descriptor.block_shape)
    base, sizes, strides = _writable(name, descriptor)
    emit_all(DescriptorReduce, base, sizes, strides, places, tile, kind)


def _rounded(descriptor: TensorDescriptor, tile: Tensor) -> Tensor:
    """Round fp32 to the 10 bits of tf32, ties away from 0, where the descriptor asks for it."""
    if not (descriptor.round_f32_to_tf32 and descriptor.dtype is DTYPES["fp32"]):
        return tile

    def constant(bits: int) -> Tensor:
        return full_of(bits, _U32, tile.shape)

    bits = emit(Bitcast, tile, _U32)
    rounded = emit(And, emit(Add, bits, constant(0x1000)), constant(0xFFFFE000))
    exponent = emit(And, bits, constant(0x7F800000))
    is_finite = emit(Compare, Predicate.NE, exponent, constant(0x7F800000))
    return emit(Select, is_finite, emit(Bitcast, rounded, DTYPES["fp32"]), tile)
