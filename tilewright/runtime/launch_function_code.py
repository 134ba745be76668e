"""The machine code of launch functions, as LLVM IR: `launch_function.py` says what they do.

Offsets of CPython objects: `ob_type` at 8, the items of a tuple at 24 and its length at 16, the
address of a list's items at 24, the contents of bytes at 32.
"""

from __future__ import annotations

import enum
import string

from tilewright.codegen.host import module_header
from tilewright.runtime.launcher_code import expand_loads
from tilewright.target import Host

__all__ = ["LaunchSelf", "module_text"]


class LaunchSelf(enum.IntEnum):
    """The items of a launch function's `self`."""

    COUNTS = 0  # bytes: how many parameters there are, how many of them are taken by position
    REMEMBERED = 1  # a list: what is called before each launch or None, and the recent launchers
    IN_PYTHON = 2  # the function that does the same in Python
    NAMES = 3
    DEFAULTS = 4
    ARGUMENTS = 5  # a dictionary of all names, which the one for a computed grid is copied from
    ONE = 6  # the int


def module_text(host: Host) -> str:
    """Return the LLVM IR of launch functions."""
    items = {f"S_{item.name}": 24 + 8 * item for item in LaunchSelf}
    text = string.Template(_DECLARATIONS + _MATCH + _FUNCTION).substitute(items)
    return module_header(host) + expand_loads(text)


_DECLARATIONS = """
@PyTuple_Type = external global i8
@PyExc_Exception = external global ptr
@_Py_NoneStruct = external global i8
@_Py_NotImplementedStruct = external global i8
declare ptr @PyDict_Copy(ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare i64 @PyDict_Size(ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare i32 @PyErr_ExceptionMatches(ptr)
declare void @PyErr_Clear()
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_MATCH = """
; Whether a dictionary has just these items: 1 or 0, with no Python error set.
define internal i1 @has_items(ptr %dictionary, ptr %names, ptr %values, i64 %count) {
entry:
  %size = call i64 @PyDict_Size(ptr %dictionary)
  %fits = icmp eq i64 %size, %count
  br i1 %fits, label %next, label %no
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %found ]
  %done = icmp eq i64 %i, %count
  br i1 %done, label %yes, label %item
item:
  %name.place = getelementptr ptr, ptr %names, i64 %i
  %name = load ptr, ptr %name.place
  %value.place = getelementptr ptr, ptr %values, i64 %i
  %value = load ptr, ptr %value.place
  %known = call ptr @PyDict_GetItemWithError(ptr %dictionary, ptr %name)
  %is.absent = icmp eq ptr %known, null
  br i1 %is.absent, label %forget, label %compare
compare:
  %equal = call i32 @PyObject_RichCompareBool(ptr %known, ptr %value, i32 2)
  switch i32 %equal, label %forget [ i32 1, label %found
                                     i32 0, label %no ]
found:
  %i.next = add i64 %i, 1
  br label %next
forget:
  call void @PyErr_Clear()
  br label %no
yes:
  ret i1 true
no:
  ret i1 false
}
"""

_FUNCTION = """
; The grid, the arguments by position and those by name, whose names are in `keywords`.
define ptr @tilewright_launch(ptr %self, ptr %arguments, i64 %count, ptr %keywords) {
entry:
  %counts.object = load ptr, %self at $S_COUNTS
  %counts = getelementptr i8, ptr %counts.object, i64 32
  %parameters = load i64, %counts at 0
  %positional = load i64, %counts at 8
  %given = sub i64 %count, 1
  %has.keywords = icmp ne ptr %keywords, null
  br i1 %has.keywords, label %named, label %counted
named:
  %keywords.length = load i64, %keywords at 16
  br label %counted
counted:
  %keyword.count = phi i64 [ %keywords.length, %named ], [ 0, %entry ]
  ; Without any argument this is the largest number.
  %is.count = icmp ule i64 %given, %positional
  br i1 %is.count, label %match, label %in.python

match:
  %room = add i64 %parameters, 3
  %passed = alloca ptr, i64 %room
  %option.names = alloca ptr, i64 %keyword.count
  %option.values = alloca ptr, i64 %keyword.count
  %values = getelementptr ptr, ptr %passed, i64 3
  %names.object = load ptr, %self at $S_NAMES
  %names = getelementptr i8, ptr %names.object, i64 24
  %defaults.object = load ptr, %self at $S_DEFAULTS
  %defaults = getelementptr i8, ptr %defaults.object, i64 24
  %own.arguments = getelementptr ptr, ptr %arguments, i64 1
  %given.bytes = shl i64 %given, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %values, ptr %own.arguments, i64 %given.bytes, i1 false)
  %rest = getelementptr i8, ptr %values, i64 %given.bytes
  %rest.defaults = getelementptr i8, ptr %defaults, i64 %given.bytes
  %rest.count = sub i64 %parameters, %given
  %rest.bytes = shl i64 %rest.count, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %rest, ptr %rest.defaults, i64 %rest.bytes, i1 false)
  %keyword.names = getelementptr i8, ptr %keywords, i64 24
  %keyword.values = getelementptr ptr, ptr %arguments, i64 %count
  br label %keyword
