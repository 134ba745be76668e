"""Writes the LLVM IR of a launcher: one method for each check of an argument.

Offsets of CPython objects: `ob_type` at 8, the items of a tuple at 24 and its length at 16. Of
NumPy arrays: `data` at 16, `descr` at 56, `flags` at 64.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["HEADER", "Code", "Item", "Table"]

_NUMPY_ALIGNED = 0x0100
_NUMPY_WRITEABLE = 0x0400


class Table(enum.IntEnum):
    """The first entries of a launcher's table of addresses; those of its parameters follow."""

    LAUNCH = 0
    RAISE = 1
    NDARRAY = 2
    TENSOR = 3
    PARAMETER = 4
    DATA_PTR = 5
    DTYPE = 6
    IS_CPU = 7


class Item(NamedTuple):
    """An item of a tuple argument."""

    position: int
    value: str


HEADER = """
@PyLong_Type = external global i8
@PyFloat_Type = external global i8
@PyTuple_Type = external global i8
@_Py_NoneStruct = external global i8
@_Py_TrueStruct = external global i8
@_Py_FalseStruct = external global i8
@_Py_NotImplementedStruct = external global i8
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare i64 @PyLong_AsUnsignedLongLong(ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
"""


class Code:
    """The body of a launcher as it is written; `value` and `guard` are all it is made of.

    A guard that fails goes to `%decline`, or to `%forget` where a Python error is set.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._lines: list[str] = []
        self._count = 0
        self._block = "checks"

    # ---- the elements

    def value(self, expression: str) -> str:
        """Add an instruction; return the name of its result."""
        name = f"%v{self._next()}"
        self._lines.append(f"  {name} = {expression}")
        return name

    def guard(self, condition: str, *, otherwise: str = "decline") -> None:
        """Go on only where a condition holds."""
        passed = self._label()
        self._lines.append(f"  br i1 {condition}, label %{passed}, label %{otherwise}")
        self._start(passed)

    def load(self, pointer: str, offset: int, kind: str = "ptr") -> str:
        """Load a field of an object."""
        address = self.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        return self.value(f"load {kind}, ptr {address}")

    def argument(self, position: int) -> str:
        """Load a positional argument of the launcher."""
        return self.load("%arguments", 8 * position)

    def store_slot(self, slot: int, packed: str) -> None:
        """Store an i64 in the argument block."""
        address = self.value(f"getelementptr i64, ptr %block, i64 {slot}")
        self._lines.append(f"  store i64 {packed}, ptr {address}")

    def _entry(self, position: int) -> str:
        return self.load(f"@{self._table}", 8 * position)

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _label(self) -> str:
        return f"b{self._next()}"

    def _start(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    def _guard_type(self, value: str, type_object: str) -> None:
        kind = self.load(value, 8)
        self.guard(self.value(f"icmp eq ptr {kind}, {type_object}"))

    # ---- numbers

    def integer(self, value: str) -> str:
        """Check for an exact int that fits an i64; return it."""
        self._guard_type(value, "@PyLong_Type")
        number = self.value(f"call i64 @PyLong_AsLongLongAndOverflow(ptr {value}, ptr %overflow)")
        overflow = self.value("load i32, ptr %overflow")
        self.guard(self.value(f"icmp eq i32 {overflow}, 0"))
        return number

    def unsigned_integer(self, value: str) -> str:
        """Check for an exact int that fits a u64; return its bits."""
        self._guard_type(value, "@PyLong_Type")
        number = self.value(f"call i64 @PyLong_AsUnsignedLongLong(ptr {value})")
        ordinary = self.value(f"icmp ne i64 {number}, -1")
        passed, maximum = self._label(), self._label()
        self._lines.append(f"  br i1 {ordinary}, label %{passed}, label %{maximum}")
        self._start(maximum)
        error = self.value("call ptr @PyErr_Occurred()")
        fits = self.value(f"icmp eq ptr {error}, null")
        self._lines.append(f"  br i1 {fits}, label %{passed}, label %forget")
        self._start(passed)
        return number

    def float_bits(self, value: str, bits: int) -> str:
        """Check for an exact float; return the bits of its fp32 or fp64 value."""
        self._guard_type(value, "@PyFloat_Type")
        number = self.value(f"call double @PyFloat_AsDouble(ptr {value})")
        if bits == 64:
            return self.value(f"bitcast double {number} to i64")
        single = self.value(f"fptrunc double {number} to float")
        pattern = self.value(f"bitcast float {single} to i32")
        return self.value(f"zext i32 {pattern} to i64")

    def boolean(self, value: str) -> str:
        """Check for True or False; return 1 or 0."""
        true = self.value(f"icmp eq ptr {value}, @_Py_TrueStruct")
        false = self.value(f"icmp eq ptr {value}, @_Py_FalseStruct")
        self.guard(self.value(f"or i1 {true}, {false}"))
        return self.value(f"zext i1 {true} to i64")

    def guard_range(self, number: str, lowest: int, end: int, *, inside: bool = True) -> None:
        """Check `lowest <= number < end`, or that it is not so."""
        shifted = self.value(f"sub i64 {number}, {lowest}")
        comparison = "ult" if inside else "uge"
        self.guard(self.value(f"icmp {comparison} i64 {shifted}, {end - lowest}"))

    def guard_divisible(self, number: str, divisible_by_16: bool | None) -> None:
        """Check that a number is divisible by 16, or that it is not."""
        if divisible_by_16 is not None:
            low = self.value(f"and i64 {number}, 15")
            comparison = "eq" if divisible_by_16 else "ne"
            self.guard(self.value(f"icmp {comparison} i64 {low}, 0"))

    # ---- constants

    def guard_same(self, value: str, entry: int) -> None:
        """Check for the object of a table entry, or one of its type that equals it."""
        constant = self._entry(entry)
        same = self.value(f"icmp eq ptr {value}, {constant}")
        passed, compare = self._label(), self._label()
        self._lines.append(f"  br i1 {same}, label %{passed}, label %{compare}")
        self._start(compare)
        self._guard_type(value, self.load(constant, 8))
        equal = self.value(
            f"call i32 @PyObject_RichCompareBool(ptr {value}, ptr {constant}, i32 2)"
        )
        # -1 is an error, which the slow path meets again and reports.
        self.guard(self.value(f"icmp sge i32 {equal}, 0"), otherwise="forget")
        is_equal = self.value(f"icmp ne i32 {equal}, 0")
        self._lines.append(f"  br i1 {is_equal}, label %{passed}, label %decline")
        self._start(passed)

    def tuple_items(self, value: str, length: int) -> Iterator[Item]:
        """Check for an exact tuple of a length; yield its items."""
        self._guard_type(value, "@PyTuple_Type")
        actual = self.load(value, 16, "i64")
        self.guard(self.value(f"icmp eq i64 {actual}, {length}"))
        for position in range(length):
            yield Item(position, self.load(value, 24 + 8 * position))

    # ---- arrays

    def array_address(self, value: str, entry: int, *, written: bool) -> str:
        """Check for an array whose dtype is one of the three at `entry`; return its address."""
        kind = self.load(value, 8)
        is_numpy = self.value(f"icmp eq ptr {kind}, {self._entry(Table.NDARRAY)}")
        numpy, torch, joined = self._label(), self._label(), self._label()
        self._lines.append(f"  br i1 {is_numpy}, label %{numpy}, label %{torch}")
        self._start(numpy)
        from_numpy = self._numpy_address(value, entry, written=written)
        numpy_end = self._block
        self._lines.append(f"  br label %{joined}")
        self._start(torch)
        from_torch = self._torch_address(value, kind, entry + 2)
        torch_end = self._block
        self._lines.append(f"  br label %{joined}")
        self._start(joined)
        return self.value(f"phi i64 [ {from_numpy}, %{numpy_end} ], [ {from_torch}, %{torch_end} ]")

    def _numpy_address(self, value: str, entry: int, *, written: bool) -> str:
        dtype = self.load(value, 56)
        first = self.value(f"icmp eq ptr {dtype}, {self._entry(entry)}")
        second = self.value(f"icmp eq ptr {dtype}, {self._entry(entry + 1)}")
        self.guard(self.value(f"or i1 {first}, {second}"))
        needed = _NUMPY_ALIGNED | (_NUMPY_WRITEABLE if written else 0)
        flags = self.load(value, 64, "i32")
        present = self.value(f"and i32 {flags}, {needed}")
        self.guard(self.value(f"icmp eq i32 {present}, {needed}"))
        return self.load(value, 16, "i64")

    def _torch_address(self, value: str, kind: str, entry: int) -> str:
        tensor = self.value(f"icmp eq ptr {kind}, {self._entry(Table.TENSOR)}")
        parameter = self.value(f"icmp eq ptr {kind}, {self._entry(Table.PARAMETER)}")
        self.guard(self.value(f"or i1 {tensor}, {parameter}"))
        dtype = self._owned(f"@PyObject_GetAttr(ptr {value}, ptr {self._entry(Table.DTYPE)})")
        self.guard(self.value(f"icmp eq ptr {dtype}, {self._entry(entry)}"))
        on_cpu = self._owned(f"@PyObject_GetAttr(ptr {value}, ptr {self._entry(Table.IS_CPU)})")
        self.guard(self.value(f"icmp eq ptr {on_cpu}, @_Py_TrueStruct"))
        self._lines.append(f"  store ptr {value}, ptr %self.only")
        name = self._entry(Table.DATA_PTR)
        call = f"@PyObject_VectorcallMethod(ptr {name}, ptr %self.only, i64 1, ptr null)"
        address = self.value(f"call ptr {call}")
        self.guard(self.value(f"icmp ne ptr {address}, null"), otherwise="forget")
        number = self.value(f"call i64 @PyLong_AsLongLongAndOverflow(ptr {address}, ptr %overflow)")
        self._lines.append(f"  call void @Py_DecRef(ptr {address})")
        return number

    def _owned(self, call: str) -> str:
        """Call for a new reference to an object that something else keeps alive, and drop it."""
        result = self.value(f"call ptr {call}")
        self.guard(self.value(f"icmp ne ptr {result}, null"), otherwise="forget")
        self._lines.append(f"  call void @Py_DecRef(ptr {result})")
        return result

    # ---- the whole

    def launcher(
        self,
        *,
        name: str,
        kernel: str,
        argument_count: int,
        slots: int,
        entries: int,
        grid: Sequence[str],
        scratch_bytes: int,
    ) -> str:
        """Return the launcher made of the checks so far."""
        sizes = [self.value(f"trunc i64 {size} to i32") for size in grid]
        launch = self._entry(Table.LAUNCH)
        grid_text = ", ".join(f"i32 {size}" for size in sizes)
        checks = "\n".join(self._lines)
        raiser = f"getelementptr (i8, ptr @{self._table}, i64 {8 * Table.RAISE})"
        return f"""
