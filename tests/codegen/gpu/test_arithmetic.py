"""Arithmetic by the instructions of the hardware, where they are not those of other targets."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen import tile_harness
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import numbers, ptx_of


@tw.jit
def scaled_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(out_ptr + at, tl.fdiv(x * y - x, tl.exp(y)))


@pytest.mark.parametrize("fuses", [False, True])
def test_products_are_fused_as_the_option_says(fuses):
    values = [numbers(128), numbers(128, seed=1), np.zeros(128, np.float32)]
    ptx = ptx_of(scaled_kernel, values, N=128, enable_fp_fusion=fuses)
    assert ptx.count("fma.rn.f32") == fuses
    assert ptx.count("ex2.approx.ftz.f32") == 1
    assert ptx.count("div.full.f32") == 1
    sides = harness.run_both(scaled_kernel, (1,), values, N=128, enable_fp_fusion=fuses)
    for want, got in sides:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@tw.jit
def quotients_kernel(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, N), x / (x + 2))
    tl.store(out_ptr + N + tl.arange(0, N), tl.div_rn(x, x + 3))
    tl.store(out_ptr + 2 * N + tl.arange(0, N), tl.fdiv(x, x + 4, ieee_rounding=True))
    tl.store(out_ptr + 3 * N + tl.arange(0, N), tl.fdiv(x, x + 5))


def test_division_is_correctly_rounded_unless_fdiv_need_not():
    ptx = ptx_of(quotients_kernel, [numbers(128), numbers(512)], N=128)
    assert ptx.count("div.rn.f32") == 3
    assert ptx.count("div.full.f32") == 1


@tw.jit
def shared_divisor_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    y = tl.load(y_ptr + tl.program_id(0))
    tl.store(out_ptr + at, tl.fdiv(tl.load(x_ptr + tl.arange(0, N)), y))


def test_a_divisor_that_is_shared_is_inverted_once():
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -3.0, 3.4e38, 1.2e-38, 1e-40, 1.4e-45]
    y = np.array([*special, 0.7, 1e38, -1e-38], np.float32)
    x = np.array([*special, *numbers(117)], np.float32)
    values = [x, y, np.zeros(len(y) * 128, np.float32)]
    assert ptx_of(shared_divisor_kernel, values, N=128).count("rcp.approx") == 1
    *_, (want, got) = harness.run_both(shared_divisor_kernel, (len(y),), values, N=128)
    assert tile_harness.ulp_difference(got, want) <= 2.0


@tw.jit
def mean_square_kernel(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.sum(x * x, axis=0) / N)


@pytest.mark.parametrize("size", [1024, 1000])
def test_a_sum_of_products_is_exact_where_it_can_be(size):
    x = np.random.default_rng(0).integers(-4, 5, size).astype(np.float32)
    values = [x, np.zeros(1, np.float32)]
    if size == 1024:  # 8 elements for each thread
        assert ptx_of(mean_square_kernel, values, N=size).count("fma.rn.f32") == 7
    for want, got in harness.run_both(mean_square_kernel, (1,), values, N=size):
        np.testing.assert_array_equal(got, want)


@tw.jit
def dropout_kernel(x_ptr, out_ptr, size, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size)
    kept = tl.rand(seed, at) > p
    tl.store(out_ptr + at, tl.where(kept, x / (1 - p), 0.0), mask=at < size)


def test_random_numbers_take_one_multiplication_for_both_halves():
    x = numbers(1000)
    values = [x, np.zeros_like(x), 1000, 0.5, 1234567]
    ptx = ptx_of(dropout_kernel, values, BLOCK=128)
    # Of the 20 products of ten rounds, three are of constants or needed by nobody.
    assert ptx.count("mul.wide.u32") + ptx.count("mul.hi.u32") <= 18
    for want, got in harness.run_both(dropout_kernel, (8,), values, BLOCK=128):
        np.testing.assert_array_equal(got, want)


@tw.jit
def masked_twice_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < size
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + at, tl.where(inside, x + 1, 7.0))


def test_a_mask_is_computed_once_for_a_vector():
    x, out = numbers(1024), np.zeros(1024, np.float32)
    values = [x, out, 1008]
    assert ptx_of(masked_twice_kernel, values, BLOCK=1024).count("setp") == 2
    for want, got in harness.run_both(masked_twice_kernel, (1,), values, BLOCK=1024):
        np.testing.assert_array_equal(got, want)


@tw.jit
def through_fp8_kernel(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, N), x.to(tl.float8e4nv).to(tl.float32))


@pytest.mark.parametrize("target", ["a100", "h100"])
def test_fp8_is_converted_by_instructions_where_there_are_any(target):
    x = np.array([0, -0.0, 1e-3, 448, 470, 1e9, np.inf, -np.inf, np.nan], np.float32)
    values = [np.array([*x, *numbers(119)], np.float32), np.zeros(128, np.float32)]
    ptx = ptx_of(through_fp8_kernel, values, target=target, N=128)
    assert ("cvt.rn.satfinite.e4m3x2.f32" in ptx) == (target == "h100")
    assert ("cvt.rn.f16x2.e4m3x2" in ptx) == (target == "h100")
    for want, got in harness.run_both(through_fp8_kernel, (1,), values, N=128, target=target):
        np.testing.assert_array_equal(got, want)


@tw.jit
def inverse_kernel(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N)).to(tl.float32)
    tl.store(out_ptr + tl.arange(0, N), tl.fdiv(1, x))


def test_a_word_of_two_bf16_is_taken_apart_by_two_instructions():
    x = numbers(256).astype(ml_dtypes.bfloat16)
    ptx = ptx_of(inverse_kernel, [x, np.zeros(256, np.float32)], N=256)
    assert ptx.count("rcp.approx.f32") == 2
    # The upper half is a fp32 number once the lower one is cleared.
    assert ptx.count("and.b32") == 1
    assert "prmt" not in ptx
    sides = harness.run_both(inverse_kernel, (1,), [x, np.zeros(256, np.float32)], N=256)
    assert tile_harness.ulp_difference(sides[1][1], sides[1][0]) <= 1.0
