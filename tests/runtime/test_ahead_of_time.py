"""Kernels for programs without Python: compiled, linked with C, and run."""

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tilewright.cli.main import main
from tilewright.errors import LaunchError
from tilewright.runtime.ahead_of_time import compile_ahead

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


@tw.jit
def scaled_sum(x_ptr, y_ptr, out_ptr, n, alpha, flag, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x, y = tl.load(x_ptr + i, mask=inside), tl.load(y_ptr + i, mask=inside)
    total = x * alpha + y
    tl.store(out_ptr + i, tl.where(flag, total, -total), mask=inside)


@tw.jit
def product(a_ptr, b_ptr, c_ptr, steps, N: tl.constexpr):
    """Needs memory of its own, and has all three numbers of a program."""
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    total = tl.zeros((N, N), tl.float32)
    for step in range(steps):
        a = tl.load(a_ptr + step * N * N + i * N + j)
        b = tl.load(b_ptr + step * N * N + i * N + j)
        total += tl.dot(a, b, input_precision="ieee")
    place = tl.program_id(0) + 2 * (tl.program_id(1) + 3 * tl.program_id(2))
    tl.store(c_ptr + place * N * N + i * N + j, total + place)


@tw.jit
def checks(x_ptr):
    tl.device_assert(tl.load(x_ptr) > 0, "not positive")
    tl.device_assert(tl.load(x_ptr) < 9, "too large")


def built(artifact, directory):
    """The artefact as a library that ctypes can call."""
    artifact.write(directory)
    path = directory / f"{artifact.name}.so"
    command = [COMPILER, "-shared", str(directory / f"{artifact.name}.o"), "-o", str(path)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path))


def address(array):
    return ctypes.c_void_p(array.ctypes.data)


MAIN = """
#include <stdio.h>
#include "scaled_sum.h"

int main(void) {
  static float x[1000], y[1000], out[1000];
  double total = 0;
  for (int i = 0; i < 1000; i++) x[i] = i, y[i] = 1;
  int32_t failed = scaled_sum(8, 1, 1, x, y, out, 1000, 2.0f, 1);
  for (int i = 0; i < 1000; i++) total += out[i];
  printf("%d %.1f", failed, total);
  return 0;
}
"""


@needs_compiler
def test_a_c_program_runs_a_kernel(tmp_path):
    signature = "*fp32:16, *fp32:16, *fp32:16, i32, fp32, i1, 128"
    compile_ahead(scaled_sum, signature).write(tmp_path)
    (tmp_path / "main.c").write_text(MAIN)
    files = [str(tmp_path / "main.c"), str(tmp_path / "scaled_sum.o")]
    program = str(tmp_path / "main")
    subprocess.run([COMPILER, "-Wall", "-Wextra", "-Werror", *files, "-o", program], check=True)
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    assert done.stdout == "0 1000000.0"


@needs_compiler
def test_programs_of_a_grid_in_parts(tmp_path):
    n, steps = 16, 3
    a, b = harness.numbers((2, steps, n, n))
    out = np.zeros((12, n, n), np.float32)
    library = built(compile_ahead(product, ["*fp32", "*fp32", "*fp32", "i32", n]), tmp_path)
    for first, last in ((0, 5), (5, 11)):
        numbers = [ctypes.c_uint32(k) for k in (2, 3, 2)]
        failed = library.product_programs(
            *numbers, ctypes.c_uint64(first), ctypes.c_uint64(last),
            address(a), address(b), address(out), ctypes.c_int32(steps),
        )  # fmt: skip
        assert failed == 0
    expected = (a.astype(np.float64) @ b.astype(np.float64)).sum(0)
    for place in range(11):
        np.testing.assert_allclose(out[place], expected + place, rtol=1e-4, atol=1e-4)
    assert not out[11].any()


@needs_compiler
def test_assertions_that_fail_are_numbers(tmp_path):
    artifact = compile_ahead(checks, "*i32", options={"debug": True})
    assert "1: not positive (line" in artifact.header
    library = built(artifact, tmp_path)
    for value, expected in ((5, 0), (0, 1), (9, 2)):
        x = np.int32([value])
        assert library.checks(1, 1, 1, address(x)) == expected


# What the header asks of CUDA, written down instead of done.
CUDA_H = """
#define CUDA_VERSION 13000
typedef int CUresult; typedef int CUdevice; typedef void *CUmodule, *CUfunction, *CUstream;
typedef unsigned long long CUdeviceptr;
enum { CUDA_SUCCESS = 0, CUDA_ERROR_NO_BINARY_FOR_GPU = 209 };
enum { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
       CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
#include <stdio.h>
#include <string.h>
static int major, minor;
static CUresult cuCtxGetDevice(CUdevice *d) { *d = 0; return 0; }
static CUresult cuDeviceGetAttribute(int *v, int a, CUdevice d) {
  (void)d; *v = a == 75 ? major : minor; return 0; }
static CUresult cuModuleLoadData(CUmodule *m, const void *image) { *m = (void *)image; return 0; }
static CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *n) {
  (void)n; *f = m; return 0; }
static CUresult cuFuncSetAttribute(CUfunction f, int a, int v) {
  (void)f; (void)a; (void)v; return 0; }
static CUresult cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned t,
                               unsigned u, unsigned v, unsigned s, CUstream q, void **p, void **e) {
  (void)q; (void)e; (void)s; (void)u; (void)v;
  printf("%s %u %u %u threads %u n %d", memcmp(f, "\\x7f" "ELF", 4) ? "ptx" : "cubin", x, y, z, t,
         *(int *)p[3]);
  return 0; }
"""
GPU_MAIN = """
#include <stdlib.h>
#include "cuda.h"
#include "scaled_sum.h"

int main(int count, char **given) {
  major = atoi(given[1]), minor = atoi(given[2]);
  (void)count;
  CUresult result = scaled_sum_cuda(0, 8, 2, 1, 0, 0, 0, 1000, 2.0f, 1);
  printf(" result %d", result);
  return 0;
}
"""


