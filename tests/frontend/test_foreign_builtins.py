"""Functions of other packages that are marked as Triton marks its own, and names they rely on."""

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.harness import kernel, returned, run_traced
from tilewright.errors import CompileError


def marked(function):
    function.__triton_builtin__ = True
    return function


@marked
def if_given(mask, value):
    return tl.constexpr(None) if isinstance(mask, tl.constexpr) and mask.value is None else value


@marked
def next_multiple(n, *, of):
    assert isinstance(n, tl.constexpr)
    return tl.constexpr(-(-n.value // of.value) * of.value)


def load(x_ptr, mask: tl.constexpr):
    offsets = tl.arange(0, next_multiple(3, of=4))
    inside = offsets < 3 if mask else None
    return tl.load(x_ptr + offsets, inside, other=if_given(inside, 7.0))


@pytest.mark.parametrize(("mask", "last"), [(True, 7.0), (False, 3.0)])
def test_they_see_constants_as_such(mask, last):
    x = np.arange(8, dtype=np.float32)
    (loaded,) = run_traced(kernel(load), x, mask=mask)
    assert loaded.tolist() == [0.0, 1.0, 2.0, last]


def powers(x_ptr, bits: tl.constexpr):
    kind: tl.constexpr = tl.core.get_int_dtype(bitwidth=bits, signed=False)
    shift: tl.constexpr = tl.standard._log2(tl.core._unwrap_if_constexpr(bits))
    return tl.load(x_ptr).to(kind) << shift


def test_names_of_triton_that_other_packages_use():
    assert returned(kernel(powers), np.full(1, 2**12 + 3), bits=16) == [48]


def test_integer_types_by_their_size():
    assert tl.core.get_int_dtype(1, signed=True) is tl.int1
    assert tl.core.get_int_dtype(64, signed=True) is tl.int64
    with pytest.raises(CompileError, match="no integer type of 128 bits"):
        tl.core.get_int_dtype(128, signed=True)
