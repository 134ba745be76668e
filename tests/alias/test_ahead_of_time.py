"""Triton's own commands for C programs: `triton.tools.compile` and `triton.tools.link`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.alias.ahead_of_time import target_of
from tilewright.errors import LaunchError

ROOT = Path(__file__).resolve().parent.parent.parent
COMPILER = shutil.which("cc")

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, y_ptr, n, stride, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * stride, mask=i < n)
    tl.store(y_ptr + i, x * factor, mask=i < n)
"""

# What the sources ask of CUDA, written down instead of done.
CUDA_H = """#pragma once
#include <stdio.h>
#include <string.h>
typedef int CUresult; typedef const char *CUmodule; typedef void *CUfunction, *CUstream;
typedef unsigned long long CUdeviceptr;
enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
static inline CUresult cuModuleLoadData(CUmodule *m, const void *image) {
  *m = image; printf("load "); return 0; }
static inline CUresult cuModuleUnload(CUmodule m) { (void)m; printf("unload "); return 0; }
static inline CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *n) {
  *f = (void *)m; return strlen(n) == 0; }
static inline CUresult cuFuncSetAttribute(CUfunction f, int a, int v) {
  (void)f; (void)a; (void)v; return 0; }
static inline CUresult cuLaunchKernel(
    CUfunction f, unsigned x, unsigned y, unsigned z, unsigned t, unsigned u, unsigned v,
    unsigned s, CUstream q, void **p, void **e) {
  int count = 0;
  (void)f; (void)u; (void)v; (void)s; (void)q; (void)e;
  while (p[count]) count++;
  printf("%u,%u,%u of %u: %d arguments, n %d, factor %.1f\\n", x, y, z, t, count, *(int *)p[2],
         *(float *)p[count - 1]);
  return 0; }
"""

MAIN = """
#include "cuda.h"
#include "all.h"

int main(void) {
  int failed = scale(0, 32, 64, 256, 1, 2.5f, 0);   /* divisible by 16, stride 1 */
  failed += scale_default(0, 32, 64, 255, 3, 2.5f);  /* neither */
  failed += scale(0, 32, 64, 256, 1, 2.5f, 1);       /* another block */
  failed += scale(0, 32, 64, 0, 1, 2.5f, 0);         /* no program */
  printf("%d of %d", scale(0, 0, 0, 0, 0, 0, 2), scale_get_num_algos());
  load_scale(), unload_scale();
  return failed;
}
"""


def run(*arguments, cwd):
    command = [sys.executable, "-m", "tilewright", "-m", *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def compiled(signature, cwd, *more):
    (cwd / "kernels.py").write_text(KERNELS)
    named = ["kernels.py", "-n", "scale", "-s", signature, "-g", "(n + 127) / 128, 1, 2"]
    return run("triton.tools.compile", *named, *more, cwd=cwd)


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_a_program_chooses_among_kernels(tmp_path):
    files = []
    for signature in (
        "*fp32:16, *fp32:16, i32:16, i32:1, fp32, 128",
        "*fp32, *fp32, i32, i32, fp32, 128",
        "*fp32, *fp32, i32, i32, fp32, 64",
    ):
        done = compiled(signature, tmp_path, "-t", "cuda:80:32", "-o", "made", "-w", "2")
        assert done.returncode == 0, done.stderr
        files += done.stdout.split()
    assert [name.rpartition("_")[2] for name in files[:2]] == ["0d1d2d3c45.c", "0d1d2d3c45.h"]
    headers, sources = files[1::2], files[::2]
    done = run("triton.tools.link", *headers, "-o", "all", cwd=tmp_path)
    assert done.stdout.split() == ["all.h", "all.c"], done.stderr
    (tmp_path / "cuda.h").write_text(CUDA_H)
    (tmp_path / "main.c").write_text(MAIN)
    warnings = ["-Wall", "-Wextra", "-Werror", "-I."]
    command = [COMPILER, *warnings, "main.c", "all.c", *sources, "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run(tmp_path / "main", check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == [
        "load 2,1,2 of 64: 4 arguments, n 256, factor 2.5",
        "load 2,1,2 of 64: 5 arguments, n 255, factor 2.5",
        "load 2,1,2 of 64: 5 arguments, n 256, factor 2.5",
        "1 of 2unload unload unload ",
    ]


def test_what_cannot_be_compiled_is_said(tmp_path):
    done = compiled("*fp32, *fp32, i32, i32, fp32, 128", tmp_path, "-t", "hip:gfx942:64")
    assert done.returncode == 2
    assert "there is no code in C for hip:gfx942:64" in done.stderr
    done = compiled("*fp32", tmp_path, "-n", "scales")
    assert done.returncode == 2
    assert "defines no kernel `scales`" in done.stderr
    assert "it defines `scale`" in done.stderr
    (tmp_path / "kernels.py").unlink()
    named = ["kernels.py", "-n", "scale", "-s", "*fp32", "-g", "1, 1, 1"]
    done = run("triton.tools.compile", *named, cwd=tmp_path)
    assert "there is no file kernels.py" in done.stderr
    (tmp_path / "empty.h").write_text("")
    done = run("triton.tools.link", "empty.h", "-o", "all", cwd=tmp_path)
    assert (done.returncode, "no kernel in these headers" in done.stderr) == (2, True)


def test_targets_in_the_words_of_triton():
    assert target_of("cuda:90:32") == "sm_90a"
    assert target_of("cuda:80") == "sm_80"
    with pytest.raises(LaunchError, match="tilewright compile"):
        target_of("cpu")
