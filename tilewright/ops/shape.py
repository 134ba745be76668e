"""Making tiles and moving their elements, without arithmetic on them."""

from __future__ import annotations

from math import prod

import numpy as np

from tilewright.ir.core import Op, Value, require
from tilewright.ir.types import DTYPES, DType, TileType
from tilewright.ops.numerics import Array, narrow

__all__ = [
    "MAX_TILE_ELEMENTS", "Arange", "Broadcast", "Cat", "ExpandDims", "Full", "Gather", "Hint",
    "Join", "Permute", "Reshape", "Split", "check_shape",
]  # fmt: skip

MAX_TILE_ELEMENTS = 1 << 20


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Raise `CompileError` where no tile has this shape; `name` is the op's."""
    require(
        all(n > 0 for n in shape),
        f"{name}: sizes must be positive, got {list(shape)}",
        hint="tiles have at least one element along each axis",
    )
    require(
        prod(shape) <= MAX_TILE_ELEMENTS,
        f"{name}: a tile of shape {list(shape)} has {prod(shape)} elements, the limit is "
        f"{MAX_TILE_ELEMENTS}",
        hint="use a smaller block and loop over it",
    )


class Full(Op):
    """A tile (or scalar) whose elements all equal the compile-time `value`."""

    value: int | float | bool
    of: TileType

    def infer(self) -> TileType:
        check_shape("full", self.of.shape)
        element = self.of.element
        if isinstance(element, DType) and element.is_int():
            low, high = element.integer_range
            require(
                isinstance(self.value, int) and low <= self.value <= high,
                f"full: {self.value!r} does not fit {element}",
            )
        return self.of

    def evaluate(self) -> Array:
        element = self.of.element
        if element is DTYPES["fp8e4b15"]:
            return np.full(self.of.shape, narrow(np.array(self.value, np.float64), element))
        with np.errstate(all="ignore"):
            return np.full(self.of.shape, np.asarray(self.value).astype(element.numpy))


class Arange(Op):
    """The int32 numbers `start`, ..., `end - 1`."""

    start: int
    end: int

    def infer(self) -> TileType:
        require(
            self.end > self.start,
            f"arange: the end must be above the start, got arange({self.start}, {self.end})",
            hint="write tl.arange(0, n); add or multiply for other numbers",
        )
        check_shape("arange", (self.end - self.start,))
        return TileType(DTYPES["i32"], (self.end - self.start,))

    def evaluate(self) -> Array:
        return np.arange(self.start, self.end, dtype=np.int32)


class Broadcast(Op):
    """Repeat along axes of size 1 (a scalar: everywhere) up to `shape`."""

    x: Value
    shape_: tuple[int, ...]

    def infer(self) -> TileType:
        source = self.x.shape
        check_shape("broadcast", self.shape_)
        require(
            not source
            or (
                len(source) == len(self.shape_)
                and all(a in {1, b} for a, b in zip(source, self.shape_, strict=True))
            ),
            f"broadcast: {list(source)} does not broadcast to {list(self.shape_)}",
            hint="only axes of size 1 are repeated: add some by x[:, None], or x.expand_dims(axis)",
        )
        return self.x.type.with_shape(self.shape_)

    def evaluate(self, x: Array) -> Array:
        return np.broadcast_to(x, self.shape_)


class Reshape(Op):
    """The same elements, in row-major order, in another shape."""

    x: Value
    shape_: tuple[int, ...]

    def infer(self) -> TileType:
        require(
            prod(self.shape_) == self.x.type.size,
            f"reshape: {list(self.x.shape)} has {self.x.type.size} elements, "
            f"{list(self.shape_)} has {prod(self.shape_)}",
            hint="the sizes of both shapes have one product",
        )
        return self.x.type.with_shape(self.shape_)

    def evaluate(self, x: Array) -> Array:
        return x.reshape(self.shape_)


class ExpandDims(Op):
    """Insert an axis of size 1 at `axis` (0 <= axis <= rank)."""

    x: Value
    axis: int

    def infer(self) -> TileType:
        shape = self.x.shape
        require(0 <= self.axis <= len(shape), f"expand_dims: no axis {self.axis} in {list(shape)}")
        return self.x.type.with_shape((*shape[: self.axis], 1, *shape[self.axis :]))

    def evaluate(self, x: Array) -> Array:
        return np.expand_dims(x, self.axis)


