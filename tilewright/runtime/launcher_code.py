"""The machine code of the launcher, as LLVM IR: `launcher.py` says what it does.

There is one function for all kernels of a kind of device. What it checks stands in the *program* of
a kernel: a head and one record for each argument, and for each item of a tuple, all of 64-bit
words. A record says where its value is: in the arguments, or in a tuple that a record before it has
opened. The function's `self` is a tuple that begins with the bytes of the program. Objects
that do not depend on the kernel stand in a table of addresses beside the code.

What differs between the kinds of devices is a `LauncherPart`: how an array gives its address, and
the launch itself.

Offsets of CPython objects: `ob_type` at 8, the items of a tuple at 24 and its length at 16, the
contents of bytes at 32.
"""

from __future__ import annotations

import re
import string
from enum import IntEnum
from typing import NamedTuple

from tilewright.codegen.host import module_header
from tilewright.runtime.launcher_code_descriptor import DESCRIPTOR, FUNCTIONS
from tilewright.runtime.launcher_table import (
    MOST_PARTS,
    RECORD_WORDS,
    DescriptorField,
    Head,
    Kind,
    MapField,
    Self,
    Table,
)
from tilewright.target import Host

__all__ = ["LauncherPart", "expand_loads", "module_text"]


class LauncherPart(NamedTuple):
    """The part of a launcher that belongs to one kind of device.

    `array` ends in `whole.number` with the address, as `whole` says from where; or in `decline`, or
    in `forget` with a Python error set. `launch` ends in `success`, in `raise` with `%status`, or
    in one of these. `entry` is what both allocate. `head` numbers the words of the program's head.
    """

    functions: str
    entry: str
    array: str
    whole: str
    launch: str
    head: type[IntEnum]


def module_text(host: Host, table_size: int, part: LauncherPart) -> str:
    """Return the LLVM IR of a launcher, with a table of so many entries."""
    grid = "".join(
        string.Template(_GRID).substitute(AXIS=axis, OFFSET=8 * axis, NEXT=axis + 1)
        for axis in range(3)
    )
    names = {f"T_{entry.name}": 8 * entry for entry in Table}
    kinds = {f"K_{kind.name}": int(kind) for kind in Kind}
    items = {f"S_{item.name}": 24 + 8 * item for item in Self}
    heads = {f"H_{word.name}": 8 * word for word in (*Head, *part.head)}
    fields = {f"F_{field.name}": int(field) for field in DescriptorField}
    maps = {f"M_{field.name}": int(field) for field in MapField}
    launcher = string.Template(_LAUNCHER).safe_substitute(
        GRID=grid,
        ENTRY=part.entry,
        ARRAY=part.array,
        DESCRIPTOR=DESCRIPTOR,
        WHOLE=part.whole,
        LAUNCH=part.launch,
    )
    functions = _DECLARATIONS + _CONSTANT + _TENSORS + FUNCTIONS + part.functions
    text = string.Template(functions + launcher).substitute(
        names,
        **kinds,
        **items,
        **heads,
        **fields,
        **maps,
        PARTS=MOST_PARTS,
        TABLE_SIZE=table_size,
        RECORD=8 * RECORD_WORDS,
        SEQUENCE=8 * RECORD_WORDS - 8,
        ITEM=8 * RECORD_WORDS - 4,
        HEAD=8 * (len(Head) + len(part.head)),
    )
    return module_header(host) + expand_loads(text)


def expand_loads(text: str) -> str:
    """Expand `%v = load ptr, %p at 24`: a load from an offset in bytes, `%p` being a pointer."""
    return _LOAD.sub(_expand_load, text)


_LOAD = re.compile(r"(%[\w.]+) = load (\w+), (\S+) at (\S+)")


def _expand_load(match: re.Match[str]) -> str:
    result, kind, pointer, offset = match.groups()
    return (
        f"{result}.at = getelementptr i8, ptr {pointer}, i64 {offset}\n"
        f"  {result} = load {kind}, ptr {result}.at"
    )


