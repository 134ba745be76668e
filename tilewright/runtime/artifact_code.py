"""The code in an object for C programs: the entry of a kernel, and the images for GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.code import llvm_type
from tilewright.codegen.cpu.abi import (
    CONTEXT_SCRATCH_OFFSET,
    CONTEXT_SHARED_OFFSET,
    SHARED_ERROR_OFFSET,
    SHARED_POLL_OFFSET,
)
from tilewright.codegen.cpu.compile import CpuKernel
from tilewright.ir.types import ElementType
from tilewright.target import NvidiaTarget

__all__ = ["CParameter", "GpuImage", "cpu_entry", "data"]

_PAGE_BYTES = 4096
_SHARED_BYTES = 128


@dataclass(frozen=True)
class CParameter:
    """A parameter of a kernel that is known only when it is run."""

    name: str
    element: ElementType
    is_written: bool

    @property
    def c_name(self) -> str:
        """The name, as C allows it."""
        return self.name.replace(".", "_")

    @property
    def llvm_type(self) -> str:
        """The type in the object: a bool is a byte there."""
        kind = llvm_type(self.element)
        return {"i1": "i8", "half": "i16"}.get(kind, kind)


@dataclass(frozen=True)
class GpuImage:
    """A kernel for one architecture: machine code, or PTX with a zero at its end."""

    variable: str
    target: NvidiaTarget
    image: bytes
    is_ptx: bool
    symbol: str
    shared_bytes: int
    threads: int


def data(variable: str, content: bytes) -> str:
    """Return the definition of constant bytes."""
    text = "".join(f"\\{byte:02X}" for byte in content)
    return f'@{variable} = constant [{len(content)} x i8] c"{text}", align 64'


def cpu_entry(kernel: CpuKernel, name: str, parameters: Sequence[CParameter]) -> str:
    """Return the module of a kernel with two functions for C.

    `name` runs all programs of a grid, `name_programs` those with numbers from `first` on, below
    `last`. Both return 0, or the number of the assertion that failed, or -1 where there was no
    memory.
    """
    hidden = kernel.llvm_ir.replace(f"define void @{kernel.symbol}(", "define internal void @run(")
    typed = "".join(f", {p.llvm_type} %p{i}" for i, p in enumerate(parameters))
    stores = "\n".join(
        f"  %slot{i} = getelementptr i8, ptr %args, i64 {8 * i}\n"
        f"  store {p.llvm_type} %p{i}, ptr %slot{i}"
        for i, p in enumerate(parameters)
    )
    scratch = -(-max(kernel.scratch_bytes, 1) // _PAGE_BYTES) * _PAGE_BYTES
    return f"""{hidden}
{_whole_grid(name, typed)}
{_range(name, typed, stores, len(parameters), scratch)}
"""


def _whole_grid(name: str, typed: str) -> str:
    return f"""define i32 @{name}(i32 %gx, i32 %gy, i32 %gz{typed}) {{
  %x = zext i32 %gx to i64
  %y = zext i32 %gy to i64
  %z = zext i32 %gz to i64
  %xy = mul i64 %x, %y
  %xyz = mul i64 %xy, %z
  %result = call i32 @{name}_programs(i32 %gx, i32 %gy, i32 %gz, i64 0, i64 %xyz{typed})
  ret i32 %result
}}
"""


def _range(name: str, typed: str, stores: str, parameters: int, scratch: int) -> str:
    return f"""define internal void @poll(ptr %context) {{
  ret void
}}
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
define i32 @{name}_programs(i32 %gx, i32 %gy, i32 %gz, i64 %first, i64 %last{typed}) {{
entry:
  %args = alloca [{max(1, parameters)} x i64], align 64
  %shared = alloca [{_SHARED_BYTES // 8} x i64], align 64
  %context = alloca [8 x i64], align 64
{stores}
  store [{_SHARED_BYTES // 8} x i64] zeroinitializer, ptr %shared
  %poll.at = getelementptr i8, ptr %shared, i64 {SHARED_POLL_OFFSET}
  store ptr @poll, ptr %poll.at
  %error.at = getelementptr i8, ptr %shared, i64 {SHARED_ERROR_OFFSET}
  %scratch = call ptr @aligned_alloc(i64 {_PAGE_BYTES}, i64 {scratch})
  %none = icmp eq ptr %scratch, null
  br i1 %none, label %failed, label %enter
enter:
  store [8 x i64] zeroinitializer, ptr %context
  store i32 %gx, ptr %context
  %gy.at = getelementptr i8, ptr %context, i64 4
  store i32 %gy, ptr %gy.at
  %gz.at = getelementptr i8, ptr %context, i64 8
  store i32 %gz, ptr %gz.at
  %scratch.at = getelementptr i8, ptr %context, i64 {CONTEXT_SCRATCH_OFFSET}
  store ptr %scratch, ptr %scratch.at
  %shared.at = getelementptr i8, ptr %context, i64 {CONTEXT_SHARED_OFFSET}
  store ptr %shared, ptr %shared.at
  %x = zext i32 %gx to i64
  %y = zext i32 %gy to i64
  br label %head
head:
  %number = phi i64 [ %first, %enter ], [ %following, %body ]
  %error = load i32, ptr %error.at
  %fine = icmp eq i32 %error, 0
  %inside = icmp ult i64 %number, %last
  %more = and i1 %fine, %inside
  br i1 %more, label %body, label %done
body:
  %column = urem i64 %number, %x
  %rest = udiv i64 %number, %x
  %row = urem i64 %rest, %y
  %layer = udiv i64 %rest, %y
  %i = trunc i64 %column to i32
  %j = trunc i64 %row to i32
  %k = trunc i64 %layer to i32
  call void @run(ptr %args, i32 %i, i32 %j, i32 %k, ptr %context)
  %following = add i64 %number, 1
  br label %head
done:
  call void @free(ptr %scratch)
  ret i32 %error
failed:
  ret i32 -1
}}
"""