class Permute(Op):
    """Axis `i` of the result is axis `order[i]` of `x`."""

    x: Value
    order: tuple[int, ...]

    def infer(self) -> TileType:
        shape = self.x.shape
        require(
            sorted(self.order) == list(range(len(shape))),
            f"permute: {list(self.order)} is not an order of the {len(shape)} axes of "
            f"{list(shape)}",
        )
        return self.x.type.with_shape(tuple(shape[i] for i in self.order))

    def evaluate(self, x: Array) -> Array:
        return np.transpose(x, self.order)


class Join(Op):
    """Stack two tiles along a new last axis of size 2."""

    x: Value
    y: Value

    def infer(self) -> TileType:
        require(
            self.x.type == self.y.type,
            f"join: types differ: {self.x.type} and {self.y.type}",
            hint="convert one, or broadcast it: tl.broadcast(x, y)",
        )
        check_shape("join", (*self.x.shape, 2))
        return self.x.type.with_shape((*self.x.shape, 2))

    def evaluate(self, x: Array, y: Array) -> Array:
        return np.stack((x, y), axis=-1)


class Split(Op):
    """The two halves along a last axis of size 2: the opposite of `Join`."""

    x: Value

    def infer(self) -> tuple[TileType, TileType]:
        require(
            self.x.shape[-1:] == (2,),
            f"split: the last axis must have size 2, the tile is {list(self.x.shape)}",
            hint="reshape or permute first: x.reshape(n, 2)",
        )
        half = self.x.type.with_shape(self.x.shape[:-1])
        return half, half

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        return x[..., 0], x[..., 1]


class Cat(Op):
    """Put `y` behind `x` along `axis`."""

    x: Value
    y: Value
    axis: int = 0

    def infer(self) -> TileType:
        a, b = self.x.shape, self.y.shape
        require(
            self.x.type.element == self.y.type.element,
            "cat: element types differ",
            hint="convert one: x.to(y.dtype)",
        )
        require(
            len(a) == len(b)
            and 0 <= self.axis < len(a)
            and all(m == n for i, (m, n) in enumerate(zip(a, b, strict=True)) if i != self.axis),
            f"cat: {list(a)} and {list(b)} do not fit together along axis {self.axis}",
            hint="all axes but the one along which they are joined have the same sizes",
        )
        shape = tuple(n + b[i] if i == self.axis else n for i, n in enumerate(a))
        check_shape("cat", shape)
        return self.x.type.with_shape(shape)

    def evaluate(self, x: Array, y: Array) -> Array:
        return np.concatenate((x, y), axis=self.axis)


class Gather(Op):
    """`result[..., i, ...] = x[..., index[..., i, ...], ...]` along `axis`, 0 for one outside."""

    x: Value
    index: Value
    axis: int

    def infer(self) -> TileType:
        a, b = self.x.shape, self.index.shape
        require(
            isinstance(self.index.type.element, DType) and self.index.type.element.is_int(),
            f"gather: the index must be of integers, got {self.index.type}",
            hint="convert it: index.to(tl.int32)",
        )
        require(
            len(a) == len(b)
            and 0 <= self.axis < len(a)
            and all(m == n for i, (m, n) in enumerate(zip(a, b, strict=True)) if i != self.axis),
            f"gather: source {list(a)} and index {list(b)} may differ along axis {self.axis} only",
            hint="broadcast one of them along the other axes",
        )
        return self.x.type.with_shape(b)

    def evaluate(self, x: Array, index: Array) -> Array:
        index = index.astype(np.int64)
        inside = (index >= 0) & (index < x.shape[self.axis])
        taken = np.take_along_axis(x, np.where(inside, index, 0), self.axis)
        return np.where(inside, taken, np.zeros((), x.dtype))


class Hint(Op):
    """`x` itself, with the user's promise `kind` of `values`, one for each axis.

    Kinds: `multiple_of` (the first element of each run is divisible), `max_contiguous` (runs of
    consecutive numbers), `max_constancy` (runs of equal numbers).
    """

    x: Value
    kind: str
    values: tuple[int, ...]

    def infer(self) -> TileType:
        rank = max(1, self.x.type.rank)
        require(
            len(self.values) == rank and all(v > 0 for v in self.values),
            f"{self.kind}: expected {rank} positive numbers, got {list(self.values)}",
        )
        return self.x.type

    def evaluate(self, x: Array) -> Array:
        return x
