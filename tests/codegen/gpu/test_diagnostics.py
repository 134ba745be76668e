"""Printing and assertions on the emulated GPU: what eager mode prints and refuses, too."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tilewright.errors import LaunchError
from tilewright.ir.types import DTYPES

TARGETS = ["sm_75", "sm_80", "sm_90a"]


@tw.jit
def printing_kernel(x_ptr, n, M: tl.constexpr, N: tl.constexpr, HEX: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    if tl.program_id(0) == 1:
        tl.device_print("100% of x: ", x, n, hex=HEX)
        tl.device_print("here")
        tl.device_print("n", n)


def lines_of(capfd):
    return sorted(capfd.readouterr().out.splitlines())


@pytest.mark.parametrize("is_hex", [False, True])
@pytest.mark.parametrize(
    "name", ["i1", "i8", "u16", "i32", "i64", "u64", "fp16", "bf16", "fp32", "fp64", "fp8e5"]
)
def test_prints_what_eager_mode_prints(name, is_hex, capfd):
    x = np.arange(-7, 8).reshape(3, 5).astype(DTYPES[name].numpy)
    printing_kernel.debug[(2,)](x, 77, M=3, N=5, HEX=is_hex)
    expected = lines_of(capfd)
    for target in TARGETS:
        with tw.emulate(target, races=True):
            printing_kernel[(2,)](x, 77, M=3, N=5, HEX=is_hex)
        assert lines_of(capfd) == expected
    assert len(expected) == 18


@tw.jit(debug=True)
def checked_kernel(x_ptr, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(3):
        x = tl.load(x_ptr + place, mask=place < n, other=-1)
        tl.device_assert(x < 10, "too large", mask=place < n)
        tl.device_assert(n - i < 90, "too many")
        total += tl.sum(x.to(tl.float32))
    tl.store(x_ptr + place, total.to(tl.int32), mask=place < n)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("block", [64, 100])
def test_assertions_that_hold_change_nothing(target, block):
    x = np.arange(9, dtype=np.int32)
    with tw.emulate(target, races=True):
        kernel = checked_kernel[(2,)](x, 9, BLOCK=block)
    assert "tilewright_failure" in kernel.asm["ptx"]
    assert (x != np.arange(9)).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "message"), [(12, "too large"), (95, "too many")])
def test_an_assertion_that_fails_names_its_line(target, n, message):
    x = np.arange(n, dtype=np.int32) % (13 if n == 12 else 10)
    given = x.copy()
    with tw.emulate(target, races=True), pytest.raises(LaunchError) as raised:
        checked_kernel[(3,)](x, n, BLOCK=128)
    text = str(raised.value)
    assert f"device-side assert: {message}" in text
    assert "test_diagnostics.py:" in text
    assert "tl.device_assert(" in text.splitlines()[1]
    np.testing.assert_array_equal(x, given)  # no program came to its end


def test_overflow_is_an_assertion():
    @tw.jit
    def wrapping(x_ptr):
        tl.store(x_ptr, tl.load(x_ptr) + 2**30)

    x = np.full(1, 2**30, np.int32)
    with tw.emulate(), pytest.raises(LaunchError, match="int32 overflow"):
        wrapping[(1,)](x, debug=True)


def test_kernels_without_diagnostics_have_no_stack():
    ptx = harness.TARGETS["h100"]
    x = np.ones(64, np.int32)
    function, _ = harness.lowered(checked_kernel, [x, 9], {"BLOCK": 64})
    harness.compiled(function, ptx)  # asserts that there is none


@tw.jit
def halves_kernel(x_ptr, out_ptr):
    low, high = tl.split(tl.load(x_ptr + tl.arange(0, 2)))
    if low < high:
        tl.store(out_ptr, high - low)


@pytest.mark.parametrize("num_warps", [1, 8])
def test_a_pair_is_split_into_scalars(num_warps):
    x, out = np.array([3, 10], np.int32), np.zeros(1, np.int32)
    with tw.emulate(races=True):
        halves_kernel[(1,)](x, out, num_warps=num_warps)
    assert out[0] == 7
