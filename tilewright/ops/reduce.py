"""Reductions, scans, sorting and counting along an axis.

`combine` is a region on scalars: for n inputs it has 2n parameters (the earlier elements, then the
later ones) and yields n values. It must be associative; the order of the elements is kept, the
grouping is not specified for `Reduce`. `Scan` folds from the left (from the right when `reverse`),
one element at a time, so its result is defined for any combine function.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tilewright.ir.core import Block, MachineOp, Op, Value, require
from tilewright.ir.types import DTYPES, DType, TileType
from tilewright.ops.machine import Machine
from tilewright.ops.mapping import on_elements
from tilewright.ops.numerics import Array, widen
from tilewright.ops.shape import check_shape

__all__ = ["Histogram", "Reduce", "Scan", "Sort"]


class _Combining(MachineOp, abstract=True):
    inputs: tuple[Value, ...]
    axis: int
    combine: Block

    def check(self) -> tuple[int, ...]:
        """Check inputs against the region and return the inputs' shape."""
        shape = self.inputs[0].shape
        require(
            all(v.shape == shape for v in self.inputs),
            f"{self.op_name}: shapes differ: {', '.join(str(v.type) for v in self.inputs)}",
        )
        require(
            0 <= self.axis < len(shape),
            f"{self.op_name}: no axis {self.axis} in a tile of shape {list(shape)}",
        )
        elements = [TileType(v.type.element) for v in self.inputs]
        got = [v.type for v in self.combine.yields]
        require(
            got == elements and [p.type for p in self.combine.params] == elements * 2,
            f"{self.op_name}: the combine function must keep the types: it takes "
            f"({', '.join(map(str, elements))}) twice and returned ({', '.join(map(str, got))})",
            hint="convert what it returns, or the tile before",
        )
        return shape

    def combined(self, machine: Machine, left: list[Array], right: list[Array]) -> list[Array]:
        """Apply the region to the elements of arrays."""
        return on_elements(machine, self.combine, [*left, *right])


class Reduce(_Combining):
    """Combine all elements along `axis`; one result for each input.

    `commutative` allows a target to change the order of the elements, too.
    """

    commutative: bool = False

    def infer(self) -> tuple[TileType, ...]:
        shape = self.check()
        rest = shape[: self.axis] + shape[self.axis + 1 :]
        return tuple(v.type.with_shape(rest) for v in self.inputs)

    def evaluate(self, machine: Machine, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
        # Neighbours are combined pairwise, so the order is kept in log2(n) steps.
        parts = [np.moveaxis(x, self.axis, 0) for x in inputs]
        while (size := len(parts[0])) > 1:
            even = size // 2 * 2
            last = [x[even:] for x in parts]
            paired = self.combined(
                machine, [x[0:even:2] for x in parts], [x[1:even:2] for x in parts]
            )
            parts = [np.concatenate(pair) for pair in zip(paired, last, strict=True)]
        return tuple(x[0] for x in parts)


class Scan(_Combining):
    """Running combination along `axis`, inclusive; one result for each input."""

    reverse: bool = False

    def infer(self) -> tuple[TileType, ...]:
        self.check()
        return tuple(v.type for v in self.inputs)

    def evaluate(self, machine: Machine, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
        step = -1 if self.reverse else 1
        rows = [np.moveaxis(x, self.axis, 0)[::step] for x in inputs]
        out = [np.empty_like(x) for x in rows]
        running = [x[0] for x in rows]
        for i in range(len(rows[0])):
            if i:
                running = self.combined(machine, running, [x[i] for x in rows])
            for result, value in zip(out, running, strict=True):
                result[i] = value
        return tuple(np.moveaxis(x[::step], 0, self.axis) for x in out)


class Sort(Op):
    """Sort along the last axis, stably; NaN counts as the largest, as in NumPy and PyTorch."""

    x: Value
    descending: bool = False

    def infer(self) -> TileType:
        require(
            self.x.type.rank >= 1 and isinstance(self.x.type.element, DType),
            f"sort: expected a tile of numbers, got {self.x.type}",
            hint="sort a tile: tl.load of a block of pointers",
        )
        return self.x.type

    def evaluate(self, x: Array) -> Array:
        element = self.x.type.element
        assert isinstance(element, DType)  # infer has checked it
        keys: Any = widen(x, element)
        if self.descending:  # stable: reverse, sort, reverse
            order = keys.shape[-1] - 1 - np.argsort(keys[..., ::-1], axis=-1, kind="stable")
            return np.take_along_axis(x, order[..., ::-1], axis=-1)
        return np.take_along_axis(x, np.argsort(keys, axis=-1, kind="stable"), axis=-1)


class Histogram(Op):
    """How often each of 0, ..., `num_bins` - 1 occurs in a 1-d tile of integers (int32 counts).

    Values outside and masked-out lanes are not counted.
    """

    num_bins: int
    x: Value
    mask: Value | None = None
    element: ClassVar[DType] = DTYPES["i32"]

    def infer(self) -> TileType:
        dtype = self.x.type.element
        require(
            self.x.type.rank == 1 and isinstance(dtype, DType) and dtype.is_int(),
            f"histogram: expected a 1-d tile of integers, got {self.x.type}",
            hint="flatten and convert it: x.reshape(n).to(tl.int32)",
        )
        require(
            self.num_bins > 0,
            f"histogram: num_bins must be positive, got {self.num_bins}",
            hint="count at least one bin",
        )
        check_shape("histogram", (self.num_bins,))
        if self.mask is not None:
            require(
                self.mask.type == TileType(DTYPES["i1"], self.x.shape),
                f"histogram: the mask must be i1{list(self.x.shape)}, got {self.mask.type}",
            )
        return TileType(self.element, (self.num_bins,))

    def evaluate(self, x: Array, mask: Array | None) -> Array:
        values = x.astype(np.int64)
        inside = (values >= 0) & (values < self.num_bins)
        kept = values[inside if mask is None else inside & mask]
        return np.bincount(kept, minlength=self.num_bins).astype(np.int32)
