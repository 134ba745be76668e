"""Products of microscaled numbers, against NumPy on random bits of every format."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import CompileError

BF16 = ml_dtypes.bfloat16
NUMBERS = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "bf16": BF16,
    "fp16": np.float16,
}
FORMATS = list(NUMBERS)
M, N, K = 16, 8, 64


@tw.jit
def load_or_none(ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    if ptr is None:
        return None
    return tl.load(ptr + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS))


@tw.jit
def scaled_product(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, A_FORMAT: tl.constexpr, B_FORMAT: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, A_SHAPE: tl.constexpr, B_SHAPE: tl.constexpr,
    A_GROUPS: tl.constexpr, B_GROUPS: tl.constexpr,
    A_K_PACK: tl.constexpr = True, B_K_PACK: tl.constexpr = True,
    ADDS: tl.constexpr = False, OUT: tl.constexpr = tl.float32,
):  # fmt: skip
    places = tl.arange(0, M)[:, None] * N + tl.arange(0, N)
    acc = tl.load(c_ptr + places) if ADDS else None
    out = tl.dot_scaled(
        load_or_none(a_ptr, A_SHAPE[0], A_SHAPE[1]),
        load_or_none(a_scale_ptr, M, A_GROUPS),
        A_FORMAT,
        load_or_none(b_ptr, B_SHAPE[0], B_SHAPE[1]),
        load_or_none(b_scale_ptr, N, B_GROUPS),
        B_FORMAT,
        acc=acc,
        lhs_k_pack=A_K_PACK,
        rhs_k_pack=B_K_PACK,
        out_dtype=OUT,
    )
    tl.store(c_ptr + places, out)


def random_codes(format_, shape, seed):
    """Random finite numbers of a format, as bits."""
    generator = np.random.default_rng(seed)
    if format_ == "e2m1":
        return generator.integers(0, 16, shape).astype(np.uint8)
    if format_ in {"bf16", "fp16"}:
        return generator.standard_normal(shape).astype(NUMBERS[format_]).view(np.uint16)
    codes = generator.integers(0, 256, shape).astype(np.uint8)
    return np.where(np.isfinite(decoded(codes, format_)), codes, 0x38).astype(np.uint8)


def decoded(codes, format_):
    return codes.view(NUMBERS[format_]).astype(np.float32)


def scales_of(codes):
    if codes.dtype == np.uint8:
        return codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    return codes.astype(np.float32)


def operand(codes, format_, scale, computed_in):
    """The numbers (rows, k) that are multiplied."""
    numbers = decoded(codes, format_)
    if scale is not None:
        groups = np.repeat(scales_of(scale), numbers.shape[1] // scale.shape[1], axis=1)
        with np.errstate(all="ignore"):
            numbers = numbers * groups
    with np.errstate(all="ignore"):
        return numbers.astype(computed_in).astype(np.float64)


def packed(codes, axis):
    """Two codes of 4 bits in each byte, the first in the lower bits."""
    low, high = (codes.take(range(start, codes.shape[axis], 2), axis) for start in (0, 1))
    return low | high << 4


class Case:
    """Operands as codes of (rows, k), their scales, and what the kernel makes of them."""

    def __init__(self, formats, a, b, scales, *, k_pack=(True, True)):
        self.formats, self.scales, self.k_pack = formats, scales, k_pack
        self.a, self.b = a, b
        computed_in = np.float16 if "fp16" in formats else BF16
        sides = zip((a, b), formats, scales, strict=True)
        self.numbers = [operand(x, format_, scale, computed_in) for x, format_, scale in sides]

    @property
    def expected(self):
        with np.errstate(all="ignore"):
            return self.numbers[0] @ self.numbers[1].T

    def run(self, launch, *, out=None, result=tl.float32, **options):
        passed = []
        for codes, format_, k_pack in zip((self.a, self.b), self.formats, self.k_pack, strict=True):
            held = packed(codes, 1 if k_pack else 0) if format_ == "e2m1" else codes
            passed.append(held)
        passed[1] = np.ascontiguousarray(passed[1].T)
        m, n = len(self.a), len(self.b)
        adds = out is not None
        out = np.zeros((m, n), np.float32) if out is None else out
        groups = [1 if scale is None else scale.shape[1] for scale in self.scales]
        launch(
            scaled_product, (1,), passed[0], self.scales[0], passed[1], self.scales[1], out,
            A_FORMAT=self.formats[0], B_FORMAT=self.formats[1], M=m, N=n,
            A_SHAPE=passed[0].shape, B_SHAPE=passed[1].shape,
            A_GROUPS=groups[0], B_GROUPS=groups[1],
            A_K_PACK=self.k_pack[0], B_K_PACK=self.k_pack[1], ADDS=adds, OUT=result, **options,
        )  # fmt: skip
        return out


def random_case(formats, *, group=32, scale=np.uint8, absent=(), k_pack=(True, True), shape=None):
    m, n, k = shape or (M, N, K)
    a, b = random_codes(formats[0], (m, k), 0), random_codes(formats[1], (n, k), 1)
    generator = np.random.default_rng(2)
    scales = []
    for side, rows in enumerate((m, n)):
        codes = generator.integers(118, 127, (rows, k // group)).astype(np.uint8)
        if scale is not np.uint8:
            codes = generator.uniform(-4, 4, codes.shape).astype(scale)
        scales.append(None if side in absent else codes)
    return Case(formats, a, b, scales, k_pack=k_pack)


def check(case, launch, **options):
    expected = case.expected
    bound = np.abs(case.numbers[0]) @ np.abs(case.numbers[1]).T * 2.0**-20
    out = case.run(launch, **options)
    assert (np.abs(out - expected) <= bound).all()


def check_exact(case, launch):
    """One number and zeros are exact, but for subnormal bf16, which the CPU may take for 0."""
    with np.errstate(all="ignore"):
        expected = case.expected.astype(np.float32)
    out = case.run(launch)
    is_small = (np.abs(expected) < 2.0**-126) & (out == 0)
    np.testing.assert_array_equal(out, np.where(is_small, 0, expected))


PAIRS = [(format_, FORMATS[(i + 1) % 5]) for i, format_ in enumerate(FORMATS)]


@pytest.mark.parametrize("formats", PAIRS, ids="-".join)
def test_every_format(launch, formats):
    check(random_case(formats), launch)


@pytest.mark.slow
@pytest.mark.parametrize("formats", list(itertools.product(FORMATS, FORMATS)), ids="-".join)
@pytest.mark.parametrize("absent", [(), (0,), (1,), (0, 1)])
def test_every_pair_of_formats(launch, formats, absent):
    check(random_case(formats, absent=absent), launch)


@pytest.mark.parametrize("k_pack", [(True, False), (False, True), (False, False)])
def test_bytes_of_two_numbers_along_rows_and_columns(launch, k_pack):
    check(random_case(("e2m1", "e2m1"), k_pack=k_pack), launch)


@pytest.mark.parametrize("absent", [(0,), (1,), (0, 1)])
def test_no_scale_is_1(launch, absent):
    check(random_case(("e4m3", "e2m1"), absent=absent), launch)


def test_scales_that_are_fp8_numbers(launch):
    case = random_case(("e2m1", "e2m1"), group=16, scale=ml_dtypes.float8_e4m3fn)
    check(case, launch)


def test_sizes_that_are_no_powers_of_two(launch):
    check(random_case(("e2m1", "e5m2"), shape=(6, 10, 96)), launch)


@pytest.mark.parametrize(
    ("dtype", "result"),
    [(np.float32, tl.float32), (np.float16, tl.float16), (BF16, tl.bfloat16)],
    ids=["fp32", "fp16", "bf16"],
)
def test_an_accumulator_of_the_type_of_the_result(launch, dtype, result):
    case = random_case(("e4m3", "e4m3"))
    case.scales = [np.full_like(scale, 118) for scale in case.scales]
    case = Case(case.formats, case.a, case.b, case.scales)
    start = np.random.default_rng(3).standard_normal((M, N)).astype(dtype)
    out = case.run(launch, out=start.copy(), result=result)
    expected = case.expected + start.astype(np.float64)
    total = np.abs(case.numbers[0]) @ np.abs(case.numbers[1]).T + np.abs(start.astype(np.float64))
    bound = float(ml_dtypes.finfo(dtype).eps) * np.abs(expected) + 2.0**-20 * total
    assert (np.abs(out.astype(np.float64) - expected) <= bound).all()


def one_of_each(format_):
    """Every code of a format, in rows with nothing else: row i has code i at place i % 32."""
    count = {"e2m1": 16}.get(format_, 256)
    codes = np.zeros((count, 32), np.uint8)
    codes[np.arange(count), np.arange(count) % 32] = np.arange(count)
    return codes


@pytest.mark.parametrize("format_", ["e2m1", "e4m3", "e5m2"])
@pytest.mark.parametrize("exponent", [0, 1, 120, 127, 254, 255])
def test_every_code_with_scales_to_both_ends(launch, format_, exponent):
    a = one_of_each(format_)
    b = np.eye(32, dtype=BF16).view(np.uint16)
    scale = np.full((len(a), 1), exponent, np.uint8)
    case = Case((format_, "bf16"), a, b, [scale, None])
    check_exact(case, launch)


@pytest.mark.parametrize("format_", ["e2m1", "e4m3"])
def test_every_scale(launch, format_):
    a = np.full((256, 32), 0, np.uint8)
    a[:, 0] = 7
    scale = np.arange(256, dtype=np.uint8)[:, None]
    case = Case((format_, "bf16"), a, np.eye(32, dtype=BF16).view(np.uint16), [scale, None])
    check_exact(case, launch)


@tw.jit
def batched(a_ptr, scale_ptr, out_ptr, B: tl.constexpr):
    batch = tl.arange(0, B)[:, None, None]
    row, column = tl.arange(0, 8)[None, :, None], tl.arange(0, 16)[None, None, :]
    a = tl.load(a_ptr + batch * 128 + row * 16 + column)
    scale = tl.load(scale_ptr + batch * 8 + row)
    b = tl.trans(a, 0, 2, 1)
    out = tl.dot_scaled(a, scale, "e2m1", b, scale, "e2m1")
    tl.store(out_ptr + batch * 64 + row * 8 + tl.arange(0, 8)[None, None, :], out)


def test_batches_of_matrices(launch):
    codes = random_codes("e2m1", (3 * 8, 32), 0)
    scale = np.random.default_rng(1).integers(124, 130, (3, 8, 1)).astype(np.uint8)
    out = np.zeros((3, 8, 8), np.float32)
    launch(batched, (1,), packed(codes, 1), scale, out, B=3)
    for part, one, factor in zip(codes.reshape(3, 8, 32), out, scale, strict=True):
        x = operand(part, "e2m1", factor, BF16)
        np.testing.assert_array_equal(one, x @ x.T)


@tw.jit
def wrong(a_ptr, WHAT: tl.constexpr):
    a = tl.load(a_ptr + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16))
    one = tl.full((16, 1), 127, tl.uint8)
    if WHAT == "format":
        tl.dot_scaled(a, one, "e3m2", a, one, "e4m3")
    elif WHAT == "type":
        tl.dot_scaled(a.to(tl.int32), one, "e4m3", a, one, "e4m3")
    elif WHAT == "packing":
        tl.dot_scaled(a, one, "e4m3", a, one, "e4m3", lhs_k_pack=False)
    elif WHAT == "sizes":
        tl.dot_scaled(a, one, "e2m1", a, one, "e4m3")
    elif WHAT == "scale shape":
        tl.dot_scaled(a, tl.full((1, 16), 127, tl.uint8), "e4m3", a, one, "e4m3")
    elif WHAT == "scale type":
        tl.dot_scaled(a, one.to(tl.int32), "e4m3", a, one, "e4m3")
    elif WHAT == "acc":
        tl.dot_scaled(a, one, "e4m3", a, one, "e4m3", tl.zeros((16, 16), tl.float16))
    else:
        tl.dot_scaled(a, one, "e4m3", a, one, "e4m3", out_dtype=tl.float64)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("format", r"lhs_format must be one of 'e2m1', .* got 'e3m2'"),
        ("type", r"dot_scaled: lhs: e4m3 comes as tl.float8e4nv or tl.uint8, got i32\[16, 16\]"),
        ("packing", "lhs_k_pack: e4m3 is not packed, only e2m1 is"),
        ("sizes", "inner sizes differ: lhs has k = 32, rhs 16"),
        ("scale shape", r"lhs_scale is \[1, 16\], for 16 rows with k = 16"),
        ("scale type", r"lhs_scale: scales are exponents in uint8, or float8e4nv, got i32"),
        ("acc", r"the accumulator is fp16\[16, 16\], the result has fp32"),
        ("out_dtype", "products are fp32, fp16 or bf16, not fp64"),
    ],
)
@pytest.mark.cpu_only
def test_mistakes(launch, what, message):
    with pytest.raises(CompileError, match=message) as caught:
        launch(wrong, (1,), np.zeros((16, 16), np.uint8), WHAT=what)
    assert caught.value.location is not None
