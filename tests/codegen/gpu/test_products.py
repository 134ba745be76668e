"""Products of every type on every architecture: which instruction, and what comes out."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.codegen.gpu import harness
from tests.codegen.gpu.harness import check, numbers, ptx_of, small_integers

BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
OTHER_FP8 = [ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz]
ARCHITECTURES = list(harness.ARCHITECTURES)
AMPERE = [name for name in ARCHITECTURES if name != "sm_75"]
ADA = [name for name in ARCHITECTURES if name not in {"sm_75", "sm_80", "sm_86"}]


@tw.jit
def dot_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
    IMPRECISE: tl.constexpr = None,
):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + j[None, :])
    c = tl.load(c_ptr + i[:, None] * N + j[None, :])
    out = tl.dot(
        a,
        b,
        c,
        input_precision=PRECISION,
        out_dtype=c.dtype,
        max_num_imprecise_acc=IMPRECISE,
    )
    tl.store(c_ptr + i[:, None] * N + j[None, :], out)


def _values(shape, dtypes, fill=small_integers):
    m, n, k = shape
    a, b, c = dtypes
    return [fill((m, k), a), fill((k, n), b, 1), fill((m, n), c, 2)]


def _check(shape, dtypes, *, target, precision="ieee", fill=small_integers, **options):
    m, n, k = shape
    values = _values(shape, dtypes, fill)
    check(dot_kernel, (1,), values, target=target, M=m, N=n, K=k, PRECISION=precision, **options)


def _instructions(shape, dtypes, target, precision="ieee"):
    m, n, k = shape
    constants = {"M": m, "N": n, "K": k, "PRECISION": precision}
    ptx = ptx_of(dot_kernel, _values(shape, dtypes), target=target, **constants)
    return set(re.findall(r"(?:mma\.sync|wgmma)\.\S+", ptx))


# Types, and what multiplies them: from which architecture on, and on older ones ("" for none).
FP16, FP32, FP64, INT8, UINT8, INT32 = (
    np.float16, np.float32, np.float64, np.int8, np.uint8, np.int32,
)  # fmt: skip
_FORMS = [
    ((FP16, FP16, FP32), AMPERE, "m16n8k16.row.col.f32.f16.f16.f32", "m16n8k8.row.col.f32.f16"),
    ((FP16, FP16, FP16), AMPERE, "m16n8k16.row.col.f16.f16.f16.f16", "m16n8k8.row.col.f16.f16"),
    ((BF16, BF16, FP32), AMPERE, "m16n8k16.row.col.f32.bf16.bf16.f32", ""),
    ((FP64, FP64, FP64), AMPERE, "m8n8k4.row.col.f64.f64.f64.f64", ""),
    ((INT8, INT8, INT32), AMPERE, "m16n8k32.row.col.s32.s8.s8.s32", "m8n8k16.row.col.s32.s8.s8"),
    ((E4M3, E4M3, FP32), ADA, "m16n8k32.row.col.f32.e4m3.e4m3.f32", "f32.f16.f16.f32"),
    ((E4M3, E5M2, FP32), ADA, "m16n8k32.row.col.f32.e4m3.e5m2.f32", "f32.f16.f16.f32"),
    ((E5M2, E4M3, FP32), ADA, "m16n8k32.row.col.f32.e5m2.e4m3.f32", "f32.f16.f16.f32"),
    ((E5M2, E5M2, FP16), ADA, "m16n8k32.row.col.f32.e5m2.e5m2.f32", "f16.f16.f16.f16"),
]
_CASES = [
    pytest.param(dtypes, target, form if target in known else older,
                 id=f"{'-'.join(np.dtype(d).name for d in dtypes)}-{target}",
                 marks=[] if target in {"sm_75", "sm_89", "sm_90a"} else pytest.mark.slow)
    for dtypes, known, form, older in _FORMS
    for target in ARCHITECTURES
]  # fmt: skip


@pytest.mark.parametrize(("dtypes", "target", "form"), _CASES)
def test_every_type_on_every_architecture(dtypes, target, form):
    found = _instructions((32, 16, 64), dtypes, target)
    assert len(found) == bool(form), found
    assert all(form in text for text in found), found
    _check((32, 16, 64), dtypes, target=target)


@pytest.mark.parametrize("dtype", OTHER_FP8, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_other_fp8_types_are_multiplied_as_fp16(dtype, target):
    (found,) = _instructions((16, 16, 32), (dtype, dtype, FP32), target)
    assert ".f16.f16." in found
    _check((16, 16, 32), (dtype, dtype, FP32), target=target)


# Sizes.

_SIZES = [(1, 1, 1), (4, 2, 8), (8, 32, 5), (33, 7, 40)]
_SIZES += [pytest.param(s, marks=pytest.mark.slow) for s in ((2, 8, 4), (16, 4, 16), (20, 12, 24))]


@pytest.mark.parametrize("shape", _SIZES, ids=str)
@pytest.mark.parametrize(
    "dtypes", [(FP16, FP16, FP32), (INT8, INT8, INT32), (FP64, FP64, FP64), (E4M3, E4M3, FP32)],
    ids=lambda dtypes: np.dtype(dtypes[0]).name,
)  # fmt: skip
@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_any_size(shape, dtypes, target):
    _check(shape, dtypes, target=target, num_warps=2)


@pytest.mark.parametrize("num_warps", [1, 8])
def test_small_products_on_any_number_of_warps(num_warps):
    _check((16, 8, 24), (BF16, BF16, FP32), target="a100", num_warps=num_warps)


def test_what_lies_beyond_the_end_along_k_is_not_multiplied():
    """Zeros are: what the padding holds may be infinite."""
    a, b = np.full((16, 20), np.inf, np.float16), np.ones((20, 8), np.float16)
    values = [a, b, np.zeros((16, 8), np.float32)]
    check(dot_kernel, (1,), values, target="a100", M=16, N=8, K=20)


@tw.jit
def batched_kernel(
    a_ptr, b_ptr, c_ptr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    batch = tl.arange(0, B)[:, None, None]
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + batch * M * K + i[None, :, None] * K + k[None, None, :])
    b = tl.load(b_ptr + batch * K * N + k[None, :, None] * N + j[None, None, :])
    out = tl.dot(a, b, out_dtype=c_ptr.dtype.element_ty)
    tl.store(c_ptr + batch * M * N + i[None, :, None] * N + j[None, None, :], out)


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("sizes", [(4, 16, 16, 32), (2, 32, 8, 16), (8, 4, 4, 8), (3, 17, 16, 20)])
@pytest.mark.parametrize("dtype", [FP16, FP32, INT8])
def test_batches(sizes, num_warps, dtype):
    batch, m, n, k = sizes
    sums = INT32 if dtype is INT8 else FP32
    a, b = small_integers((batch, m, k), dtype), small_integers((batch, k, n), dtype, 1)
    values = [a, b, np.zeros((batch, m, n), sums)]
    constants = {"B": batch, "M": m, "N": n, "K": k}
    check(batched_kernel, (1,), values, num_warps=num_warps, **constants)
    assert "mma.sync" in ptx_of(batched_kernel, values, **constants)


# Precision.


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("precision", "element", "error"),
    [
        ("tf32", ".tf32.", 2e-3),
        ("tf32x3", ".tf32.", 3e-6),
        ("bf16x3", ".bf16.", 1e-4),
        ("bf16x6", ".bf16.", 2e-6),
        ("ieee", "", 2e-6),
    ],
)
def test_precision_of_fp32(precision, element, error, target):
    shape, dtypes = (32, 16, 64), (FP32, FP32, FP32)
    found = _instructions(shape, dtypes, target, precision)
    assert len(found) == (bool(element) and target != "sm_75")
    assert all(element in text for text in found)
    m, n, k = shape
    a, b, c = _values(shape, dtypes, numbers)
    exact = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    sizes = {"M": m, "N": n, "K": k, "PRECISION": precision}
    pairs = harness.run_both(dot_kernel, (1,), [a, b, c], target=target, **sizes)
    got = pairs[2][1]
    scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    assert (np.abs(got - exact) <= error * scale).all()
    if precision == "tf32x3" and found:  # and it is no better by accident
        rough = harness.run_both(
            dot_kernel, (1,), [a, b, c], target=target, **(sizes | {"PRECISION": "tf32"})
        )
        assert np.abs(rough[2][1] - exact).max() > 20 * np.abs(got - exact).max()


@pytest.mark.parametrize("precision", ["tf32x3", "bf16x3", "bf16x6"])
def test_infinite_numbers_in_pieces(precision):
    a, b = numbers((16, 16)), numbers((16, 16), seed=1)
    a[3, 4], b[5, 6], a[7, 5], a[9, 0] = np.inf, -np.inf, np.inf, np.nan
    values = [a, b, np.zeros((16, 16), np.float32)]
    options = {"M": 16, "N": 16, "K": 16, "PRECISION": precision, "target": "sm_80"}
    check(dot_kernel, (1,), values, tolerance=1e-3, **options)


@pytest.mark.parametrize("limit", [32, 64, 100])
def test_sums_of_fp8_are_moved_to_fp32_as_often_as_asked(limit):
    shape, dtypes = (16, 8, 256), (E4M3, E5M2, FP32)
    _check(shape, dtypes, target="sm_89", IMPRECISE=limit)
    m, n, k = shape
    options = {"M": m, "N": n, "K": k, "IMPRECISE": limit, "num_warps": 1}
    ptx = ptx_of(dot_kernel, _values(shape, dtypes), target="sm_89", **options)
    parts = -(-256 // (limit // 32 * 32))
    assert len(re.findall(r"add\.rn\.f32", ptx)) == 4 * parts


@tw.jit
def chained_kernel(a_ptr, b_ptr, c_ptr, out_ptr, M: tl.constexpr, SIDE: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, SIDE)
    a = tl.load(a_ptr + i[:, None] * SIDE + j[None, :])
    at = j[:, None] * SIDE + j[None, :]
    between = tl.dot(a, tl.load(b_ptr + at)).to(tl.float16)
    tl.store(out_ptr + i[:, None] * SIDE + j[None, :], tl.dot(between, tl.load(c_ptr + at)))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_warps_share_the_columns_of_chained_products_with_few_rows(target):
    m, side = 16, 64
    a, b, c = (small_integers((rows, side), FP16, rows) for rows in (m, side, side))
    values = [a, b, c, np.zeros((m, side), FP32)]
    ptx = ptx_of(chained_kernel, values, target=target, num_warps=4, M=m, SIDE=side)
    each = (side // 8) * (side // 16)  # the instructions of one product
    assert len(re.findall(r"mma\.sync", ptx)) == 2 * each // 4
    check(chained_kernel, (1,), values, target=target, M=m, SIDE=side)


_GROUPED = [(FP16, FP16, FP32), (BF16, BF16, FP32), (E4M3, E4M3, FP32), (E5M2, E5M2, FP32)]
_GROUPED += [(INT8, INT8, INT32)]


@pytest.mark.parametrize("dtypes", _GROUPED, ids=lambda dtypes: np.dtype(dtypes[0]).name)
@pytest.mark.parametrize("shape", [(64, 8, 32), (64, 16, 64)], ids=str)
def test_products_of_warpgroups_of_every_type(shape, dtypes):
    found = " ".join(_instructions(shape, dtypes, "sm_90a"))
    assert ("wgmma" in found) == (shape[1] >= 16)
    _check(shape, dtypes, target="sm_90a")


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("depth", [8, 16])
def test_padding_of_fp8_is_no_constant(target, depth):
    """Assemblers unpack the upper half of a constant 0 to 2^-6 there, which reaches the result."""
    values = _values((16, 16, depth), (E4M3, E4M3, np.float32))
    ptx = ptx_of(dot_kernel, values, target=target, M=16, N=16, K=depth)
    products = re.findall(r"mma\.sync\S+e4m3\S* \{[^}]*\}, \{([^}]*)\}, \{([^}]*)\}", ptx)
    operands = {word for lists in products for words in lists for word in words.split(", ")}
    constants = set(re.findall(r"mov\.b32 \s*(%r\d+), -?\d+;", ptx))
    assert operands
    assert not operands & constants
    _check((16, 16, depth), (E4M3, E4M3, np.float32), target=target)