@needs_compiler
def test_one_artefact_has_code_for_several_gpus(tmp_path):
    signature = "*fp32:16, *fp32:16, *fp32:16, i32, fp32, i1, 128"
    artifact = compile_ahead(
        scaled_sum, signature, targets=("cpu", "sm_80", "sm_90a"), options={"num_warps": 2}
    )
    artifact.write(tmp_path)
    (tmp_path / "cuda.h").write_text(CUDA_H)
    (tmp_path / "main.c").write_text(GPU_MAIN)
    files = [str(tmp_path / "main.c"), str(tmp_path / "scaled_sum.o")]
    program = str(tmp_path / "main")
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run([COMPILER, *warnings, *files, "-o", program], check=True)

    def run(major, minor):
        command = [program, str(major), str(minor)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    for capability in ((8, 0), (8, 6), (9, 0)):
        assert run(*capability).endswith("8 2 1 threads 64 n 1000 result 0")
    assert run(7, 5) == " result 209"


@pytest.mark.parametrize("package", ["tilewright", "triton"])
def test_the_command_writes_both_files(tmp_path, capsys, package):
    source = tmp_path / "kernels.py"
    source.write_text(
        f"import {package}\nimport {package}.language as tl\n\n\n"
        f"@{package}.jit\ndef fill(x_ptr, value, N: tl.constexpr):\n"
        "    tl.store(x_ptr + tl.arange(0, N), value)\n"
    )
    command = ["compile", str(source), "-n", "fill", "-s", "*i32, i32, 16", "-on", "fill16"]
    assert main([*command, "-o", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "fill16.h"), str(tmp_path / "fill16.o"),
    ]  # fmt: skip
    assert "int32_t fill16(" in (tmp_path / "fill16.h").read_text()


@tw.jit
def chosen(x_ptr, HOW: tl.constexpr):
    tl.static_assert(HOW in ("i32", "relu"))
    tl.store(x_ptr, 1)


def test_texts_are_constants():
    for signature in ("*i32, 'i32'", "*i32, relu", '*i32, "relu"', ["*i32", "relu"]):
        assert "int32_t chosen(" in compile_ahead(chosen, signature).header


REST = "*fp32, *fp32, i32, fp32, i1"


def test_the_directory_is_made(tmp_path, capsys):
    source = tmp_path / "kernels.py"
    source.write_text("import tilewright\n@tilewright.jit\ndef nothing(x_ptr):\n    pass\n")
    command = ["compile", str(source), "-n", "nothing", "-s", "*i32", "-o"]
    assert main([*command, str(tmp_path / "a" / "b")]) == 0
    assert (tmp_path / "a" / "b" / "nothing.o").is_file()
    with pytest.raises(SystemExit):
        main([*command, str(source / "below")])
    said = capsys.readouterr().err
    assert re.search(r"^tilewright: .*nothing\.h cannot be written: .*\n  try: ", said)


@pytest.mark.parametrize(
    ("signature", "targets", "message"),
    [
        ("*fp32", ("cpu",), "the signature has 1 items, `scaled_sum` has the parameters x_ptr"),
        ("*fp32:3, *fp32, *fp32, i32, fp32, i1, 8", ("cpu",), "'\\*fp32:3' has the hint '3'"),
        ("*fp32, *fp32, *fp32, i32, fp32, i1, 8", ("sm_99",), "no target 'sm_99'"),
        (f"*fp31:16, {REST}, 8", ("cpu",), "`x_ptr`: `\\*fp31` is no type\n.*mean `\\*fp32`"),
        (f"*f32, {REST}, 8", ("cpu",), "`\\*f32` is no type\n.*did you mean `\\*fp32`"),
        (f"fp32*, {REST}, 8", ("cpu",), "`fp32\\*` is no type\n.*did you mean `\\*fp32`"),
        (f"quux, {REST}, 8", ("cpu",), "`quux` is no type\n.*the types are i1, "),
        (f"x_ptr=*fp32, {REST}, 8", ("cpu",), "in the order .*: write `\\*fp32` for `x_ptr`"),
        (f"*fp32, {REST}, i32", ("cpu",), "`BLOCK` is tl.constexpr, and `i32` .*\n.*give a value"),
        (f"*fp32, {REST}, *f32", ("cpu",), "`BLOCK` is tl.constexpr, and `\\*f32` is no value"),
        (f"*fp32, {REST}, BLOCK=8", ("cpu",), "`BLOCK=8` is no value\n.*write `8` for `BLOCK`"),
    ],
)
def test_what_does_not_fit_is_said(signature, targets, message):
    with pytest.raises(LaunchError, match=message):
        compile_ahead(scaled_sum, signature, targets=targets)