keyword:
  %k = phi i64 [ 0, %match ], [ %k.next, %matched ]
  %options = phi i64 [ 0, %match ], [ %options.next, %matched ]
  %are.matched = icmp eq i64 %k, %keyword.count
  br i1 %are.matched, label %grid, label %search
search:
  %keyword.name.place = getelementptr ptr, ptr %keyword.names, i64 %k
  %keyword.name = load ptr, ptr %keyword.name.place
  %keyword.value.place = getelementptr ptr, ptr %keyword.values, i64 %k
  %keyword.value = load ptr, ptr %keyword.value.place
  br label %compare
compare:
  %n = phi i64 [ %given, %search ], [ %n.next, %differs ]
  %is.option = icmp eq i64 %n, %parameters
  br i1 %is.option, label %option, label %name
name:
  ; Names in source code are the same object wherever they stand.
  %name.place = getelementptr ptr, ptr %names, i64 %n
  %parameter.name = load ptr, ptr %name.place
  %is.name = icmp eq ptr %parameter.name, %keyword.name
  br i1 %is.name, label %parameter, label %differs
differs:
  %n.next = add i64 %n, 1
  br label %compare
parameter:
  %value.place = getelementptr ptr, ptr %values, i64 %n
  store ptr %keyword.value, ptr %value.place
  br label %matched
option:
  %option.name.place = getelementptr ptr, ptr %option.names, i64 %options
  store ptr %keyword.name, ptr %option.name.place
  %option.value.place = getelementptr ptr, ptr %option.values, i64 %options
  store ptr %keyword.value, ptr %option.value.place
  %options.more = add i64 %options, 1
  br label %matched
matched:
  %options.next = phi i64 [ %options, %parameter ], [ %options.more, %option ]
  %k.next = add i64 %k, 1
  br label %keyword

grid:
  %grid.object = load ptr, ptr %arguments
  %grid.type = load ptr, %grid.object at 8
  %is.given = icmp eq ptr %grid.type, @PyTuple_Type
  br i1 %is.given, label %sizes, label %compute
compute:
  %template = load ptr, %self at $S_ARGUMENTS
  %dictionary = call ptr @PyDict_Copy(ptr %template)
  %no.dictionary = icmp eq ptr %dictionary, null
  br i1 %no.dictionary, label %fail, label %fill
fill:
  %i = phi i64 [ 0, %compute ], [ %i.next, %set ]
  %is.filled = icmp eq i64 %i, %parameters
  br i1 %is.filled, label %call, label %set
set:
  %key.place = getelementptr ptr, ptr %names, i64 %i
  %key = load ptr, ptr %key.place
  %item.place = getelementptr ptr, ptr %values, i64 %i
  %item = load ptr, ptr %item.place
  ; The key is there, so there is nothing that could fail.
  %set.status = call i32 @PyDict_SetItem(ptr %dictionary, ptr %key, ptr %item)
  %i.next = add i64 %i, 1
  br label %fill
call:
  %computed = call ptr @PyObject_CallOneArg(ptr %grid.object, ptr %dictionary)
  call void @Py_DecRef(ptr %dictionary)
  %is.wrong = icmp eq ptr %computed, null
  br i1 %is.wrong, label %wrong, label %type
wrong:
  ; An argument that is missing, or a name that is none of the parameters: Python says which.
  %exception = load ptr, ptr @PyExc_Exception
  %is.exception = call i32 @PyErr_ExceptionMatches(ptr %exception)
  %has.reason = icmp ne i32 %is.exception, 0
  br i1 %has.reason, label %explain, label %fail
explain:
  call void @PyErr_Clear()
  br label %in.python
type:
  %computed.type = load ptr, %computed at 8
  %is.tuple = icmp eq ptr %computed.type, @PyTuple_Type
  br i1 %is.tuple, label %sizes, label %declined

sizes:
  %extents = phi ptr [ %grid.object, %grid ], [ %computed, %type ]
  %own = phi ptr [ null, %grid ], [ %computed, %type ]
  %one = load ptr, %self at $S_ONE
  %axes = load i64, %extents at 16
  %axes.before = sub i64 %axes, 1
  %are.axes = icmp ult i64 %axes.before, 3
  br i1 %are.axes, label %x, label %declined
