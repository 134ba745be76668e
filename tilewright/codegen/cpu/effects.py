"""Roots that act lane by lane: atomics, counting, assertions, printing."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from tilewright import ops
from tilewright.codegen.atomics import write_cas, write_rmw
from tilewright.codegen.code import Element, dtype, llvm_type, vector
from tilewright.codegen.cpu.abi import SHARED_ERROR_OFFSET
from tilewright.codegen.cpu.buffers import Buffer
from tilewright.codegen.cpu.pull import Index, Puller
from tilewright.codegen.printing import constant_line, printed_number, printed_prefix
from tilewright.ir.core import Value

__all__ = [
    "AssertRoot",
    "AtomicRoot",
    "HistogramRoot",
    "PrintRoot",
    "print_line",
    "printed",
]


@dataclass(eq=False)
class AtomicRoot:
    """An atomic on each lane in turn; the old elements go to `buffer` where they are used."""

    op: ops.AtomicRmw | ops.AtomicCas
    buffer: Buffer | None = None

    @property
    def pulls(self) -> tuple[Value, ...]:
        return self.op.operands

    def prepare(self, puller: Puller, index: Index) -> None:
        """Operands are pulled where they are used: this root is alone in its nest."""

    def finish(self, puller: Puller, index: Index, element: None) -> Element:
        """Write the atomic and return the old element."""
        code, kind = puller.code, llvm_type(self.op.type.element)
        zero = "0.0" if self.op.type.element.is_floating() and kind[0] != "i" else "0"
        slot = code.alloca(kind)
        code.line(f"store {kind} {zero}, ptr {slot}")
        mask = self.op.mask if isinstance(self.op, ops.AtomicRmw) else None
        guard = code.guarded(puller.pull(mask, index).text) if mask else contextlib.nullcontext()
        with guard:
            operands = [puller.pull(v, index).text for v in self.op.operands if v is not mask]
            old = (
                write_rmw(code, self.op, *operands)
                if isinstance(self.op, ops.AtomicRmw)
                else write_cas(code, self.op, *operands)
            )
            code.line(f"store {kind} {old}, ptr {slot}")
        result = Element(code.assign(f"load {kind}, ptr {slot}"), 1, code.level)
        if self.buffer is not None:
            puller.write(self.buffer, index, result)
        return result


@dataclass(eq=False)
class HistogramRoot:
    """Count values into bins; the buffer was zeroed before."""

    op: ops.Histogram
    buffer: Buffer

    @property
    def pulls(self) -> tuple[Value, ...]:
        return self.op.operands

    def prepare(self, puller: Puller, index: Index) -> None:
        """Operands are pulled where they are used."""

    def finish(self, puller: Puller, index: Index, element: None) -> None:
        code, op = puller.code, self.op
        kind = dtype(op.x.type.element)
        value = puller.pull(op.x, index).text
        wide = value
        if kind.primitive_bitwidth < 64:
            extend = "sext" if kind.is_int_signed() else "zext"
            wide = code.assign(f"{extend} {llvm_type(kind)} {value} to i64")
        inside = code.assign(f"icmp ult i64 {wide}, {op.num_bins}")
        if op.mask is not None:
            inside = code.assign(f"and i1 {inside}, {puller.pull(op.mask, index).text}")
        with code.guarded(inside):
            base = code.assign(f"getelementptr i8, ptr {puller.scratch}, i64 {self.buffer.offset}")
            place = code.assign(f"getelementptr i32, ptr {base}, i64 {wide}")
            count = code.assign(f"load i32, ptr {place}")
            code.line(f"store i32 {code.assign(f'add i32 {count}, 1')}, ptr {place}")


@dataclass(eq=False)
class AssertRoot:
    """Collect whether any lane fails; after the nest a failure ends the program and is reported."""

    op: ops.Assert
    number: int
    slot: str = ""

    @property
    def pulls(self) -> tuple[Value, ...]:
        return self.op.operands

    def prepare(self, puller: Puller, index: Index) -> None:
        """Operands are pulled where they are used."""

    def finish(self, puller: Puller, index: Index, element: None) -> None:
        code, lanes = puller.code, puller.lanes
        if not self.slot:
            self.slot = code.alloca("i1")
            code.allocas.append(f"store i1 false, ptr {self.slot}")
        flags = vector("i1", lanes)
        holds = puller.vector(self.op.condition, index)
        ones = "true" if lanes == 1 else "splat (i1 true)"
        fails = code.assign(f"xor {flags} {holds}, {ones}")
        mask = puller.mask(self.op.mask, index)
        if mask is not None:
            fails = code.assign(f"and {flags} {fails}, {mask}")
        if lanes > 1:
            fails = code.call("i1", f"llvm.vector.reduce.or.v{lanes}i1", f"{flags} {fails}")
        before = code.assign(f"load i1, ptr {self.slot}")
        code.line(f"store i1 {code.assign(f'or i1 {before}, {fails}')}, ptr {self.slot}")

    def leave(self, puller: Puller) -> None:
        """Report the failure, the first of the launch winning, and end the program."""
        code = puller.code
        with code.guarded(code.assign(f"load i1, ptr {self.slot}")):
            error = code.assign(f"getelementptr i8, ptr %shared, i64 {SHARED_ERROR_OFFSET}")
            code.assign(f"cmpxchg ptr {error}, i32 0, i32 {self.number + 1} acq_rel monotonic")
            code.line("br label %exit")
            code.place(code.label("unreachable"))


@dataclass(eq=False)
class PrintRoot:
    """Print each element through the C library, line by line, as `ops.Print` says."""

    op: ops.Print
    number: int

    @property
    def pulls(self) -> tuple[Value, ...]:
        return (self.op.values[self.number],)

    def prepare(self, puller: Puller, index: Index) -> None:
        """Operands are pulled where they are used."""

    def finish(self, puller: Puller, index: Index, element: None) -> None:
        printed(puller, self.op, self.number, index)


def printed(puller: Puller, op: ops.Print, number: int, index: Index) -> None:
    """Write the printing of one element of the `number`-th value."""
    value = op.values[number]
    pulled = puller.pull(value, index).text
    form, argument = printed_number(puller.code, op, value.type.element, pulled)
    arguments = [f"i32 {puller.coordinate(c).text}" for c in index] + [argument]
    print_line(puller, f"{printed_prefix(op, number, len(index))}{form}\n", arguments)


def print_line(puller: Puller, line: str, arguments: list[str]) -> None:
    """Write a call of `dprintf` on standard output: one line, one system call."""
    code = puller.code
    name = constant_line(code, line)
    code.declarations["dprintf"] = "declare i32 @dprintf(i32, ptr, ...)"
    pids = [f"i32 %pid{axis}" for axis in range(3)]
    passed = ", ".join(["i32 1", f"ptr {name}", *pids, *arguments])
    code.assign(f"call i32 (i32, ptr, ...) @dprintf({passed})")