@{self._table} = global [{entries} x i64] zeroinitializer, align 64
@{name}.name = private constant [{len(kernel) + 1} x i8] c"{kernel}\\00"
; METH_FASTCALL
@{name}.method = global {{ ptr, ptr, i32, ptr }} {{ ptr @{name}.name, ptr @{name}, i32 128, ptr null }}

; Optimising it would take longer than most kernels, and save some 20 ns of a launch.
define ptr @{name}(ptr %self, ptr %arguments, i64 %count) noinline optnone {{
entry:
  %block = alloca [{max(slots, 1)} x i64], align 64
  %overflow = alloca i32
  %self.only = alloca ptr
  %complete = icmp eq i64 %count, {argument_count}
  br i1 %complete, label %checks, label %decline
checks:
{checks}
  %status = call i32 {launch}(ptr @{kernel}, ptr %block, {grid_text}, i64 {scratch_bytes})
  switch i32 %status, label %raise [ i32 0, label %done
                                     i32 -1, label %fail ]
done:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
raise:
  %status.64 = sext i32 %status to i64
  %status.int = call ptr @PyLong_FromLongLong(i64 %status.64)
  %no.int = icmp eq ptr %status.int, null
  br i1 %no.int, label %fail, label %tell
tell:
  %raiser = load ptr, ptr {raiser}
  %answer = call ptr @PyObject_CallOneArg(ptr %raiser, ptr %status.int)
  call void @Py_DecRef(ptr %status.int)
  %raised = icmp eq ptr %answer, null
  br i1 %raised, label %fail, label %quiet
quiet:
  call void @Py_DecRef(ptr %answer)
  br label %fail
fail:
  ret ptr null
forget:
  call void @PyErr_Clear()
  br label %decline
decline:
  call void @Py_IncRef(ptr @_Py_NotImplementedStruct)
  ret ptr @_Py_NotImplementedStruct
}}
"""  # noqa: E501 - the definition of the method is one line of IR
