import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import tilewright.language as tl
from tests.language.eager import array, scalar, tile
from tilewright.errors import CompileError

FUNCTIONS = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "sqrt_rn": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "floor": np.floor,
    "ceil": np.ceil,
    "erf": np.vectorize(math.erf),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_functions_keep_the_type_and_round_once(name, dtype):
    values = np.array([0.25, 0.5, 1.0, 1.75, 3.5], dtype)
    result = getattr(tl, name)(tile(values))
    expected = FUNCTIONS[name](values.astype(np.float64)).astype(dtype)
    assert array(result).dtype == dtype
    np.testing.assert_allclose(
        array(result).astype(np.float64),
        expected.astype(np.float64),
        rtol=1e-6 if dtype != np.float64 else 1e-13,
    )
    member = getattr(tile(values), name)()
    assert np.array_equal(array(member), array(result))
    assert getattr(tl.math, name) is getattr(tl, name)


def test_integers_and_literals_enter_as_fp32():
    assert tl.exp(tile([0, 1], "i32")).dtype is tl.float32
    assert float(tl.log2(8)) == 3
    assert tl.math.tanh(scalar(0.0, "fp32")).dtype is tl.float32
    with pytest.raises(CompileError, match="exp: expected a number or a tile, got None"):
        tl.exp(None)


def test_magnitude():
    assert array(tl.abs(tile([-3, 3, -128], "i8"))).tolist() == [3, 3, -128]
    assert array(abs(tile([200], "u8"))).tolist() == [200]
    assert math.copysign(1, float(-scalar(0.0, "fp32"))) == -1


def test_division_is_correctly_rounded():
    generator = np.random.default_rng(3)
    x, y = generator.standard_normal((2, 2000)).astype(np.float32)
    for quotient in (
        tl.fdiv(tile(x), tile(y)),
        tl.fdiv(tile(x), tile(y), ieee_rounding=True),
        tl.div_rn(tile(x), tile(y)),
        tile(x) / tile(y),
    ):
        assert np.array_equal(array(quotient), x / y)
    assert float(scalar(4.6875, "fp32") / scalar(0.9375, "fp32")) == 5
    for a, b, whole in [(148, 37, 4), (1073, 37, 29), (2112, 33, 64), (14.999999, 3, 4)]:
        assert int(scalar(a, "fp32") / scalar(b, "fp32")) == whole
    assert tl.fdiv(tile([1.0], "fp16"), tile([2.0], "fp16")).dtype is tl.float16
    assert tl.fdiv(tile([1.0], "fp16"), 2.0).dtype is tl.float32


def test_fused_multiply_add_rounds_once():
    x, z = np.float32(1 + 2**-12), np.float32(-1)
    assert float(tl.fma(scalar(x, "fp32"), scalar(x, "fp32"), scalar(z, "fp32"))) == float(
        np.float64(x) * np.float64(x) - 1
    )
    assert array(tl.fma(tile([3], "i32"), 4, 5)).tolist() == [17]


def test_high_products():
    assert int(tl.umulhi(scalar(0xFFFFFFFF, "u32"), 0xFFFFFFFF)) == 0xFFFFFFFE
    assert int(tl.umulhi(scalar(-1, "i32"), scalar(2, "i32"))) == 1
    assert int(tl.umulhi(scalar(2**63, "u64"), scalar(6, "u64"))) == 3
    with pytest.raises(CompileError, match="umulhi: expected integers of 32 or 64 bits"):
        tl.umulhi(tile([1], "i8"), tile([1], "i8"))


@pytest.mark.parametrize("y", [5, -5, 1, 4])
def test_ceiling_division_agrees_with_the_hosts(y):
    numbers = list(range(-40, 41))
    expected = [math.ceil(x / y) for x in numbers]
    assert array(tl.cdiv(tile(numbers, "i32"), y)).tolist() == expected
    assert [tl.cdiv(x, y) for x in numbers] == expected
    assert array(tl.cdiv(tile([7, 8], "u32"), 4)).tolist() == [2, 2]
    assert tl.cdiv(tile([7], "i64"), 4).dtype is tl.int64


def test_ceiling_division_by_zero():
    with pytest.raises(CompileError, match="division by zero"):
        tl.cdiv(4, 0)


def test_sigmoid():
    x = np.float32([-2, 0, 3])
    np.testing.assert_allclose(array(tl.sigmoid(tile(x))), 1 / (1 + np.exp(-x)), rtol=1e-6)


