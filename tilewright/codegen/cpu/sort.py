"""A stable bottom-up merge sort of one row, as an LLVM function."""

from __future__ import annotations

from tilewright.codegen.code import memory_type
from tilewright.ir.types import DType

__all__ = ["sort_function"]


def sort_function(name: str, dtype: DType, size: int, *, descending: bool) -> str:
    """Return `void @name(ptr row, ptr room)`, which sorts `size` elements; `room` is for merging.

    An element of the left run goes first unless the right one must come before it, so equal
    elements keep their order. NaN counts as larger than any number.
    """
    kind = memory_type(dtype)
    before = _comes_before(dtype, kind, descending=descending)
    return f"""define internal void @{name}(ptr %row, ptr %room) noinline nounwind {{
entry:
  br label %width
width:
  %w = phi i32 [ 1, %entry ], [ %w2, %copied ]
  %more = icmp slt i32 %w, {size}
  br i1 %more, label %run, label %exit
run:
  %low = phi i32 [ 0, %width ], [ %high, %merged ]
  %any = icmp slt i32 %low, {size}
  br i1 %any, label %start, label %copy
start:
  %m = add i32 %low, %w
  %mid = call i32 @llvm.smin.i32(i32 %m, i32 {size})
  %h = add i32 %mid, %w
  %high = call i32 @llvm.smin.i32(i32 %h, i32 {size})
  br label %merge
merge:
  %i = phi i32 [ %low, %start ], [ %i.next, %taken ]
  %j = phi i32 [ %mid, %start ], [ %j.next, %taken ]
  %k = phi i32 [ %low, %start ], [ %k.next, %taken ]
  %left = icmp slt i32 %i, %mid
  %right = icmp slt i32 %j, %high
  %some = or i1 %left, %right
  br i1 %some, label %pick, label %merged
pick:
  %both = and i1 %left, %right
  %i.last = sub i32 %mid, 1
  %i.safe = select i1 %left, i32 %i, i32 %i.last
  %j.last = sub i32 %high, 1
  %j.safe = select i1 %right, i32 %j, i32 %j.last
  %x.at = getelementptr {kind}, ptr %row, i32 %i.safe
  %y.at = getelementptr {kind}, ptr %row, i32 %j.safe
  %x = load {kind}, ptr %x.at
  %y = load {kind}, ptr %y.at
{before}
  %swap = and i1 %both, %first
  %exhausted = xor i1 %left, true
  %from.right = or i1 %swap, %exhausted
  %value = select i1 %from.right, {kind} %y, {kind} %x
  %to = getelementptr {kind}, ptr %room, i32 %k
  store {kind} %value, ptr %to
  %step.j = zext i1 %from.right to i32
  %step.i = sub i32 1, %step.j
  br label %taken
taken:
  %i.next = add i32 %i, %step.i
  %j.next = add i32 %j, %step.j
  %k.next = add i32 %k, 1
  br label %merge
merged:
  br label %run
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %row, ptr %room, i64 {size * dtype.itemsize}, i1 false)
  br label %copied
copied:
  %w2 = shl i32 %w, 1
  br label %width
exit:
  ret void
}}
"""


def _comes_before(dtype: DType, kind: str, *, descending: bool) -> str:
    """Write `%first`: whether `%y` must stand before `%x`."""
    small, large = ("%x", "%y") if descending else ("%y", "%x")
    if not dtype.is_floating():
        sign = "s" if dtype.is_int_signed() else "u"
        return f"  %first = icmp {sign}lt {kind} {small}, {large}"
    # small < large, or only large is NaN.
    return f"""  %less = fcmp olt {kind} {small}, {large}
  %large.nan = fcmp uno {kind} {large}, {large}
  %small.number = fcmp ord {kind} {small}, {small}
  %beyond = and i1 %large.nan, %small.number
  %first = or i1 %less, %beyond"""
