"""Operands of products that are computed two numbers at a time."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import ptx_of

BF16 = ml_dtypes.bfloat16
ROWS, DEPTH = 64, 32


@tw.jit
def integers_kernel(x_ptr, one_ptr, out_ptr, FORM: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    i, k = tl.arange(0, M), tl.arange(0, K)
    x = tl.load(x_ptr + i[:, None] * K + k[None, :])
    if FORM == "unsigned":
        a = x
    elif FORM == "signed":
        a = x.to(tl.int8, bitcast=True)
    elif FORM == "nibbles":
        a = (x & 15).to(tl.int8) - 8
    elif FORM == "signed nibbles":
        a = x.to(tl.int8, bitcast=True).to(tl.int16) >> 4
    elif FORM == "seven bits":
        a = (x >> 1).to(tl.int16) + 100
    one = tl.load(one_ptr + k[:, None] * K + k[None, :])
    out = tl.dot(a.to(one.dtype), one)
    tl.store(out_ptr + i[:, None] * K + k[None, :], out)


def both(kernel, values, target="h100", **constants):
    """Run a kernel that multiplies by the identity: the operand must come out to the bit."""
    (*_, (interpreted, emulated)) = harness.run_both(
        kernel, (1,), values, target=target, **constants
    )
    np.testing.assert_array_equal(emulated, interpreted)
    return emulated


def integer_values(dtype):
    x = np.random.default_rng(0).permutation(np.arange(ROWS * DEPTH) % 256).astype(np.uint8)
    return [x.reshape(ROWS, DEPTH), np.eye(DEPTH, dtype=dtype), np.zeros((ROWS, DEPTH), np.float32)]


FORMS = ["unsigned", "signed", "nibbles", "signed nibbles", "seven bits"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("dtype", "target"),
    [(BF16, "h100"), (BF16, "a100"), (np.float16, "h100"), (np.float16, "sm_75")],
    ids=["bf16-h100", "bf16-a100", "fp16-h100", "fp16-sm_75"],
)
def test_small_integers_become_floats(dtype, target, form):
    values = integer_values(dtype)
    constants = {"FORM": form, "M": ROWS, "K": DEPTH}
    both(integers_kernel, values, target, **constants)
    ptx = ptx_of(integers_kernel, values, target=target, **constants)
    masks = re.findall(r"lop3\.b32 \S+, \S+, (\d+), (\d+)", ptx)
    assert all(int(mask) < 2**32 for pair in masks for mask in pair)
    if dtype is not BF16 or form != "unsigned":  # of which some take nine bits with the power
        assert not re.search(r"cvt\.rn\.(b?f16|f32)\.[us]", ptx)


@tw.jit
def unpacking_kernel(x_ptr, scale_ptr, one_ptr, out_ptr, M: tl.constexpr, K: tl.constexpr):
    i, k, half = tl.arange(0, M), tl.arange(0, K), tl.arange(0, K // 2)
    x = tl.load(x_ptr + i[:, None] * (K // 2) + half[None, :])
    low, high = (x & 15).to(tl.int8) - 8, (x >> 4).to(tl.int8) - 8
    one = tl.load(one_ptr + k[:, None] * K + k[None, :])
    scale = tl.load(scale_ptr + i)
    weight = tl.interleave(low, high).to(one.dtype) * scale[:, None]
    tl.store(out_ptr + i[:, None] * K + k[None, :], tl.dot(weight, one))


def test_two_halves_of_a_byte_are_a_word():
    generator = np.random.default_rng(1)
    x = generator.integers(0, 256, (ROWS, DEPTH // 2), dtype=np.uint8)
    scale = generator.standard_normal(ROWS).astype(BF16)
    out = np.zeros((ROWS, DEPTH), np.float32)
    values = [x, scale, np.eye(DEPTH, dtype=BF16), out]
    both(unpacking_kernel, values, M=ROWS, K=DEPTH)
    ptx = ptx_of(unpacking_kernel, values, M=ROWS, K=DEPTH)
    words = ROWS * DEPTH // 128 // 2
    assert len(re.findall(r"mul\.rn\.bf16x2|fma\.rn\.bf16x2", ptx)) >= words
    assert "cvt.rn.bf16" not in ptx


@tw.jit
def words_kernel(x_ptr, one_ptr, out_ptr, FORM: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    i, k, word = tl.arange(0, M), tl.arange(0, K), tl.arange(0, K // 4)
    x = tl.load(x_ptr + i[:, None] * (K // 4) + word[None, :])
    one = tl.load(one_ptr + k[:, None] * K + k[None, :])
    if FORM == "nibbles":  # half a word apart
        first, second = tl.join(x & 15, (x >> 4) & 15), tl.join((x >> 16) & 15, (x >> 20) & 15)
        a = (tl.join(first, second).to(tl.uint8).to(tl.int8) - 8).to(one.dtype)
    else:
        first, second = tl.inline_asm_elementwise(
            "and.b32 $0, $2, 0x00ff00ff; shr.b32 $1, $2, 8; and.b32 $1, $1, 0x00ff00ff;",
            "=&r,=r,r", [x], dtype=(tl.uint32, tl.uint32), is_pure=True, pack=1,
        )  # fmt: skip
        halves = tl.join(first, second)
        a = tl.join(halves & 0xFFFF, halves >> 16).to(tl.uint16).to(one.dtype, bitcast=True)
    # So that the threads that multiply have whole words.
    a = tl.permute(tl.reshape(a, (M, K // 16, 4, 2, 2)), (0, 1, 3, 2, 4))
    out = tl.dot(tl.reshape(a, (M, K)), one)
    tl.store(out_ptr + i[:, None] * K + k[None, :], out)


def word_values(dtype):
    x = np.random.default_rng(2).integers(0, 2**32, (ROWS, DEPTH // 4), dtype=np.uint32)
    return [x, np.eye(DEPTH, dtype=dtype), np.zeros((ROWS, DEPTH), np.float32)]


@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_numbers_half_a_word_apart_take_one_instruction_to_become_a_pair(dtype):
    values = word_values(dtype)
    both(words_kernel, values, FORM="nibbles", M=ROWS, K=DEPTH)
    ptx = ptx_of(words_kernel, values, FORM="nibbles", M=ROWS, K=DEPTH)
    pairs = ROWS * DEPTH // 128 // 2
    assert len(re.findall(r"lop3\.b32", ptx)) == pairs
    assert "prmt" not in ptx


def test_what_assembly_leaves_is_multiplied_where_it_is():
    values = word_values(np.float16)
    both(words_kernel, values, FORM="assembly", M=ROWS, K=DEPTH)
    ptx = ptx_of(words_kernel, values, FORM="assembly", M=ROWS, K=DEPTH)
    after = ptx[ptx.rindex("0x00ff00ff") :]
    assert "wgmma.mma_async" in after
    moves = re.findall(r"shfl|ld\.shared|ldmatrix", after[: after.index("wgmma.mma")])
    assert moves == ["shfl"]  # of the number of the warp


@tw.jit
def arithmetic_kernel(
    x_ptr, y_ptr, one_ptr, out_ptr, trips, FORM: tl.constexpr, M: tl.constexpr, K: tl.constexpr
):
    i, k = tl.arange(0, M), tl.arange(0, K)
    at = i[:, None] * K + k[None, :]
    total = tl.zeros((M, K), tl.float32)
    for trip in range(trips):
        x, y = tl.load(x_ptr + trip * M * K + at), tl.load(y_ptr + trip * M * K + at)
        if FORM == "add":
            a = x + y
        elif FORM == "sub":
            a = x - y
        elif FORM == "mul":
            a = x * y
        elif FORM == "constant":
            a = x * 0.75
        elif FORM == "chain":
            a = (x * y - x) + y
        one = tl.load(one_ptr + k[:, None] * K + k[None, :])
        total = tl.dot(a, one, total)
    tl.store(out_ptr + at, total)


@pytest.mark.parametrize("form", ["add", "sub", "mul", "constant", "chain"])
@pytest.mark.parametrize("dtype", [BF16, np.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("target", ["h100", "a100"])
def test_sums_and_products_of_pairs_round_as_those_of_numbers(dtype, target, form):
    generator = np.random.default_rng(2)
    shape = (ROWS, DEPTH)
    spread = 2.0 ** generator.integers(-9, 3, (2, 2, *shape))
    x, y = (generator.standard_normal((2, 2, *shape)) * spread).astype(dtype)
    values = [x, y, np.eye(DEPTH, dtype=dtype), np.zeros(shape, np.float32), 2]
    both(arithmetic_kernel, values, target, FORM=form, M=ROWS, K=DEPTH)
    ptx = ptx_of(arithmetic_kernel, values, target=target, FORM=form, M=ROWS, K=DEPTH)
    assert re.search(r"\.(b?f16x2)\s", ptx)


@tw.jit
def scaled_kernel(
    x_ptr, scale_ptr, one_ptr, out_ptr, SIDE: tl.constexpr, M: tl.constexpr, K: tl.constexpr,
    GROUPS: tl.constexpr,
):  # fmt: skip
    i, k, half, group = tl.arange(0, M), tl.arange(0, K), tl.arange(0, K // 2), tl.arange(0, GROUPS)
    scale = tl.load(scale_ptr + i[:, None] * GROUPS + group[None, :])
    one = tl.load(one_ptr + k[:, None] * K + k[None, :])
    if SIDE == "left":
        x = tl.load(x_ptr + i[:, None] * (K // 2) + half[None, :])
        out = tl.dot_scaled(x, scale, "e2m1", one, None, "bf16")
        tl.store(out_ptr + i[:, None] * K + k[None, :], out)
    else:
        x = tl.load(x_ptr + i[None, :] * (K // 2) + half[:, None])
        out = tl.dot_scaled(one, None, "bf16", x, scale, "e2m1")
        tl.store(out_ptr + i[None, :] * K + k[:, None], out)


def scaled_values(scales):
    """Every code and the ends of the range of scales, at each place of a byte."""
    generator = np.random.default_rng(3)
    x = generator.permutation(np.arange(64 * 32) % 256).astype(np.uint8).reshape(64, 32)
    if scales is np.uint8:
        scale = generator.choice(np.array([0, 1, 2, 126, 127, 128, 251, 252], np.uint8), (64, 2))
    else:
        codes = generator.integers(0, 0x7F, (64, 4)).astype(np.uint8)
        scale = codes.view(ml_dtypes.float8_e4m3fn)
    return [x, scale, np.eye(64, dtype=BF16), np.zeros((64, 64), np.float32)]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("target", ["h100", "a100"])
@pytest.mark.parametrize("scales", [np.uint8, ml_dtypes.float8_e4m3fn], ids=["e8m0", "e4m3"])
def test_numbers_of_four_bits_are_put_together_by_pairs(scales, target, side):
    values = scaled_values(scales)
    constants = {"SIDE": side, "M": 64, "K": 64, "GROUPS": values[1].shape[1]}
    out = both(scaled_kernel, values, target, **constants)
    codes = np.stack([values[0] & 15, values[0] >> 4], -1).reshape(64, 64)
    scale = values[1].view(ml_dtypes.float8_e8m0fnu) if scales is np.uint8 else values[1]
    numbers = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    wide = numbers * np.repeat(scale.astype(np.float32), 64 // scale.shape[1], axis=1)
    np.testing.assert_array_equal(out, wide)
    ptx = ptx_of(scaled_kernel, values, target=target, **constants)
    pairs = 64 * 64 // 128 // 2
    assert len(re.findall(r"(?:fma|mul)\.rn\.bf16x2", ptx)) >= 2 * pairs
    assert not re.search(r"cvt\.rn\.bf16x?2?\.f32", ptx) or scales is not np.uint8


def test_operands_in_shared_memory_are_contiguous_where_threads_hold_them():
    values = scaled_values(np.uint8)
    ptx = ptx_of(scaled_kernel, values, SIDE="right", M=64, K=64, GROUPS=2)
    assert "st.shared.v4.b32" in ptx
    assert "st.shared.b16" not in ptx
