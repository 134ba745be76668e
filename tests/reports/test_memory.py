"""Public reports about masks, atomics and locks (triton-lang/triton, by number)."""

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import jit


@jit
def scatter_add(out_ptr, index_ptr, value_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    index = tl.load(index_ptr + offsets, mask)
    tl.atomic_add(out_ptr + index, tl.load(value_ptr + offsets, mask), mask)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.int64])
def test_558_atomic_additions_to_the_same_places(launch, dtype):
    n, size = 5003, 37  # no multiple of the block; many programs on each place
    rng = np.random.default_rng(0)
    index = rng.integers(0, size, n).astype(np.int64)
    value = rng.integers(0, 2, n).astype(dtype)  # sums that every type holds exactly
    out = np.zeros(size, dtype)
    launch(scatter_add, (tw.cdiv(n, 256),), out, index, value, n, BLOCK=256)
    expected = np.zeros(size, np.int64)
    np.add.at(expected, index, value.astype(np.int64))
    np.testing.assert_array_equal(out.astype(np.int64), expected)


@jit
def swap_block(x_ptr, old_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    expected = tl.full((N,), 1, tl.int64)
    old = tl.atomic_cas(x_ptr + offsets, expected, tl.full((N,), 2, tl.int64))
    tl.store(old_ptr + offsets, old)


def test_2011_compare_and_swap_on_a_block(launch):
    x, old = np.ones(64, np.int64), np.zeros(64, np.int64)
    x[5] = 9
    launch(swap_block, (1,), x, old, N=64)
    assert [x[4], x[5], x[63], old[4], old[5]] == [2, 9, 2, 1, 9]


@jit
def atomics(x_ptr, value_ptr, old_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    value = tl.load(value_ptr + offsets)
    tl.store(old_ptr + offsets, tl.atomic_max(x_ptr + offsets, value))
    tl.atomic_min(x_ptr + N + offsets, value)
    tl.atomic_add(x_ptr + 2 * N + offsets, value)
    tl.atomic_xchg(x_ptr + 3 * N + offsets, value)


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int32, np.uint64]
)
def test_1470_1387_atomics_on_narrow_floats(launch, dtype):
    x = np.array([[1, 2, 3, 4]] * 4).astype(dtype)
    value = np.array([0, 5, 3, 1]).astype(dtype)
    old = np.zeros(4, dtype)
    launch(atomics, (1,), x, value, old, N=4)
    assert old.astype(int).tolist() == [1, 2, 3, 4]
    assert x.astype(int).tolist() == [[1, 5, 3, 4], [0, 2, 3, 1], [1, 7, 6, 5], [0, 5, 3, 1]]


@jit
def handshake(lock_ptr, LOCKS: tl.constexpr):
    lock = lock_ptr + tl.program_id(0) % LOCKS
    if tl.atomic_cas(lock, 0, 1) == 0:
        tl.atomic_xchg(lock, 2)
    else:
        while tl.atomic_xchg(lock, 3) != 2:
            pass


@pytest.mark.parametrize("locks", [1, 8, 800])
def test_1452_programs_that_wait_for_earlier_ones(launch, locks):
    lock = np.zeros(locks, np.int32)
    launch(handshake, (2 * locks,), lock, LOCKS=locks)
    assert (lock == 3).all()


@jit
def count_under_lock(lock_ptr, count_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(count_ptr, tl.load(count_ptr) + 1)
    tl.atomic_xchg(lock_ptr, 0)


def test_1452_a_lock_guards_plain_memory(launch):
    lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
    launch(count_under_lock, (2000,), lock, count)
    assert count[0] == 2000


@jit
def sums_of_loads(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + offsets, mask=mask, other=0.0), 0))
    tl.store(out_ptr + 1, tl.sum(tl.load(x_ptr + offsets, mask=mask), 0))
    tl.store(out_ptr + 2, tl.sum(tl.load(x_ptr + offsets, mask=mask, other=1.0), 0))


@jit
def load_with_nan(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=float("nan"))
    tl.store(out_ptr + offsets, tl.where(mask, x * 2, x))


def test_3281_737_9917_lanes_outside_the_mask(launch):
    x = np.random.default_rng(0).integers(1, 9, 16).astype(np.float32)  # no memory behind
    out = np.zeros(3, np.float32)
    launch(sums_of_loads, (1,), x, out, 16, BLOCK=256)
    assert out.tolist() == [x.sum(), x.sum(), x.sum() + 240]


def test_9917_nan_outside_the_mask_stays_there(launch):
    x = np.random.default_rng(0).standard_normal(16).astype(np.float32)
    out = np.zeros(256, np.float32)
    launch(load_with_nan, (1,), x, out, 16, BLOCK=256)
    np.testing.assert_array_equal(out[:16], 2 * x)
    assert np.isnan(out[16:]).all()


@jit
def copy_of_bools(x_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(out_ptr + offsets, ~tl.load(x_ptr + offsets))


def test_a_byte_that_is_not_0_is_true(launch):
    x = np.uint8([0, 1, 2, 128, 255]).view(np.bool_)
    out = np.zeros(5, np.bool_)
    launch(copy_of_bools, (1,), x, out, N=5)
    assert out.view(np.uint8).tolist() == [1, 0, 0, 0, 0]
