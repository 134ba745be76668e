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
    return harness.ptx_of(combine_kernel, [x, y], target=target, KIND=kind)


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
def combine_at_ends_kernel(
    x_ptr, y_ptr, m, n, row, column,
    KIND: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    tile = tl.load(x_ptr + at)
    y = tl.make_tensor_descriptor(y_ptr, [m, n], [64, 1], [BLOCK_M, BLOCK_N])
    if KIND == "add":
        y.atomic_add([row, tl.multiple_of(column, 16)], tile)
    if KIND == "min":
        y.atomic_min([row, tl.multiple_of(column, 16)], tile)
    if KIND == "xor":
        y.atomic_xor([row, tl.multiple_of(column, 16)], tile)


@pytest.mark.parametrize("block", [(16, 32), (8, 64), (1, 16)])
@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (np.float32, "add"), (np.float16, "add"), (BF16, "add"), (np.uint64, "add"),
        (np.float16, "min"), (BF16, "min"), (np.int32, "min"), (np.int64, "min"),
        (np.uint32, "min"), (np.int64, "xor"),
    ],
)  # fmt: skip
def test_blocks_across_the_ends_are_combined_by_atomics(dtype, kind, block):
    x, y = (
        np.random.default_rng(seed).integers(0, 9, shape).astype(dtype)
        for seed, shape in enumerate((block, (24, 64)))
    )
    for columns, place in ((48, (16, 32)), (49, (10, 32)), (51, (-3, 48)), (49, (4, -16))):
        values = [x, y, 21, columns, *place]
        named = {"KIND": kind, "BLOCK_M": block[0], "BLOCK_N": block[1]}
        pairs = harness.run_both(combine_at_ends_kernel, (1,), values, **named)
        np.testing.assert_array_equal(*pairs[1])
        ptx = harness.ptx_of(combine_at_ends_kernel, values, **named)
        assert "reduce.async.bulk.tensor" in ptx
        assert "red.relaxed" in ptx or "atom.relaxed" in ptx


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
