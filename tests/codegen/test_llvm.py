"""Driving LLVM: the host, compiling, loading, and that neither leaks."""

import ctypes
import gc
import sys
from pathlib import Path

import pytest

from tests.codegen.forked import check_in_fork
from tilewright.codegen.llvm import (
    assembly,
    compile_to_object,
    host,
    load_object,
    module_header,
    optimized_ir,
)
from tilewright.errors import InternalError
from tilewright.target import vector_bits_of

SQUARE_ROOT = """
@table = global [4 x i64] zeroinitializer
declare double @cbrt(double)
define double @root(double %x) {
  %y = call double @cbrt(double %x)
  ret double %y
}
define i64 @get(i64 %i) {
  %p = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}
"""
NOT_SELECTABLE = """
declare <vscale x 4 x i32> @llvm.stepvector.nxv4i32()
define void @f(ptr %p) {
  %v = call <vscale x 4 x i32> @llvm.stepvector.nxv4i32()
  store <vscale x 4 x i32> %v, ptr %p
  ret void
}
"""


def module(body):
    return module_header(host()) + body


def resident_kilobytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def test_host_facts_fit_together():
    facts = host()
    assert facts is host()
    assert facts.vector_bits == vector_bits_of(facts.features)
    assert not facts.features & facts.missing_features
    assert facts.cores >= 1
    assert facts.architecture in facts.fingerprint


def test_the_fingerprint_depends_on_features_and_not_on_cores():
    facts = host()
    fewer_cores = facts._replace(cores=facts.cores + 1)
    other_features = facts._replace(features=facts.features | {"made-up"})
    assert fewer_cores.fingerprint == facts.fingerprint
    assert other_features.fingerprint != facts.fingerprint


@pytest.mark.parametrize(
    ("features", "bits"),
    [
        ({"sse2"}, 128),
        ({"avx2"}, 128),
        ({"avx2", "fma"}, 256),
        ({"avx2", "fma", "avx512f"}, 256),
        ({"avx512f", "avx512vl", "avx512bw", "avx512dq"}, 512),
    ],
)
def test_vector_width_needs_every_feature(features, bits):
    assert vector_bits_of(frozenset(features)) == bits


def test_objects_run_and_their_variables_can_be_written():
    loaded = load_object(compile_to_object(module(SQUARE_ROOT), host=host()))
    root = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded.address("root"))
    get = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("get"))
    table = (ctypes.c_int64 * 4).from_address(loaded.address("table"))
    table[2] = -7
    assert root(27.0) == pytest.approx(3.0)
    assert get(2) == -7


def test_every_load_has_variables_of_its_own():
    object_bytes = compile_to_object(module(SQUARE_ROOT), host=host())
    first, second = load_object(object_bytes), load_object(object_bytes)
    assert first.address("table") != second.address("table")


@pytest.mark.parametrize("level", [0, 1, 3])
def test_levels(level):
    text = module(SQUARE_ROOT)
    assert "cbrt" in assembly(text, host=host(), level=level)
    assert "define double @root" in optimized_ir(text, host=host(), level=level)


@pytest.mark.parametrize(
    "body",
    ["define void @f( {", "define i32 @f(i32 %x) {\n  ret i64 0\n}"],
)
def test_ir_that_llvm_rejects_is_an_internal_error(body):
    with pytest.raises(InternalError, match="LLVM does not accept the generated IR"):
        compile_to_object(module(body), host=host())


def test_missing_symbols_are_internal_errors():
    calls_nothing = "declare void @no_such_function()\n"
    calls_nothing += "define void @f() {\n  call void @no_such_function()\n  ret void\n}"
    with pytest.raises(InternalError, match=r"cannot link .*(no_such_function|'f')"):
        load_object(compile_to_object(module(calls_nothing), host=host())).address("f")
    loaded = load_object(compile_to_object(module(SQUARE_ROOT), host=host()))
    with pytest.raises(InternalError, match="cannot link 'absent'"):
        loaded.address("absent")


def test_damaged_objects_are_internal_errors():
    with pytest.raises(InternalError, match="cannot load an object"):
        load_object(b"not an object")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_fatal_errors_of_llvm_stay_in_the_child():
    assert check_in_fork(module(SQUARE_ROOT)) is None
    assert "expected" in check_in_fork(module("nonsense"))
    if host().architecture == "x86_64":
        assert check_in_fork(module(NOT_SELECTABLE))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.slow
def test_compiling_loading_and_releasing_does_not_leak():
    def cycle(count):
        for _ in range(count):
            load_object(compile_to_object(module(SQUARE_ROOT), host=host())).address("root")
        gc.collect()

    cycle(130)
    before = resident_kilobytes()
    cycle(256)
    assert (resident_kilobytes() - before) / 256 < 16
