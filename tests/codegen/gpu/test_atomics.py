"""Atomics: which instruction, in which order with other accesses, and what comes out."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import check, ptx_of, small_integers

BF16 = ml_dtypes.bfloat16


@tw.jit
def update_kernel(x_ptr, old_ptr, value_ptr, N: tl.constexpr, UPDATE: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(value_ptr + i)
    tl.store(old_ptr + i, UPDATE(x_ptr + i // 2, value, mask=i % 5 != 1, sem="relaxed"))


@tw.jit
def add_kernel(
    x_ptr, value_ptr, N: tl.constexpr, SEM: tl.constexpr = "relaxed", SCOPE: tl.constexpr = "gpu"
):
    i = tl.arange(0, N)
    tl.atomic_add(x_ptr + i, tl.load(value_ptr + i), sem=SEM, scope=SCOPE)


def _atomics(kernel, values, target, num_warps=1, **constants):
    ptx = ptx_of(kernel, values, target=target, num_warps=num_warps, **constants)
    return re.findall(r"\b(?:atom|red|fence|membar)\.\S+", ptx)


INTEGERS = [tl.atomic_add, tl.atomic_max, tl.atomic_min, tl.atomic_and, tl.atomic_or]
INTEGERS += [tl.atomic_xor, tl.atomic_xchg]
FLOATS = [tl.atomic_add, tl.atomic_max, tl.atomic_min, tl.atomic_xchg]
CASES = [(f, d) for f in INTEGERS for d in (np.int32, np.uint32, np.int64, np.uint64)]
CASES += [(f, d) for f in FLOATS for d in (np.float32, np.float64)]
CASES += [(tl.atomic_add, d) for d in (np.float16, BF16)]


@pytest.mark.parametrize("target", [pytest.param("sm_75", marks=pytest.mark.slow), "sm_90a"])
@pytest.mark.parametrize(
    ("update", "dtype"), CASES, ids=[f"{f.__name__}-{np.dtype(d).name}" for f, d in CASES]
)
def test_each_update_is_one_instruction(update, dtype, target):
    """But for those of bf16 before Hopper, and the sign of the float that is compared."""
    size = 64
    unsigned = np.dtype(dtype).kind == "u"
    values = [np.abs(small_integers(size, np.int64, seed)).astype(dtype) if unsigned
              else small_integers(size, dtype, seed) for seed in range(3)]  # fmt: skip
    if update is tl.atomic_xchg:  # which of two lanes is the last is not told
        values[2] = np.repeat(values[2][: size // 2], 2)
    constants = {"N": size, "UPDATE": update}
    found = _atomics(update_kernel, values, target, **constants)
    is_extremum = update in {tl.atomic_max, tl.atomic_min} and np.dtype(dtype).kind == "f"
    is_loop = is_extremum or (dtype is BF16 and target == "sm_75")
    assert ("cas" in " ".join(found)) == is_loop
    values[1] = np.zeros(size, dtype)
    check(update_kernel, (1,), values, target=target, num_warps=1, **constants)


@pytest.mark.parametrize("update", [tl.atomic_max, tl.atomic_min], ids=["max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extrema_of_special_floats(update, dtype):
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, -np.nan, 1e-40, -1e-40], dtype)
    x, value = (np.repeat(a, 2) for a in np.meshgrid(special, special))
    x, value = x.ravel().astype(dtype), value.ravel().astype(dtype)
    kernel_values = [x, np.zeros_like(value), value]

    expected, got = harness.run_both(
        extremum_kernel, (1,), kernel_values, N=x.size, UPDATE=update, num_warps=1
    )[0]
    np.testing.assert_array_equal(got, expected)


@tw.jit
def extremum_kernel(x_ptr, old_ptr, value_ptr, N: tl.constexpr, UPDATE: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(old_ptr + i, UPDATE(x_ptr + i, tl.load(value_ptr + i)))


@pytest.mark.parametrize(
    ("dtype", "target", "form"),
    [
        (np.float32, "sm_90a", "add.v4.f32"),
        (np.float16, "sm_90a", "add.noftz.v4.f16x2"),
        (BF16, "sm_120a", "add.noftz.v4.bf16x2"),
        (np.float32, "sm_80", "add.f32"),
        (np.float16, "sm_75", "add.noftz.f16x2"),
        (np.float64, "sm_90a", "add.f64"),
        (np.int32, "sm_90a", "add.u32"),
    ],
)
def test_sums_that_nobody_reads_are_added_several_at_once(dtype, target, form):
    x, value = small_integers(1024, dtype), small_integers(1024, dtype, 1)
    found = _atomics(add_kernel, [x, value], target, num_warps=4, N=1024)
    assert set(found) == {f"red.relaxed.gpu.global.{form}"}
    check(add_kernel, (1,), [x, value], target=target, N=1024)


@pytest.mark.parametrize("size", [1000, 999])
def test_sums_of_any_length(size):
    x, value = small_integers(size + 8), small_integers(size + 8, seed=1)
    check(add_kernel, (2,), [x, value], N=size)


@tw.jit
def scalar_kernel(x_ptr, out_ptr, SEM: tl.constexpr, SCOPE: tl.constexpr):
    tl.store(out_ptr, tl.atomic_add(x_ptr, 1, sem=SEM, scope=SCOPE))


@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release", "acq_rel"])
@pytest.mark.parametrize("scope", ["cta", "gpu", "sys"])
def test_order_and_scope_are_those_of_the_instruction(sem, scope):
    values = [np.zeros(1, np.int32), np.zeros(1, np.int32)]
    found = _atomics(scalar_kernel, values, "sm_80", SEM=sem, SCOPE=scope)
    assert found == [f"atom.{sem}.{scope}.global.add.u32"]


def test_many_updates_are_ordered_together():
    values = [np.zeros(1024, np.float64), np.zeros(1024, np.float64)]
    found = _atomics(add_kernel, values, "sm_90a", N=1024, SEM="acq_rel", SCOPE="gpu")
    assert found.count("red.relaxed.gpu.global.add.f64") == 32
    assert len(found) == 33
    assert found[0].startswith("fence.acq_rel.gpu")


@tw.jit
def lock_kernel(lock_ptr, x_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(x_ptr, tl.load(x_ptr) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_a_lock(target):
    values = [np.zeros(1, np.int32), np.zeros(1, np.float32)]
    check(lock_kernel, (8,), values, target=target)
    assert "atom.acq_rel.gpu.global.cas.b32" in _atomics(lock_kernel, values, target)
    assert "atom.release.gpu.global.exch.b32" in _atomics(lock_kernel, values, target)