_DECLARATIONS = """
@tilewright_table = global [$TABLE_SIZE x ptr] zeroinitializer, align 64

@PyLong_Type = external global i8
@PyFloat_Type = external global i8
@PyTuple_Type = external global i8
@PyList_Type = external global i8
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

_CONSTANT = """
; Whether a value is the constant of the record at `next`, which is moved on: 1 or 0, or -1 with a
; Python error set.
define internal i32 @is_constant(ptr %value, ptr %self, ptr %next) noinline {
entry:
  %record = load ptr, ptr %next
  %after = getelementptr i8, ptr %record, i64 $RECORD
  store ptr %after, ptr %next
  %type = load ptr, %value at 8
  %kind = load i64, %record at 0
  %expected = load i64, %record at 8
  switch i64 %kind, label %object [ i64 $K_FLOAT, label %float
                                    i64 $K_CONSTANTS, label %tuple ]
object:
  %constant = load ptr, %self at %expected
  %same = icmp eq ptr %value, %constant
  br i1 %same, label %yes, label %compare
compare:
  %constant.type = load ptr, %constant at 8
  %alike = icmp eq ptr %type, %constant.type
  br i1 %alike, label %equal, label %no
equal:
  %answer = call i32 @PyObject_RichCompareBool(ptr %value, ptr %constant, i32 2)
  ret i32 %answer
float:
  %is.float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is.float, label %bits, label %no
bits:
  %double = call double @PyFloat_AsDouble(ptr %value)
  %pattern = bitcast double %double to i64
  %identical = icmp eq i64 %pattern, %expected
  br i1 %identical, label %yes, label %no
tuple:
  %tuple.type.offset = load i64, %record at 16
  %tuple.type = load ptr, %self at %tuple.type.offset
  %is.tuple = icmp eq ptr %type, %tuple.type
  br i1 %is.tuple, label %length, label %no
length:
  %size = load i64, %value at 16
  %fits = icmp eq i64 %size, %expected
  br i1 %fits, label %items, label %no
items:
  %i = phi i64 [ 0, %length ], [ %i1, %more ]
  %end = icmp eq i64 %i, %size
  br i1 %end, label %yes, label %item
item:
  %places = getelementptr i8, ptr %value, i64 24
  %place = getelementptr ptr, ptr %places, i64 %i
  %item.value = load ptr, ptr %place
  %status = call i32 @is_constant(ptr %item.value, ptr %self, ptr %next)
  %fine = icmp eq i32 %status, 1
  br i1 %fine, label %more, label %failed
more:
  %i1 = add i64 %i, 1
  br label %items
failed:
  ret i32 %status
yes:
  ret i32 1
no:
  ret i32 0
}
"""

_TENSORS = """
; Whether the memory of a tensor of PyTorch is just its elements, and on this kind of device.
define internal i1 @is_usual(ptr %value) alwaysinline {
  %handle.offset = load i64, @tilewright_table at $T_TENSOR_OFFSET
  %tensor = load ptr, %value at %handle.offset
  %keys.offset = load i64, @tilewright_table at $T_KEYS_OFFSET
  %keys = load i64, %tensor at %keys.offset
  %unusual.keys = load i64, @tilewright_table at $T_UNUSUAL_KEYS
  %unusual = and i64 %keys, %unusual.keys
  %is.usual = icmp eq i64 %unusual, 0
  ret i1 %is.usual
}

; Whether a tensor is known to have no elements: those with a null pointer should not have any.
define internal i1 @has_no_elements(ptr %value) noinline {
entry:
  %count = alloca i64
  %get.numel = load ptr, @tilewright_table at $T_GET_NUMEL
  %is.unknown = icmp eq ptr %get.numel, null
  br i1 %is.unknown, label %no, label %ask
ask:
  %handle.offset = load i64, @tilewright_table at $T_TENSOR_OFFSET
  %handle = getelementptr i8, ptr %value, i64 %handle.offset
  %status = call i32 %get.numel(ptr %handle, ptr %count)
  %elements = load i64, ptr %count
  %is.told = icmp eq i32 %status, 0
  %is.none = icmp eq i64 %elements, 0
  %is.empty = and i1 %is.told, %is.none
  ret i1 %is.empty
no:
  ret i1 false
}
"""

_GRID = """
grid$AXIS:
  %object$AXIS = load ptr, %arguments at $OFFSET
  %type$AXIS = load ptr, %object$AXIS at 8
  %is.int$AXIS = icmp eq ptr %type$AXIS, @PyLong_Type
  br i1 %is.int$AXIS, label %number$AXIS, label %decline
number$AXIS:
  %tag$AXIS = load i64, %object$AXIS at 16
  %digit$AXIS = load i32, %object$AXIS at 24
  %is.digit$AXIS = icmp eq i64 %tag$AXIS, %one.digit
  br i1 %is.digit$AXIS, label %known$AXIS, label %large$AXIS