x:
  %x.size = load ptr, %extents at 24
  store ptr %x.size, ptr %passed
  %y.place = getelementptr ptr, ptr %passed, i64 1
  %z.place = getelementptr ptr, ptr %passed, i64 2
  store ptr %one, ptr %y.place
  store ptr %one, ptr %z.place
  %has.y = icmp ugt i64 %axes, 1
  br i1 %has.y, label %y, label %remembered
y:
  %y.size = load ptr, %extents at 32
  store ptr %y.size, ptr %y.place
  %has.z = icmp ugt i64 %axes, 2
  br i1 %has.z, label %z, label %remembered
z:
  %z.size = load ptr, %extents at 40
  store ptr %z.size, ptr %z.place
  br label %remembered

remembered:
  %list = load ptr, %self at $S_REMEMBERED
  %pair = load ptr, %list at 24
  %before = load ptr, %pair at 0
  %is.nothing = icmp eq ptr %before, @_Py_NoneStruct
  br i1 %is.nothing, label %recent, label %check
check:
  %checked = call ptr @PyObject_CallNoArgs(ptr %before)
  %is.refused = icmp eq ptr %checked, null
  br i1 %is.refused, label %fail.computed, label %is.checked
is.checked:
  call void @Py_DecRef(ptr %checked)
  br label %recent
recent:
  ; Other threads may remember others meanwhile.
  %pair.now = load ptr, %list at 24
  %entries = load ptr, %pair.now at 8
  call void @Py_IncRef(ptr %entries)
  %entry.count = load i64, %entries at 16
  %entry.places = getelementptr i8, ptr %entries, i64 24
  br label %try
try:
  %e = phi i64 [ 0, %recent ], [ %e.next, %other ]
  %are.tried = icmp eq i64 %e, %entry.count
  br i1 %are.tried, label %untried, label %try.options
try.options:
  %entry.place = getelementptr ptr, ptr %entry.places, i64 %e
  %entry.object = load ptr, ptr %entry.place
  %launcher = load ptr, %entry.object at 24
  %launcher.options = load ptr, %entry.object at 32
  %has.options = call i1 @has_items(ptr %launcher.options, ptr %option.names, ptr %option.values,
                                    i64 %options)
  br i1 %has.options, label %try.launcher, label %other
try.launcher:
  %answer = call ptr @PyObject_Vectorcall(ptr %launcher, ptr %passed, i64 %room, ptr null)
  %is.error = icmp eq ptr %answer, null
  br i1 %is.error, label %error, label %answered
answered:
  call void @Py_DecRef(ptr %answer)
  %is.declined = icmp eq ptr %answer, @_Py_NotImplementedStruct
  br i1 %is.declined, label %other, label %launched
other:
  %e.next = add i64 %e, 1
  br label %try
error:
  call void @Py_DecRef(ptr %entries)
  br label %fail.computed
launched:
  %kernel = load ptr, %entry.object at 40
  call void @Py_IncRef(ptr %kernel)
  call void @Py_DecRef(ptr %entries)
  %is.own = icmp ne ptr %own, null
  br i1 %is.own, label %launched.computed, label %success
launched.computed:
  call void @Py_DecRef(ptr %own)
  br label %success
success:
  ret ptr %kernel

untried:
  call void @Py_DecRef(ptr %entries)
  br label %declined
declined:
  %grid.here = phi ptr [ %computed, %type ], [ %own, %sizes ], [ %own, %untried ]
  %is.here = icmp ne ptr %grid.here, null
  br i1 %is.here, label %replace, label %in.python
replace:
  ; It is not computed again.
  %all = add i64 %count, %keyword.count
  %replaced = alloca ptr, i64 %all
  %all.bytes = shl i64 %all, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %replaced, ptr %arguments, i64 %all.bytes, i1 false)
  store ptr %grid.here, ptr %replaced
  %general = load ptr, %self at $S_IN_PYTHON
  %general.answer = call ptr @PyObject_Vectorcall(ptr %general, ptr %replaced, i64 %count,
                                                  ptr %keywords)
  call void @Py_DecRef(ptr %grid.here)
  ret ptr %general.answer
in.python:
  %function = load ptr, %self at $S_IN_PYTHON
  %function.answer = call ptr @PyObject_Vectorcall(ptr %function, ptr %arguments, i64 %count,
                                                   ptr %keywords)
  ret ptr %function.answer
fail.computed:
  %is.own.too = icmp ne ptr %own, null
  br i1 %is.own.too, label %drop, label %fail
drop:
  call void @Py_DecRef(ptr %own)
  br label %fail
fail:
  ret ptr null
}
"""
