"""The part of the launcher that takes tensor descriptors, as LLVM IR; see `launcher_code.py`.

A descriptor is checked as if its parts were arguments: the array, the sizes, the strides, the sizes
of the block and the two options. They are copied to `%parts`, from where the records that follow
take them. They are read anew at each launch, so any change of a descriptor is seen. The parts are
borrowed: nothing that runs until then is written in Python.
"""

from __future__ import annotations

__all__ = ["DESCRIPTOR", "FUNCTIONS"]

FUNCTIONS = """
; Copy the items of a list, a tuple or the shape of a PyTorch tensor, if they are so many.
define internal i1 @copy_items(ptr %sequence, i64 %count, ptr %places) noinline {
entry:
  %is.absent = icmp eq ptr %sequence, null
  br i1 %is.absent, label %no, label %present
present:
  %type = load ptr, %sequence at 8
  %is.list = icmp eq ptr %type, @PyList_Type
  br i1 %is.list, label %list, label %inline
inline:
  %shape.type = load ptr, @tilewright_table at $T_SHAPE
  %is.tuple = icmp eq ptr %type, @PyTuple_Type
  %is.shape = icmp eq ptr %type, %shape.type
  %is.inline = or i1 %is.tuple, %is.shape
  br i1 %is.inline, label %tuple, label %no
list:
  %list.items = load ptr, %sequence at 24
  br label %length
tuple:
  %tuple.items = getelementptr i8, ptr %sequence, i64 24
  br label %length
length:
  %items = phi ptr [ %list.items, %list ], [ %tuple.items, %tuple ]
  %size = load i64, %sequence at 16
  %fits = icmp eq i64 %size, %count
  br i1 %fits, label %copy, label %no
copy:
  %i = phi i64 [ 0, %length ], [ %i.next, %copy ]
  %item.place = getelementptr ptr, ptr %items, i64 %i
  %item = load ptr, ptr %item.place
  %copy.place = getelementptr ptr, ptr %places, i64 %i
  store ptr %item, ptr %copy.place
  %i.next = add i64 %i, 1
  %is.more = icmp ult i64 %i.next, %count
  br i1 %is.more, label %copy, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}
"""

DESCRIPTOR = """
descriptor:
  %descriptor.type = load ptr, @tilewright_table at $T_DESCRIPTOR
  %is.descriptor = icmp eq ptr %type, %descriptor.type
  br i1 %is.descriptor, label %fields, label %decline
fields:
  %axes = load i64, %record at 8
  %field.base = load ptr, %value at $F_BASE
  %field.shape = load ptr, %value at $F_SHAPE
  %field.strides = load ptr, %value at $F_STRIDES
  %field.block = load ptr, %value at $F_BLOCK_SHAPE
  %field.padding = load ptr, %value at $F_PADDING
  %field.rounding = load ptr, %value at $F_ROUND_F32_TO_TF32
  %parts.shape = getelementptr ptr, ptr %parts, i64 1
  %parts.strides = getelementptr ptr, ptr %parts.shape, i64 %axes
  %parts.block = getelementptr ptr, ptr %parts.strides, i64 %axes
  %parts.padding = getelementptr ptr, ptr %parts.block, i64 %axes
  %parts.rounding = getelementptr ptr, ptr %parts.padding, i64 1
  store ptr %field.base, ptr %parts
  store ptr %field.padding, ptr %parts.padding
  store ptr %field.rounding, ptr %parts.rounding
  %has.shape = call i1 @copy_items(ptr %field.shape, i64 %axes, ptr %parts.shape)
  %has.strides = call i1 @copy_items(ptr %field.strides, i64 %axes, ptr %parts.strides)
  %has.block = call i1 @copy_items(ptr %field.block, i64 %axes, ptr %parts.block)
  ; A field that was deleted is a null pointer.
  %has.base = icmp ne ptr %field.base, null
  %has.padding = icmp ne ptr %field.padding, null
  %has.rounding = icmp ne ptr %field.rounding, null
  %has.sizes = and i1 %has.shape, %has.strides
  %has.sequences = and i1 %has.sizes, %has.block
  %has.options = and i1 %has.padding, %has.rounding
  %has.others = and i1 %has.base, %has.options
  %has.all = and i1 %has.sequences, %has.others
  br i1 %has.all, label %open, label %decline
"""
