"""Errors of the language and of launches say what to do instead, not only what is wrong."""

import re

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.language.eager import pointer, scalar, tile
from tilewright.errors import TilewrightError
from tilewright.tools.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.usefixtures("machine")

X, Y = (tile(np.ones(shape, np.float32)) for shape in ((4, 8), (4, 4)))
COUNTS = tile(np.arange(4, dtype=np.int32))

CASES = {
    "dot_ranks": (lambda: tl.dot(COUNTS, COUNTS), "at least 2 axes", "x"),
    "dot_sizes": (lambda: tl.dot(X, Y), "inner sizes differ", "transpose"),
    "dot_batches": (
        lambda: tl.dot(tl.zeros((2, 4, 4), tl.float32), tl.zeros((3, 4, 4), tl.float32)),
        "batch sizes differ",
        "broadcast",
    ),
    "dot_accumulator": (
        lambda: tl.dot(Y, Y, acc=tl.zeros((4, 8), tl.float32)),
        "accumulator",
        r"tl\.zeros\(\[4, 4\]",
    ),
    "reshape": (lambda: X.reshape(5, 5), "25", "one product"),
    "broadcast": (lambda: tl.broadcast_to(X, (3, 8)), "does not broadcast", "axes of size 1"),
    "axis": (lambda: tl.sum(X, axis=2), "no axis 2", "from 0 to 1"),
    "axis_of_scalar": (lambda: tl.expand_dims(scalar(1, "i32"), 3), "no axis", "count from"),
    "permute": (lambda: X.permute(0, 0), "is not an order", "each axis once"),
    "trans": (COUNTS.trans, "at least 2 axes", r"x\[None, :\]"),
    "flip": (lambda: tl.flip(scalar(1.0, "fp32")), "got the scalar", "pass a tile"),
    "arange": (lambda: tl.arange(4, 4), "arange", r"tl\.arange\(0, n\)"),
    "split": (lambda: tl.split(X), "last axis must have size 2", "reshape"),
    "gather": (lambda: tl.gather(X, X, axis=0), "must be of integers", r"\.to\(tl\.int32\)"),
    "histogram": (lambda: tl.histogram(X, 4), "histogram", r"\.to\(tl\.int32\)"),
    "topk": (lambda: tl.topk(COUNTS, 9), "k must be between", "at most"),
    "invert": (lambda: ~X, "~", "bitcast"),
    "bitcast": (lambda: X.to(tl.int16, bitcast=True), "bits", r"x\.to\(dtype\)"),
    "const": (
        lambda: tl.store(pointer(np.zeros(1, np.float32), const=True), 1.0),
        "declared const",
        "take `const` from",
    ),
    "pointer": (
        lambda: pointer(np.zeros(1, np.float32)) * 2,
        "not defined for a pointer",
        r"p\.to\(tl\.int64\)",
    ),
    "numbers": (lambda: tl.exp(pointer(np.zeros(1, np.float32))), "exp", r"to\(tl\.int64\)|load"),
    "sum_of_pointers": (
        lambda: tl.sum(pointer(np.zeros(1, np.float32))[None], axis=0),
        "expected numbers",
        "load",
    ),
    "two_ellipses": (lambda: X[..., ...], "more than one", "write `:`"),
    "many_indices": (lambda: X[:, :, :], "too many indices", "None"),
    "outside": (lambda: X[0, 9], "outside of axis 1", "0 to 7"),
    "number_of_python": (lambda: float(X), "cannot become a Python float", "reduce it"),
    "truth": (lambda: bool(X), "ambiguous", "tl.where"),
    "index": (lambda: range(4)[X], "an index must be an integer", r"\.to\(tl\.int32\)"),
    "block_pointer": (lambda: tl.advance(X, (1, 1)), "block pointer", "tl.make_block_ptr"),
    "range_step": (lambda: list(tl.range(0, 4, 0)), "must not be 0", "positive step"),
    "static_range_step": (lambda: tl.static_range(0, 4, 0), "must not be 0", "positive step"),
    "dtype": (lambda: tl.core.get_int_dtype(24, True), "24 bits", "8, 16, 32 or 64"),
    "device_print": (lambda: tl.device_print(3, X), "prefix must be a string", "tl.device_print"),
    "cdiv": (lambda: tl.cdiv(4, 0), "division by zero", "positive"),
    "huge": (lambda: tl.to_tensor(2**70), "64 bits", "float"),
    "descriptor_axes": (
        lambda: tl.make_tensor_descriptor(pointer(np.zeros(4, np.float32)), [], [], []),
        "axes",
        "fewer",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_mistakes_in_the_language(name):
    mistake, words, way_out = CASES[name]
    with pytest.raises(TilewrightError) as raised:
        mistake()
    assert words in raised.value.message
    assert re.search(way_out, raised.value.hint)


@tw.jit
def fill(x_ptr, n: tl.int32, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), n)


@tw.jit
def halve(x_ptr, n):
    tl.store(x_ptr, halve_of(n))


def halve_of(n):
    return n


LAUNCHES = {
    "no_number": (lambda x: fill[1,](x, x, 4), "takes a number", "pointer"),
    "four_axes": (lambda x: fill[1, 2, 3, 4](x, 1, 4), "1 to 3 sizes", "join some axes"),
    "too_many": (lambda x: fill[2**31,](x, 1, 4), "2\\*\\*31 - 1", "larger blocks"),
    "descriptor_of_nothing": (
        lambda x: fill[1,](TensorDescriptor(5, [4], [1], [4]), 1, 4),
        "is an array, not a int",
        "from_tensor",
    ),
    "descriptor_sizes": (
        lambda x: fill[1,](TensorDescriptor(x, [4], [1], [2, 2]), 1, 4),
        "a number for each axis",
        "from_tensor",
    ),
    "descriptor_block": (
        lambda x: fill[1,](TensorDescriptor(x, [4], [1], [0]), 1, 4),
        "must be positive",
        "at least 1",
    ),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_mistakes_in_launches(name):
    mistake, words, way_out = LAUNCHES[name]
    x = np.zeros(16, np.float32)
    with pytest.raises(TilewrightError) as raised:
        mistake(x)
    assert re.search(words, raised.value.message)
    assert re.search(way_out, raised.value.hint)


def test_a_name_like_one_that_is_there():
    @tw.jit
    def kernel(x_ptr):
        tl.store(x_ptr, CASE)  # noqa: F821 - that is the mistake

    with pytest.raises(TilewrightError, match="`CASE` is not defined") as raised:
        kernel[1,](np.zeros(1, np.float32))
    assert raised.value.hint == "did you mean `CASES`? define or import it above the kernel"
