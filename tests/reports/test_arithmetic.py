"""Public reports about division, integers and widths of offsets (triton-lang/triton, by number)."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import LaunchError, jit


@jit
def quotients(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask)
    y = tl.load(y_ptr + offsets, mask)
    tl.store(out_ptr + offsets, x / y, mask)


def divide(launch, x, y, dtype=np.float32):
    x, y = np.atleast_1d(x), np.atleast_1d(y)
    out = np.zeros(x.shape, dtype)
    launch(quotients, (tw.cdiv(x.size, 256),), x, y, out, x.size, BLOCK=256)
    return out


def test_10661_9262_division_is_correctly_rounded(launch):
    assert divide(launch, np.float32(4.6875), np.float32(0.9375)).view(np.int32) == 0x40A00000
    x = np.random.default_rng(0).standard_normal((2, 5000)).astype(np.float32)
    np.testing.assert_array_equal(divide(launch, *x).view(np.int32), (x[0] / x[1]).view(np.int32))


def test_pytorch_184408_truncated_quotients(launch):
    x = np.float32([148, 1073, 2112, 14.999999, 26.999999])
    y = np.float32([37, 37, 33, 3, 3])
    assert divide(launch, x, y, np.int32).tolist() == [4, 29, 64, 4, 8]


@jit
def three_divisions(x_ptr, y_ptr, out_ptr, n: tl.constexpr):
    offsets = tl.arange(0, n)
    x, y = tl.load(x_ptr + offsets), tl.load(y_ptr + offsets)
    tl.store(out_ptr + offsets, tl.fdiv(x, y, ieee_rounding=True))
    tl.store(out_ptr + n + offsets, tl.div_rn(x, y))
    tl.store(out_ptr + 2 * n + offsets, tl.fdiv(x, y))


def test_10073_fdiv_with_ieee_rounding_is_exact(launch):
    bits = np.random.default_rng(1).integers(0, 2**32, (2, 4096), dtype=np.uint32)
    x, y = bits.view(np.float32)
    out = np.zeros((3, x.size), np.float32)
    launch(three_divisions, (1,), x, y, out, n=x.size)
    with np.errstate(all="ignore"):
        expected = x / y
    known = ~np.isnan(expected)
    for exact in out[:2]:
        np.testing.assert_array_equal(exact, expected)
        np.testing.assert_array_equal(exact[known].view(np.int32), expected[known].view(np.int32))
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(out[2][~finite], expected[~finite])
    np.testing.assert_array_max_ulp(out[2][finite], expected[finite], 2)


@pytest.mark.parametrize(
    ("left", "right"), [("i1", "u4"), ("i1", "u2"), ("i8", "u8"), ("u8", "i8"), ("i4", "u1")]
)
def test_integers_with_and_without_sign_are_divided_as_they_are(launch, left, right):
    x, y = np.array([100, 7, 3], left), np.array([100, 2, 5], right)
    x, y = (
        side * np.array(-1, kind) if kind[0] == "i" else side
        for side, kind in ((x, left), (y, right))
    )
    assert divide(launch, x, y).tolist() == (x.astype(np.float32) / y.astype(np.float32)).tolist()


@jit
def doubled_over_itself(a_ptr, out_ptr, n: tl.constexpr):
    a = tl.load(a_ptr + tl.arange(0, n))
    tl.store(out_ptr + tl.arange(0, n), (2 * a) / a)


def test_605_a_quotient_of_integers_is_not_truncated_below(launch):
    a = np.arange(1, 100)
    out = np.zeros_like(a)
    launch(doubled_over_itself, (1,), a, out, n=a.size)
    assert (out == 2).all()


@jit
def integer_quotients(x_ptr, y_ptr, out_ptr, n: tl.constexpr):
    offsets = tl.arange(0, n)
    x, y = tl.load(x_ptr + offsets), tl.load(y_ptr + offsets)
    tl.store(out_ptr + offsets, x // y)
    tl.store(out_ptr + n + offsets, x % y)
    tl.store(out_ptr + 2 * n + offsets, tl.cdiv(x, y))


@jit
def constant_quotients(out_ptr, M: tl.constexpr, N: tl.constexpr):
    tl.store(out_ptr, M // N)
    tl.store(out_ptr + 1, M % N)
    tl.store(out_ptr + 2, tl.cdiv(M, N))
    tl.store(out_ptr + tl.arange(3, 19), tl.arange(0, 16) // -2)


def test_619_954_integer_division_truncates_and_cdiv_rounds_up(launch):
    pairs = [(x, y) for x in (-36, -35, -7, -1, 0, 1, 7, 36) for y in (-5, -2, 2, 5)]
    x, y = np.int32(pairs).T.copy()
    out = np.zeros((3, x.size), np.int32)
    launch(integer_quotients, (1,), x, y, out, n=x.size)
    truncated = np.trunc(x / y).astype(np.int32)
    np.testing.assert_array_equal(out[0], truncated)
    np.testing.assert_array_equal(out[1], x - truncated * y)
    np.testing.assert_array_equal(out[2], np.ceil(x / y).astype(np.int32))
    assert out[2].tolist() == [tw.cdiv(a, b) for a, b in pairs]  # the host says the same


def test_954_division_of_constants_is_that_of_python(launch):
    out = np.zeros(19, np.int32)
    launch(constant_quotients, (1,), out, M=-36, N=5)
    assert out[:3].tolist() == [-36 // 5, -36 % 5, -7]
    assert tw.cdiv(-36, 5) == -7
    assert out[3:].tolist() == [-(i // 2) for i in range(16)]  # a tile truncates


@jit
def offset_of_program(out_ptr, stride):
    tl.store(out_ptr, (tl.program_id(0) + 319) * stride)


@jit
def widened_offset(out_ptr, stride):
    tl.store(out_ptr, (tl.program_id(0) + 319).to(tl.int64) * stride)


@jit
def annotated_offset(out_ptr, stride: tl.int64):
    tl.store(out_ptr, (tl.program_id(0) + 319) * stride)


@pytest.mark.parametrize("kernel", [widened_offset, annotated_offset])
def test_6748_an_offset_widened_once_stays_wide(launch, kernel):
    out = np.zeros(1, np.int64)
    launch(kernel, (1,), out, 7_864_320)
    assert out[0] == 319 * 7_864_320


def test_6748_a_stride_that_needs_64_bits_has_them(launch):
    out = np.zeros(1, np.int64)
    launch(offset_of_program, (1,), out, 2**32 + 16)
    assert out[0] == 319 * (2**32 + 16)


@jit
def distant_elements(x_ptr, out_ptr, stride, WIDE: tl.constexpr):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    tl.store(out_ptr + tl.program_id(0), tl.load(x_ptr + row * stride))


@pytest.mark.parametrize("offset_type", ["stride", "row"])
def test_1058_elements_beyond_two_to_the_31(launch, offset_type):
    stride = 2**31 + 16 if offset_type == "stride" else 2**30
    rows = 2 if offset_type == "stride" else 3
    try:
        x = np.zeros((rows - 1) * stride + 1, np.uint8)  # only the pages that are touched exist
    except MemoryError:
        pytest.skip("the system does not promise memory that is not used")
    x[::stride] = np.arange(1, rows + 1)
    out = np.zeros(rows, np.int32)
    launch(distant_elements, (rows,), x, out, stride, WIDE=offset_type == "row")
    assert out.tolist() == list(range(1, rows + 1))


@jit
def mixed_widths(x_ptr, out_ptr, n: tl.constexpr):
    offsets = tl.arange(0, n)
    x = tl.load(x_ptr + offsets)
    wide = x.to(tl.int64)
    tl.store(out_ptr + offsets, wide * wide)
    tl.store(out_ptr + n + offsets, (wide << 8) + x)
    tl.store(out_ptr + 2 * n + offsets, (wide + wide) * 2)


def test_rocm_830_a_widened_operand_is_not_narrowed_again(launch):
    x = np.int32([2**31 - 1, -(2**31), 65536, -65537])
    out = np.zeros((3, 4), np.int64)
    launch(mixed_widths, (1,), x, out, n=4)
    wide = x.astype(np.int64)
    np.testing.assert_array_equal(out, [wide * wide, (wide << 8) + wide, 4 * wide])


@jit(debug=True)
def checked_offset(out_ptr, stride, SAFE: tl.constexpr):
    row = tl.program_id(0) + 319
    if SAFE:
        row = row.to(tl.int64)
    tl.store(out_ptr, row * stride)


def test_6748_an_offset_that_wraps_is_reported(launch):
    out = np.zeros(1, np.int64)
    launch(checked_offset, (1,), out, 7_864_320, SAFE=True)
    assert out[0] == 319 * 7_864_320
    with pytest.raises(LaunchError, match=r"int32 overflow in `\*`.*to\(tl\.int64\)") as raised:
        launch(checked_offset, (1,), out, 7_864_320, SAFE=False)
    assert raised.value.location.line == checked_offset.first_line + 4
    launch(checked_offset, (1,), out, 7_864_320, SAFE=False, sanitize_overflow=False)
    assert out[0] == np.int32(319 * 7_864_320 - 2**32)


def test_6748_without_debugging_int32_wraps_when_compiled():
    out = np.zeros(1, np.int64)
    offset_of_program[(1,)](out, 7_864_320)
    assert out[0] == -1_786_249_216
    with pytest.raises(LaunchError, match="int32 overflow"):
        offset_of_program.debug[(1,)](out, 7_864_320)


@jit(debug=True)
def intended_wraps(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    hashed = x.to(tl.uint32) * 2654435761
    tl.store(out_ptr + tl.arange(0, N), hashed.to(tl.int32, bitcast=True))
    tl.store(out_ptr + N + tl.arange(0, N), tl.mul(x, x, sanitize_overflow=False))
    tl.store(out_ptr + 2 * N + tl.arange(0, N), tl.sub(tl.add(x, 1), 1))
    tl.store(out_ptr + 3 * N, tl.sum(x, 0))
    tl.store(out_ptr + 4 * N, tl.randint(7, tl.program_id(0)))


def test_6748_what_is_meant_to_wrap_is_no_overflow(launch):
    x = np.int32([65536, 2**31 - 2, 70000])
    out = np.zeros((5, 3), np.int32)
    launch(intended_wraps, (1,), x, out, N=3)
    np.testing.assert_array_equal(out[0].view(np.uint32), x.view(np.uint32) * np.uint32(2654435761))
    np.testing.assert_array_equal(out[1], x * x)
    np.testing.assert_array_equal(out[2], x)
    assert out[3, 0] == x.sum(dtype=np.int32)


@jit(debug=True)
def product_in_helper(x, y):
    return x * y


@jit(debug=True)
def wraps_in_helper(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.reduce(x, 0, product_in_helper))
    tl.store(out_ptr + 1 + tl.arange(0, N), product_in_helper(x, 3))


def test_6748_overflow_in_a_helper_names_the_call(launch):
    x, out = np.int32([2, 3, 5]), np.zeros(4, np.int32)
    launch(wraps_in_helper, (1,), x, out, N=3)
    assert out.tolist() == [30, 6, 9, 15]
    with pytest.raises(LaunchError, match="int32 overflow") as raised:
        launch(wraps_in_helper, (1,), np.int32([2, 3, 2**30]), out, N=3)
    assert raised.value.location.line == product_in_helper.first_line + 1
    assert raised.value.location.caller.line == wraps_in_helper.first_line + 3
