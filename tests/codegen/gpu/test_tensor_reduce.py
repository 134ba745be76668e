"""Blocks of an array that are combined with tiles, by tensor copies where there are any."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness

BF16 = ml_dtypes.bfloat16


@tw.jit
def combine_kernel(x_ptr, y_ptr, KIND: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [16, 32], [32, 1], [16, 32])
    y = tl.make_tensor_descriptor(y_ptr, [24, 40], [40, 1], [16, 32])
    tile = x.load([0, 0])
    if KIND == "add":
        y.atomic_add([10, 16], tile)
    if KIND == "min":
        y.atomic_min([10, 16], tile)
    if KIND == "max":
        y.atomic_max([10, 16], tile)
    if KIND == "and":
        y.atomic_and([10, 16], tile)
    if KIND == "or":
        y.atomic_or([10, 16], tile)
    if KIND == "xor":
        y.atomic_xor([10, 16], tile)


def combined(dtype, kind, target="h100"):
    x, y = (
        np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)
        for seed, shape in enumerate(((16, 32), (24, 40)))
    )
    pairs = harness.run_both(combine_kernel, (1,), [x, y], target=target, KIND=kind)
    np.testing.assert_array_equal(*pairs[1])
    function, _ = harness.lowered(combine_kernel, [x, y], {"KIND": kind})
    return harness.compiled(function, harness.TARGETS[target]).ptx


@pytest.mark.parametrize("kind", ["add", "min", "max", "and", "or", "xor"])
@pytest.mark.parametrize("dtype", [np.int32, np.uint64])
def test_whole_numbers_are_combined_by_copies(dtype, kind):
    assert f"reduce.async.bulk.tensor.2d.global.shared::cta.{kind}" in combined(dtype, kind)


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32])
def test_floats_are_added_by_copies(dtype):
    assert "reduce.async.bulk.tensor" in combined(dtype, "add")


@pytest.mark.parametrize(
    ("dtype", "kind", "target"),
    [(np.float32, "max", "h100"), (np.int64, "add", "h100"), (np.int32, "add", "a100")],
)
def test_what_copies_cannot_combine_is_done_by_atomics(dtype, kind, target):
    assert "reduce.async.bulk.tensor" not in combined(dtype, kind, target)


@tw.jit
def add_often_kernel(x_ptr, y_ptr, z_ptr, rows, trips):
    x = tl.make_tensor_descriptor(x_ptr, [rows, 64], [64, 1], [16, 64])
    y = tl.make_tensor_descriptor(y_ptr, [16, 64], [64, 1], [16, 64])
    for i in tl.range(trips):
        tile = x.load([i * 16, 0])
        y.atomic_add([0, 0], tile)
        y.atomic_add([0, 0], tile * 2)
    at = tl.arange(0, 16)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(z_ptr + at, tl.load(y_ptr + at))


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_copies_of_one_iteration_run_while_the_next_begins(trips):
    x = np.random.default_rng(0).integers(-9, 9, (64, 64)).astype(np.float32)
    values = [x, np.zeros((16, 64), np.float32), np.zeros((16, 64), np.float32), 64, trips]
    pairs = harness.run_both(add_often_kernel, (1,), values, num_warps=4)
    expected = 3 * x.reshape(4, 16, 64)[:trips].sum(axis=0)
    for found in (pairs[1][1], pairs[2][1]):
        np.testing.assert_array_equal(found, expected)


@tw.jit
def store_and_add_kernel(x_ptr, y_ptr, trips):
    x = tl.make_tensor_descriptor(x_ptr, [16, 64], [64, 1], [16, 64])
    y = tl.make_tensor_descriptor(y_ptr, [16, 64], [64, 1], [16, 64])
    tile = x.load([0, 0])
    for i in tl.range(trips):
        y.store([0, 0], tile + i)
        y.atomic_add([0, 0], tile)


def test_what_does_not_commute_keeps_its_order():
    x = np.random.default_rng(0).integers(-9, 9, (16, 64)).astype(np.int32)
    pairs = harness.run_both(store_and_add_kernel, (1,), [x, np.zeros_like(x), 3])
    np.testing.assert_array_equal(pairs[1][1], 2 * x + 2)
