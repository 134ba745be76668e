"""Arrays that both threads and copies by tensor maps read and write: fences stand where they must.

The race detector runs along in `check`.
"""

import re

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import check, ptx_of, small_integers
from tilewright.emulator import Emulator

FENCE = r"fence\.proxy\.async(\.global)?;"
SHAPE = (32, 64)


@tw.jit
def stored_then_loaded_kernel(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr, MEET: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(x_ptr + at, 2 * tl.load(x_ptr + at))
    if MEET:
        tl.debug_barrier()
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [M, N])
    tl.store(y_ptr + at, x.load([0, 0]) + 1)


@tw.jit
def in_a_loop_kernel(x_ptr, y_ptr, steps, M: tl.constexpr, N: tl.constexpr):
    """What one iteration stores the next one loads."""
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [M, N])
    for _ in range(steps):
        found = x.load([0, 0])
        tl.store(x_ptr + at, found + 1)
    tl.store(y_ptr + at, tl.load(x_ptr + at))


@tw.jit
def copied_then_loaded_kernel(x_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [M, N])
    x.store([0, 0], tl.load(y_ptr + at) + 1)
    tl.store(y_ptr + at, tl.load(x_ptr + (M - 1) * N - at + 2 * tl.arange(0, N)[None, :]))


@tw.jit
def stored_then_copied_kernel(x_ptr, y_ptr, steps, M: tl.constexpr, N: tl.constexpr):
    """Threads and copies write to the same places, in this order."""
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [M, N])
    for step in range(steps):
        tl.store(x_ptr + at, tl.load(y_ptr + at) + step)
        x.store([0, 0], tl.load(y_ptr + at) + 2 * step)


@tw.jit
def apart_kernel(x_ptr, y_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out_ptr + at, tl.load(y_ptr + at))
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [M, N])
    tl.store(out_ptr + at, x.load([0, 0]) + tl.load(out_ptr + at))


@tw.jit
def ticket_kernel(x_ptr, ticket_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr):
    """The second program reads what the first one has stored."""
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [M, N])
    if tl.program_id(0) == 0:
        tl.store(x_ptr + at, tl.load(x_ptr + at) + 1)
        tl.atomic_add(ticket_ptr, 1, sem="release")
    else:
        while tl.atomic_add(ticket_ptr, 0, sem="acquire") == 0:
            pass
        tl.store(y_ptr + at, x.load([0, 0]))


def arrays(count=2):
    return [small_integers(SHAPE, np.float32, number) for number in range(count)]


SIZES = {"M": SHAPE[0], "N": SHAPE[1]}


@pytest.mark.parametrize("meet", [False, True])
def test_a_store_and_a_copy(meet):
    check(stored_then_loaded_kernel, (1,), arrays(), MEET=meet, **SIZES)
    ptx = ptx_of(stored_then_loaded_kernel, arrays(), MEET=meet, **SIZES)
    assert len(re.findall(FENCE, ptx)) == 1


@pytest.mark.parametrize("num_stages", [1, 3])
def test_in_a_loop(num_stages):
    values = [*arrays(), 3]
    check(in_a_loop_kernel, (1,), values, num_stages=num_stages, **SIZES)
    assert re.search(FENCE, ptx_of(in_a_loop_kernel, values, **SIZES))


def test_a_copy_and_a_load():
    """The copy has ended before a thread loads: its end is what a fence would be."""
    check(copied_then_loaded_kernel, (1,), arrays(), **SIZES)
    ptx = ptx_of(copied_then_loaded_kernel, arrays(), **SIZES)
    assert re.search(r"cp\.async\.bulk\.wait_group\s+0;", ptx)


def test_stores_of_threads_and_copies():
    values = [*arrays(), 3]
    check(stored_then_copied_kernel, (1,), values, **SIZES)
    assert re.search(FENCE, ptx_of(stored_then_copied_kernel, values, **SIZES))


def test_arrays_that_are_apart_need_none():
    check(apart_kernel, (1,), arrays(3), **SIZES)
    ptx = ptx_of(apart_kernel, arrays(3), **SIZES)
    assert "cp.async.bulk.tensor" in ptx
    assert not re.search(FENCE, ptx)


def test_what_another_program_has_stored():
    x, y, ticket = *arrays(), np.zeros(1, np.int32)
    expected = x + 1
    harness.run(ticket_kernel, (2,), [x, ticket, y], **SIZES)
    np.testing.assert_array_equal(y, expected)
    ptx = ptx_of(ticket_kernel, [x, ticket, y], **SIZES)
    spin = ptx.index("atom")
    assert re.search(FENCE, ptx[spin:])


@pytest.mark.parametrize(
    ("kernel", "more"),
    [
        (stored_then_loaded_kernel, {"MEET": True}),
        (in_a_loop_kernel, {}),
        (stored_then_copied_kernel, {}),
    ],
)
def test_a_missing_fence_is_found(kernel, more):
    values = arrays() if more else [*arrays(), 3]
    made = harness.kernel_of(kernel, values, **more, **SIZES)
    without = re.sub(FENCE, "", made.ptx)
    assert without != made.ptx
    report = Emulator(without).launch(
        made.symbol, (1, 1, 1), (128,), harness.taken(made, values),
        shared_bytes=made.shared_bytes, buffers=harness.unread(made, values), races=True,
    )  # fmt: skip
    assert {finding.kind for finding in report.findings} == {"missing proxy fence"}
    assert "fence.proxy.async` of global memory" in str(report)
