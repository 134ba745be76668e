"""What tests of libdevice share: running a function in every executor, and the reference values."""

from functools import cache
from pathlib import Path

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tests.language.eager import array, tile

__all__ = ["EXECUTORS", "bits", "reference", "run"]

EXECUTORS = ("eager", "cpu")


@tw.jit
def unary(x_ptr, out_ptr, f: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, f(tl.load(x_ptr + i)))


@tw.jit
def binary(x_ptr, y_ptr, out_ptr, f: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, f(tl.load(x_ptr + i), tl.load(y_ptr + i)))


@tw.jit
def ternary(x_ptr, y_ptr, z_ptr, out_ptr, f: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out_ptr + i, f(tl.load(x_ptr + i), tl.load(y_ptr + i), tl.load(z_ptr + i)))


@tw.jit
def quaternary(x_ptr, y_ptr, z_ptr, w_ptr, out_ptr, f: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y, z, w = tl.load(x_ptr + i), tl.load(y_ptr + i), tl.load(z_ptr + i), tl.load(w_ptr + i)
    tl.store(out_ptr + i, f(x, y, z, w))


KERNELS = (unary, binary, ternary, quaternary)


def run(name, *operands, executor="eager"):
    """The function's results: computed eagerly, or by a compiled kernel of the same dtypes."""
    function = getattr(tl.extra.libdevice, name)
    operands = [np.ascontiguousarray(x) for x in operands]
    expected = array(function(*map(tile, operands)))
    if executor == "eager":
        return expected
    out = np.empty_like(expected)
    KERNELS[len(operands) - 1][(1,)](*operands, out, f=function, N=out.size)
    return out


def bits(x):
    """The bits of floats, with one NaN, so that equality is that of numbers and signs of zeros."""
    x = np.asarray(x)
    if x.dtype.kind != "f":
        return x
    return np.where(np.isnan(x), np.nan, x).view(f"u{x.dtype.itemsize}")


@cache
def reference():
    """Rows of the reference file by function, as fp64 arrays: arguments, value, size."""
    text = (Path(__file__).parent / "libdevice_reference.txt").read_text(encoding="utf-8")
    rows = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line.isidentifier():
            name = line
            rows[name] = []
        else:
            rows[name].append([float.fromhex(word) for word in line.split()])
    return {name: _columns(name, lines) for name, lines in rows.items()}


def _columns(name, lines):
    arity = 2 if name in {"atan2", "hypot", "rhypot", "jn", "yn"} else 1
    complete = [row if len(row) == arity + 2 else [*row, row[arity]] for row in lines]
    columns = np.array(complete).T
    return columns[:arity], columns[arity], np.abs(columns[arity + 1])