large$AXIS:
  %wide$AXIS = call i64 @PyLong_AsLongLongAndOverflow(ptr %object$AXIS, ptr %overflow)
  %short$AXIS = trunc i64 %wide$AXIS to i32
  ; Where it overflows, the number is -1.
  %in.range$AXIS = icmp ult i64 %wide$AXIS, 2147483648
  br i1 %in.range$AXIS, label %known$AXIS, label %decline
known$AXIS:
  %size$AXIS = phi i32 [ %digit$AXIS, %number$AXIS ], [ %short$AXIS, %large$AXIS ]
  br label %grid$NEXT
"""

_LAUNCHER = """
define ptr @tilewright_launcher(ptr %self, ptr %arguments, i64 %count) {
entry:
  %overflow = alloca i32
  %next.constant = alloca ptr
  %parts = alloca [$PARTS x ptr]
$ENTRY
  %program.object = load ptr, %self at $S_PROGRAM
  %program = getelementptr i8, ptr %program.object, i64 32
  %expected = load i64, %program at $H_COUNT
  %complete = icmp eq i64 %count, %expected
  %one.digit = load i64, @tilewright_table at $T_ONE_DIGIT
  br i1 %complete, label %grid0, label %decline
$GRID
grid3:
  %slots = load i64, %program at $H_SLOTS
  %block = alloca i64, i64 %slots, align 64
  %sequence.count = load i64, %program at $H_SEQUENCES
  %sequences = alloca ptr, i64 %sequence.count
  store ptr %arguments, ptr %sequences
  %first.record = getelementptr i8, ptr %program, i64 $HEAD
  br label %next
next:
  %record = phi ptr [ %first.record, %grid3 ], [ %record.kept, %keep ], [ %record.passed, %passed ],
                    [ %record.opened, %opened ]
  %slot = phi ptr [ %block, %grid3 ], [ %slot.kept, %keep ], [ %slot, %passed ],
                  [ %slot, %opened ]
  %sequence.number = load i32, %record at $SEQUENCE
  %item.number = load i32, %record at $ITEM
  %sequence.place = getelementptr ptr, ptr %sequences, i32 %sequence.number
  %sequence = load ptr, ptr %sequence.place
  %item.place = getelementptr ptr, ptr %sequence, i32 %item.number
  %value = load ptr, ptr %item.place
  %type = load ptr, %value at 8
  %kind = load i64, %record at 0
  switch i64 %kind, label %constant [ i64 $K_ARRAY, label %array
                                      i64 $K_INTEGER, label %integer
                                      i64 $K_UNSIGNED, label %unsigned
                                      i64 $K_SINGLE, label %single
                                      i64 $K_DOUBLE, label %double
                                      i64 $K_BOOLEAN, label %boolean
                                      i64 $K_TUPLE, label %tuple
                                      i64 $K_DESCRIPTOR, label %descriptor
                                      i64 $K_END, label %launch ]

$ARRAY
$DESCRIPTOR
tuple:
  %tuple.type.offset = load i64, %record at 24
  %tuple.type = load ptr, %self at %tuple.type.offset
  %is.of.type = icmp eq ptr %type, %tuple.type
  br i1 %is.of.type, label %tuple.length, label %shape
shape:
  ; The shape of a PyTorch tensor is as good as any other tuple.
  %shape.type = load ptr, @tilewright_table at $T_SHAPE
  %is.shape = icmp eq ptr %type, %shape.type
  %wants.any = icmp eq ptr %tuple.type, @PyTuple_Type
  %is.any = and i1 %is.shape, %wants.any
  br i1 %is.any, label %tuple.length, label %decline
tuple.length:
  %tuple.size = load i64, %value at 16
  %tuple.expected = load i64, %record at 8
  %is.size = icmp eq i64 %tuple.size, %tuple.expected
  %tuple.items = getelementptr i8, ptr %value, i64 24
  br i1 %is.size, label %open, label %decline
open:
  %opened.items = phi ptr [ %tuple.items, %tuple.length ], [ %parts, %fields ]
  %opened.number = load i64, %record at 16
  %opened.place = getelementptr ptr, ptr %sequences, i64 %opened.number
  store ptr %opened.items, ptr %opened.place
  br label %opened
opened:
  %record.opened = getelementptr i8, ptr %record, i64 $RECORD
  br label %next
integer:
  %is.int = icmp eq ptr %type, @PyLong_Type
  br i1 %is.int, label %digits, label %decline
digits:
  %tag = load i64, %value at 16
  %digit = load i32, %value at 24
  %small = zext i32 %digit to i64
  %is.digit = icmp eq i64 %tag, %one.digit
  br i1 %is.digit, label %range, label %signed.value
signed.value:
  %signed = call i64 @PyLong_AsLongLongAndOverflow(ptr %value, ptr %overflow)
  %over = load i32, ptr %overflow
  %exact = icmp eq i32 %over, 0
  br i1 %exact, label %range, label %decline
unsigned:
  %is.int.too = icmp eq ptr %type, @PyLong_Type
  br i1 %is.int.too, label %unsigned.value, label %decline
unsigned.value:
  %bits = call i64 @PyLong_AsUnsignedLongLong(ptr %value)
  %ordinary = icmp ne i64 %bits, -1
  br i1 %ordinary, label %range, label %maximum
maximum:
  %error = call ptr @PyErr_Occurred()
  %fits = icmp eq ptr %error, null
  br i1 %fits, label %range, label %forget
range:
  %number = phi i64 [ %small, %digits ], [ %signed, %signed.value ],
                    [ %bits, %unsigned.value ], [ %bits, %maximum ]
  %low = load i64, %record at 8
  %span = load i64, %record at 16
  %above = sub i64 %number, %low
  %inside = icmp ule i64 %above, %span
  br i1 %inside, label %whole.number, label %decline

whole.number:
  %whole = phi i64 $WHOLE, [ %number, %range ]
  %excluded = load i64, %record at 24
  %excluded.count = load i64, %record at 32
  %above.excluded = sub i64 %whole, %excluded
  %outside = icmp uge i64 %above.excluded, %excluded.count
  %mask = load i64, %record at 40
  %wanted = load i64, %record at 48
  %masked = and i64 %whole, %mask
  %is.zero = icmp eq i64 %masked, 0
  %is.zero.64 = zext i1 %is.zero to i64
  %is.aligned = icmp eq i64 %is.zero.64, %wanted
  %is.fit = and i1 %outside, %is.aligned
  br i1 %is.fit, label %keep, label %decline

single:
  %is.float = icmp eq ptr %type, @PyFloat_Type
  br i1 %is.float, label %single.value, label %decline
single.value:
  %wide = call double @PyFloat_AsDouble(ptr %value)
  %narrow = fptrunc double %wide to float
  %narrow.bits = bitcast float %narrow to i32
  %single.bits = zext i32 %narrow.bits to i64
  br label %keep
double:
  %is.float.too = icmp eq ptr %type, @PyFloat_Type
  br i1 %is.float.too, label %double.value, label %decline
double.value:
  %real = call double @PyFloat_AsDouble(ptr %value)
  %double.bits = bitcast double %real to i64
  br label %keep
boolean:
  %is.true = icmp eq ptr %value, @_Py_TrueStruct
  %is.false = icmp eq ptr %value, @_Py_FalseStruct
  %is.bool = or i1 %is.true, %is.false
  %bool.bits = zext i1 %is.true to i64
  br i1 %is.bool, label %keep, label %decline

keep:
  %packed = phi i64 [ %whole, %whole.number ], [ %single.bits, %single.value ],
                    [ %double.bits, %double.value ], [ %bool.bits, %boolean ]
  store i64 %packed, ptr %slot
  %slot.kept = getelementptr i64, ptr %slot, i64 1
  %record.kept = getelementptr i8, ptr %record, i64 $RECORD
  br label %next

constant:
  store ptr %record, ptr %next.constant
  %is.constant = call i32 @is_constant(ptr %value, ptr %self, ptr %next.constant)
  switch i32 %is.constant, label %forget [ i32 1, label %passed
                                           i32 0, label %decline ]
passed:
  %record.passed = load ptr, ptr %next.constant
  br label %next

$LAUNCH
success:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
raise:
  %status.64 = sext i32 %status to i64
  %status.object = call ptr @PyLong_FromLongLong(i64 %status.64)
  %no.object = icmp eq ptr %status.object, null
  br i1 %no.object, label %fail, label %tell
tell:
  %raiser = load ptr, %self at $S_RAISE
  %answer = call ptr @PyObject_CallOneArg(ptr %raiser, ptr %status.object)
  call void @Py_DecRef(ptr %status.object)
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
}
"""
