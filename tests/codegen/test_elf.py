"""The linker for x86-64 objects: what it places where, what it refuses, and that it cleans up."""

import ctypes
import gc
import struct
import sys
from pathlib import Path

import pytest

from tilewright.codegen import elf
from tilewright.codegen.llvm import compile_to_object, host, load_object, module_header
from tilewright.codegen.loading import find_in_process

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or host().architecture != "x86_64",
    reason="other systems use LLVM's linker",
)

EVERYTHING = """
@constants = private constant [3 x double] [double 1.5, double 2.5, double 4.0]
@number = global i64 7
@zeros = global [100 x i64] zeroinitializer, align 64
@reached = global ptr @number
@functions = constant [2 x ptr] [ptr @twice, ptr @cbrt]
@PyLong_Type = external global i8
declare double @cbrt(double)

define double @twice(double %x) {
  %y = fadd double %x, %x
  ret double %y
}
define double @pick(i64 %i) {
  %p = getelementptr double, ptr @constants, i64 %i
  %v = load double, ptr %p
  ret double %v
}
define i64 @count() {
  %n = load i64, ptr @number
  %n1 = add i64 %n, 1
  store i64 %n1, ptr @number
  ret i64 %n1
}
define double @apply(i64 %i, double %x) {
  %p = getelementptr ptr, ptr @functions, i64 %i
  %f = load ptr, ptr %p
  %y = call double %f(double %x)
  ret double %y
}
define double @root(double %x) {
  %y = call double @cbrt(double %x)
  %z = call double @cbrt(double %y)
  ret double %z
}
define ptr @int_type() {
  ret ptr @PyLong_Type
}
define i64 @choose(i64 %i) {
  switch i64 %i, label %other [ i64 0, label %a  i64 1, label %b  i64 2, label %c
                                i64 3, label %d  i64 4, label %e  i64 5, label %f ]
a:
  call void @touch(i64 10)
  ret i64 11
b:
  call void @touch(i64 20)
  ret i64 22
c:
  call void @touch(i64 35)
  ret i64 33
d:
  call void @touch(i64 47)
  ret i64 44
e:
  call void @touch(i64 51)
  ret i64 50
f:
  call void @touch(i64 69)
  ret i64 66
other:
  ret i64 -1
}
define void @touch(i64 %v) noinline {
  store volatile i64 %v, ptr @zeros
  ret void
}
"""


def compile_body(body, level=3):
    return compile_to_object(module_header(host()) + body, host=host(), level=level)


def mapping_of(address):
    """Return the access rights of a mapped address, or None."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, rights = line.split()[:2]
        first, last = (int(part, 16) for part in area.split("-"))
        if first <= address < last:
            return rights[:3]
    return None


def function(image, name, *types):
    return ctypes.CFUNCTYPE(*types)(image.addresses[name])


@pytest.fixture(params=[0, 3])
def image(request):
    return elf.link(compile_body(EVERYTHING, request.param), find_in_process)


def test_code_constants_variables_and_foreign_functions(image):
    double, i64 = ctypes.c_double, ctypes.c_int64
    assert function(image, "pick", double, i64)(1) == 2.5
    assert [function(image, "count", i64)() for _ in range(3)] == [8, 9, 10]
    assert i64.from_address(image.addresses["number"]).value == 10
    reached = ctypes.c_void_p.from_address(image.addresses["reached"])
    assert reached.value == image.addresses["number"]
    apply = function(image, "apply", double, i64, double)
    assert apply(0, 3.0) == 6.0
    assert apply(1, 27.0) == pytest.approx(3.0)
    assert function(image, "root", double, double)(512.0) == pytest.approx(2.0)
    assert function(image, "int_type", ctypes.c_void_p)() == id(int)
    choose = function(image, "choose", i64, i64)
    assert [choose(i) for i in range(7)] == [11, 22, 33, 44, 50, 66, -1]
    assert i64.from_address(image.addresses["zeros"]).value == 69
    assert image.addresses["zeros"] % 64 == 0


def test_no_memory_is_both_writable_and_executable(image):
    assert mapping_of(image.addresses["twice"]) == "r-x"
    assert mapping_of(image.addresses["number"]) == "rw-"
    assert mapping_of(image.addresses["zeros"]) == "rw-"


def test_memory_is_given_back():
    image = elf.link(compile_body(EVERYTHING), find_in_process)
    addresses = image.addresses
    del image
    gc.collect()
    assert mapping_of(addresses["number"]) is None


def test_a_missing_name_is_told():
    body = "declare void @no_such()\ndefine void @f() {\n  call void @no_such()\n  ret void\n}"
    with pytest.raises(LookupError, match="no_such"):
        elf.link(compile_body(body), find_in_process)


def test_a_weak_name_may_be_missing():
    body = "declare extern_weak void @no_such()\ndefine ptr @f() {\n  ret ptr @no_such\n}"
    image = elf.link(compile_body(body), find_in_process)
    assert function(image, "f", ctypes.c_void_p)() is None


def test_what_it_does_not_know_is_refused():
    good = compile_body(EVERYTHING)
    aarch64 = good[:18] + struct.pack("<H", 183) + good[20:]
    thread_local = compile_body(
        "@t = thread_local global i32 1\n"
        "define i32 @f() {\n  %v = load i32, ptr @t\n  ret i32 %v\n}"
    )
    for data in (b"", b"\x7fELF", b"not an object" * 20, aarch64, thread_local):
        with pytest.raises(elf.Refused):
            elf.link(data, find_in_process)


def test_a_part_of_an_object_is_refused():
    good = compile_body(EVERYTHING)
    for size in range(0, len(good), 7):
        with pytest.raises(elf.Refused):
            elf.link(good[:size], find_in_process)


def test_llvm_links_what_is_refused(monkeypatch):
    def refuse(*_):
        raise elf.Refused("for the test")

    monkeypatch.setattr(elf, "link", refuse)
    loaded = load_object(compile_body(EVERYTHING))
    pick = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(loaded.address("pick"))
    assert pick(2) == 4.0
