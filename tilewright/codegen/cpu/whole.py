"""Ops that work on whole tiles in memory: products, scans, sorting."""

from __future__ import annotations

from math import prod

from tilewright import ops
from tilewright.codegen.code import Element, dtype, llvm_type
from tilewright.codegen.cpu.buffers import Arena, Buffer
from tilewright.codegen.cpu.matmul import dot_function
from tilewright.codegen.cpu.matmul_shape import DotShape, DotTarget, DotType
from tilewright.codegen.cpu.plan import dot_source, starts_at_zero
from tilewright.codegen.cpu.pull import Coordinate, Index, Puller
from tilewright.codegen.cpu.sort import sort_function
from tilewright.codegen.regions import apply_region
from tilewright.ir.core import Value
from tilewright.target import Host

__all__ = ["WholeOps"]

_DOT_TYPES = {
    "fp16": DotType.HALF,
    "bf16": DotType.BFLOAT,
    "fp32": DotType.FLOAT,
    "fp64": DotType.DOUBLE,
    "i8": DotType.INT8,
    "u8": DotType.UINT8,
    "i32": DotType.INT32,
}


class WholeOps:
    """Writes the ops whose operands and results are all in buffers."""

    def __init__(
        self, puller: Puller, buffers: dict[Value, Buffer], arena: Arena, host: Host
    ) -> None:
        self.puller, self.code, self.buffers, self.arena = puller, puller.code, buffers, arena
        self.target = DotTarget(host.features, host.vector_bits, has_amx=host.has_amx)
        self.dots: dict[DotShape, tuple[str, int]] = {}

    # -- products ---------------------------------------------------------------------------------

    def dot(self, op: ops.Dot) -> None:
        """Call the product generated for these sizes, once for each batch."""
        a, b, out = (self.buffers[v] for v in (dot_source(op.a), dot_source(op.b), op))
        acc = out if starts_at_zero(op) else self.buffers[op.acc]
        shape = self._dot_shape(op, a, b, acc, out)
        name, scratch = self._dot_function(shape)
        for batch in range(prod(op.shape[:-2])):
            places = [self._batch_address(buffer, batch) for buffer in (a, b, acc, out)]
            strides = (
                shape.a_row_stride,
                shape.b_row_stride,
                shape.acc_in_row_stride,
                shape.acc_out_row_stride,
            )
            passed = ", ".join(f"ptr {p}, i64 {s}" for p, s in zip(places, strides, strict=True))
            space = self.code.assign(f"getelementptr i8, ptr %scratch, i64 {scratch}")
            self.code.line(f"call void @{name}({passed}, ptr {space})")

    def _dot_shape(self, op: ops.Dot, a: Buffer, b: Buffer, acc: Buffer, out: Buffer) -> DotShape:
        def type_of(value: Value) -> DotType:
            return _DOT_TYPES[dtype(value.type.element).short_name]

        a_rows, a_transposed = _rows(a, dot_source(op.a) is not op.a)
        b_rows, b_transposed = _rows(b, dot_source(op.b) is not op.b)
        return DotShape(
            m=op.shape[-2], n=op.shape[-1], k=op.a.shape[-1],
            a_type=type_of(op.a), b_type=type_of(op.b), acc_type=type_of(op),
            a_transposed=a_transposed, b_transposed=b_transposed,
            a_row_stride=a_rows, b_row_stride=b_rows,
            acc_in_row_stride=acc.strides[-2], acc_out_row_stride=out.strides[-2],
            acc_is_zero=starts_at_zero(op),
        )  # fmt: skip

    def _dot_function(self, shape: DotShape) -> tuple[str, int]:
        if shape not in self.dots:
            name = f"dot{len(self.dots)}"
            made = dot_function(shape, name, self.target)
            self.code.definitions[f"@{name}"] = made.text
            self.dots[shape] = name, self.arena.reserve(made.scratch_bytes)
        return self.dots[shape]

    def _batch_address(self, buffer: Buffer, batch: int) -> str:
        offset = buffer.offset
        for size, stride in zip(
            reversed(buffer.type.shape[:-2]), reversed(buffer.strides[:-2]), strict=True
        ):
            batch, i = divmod(batch, size)
            offset += i * stride * buffer.itemsize
        return self.code.assign(f"getelementptr i8, ptr %scratch, i64 {offset}")

    # -- scans ------------------------------------------------------------------------------------

    def scan(self, op: ops.Scan) -> None:
        """Run along the axis in place; other axes are loops around it, the last one of lanes."""
        puller, code = self.puller, self.code
        shape = op.inputs[0].shape
        others = [axis for axis in range(len(shape)) if axis != op.axis]
        lane_axis = others[-1] if others and op.axis != len(shape) - 1 else None
        lanes = 1
        while lane_axis is not None and lanes < 16 and shape[lane_axis] % (2 * lanes) == 0:
            lanes *= 2
        buffers = tuple(self.buffers[r] for r in op.results)
        outer = puller.lanes, puller.written, puller.base_level
        puller.lanes, puller.written, puller.base_level = lanes, frozenset(buffers), code.level
        index = [Coordinate("0")] * len(shape)
        with code.section():
            self._scan_axes(op, buffers, others, lane_axis, index)
        puller.lanes, puller.written, puller.base_level = outer

    def _scan_axes(
        self,
        op: ops.Scan,
        buffers: tuple[Buffer, ...],
        others: list[int],
        lane_axis: int | None,
        index: list[Coordinate],
    ) -> None:
        if not others:
            self._scan_line(op, buffers, index)
            return
        axis, *rest = others
        step = self.puller.lanes if axis == lane_axis else 1
        with self.code.counted_loop("0", str(op.inputs[0].shape[axis]), str(step)) as i:
            stride = 1 if axis == lane_axis and step > 1 else 0
            index = [*index]
            index[axis] = Coordinate(i, self.code.level, stride)
            self._scan_axes(op, buffers, rest, lane_axis, index)

    def _scan_line(
        self, op: ops.Scan, buffers: tuple[Buffer, ...], index: list[Coordinate]
    ) -> None:
        code, puller, size = self.code, self.puller, op.inputs[0].shape[op.axis]
        if size == 1:
            return

        def at(place: Coordinate) -> Index:
            return (*index[: op.axis], place, *index[op.axis + 1 :])

        slots = [code.alloca(self._vector_type(v)) for v in op.inputs]
        first = Coordinate(str(size - 1 if op.reverse else 0))
        for value, buffer, slot in zip(op.inputs, buffers, slots, strict=True):
            element = puller.widen(puller.read(buffer, at(first)), value.type.element)
            code.line(f"store {self._vector_type(value)} {element}, ptr {slot}")
        with code.counted_loop("1", str(size), "1") as i:
            place = code.assign(f"sub i32 {size - 1}, {i}") if op.reverse else i
            here = at(Coordinate(place, code.level))
            running = [
                Element(
                    code.assign(f"load {self._vector_type(v)}, ptr {s}"), puller.lanes, code.level
                )
                for v, s in zip(op.inputs, slots, strict=True)
            ]
            elements = [puller.read(b, here) for b in buffers]
            results = apply_region(puller, op.combine, running + elements)
            for value, buffer, slot, result in zip(op.inputs, buffers, slots, results, strict=True):
                code.line(
                    f"store {self._vector_type(value)} "
                    f"{puller.widen(result, value.type.element)}, ptr {slot}"
                )
                puller.write(buffer, here, result)

    def _vector_type(self, value: Value) -> str:
        kind, lanes = llvm_type(value.type.element), self.puller.lanes
        return kind if lanes == 1 else f"<{lanes} x {kind}>"

    # -- sorting, counting ------------------------------------------------------------------------

    def sort(self, op: ops.Sort) -> None:
        """Call the merge sort generated for this row length and element type, for each row."""
        code, buffer = self.code, self.buffers[op]
        size = op.shape[-1]
        rows = prod(op.shape[:-1])
        kind = dtype(op.type.element)
        name = f"sort_{kind.short_name}_{size}{'_descending' if op.descending else ''}"
        code.definitions.setdefault(
            f"@{name}", sort_function(name, kind, size, descending=op.descending)
        )
        space = self.arena.reserve(size * kind.itemsize)
        base = code.assign(f"getelementptr i8, ptr %scratch, i64 {buffer.offset}")
        room = code.assign(f"getelementptr i8, ptr %scratch, i64 {space}")
        with code.counted_loop("0", str(rows * size), str(size)) as i:
            row = code.assign(f"getelementptr {buffer.memory_type}, ptr {base}, i32 {i}")
            code.line(f"call void @{name}(ptr {row}, ptr {room})")

    def clear(self, op: ops.Histogram) -> None:
        """Set all bins to zero."""
        buffer = self.buffers[op]
        place = self.code.assign(f"getelementptr i8, ptr %scratch, i64 {buffer.offset}")
        self.code.call(
            "void",
            "llvm.memset.p0.i64",
            f"ptr {place}, i8 0, i64 {buffer.size_bytes}, i1 false",
        )


def _rows(buffer: Buffer, transposed: bool) -> tuple[int, bool]:
    """Return the row stride of a matrix in memory and whether it is read across."""
    rows, columns = buffer.strides[-2:]
    if columns == 1:
        return rows, transposed
    return columns, not transposed
