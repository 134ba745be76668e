"""The part of the launcher that the CPU has to itself, as LLVM IR; see `launcher_code.py`.

Offsets of NumPy arrays: `data` at 16, `descr` at 56, `flags` at 64. An array is accepted from
NumPy or from PyTorch. The launch is a call of the pool.
"""

from __future__ import annotations

from tilewright.runtime.launcher_code import LauncherPart
from tilewright.runtime.launcher_table import CpuHead

__all__ = ["CPU_PART"]

_FUNCTIONS = """
; Stores the address of a CPU tensor whose dtype is the third entry at `dtypes`: 1, or 0 for any
; other value, or -1 with a Python error set.
define internal i32 @tensor_address(ptr %value, ptr %type, ptr %dtypes, ptr %result) noinline {
entry:
  %self.only = alloca ptr
  %overflow = alloca i32
  %tensor = load ptr, @tilewright_table at $T_TENSOR
  %parameter = load ptr, @tilewright_table at $T_PARAMETER
  %is.tensor = icmp eq ptr %type, %tensor
  %is.parameter = icmp eq ptr %type, %parameter
  %known = or i1 %is.tensor, %is.parameter
  br i1 %known, label %keys, label %no
keys:
  %usual = call i1 @is_usual(ptr %value)
  br i1 %usual, label %dtype, label %no
dtype:
  ; Something else keeps alive what is dropped here before it is looked at.
  %dtype.name = load ptr, @tilewright_table at $T_DTYPE
  %actual = call ptr @PyObject_GetAttr(ptr %value, ptr %dtype.name)
  %no.dtype = icmp eq ptr %actual, null
  br i1 %no.dtype, label %error, label %compare
compare:
  call void @Py_DecRef(ptr %actual)
  %expected = load ptr, %dtypes at 16
  %same = icmp eq ptr %actual, %expected
  br i1 %same, label %address, label %no
address:
  store ptr %value, ptr %self.only
  %name = load ptr, @tilewright_table at $T_DATA_PTR
  %number = call ptr @PyObject_VectorcallMethod(ptr %name, ptr %self.only, i64 1, ptr null)
  %none = icmp eq ptr %number, null
  br i1 %none, label %error, label %convert
convert:
  %bits = call i64 @PyLong_AsLongLongAndOverflow(ptr %number, ptr %overflow)
  call void @Py_DecRef(ptr %number)
  store i64 %bits, ptr %result
  %null = icmp eq i64 %bits, 0
  br i1 %null, label %empty, label %yes
empty:
  %nothing = call i1 @has_no_elements(ptr %value)
  br i1 %nothing, label %yes, label %no
yes:
  ret i32 1
no:
  ret i32 0
error:
  ret i32 -1
}
"""

_ARRAY = """
array:
  %dtypes.offset = load i64, %record at 16
  %dtypes = getelementptr i8, ptr @tilewright_table, i64 %dtypes.offset
  %ndarray = load ptr, @tilewright_table at $T_NDARRAY
  %is.numpy = icmp eq ptr %type, %ndarray
  br i1 %is.numpy, label %numpy, label %torch
numpy:
  %dtype = load ptr, %value at 56
  %dtype0 = load ptr, %dtypes at 0
  %dtype1 = load ptr, %dtypes at 8
  %is.dtype0 = icmp eq ptr %dtype, %dtype0
  %is.dtype1 = icmp eq ptr %dtype, %dtype1
  %is.dtype = or i1 %is.dtype0, %is.dtype1
  br i1 %is.dtype, label %flags, label %decline
flags:
  %needed = load i32, %record at 8
  %actual = load i32, %value at 64
  %present = and i32 %actual, %needed
  %has.flags = icmp eq i32 %present, %needed
  %data = load i64, %value at 16
  br i1 %has.flags, label %whole.number, label %decline
torch:
  %is.tensor = call i32 @tensor_address(ptr %value, ptr %type, ptr %dtypes, ptr %found)
  switch i32 %is.tensor, label %forget [ i32 1, label %tensor
                                         i32 0, label %decline ]
tensor:
  %tensor.data = load i64, ptr %found
  br label %whole.number
"""

_LAUNCH = """
launch:
  %kernel = load ptr, %program at $H_KERNEL
  %scratch = load i64, %program at $H_SCRATCH_BYTES
  %run = load ptr, @tilewright_table at $T_LAUNCH
  %status = call i32 %run(ptr %kernel, ptr %block, i32 %size0, i32 %size1, i32 %size2, i64 %scratch)
  switch i32 %status, label %raise [ i32 0, label %success
                                     i32 -1, label %fail ]
"""

CPU_PART = LauncherPart(
    functions=_FUNCTIONS,
    entry="  %found = alloca i64",
    array=_ARRAY,
    whole="[ %data, %flags ], [ %tensor.data, %tensor ]",
    launch=_LAUNCH,
    head=CpuHead,
)