# Products.


@pytest.mark.parametrize("shape", [(16, 16, 16), (1, 1, 1), (3, 5, 7), (2, 4, 8)])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64", "fp8e5", "i8", "u8"])
def test_dot_of_any_size(shape, dtype):
    m, n, k = shape
    generator = np.random.default_rng(5)
    a = tile(generator.integers(0, 4, (m, k)), dtype)
    b = tile(generator.integers(0, 4, (k, n)), dtype)
    result = tl.dot(a, b)
    expected = array(a).astype(np.float64) @ array(b).astype(np.float64)
    assert np.array_equal(array(result).astype(np.float64), expected)
    wide = {"fp64": tl.float64, "i8": tl.int32, "u8": tl.int32}
    assert result.dtype is wide.get(dtype, tl.float32)


def test_dot_accumulates_and_batches():
    a = tile(np.ones((2, 3, 4)), "fp16")
    acc = tile(np.full((2, 3, 3), 0.5), "fp16")
    result = tl.dot(a, tl.trans(a), acc)
    assert result.dtype is tl.float16
    assert array(result).tolist() == np.full((2, 3, 3), 4.5).tolist()
    assert tl.dot(a, tl.trans(a), out_dtype=tl.float16).dtype is tl.float16
    for precision in ("ieee", "tf32", "tf32x3"):
        tl.dot(a, tl.trans(a), input_precision=precision)
    assert tl.dot(a, tl.trans(a), allow_tf32=False).dtype is tl.float32
    assert tl.dot(tile([[1.0]], "bf16"), tile([[1.0]], "bf16"), out_dtype=tl.float16).dtype is (
        tl.float32
    )


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        (([[1.0]], [[1.0]], "fp32", "fp16"), {}, "different types"),
        (([1.0], [1.0], "fp32", "fp32"), {}, "at least 2 axes"),
        (([[1.0, 2.0]], [[1.0]], "fp32", "fp32"), {}, "inner sizes differ"),
        (([[1]], [[1]], "i32", "i32"), {}, "no product of i32"),
        (([[1.0]], [[1.0]], "fp16", "fp16"), {"out_dtype": tl.bfloat16}, "fp16 or fp32"),
        (([[1.0]], [[1.0]], "fp32", "fp32"), {"input_precision": "fp8"}, "must be one of"),
    ],
)
def test_dot_mistakes_are_named(arguments, named, message):
    a, b, left, right = arguments
    with pytest.raises(CompileError, match=message):
        tl.dot(tile(a, left), tile(b, right), **named)


def test_the_accumulator_decides_the_result():
    a = tile([[1.0]], "fp16")
    with pytest.raises(CompileError, match="accumulate in fp32"):
        tl.dot(tile([[1.0]], "fp32"), tile([[1.0]], "fp32"), tile([[1.0]], "fp16"))
    with pytest.raises(CompileError, match="accumulator is fp32"):
        tl.dot(a, a, tile([[1.0]], "fp32"), out_dtype=tl.float16)


def fused(x, y, z):
    """`x * y + z` of Python floats, rounded once."""
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y + z
    if not math.isfinite(z):
        return z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(exact) if exact else x * y + z
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


EDGES = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, 2.0**-537, 1.7e308, -1.7e308]


def check_fma(x, y, z):
    with np.errstate(all="ignore"):
        got = array(tl.fma(tile(x), tile(y), tile(z)))
    expected = np.array(list(map(fused, x.tolist(), y.tolist(), z.tolist())))
    np.testing.assert_array_equal(got, expected)
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("exponents", [(-20, 20), (-1074, 1024), (-540, -480), (480, 520)])
def test_fma_of_fp64_is_rounded_once(exponents):
    rng = np.random.default_rng(7)
    x, y = (np.ldexp(rng.uniform(-2, 2, 600), rng.integers(*exponents, 600)) for _ in range(2))
    # What cancels the product, nearly, or is half a unit of its last place.
    with np.errstate(all="ignore"):
        product = x * y
        addends = [x, -product, np.nextafter(-product, 0), product * 2.0**-53, np.zeros(600)]
    for z in addends:
        check_fma(x, y, z)


def test_fma_of_fp64_at_the_edges():
    check_fma(*(each.ravel() for each in np.meshgrid(EDGES, EDGES, EDGES)))
