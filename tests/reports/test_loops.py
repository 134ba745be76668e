"""Public reports about loops, branches and arguments (triton-lang/triton, by number)."""

# The kernels are written as their authors would.
# ruff: noqa: PLR1711

import numpy as np
import pytest

import tilewright.language as tl
from tilewright import jit


@jit
def walk(x_ptr, out_ptr, start, stop, step):
    total = 0.0
    count = 0
    for i in tl.range(start, stop, step):
        total += tl.load(x_ptr + i)
        count += 1
    tl.store(out_ptr, total)
    tl.store(out_ptr + 1, count)


@jit
def walk_by_constant(x_ptr, out_ptr, start, stop, step: tl.constexpr):
    total = 0.0
    count = 0
    for i in range(start, stop, step):
        total += tl.load(x_ptr + i)
        count += 1
    tl.store(out_ptr, total)
    tl.store(out_ptr + 1, count)


@pytest.mark.parametrize("kernel", [walk, walk_by_constant])
@pytest.mark.parametrize(
    ("start", "stop", "step"),
    [(88, -1, -8), (5, 10, -3), (10, 5, 3), (0, 96, 7), (95, 0, -1), (3, 4, 1), (0, 0, -2)],
)
def test_10950_a_step_may_be_negative_at_run_time(launch, kernel, start, stop, step):
    x = np.arange(1, 97, dtype=np.float32)
    out = np.full(2, -1, np.float32)
    launch(kernel, (1,), x, out, start, stop, step)
    indices = range(start, stop, step)
    assert out.tolist() == [sum(i + 1 for i in indices), len(indices)]


@jit
def sum_of_tiles(x_ptr, out_ptr, BACKWARD: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    total = tl.zeros((N, N), tl.float32)
    if BACKWARD:
        for index in range(15, -1, -1):
            tile = 15 - index
            total += tl.load(x_ptr + tile * N * N + offsets)
    else:
        for index in range(16):
            total += tl.load(x_ptr + index * N * N + offsets)
    tl.store(out_ptr + offsets, total)


def test_1517_a_loop_that_counts_down_sees_every_tile(launch):
    x = np.random.default_rng(0).integers(-99, 99, (16, 128, 128)).astype(np.float32)
    for backward in (True, False):
        out = np.zeros((128, 128), np.float32)
        launch(sum_of_tiles, (1,), x, out, BACKWARD=backward, N=128)
        np.testing.assert_array_equal(out, x.sum(0))


@jit
def scaled(x_ptr, out_ptr, n, BLOCK: tl.constexpr, AGAIN: tl.constexpr):
    if AGAIN:
        n = AGAIN
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) * n, mask)


@pytest.mark.parametrize("n", [1, 7, 16, 1024])
def test_741_an_argument_bound_to_its_own_value(launch, n):
    x = np.random.default_rng(0).standard_normal(1024).astype(np.float32)
    results = []
    for again in (0, n):
        out = np.zeros_like(x)
        launch(scaled, (4,), x, out, n, BLOCK=256, AGAIN=again)
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0][:n], x[:n] * np.float32(n))
    assert not results[0][n:].any()


@jit
def specialised(out_ptr, n, flag, nothing):
    value = n * 2 + flag
    if nothing is None:
        value += 100
    tl.store(out_ptr, value)


def test_741_specialised_values_mean_what_others_do(launch):
    for n in (0, 1, 2, 16, 17, -16, 1):
        for flag in (False, True):
            for nothing in (None, 1):
                out = np.zeros(1, np.int32)
                launch(specialised, (1,), out, n, flag, nothing)
                assert out[0] == 2 * n + flag + (100 if nothing is None else 0)


@jit
def row_sums(a_ptr, x_ptr, bounds_ptr, scratch_ptr, out_ptr, N: tl.constexpr):
    program = tl.program_id(0)
    low, high = tl.split(tl.load(bounds_ptr + tl.arange(0, 2)))
    lanes = tl.arange(0, N)
    if low < high:
        tl.store(scratch_ptr + lanes, 7.0, mask=(lanes < 2) & (program == 0))
    if low > high:
        tl.store(scratch_ptr + lanes, 9.0)
        return
    row = tl.load(a_ptr + program * N + lanes)
    tl.store(out_ptr + program, tl.sum(row * tl.load(x_ptr + lanes), 0))


@pytest.mark.parametrize(
    ("bounds", "out", "scratch"),
    [([1, 2], [4] * 4, [7, 7, 0, 0]), ([2, 1], [0] * 4, [9] * 4), ([1, 1], [4] * 4, [0] * 4)],
)
def test_11153_stores_under_conditions_before_a_sum(launch, bounds, out, scratch):
    a, x = np.ones((4, 4), np.float32), np.ones(4, np.float32)
    memory, result = np.zeros(4, np.float32), np.zeros(4, np.float32)
    launch(row_sums, (4,), a, x, np.int32(bounds), memory, result, N=4)
    assert (result.tolist(), memory.tolist()) == (out, scratch)


@jit
def leaves_early(x_ptr, n):
    program = tl.program_id(0)
    if program >= n:
        return
    tl.store(x_ptr + program, program + 1)


@jit
def returns_at_the_end(x_ptr):
    tl.store(x_ptr + tl.program_id(0), 5)
    return


def test_1238_a_bare_return(launch):
    x = np.zeros(4, np.int32)
    launch(leaves_early, (4,), x, 2)
    assert x.tolist() == [1, 2, 0, 0]
    launch(returns_at_the_end, (4,), x)
    assert x.tolist() == [5] * 4


@jit
def first_above(x_ptr, out_ptr, n, limit):
    found = -1
    skipped = 0
    for i in range(n):
        value = tl.load(x_ptr + i)
        if value < 0:
            skipped += 1
            continue
        if value > limit:
            found = i
            break
    tl.store(out_ptr, found)
    tl.store(out_ptr + 1, skipped)


def test_3157_break_and_continue(launch):
    x = np.int32([-1, 3, -1, 8, 9])
    for limit, expected in ((5, [3, 2]), (2, [1, 1]), (100, [-1, 2])):
        out = np.zeros(2, np.int32)
        launch(first_above, (1,), x, out, 5, limit)
        assert out.tolist() == expected
