import itertools
import math

import ml_dtypes
import numpy as np
import pytest

import tilewright.language as tl
from tests.language.eager import array, tile
from tests.language.libdevice_cases import EXECUTORS, bits, reference, run
from tilewright.errors import CompileError

libdevice = tl.extra.libdevice

NAMES = """
abs acos acosh add_{rd,rn,ru,rz} asin asinh atan atan2 atanh brev byte_perm cbrt ceil clz copysign
cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 div_{rd,rn,ru,rz} double2float_{rd,rn,ru,rz} double2hiint
double2int_{rd,rn,ru,rz} double2ll_{rd,rn,ru,rz} double2loint double2uint_{rd,rn,ru,rz}
double2ull_{rd,rn,ru,rz} double_as_longlong erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1
fast_cosf fast_dividef fast_exp10f fast_expf fast_log10f fast_log2f fast_logf fast_powf fast_sinf
fast_tanf fast_tanhf fdim ffs finitef float2int_{rd,rn,ru,rz} float2ll_{rd,rn,ru,rz}
float2uint_{rd,rn,ru,rz} float2ull_{rd,rn,ru,rz} float_as_int float_as_uint floor fma
fma_{rd,rn,ru,rz} fmod hadd hiloint2double hypot ilogb int2double_{rn} int2float_{rd,rn,ru,rz}
int_as_float isfinited isinf isnan j0 j1 jn ldexp lgamma ll2double_{rd,rn,ru,rz}
ll2float_{rd,rn,ru,rz} llrint llround log log10 log1p log2 logb longlong_as_double mul24
mul_{rd,rn,ru,rz} mulhi nearbyint nextafter norm3d norm4d normcdf normcdfinv popc pow rcbrt rcp64h
rcp_{rd,rn,ru,rz} remainder rhadd rhypot rint rnorm3d rnorm4d round rsqrt rsqrt_{rn} sad saturatef
scalbn signbit sin sinh sinpi sqrt sqrt_{rd,rn,ru,rz} sub_{rd,rn,ru,rz} tan tanh tgamma trunc
uint2double_{rn} uint2float_{rd,rn,ru,rz} uint_as_float ull2double_{rd,rn,ru,rz}
ull2float_{rd,rn,ru,rz} y0 y1 yn
"""


def all_names():
    for word in NAMES.split():
        stem, _, endings = word.rstrip("}").partition("{")
        yield from (stem + ending for ending in endings.split(","))


def test_every_name_exists_on_every_path():
    names = sorted(all_names())
    assert len(names) == 198
    assert sorted(libdevice.__all__) == names
    for name in names:
        function = getattr(libdevice, name)
        assert function.__doc__, name
        assert getattr(tl.extra.cuda.libdevice, name) is function
        assert getattr(tl.libdevice, name) is function
        assert hasattr(tl.math, name)


# The errors that the docstrings state, in ULP of fp64; the reference is rounded, too.
BOUNDS = dict.fromkeys(
    ["asinh", "acosh", "log1p", "atanh", "atan2", "erfc", "normcdf", "erfinv", "tanh"], 2.0
) | dict.fromkeys(["erfcx", "erfcinv", "normcdfinv", "cyl_bessel_i0", "cyl_bessel_i1"], 4.0)
BOUNDS |= dict.fromkeys(["tgamma", "lgamma", "j0", "j1", "y0", "y1"], 8.0)
BOUNDS |= dict.fromkeys(["jn", "yn"], 24.0)

# Ops of their own, computed in higher precision in eager mode.
FUNCTIONS_OF_THE_LANGUAGE = {"pow", "tanh"}


@pytest.mark.parametrize("name", list(reference()))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_errors_are_within_the_stated_bounds(name, dtype):
    operands, value, size = reference()[name]
    if name in {"jn", "yn"}:
        operands = [operands[0].astype(np.int32), operands[1].astype(dtype)]
    results = [run(name, *(_of(x, dtype) for x in operands), executor=e) for e in EXECUTORS]
    if name not in FUNCTIONS_OF_THE_LANGUAGE:
        assert np.array_equal(*map(bits, results))
    assert results[0].dtype == dtype
    if dtype == np.float64:
        bound = BOUNDS.get(name, 1.0) + 0.5
        if name in {"erfcinv", "normcdfinv"}:
            size = np.maximum(size, 0.5)
    else:
        bound = 2.5 if name == "tanh" else 0.51
    unit = np.spacing(size.astype(dtype)).astype(np.float64)
    for result in results:
        errors = np.abs(result.astype(np.float64) - value) / unit
        assert errors.max() <= bound


def _of(x, dtype):
    return x if x.dtype.kind == "i" else x.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["tan", "erfc", "lgamma", "expm1", "cbrt", "rint", "add_rd"])
def test_narrow_floats_go_through_fp32(name, dtype):
    x = np.array([0.25, 0.5, 1.75, 2.5], dtype)
    operands = [x, x] if name == "add_rd" else [x]
    expected = run(name, *(v.astype(np.float32) for v in operands)).astype(dtype)
    for executor in EXECUTORS:
        assert np.array_equal(run(name, *operands, executor=executor), expected)


INF, NAN = math.inf, math.nan
SPECIAL = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0]
# What C says of zeros, infinities, NaN, 1 and -1; None where only accuracy counts.
AT_SPECIAL = {
    "acos": [None, None, NAN, NAN, NAN, 0.0, None],
    "acosh": [NAN, NAN, INF, NAN, NAN, 0.0, NAN],
    "asin": [0.0, -0.0, NAN, NAN, NAN, None, None],
    "asinh": [0.0, -0.0, INF, -INF, NAN, None, None],
    "atan": [0.0, -0.0, math.pi / 2, -math.pi / 2, NAN, None, None],
    "atanh": [0.0, -0.0, NAN, NAN, NAN, INF, -INF],
    "cbrt": [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0],
    "cosh": [1.0, 1.0, INF, INF, NAN, None, None],
    "cospi": [1.0, 1.0, NAN, NAN, NAN, -1.0, -1.0],
    "cyl_bessel_i0": [1.0, 1.0, INF, INF, NAN, None, None],
    "cyl_bessel_i1": [0.0, -0.0, INF, -INF, NAN, None, None],
    "erfc": [1.0, 1.0, 0.0, 2.0, NAN, None, None],
    "erfcinv": [INF, INF, NAN, NAN, NAN, 0.0, NAN],
    "erfcx": [1.0, 1.0, 0.0, INF, NAN, None, None],
    "erfinv": [0.0, -0.0, NAN, NAN, NAN, INF, -INF],
    "exp10": [1.0, 1.0, INF, 0.0, NAN, 10.0, 0.1],
    "expm1": [0.0, -0.0, INF, -1.0, NAN, None, None],
    "finitef": [1, 1, 0, 0, 0, 1, 1],
    "isfinited": [1, 1, 0, 0, 0, 1, 1],
    "isinf": [0, 0, 1, 1, 0, 0, 0],
    "isnan": [0, 0, 0, 0, 1, 0, 0],
    "ilogb": [-(2**31), -(2**31), 2**31 - 1, 2**31 - 1, -(2**31), 0, 0],
    "j0": [1.0, 1.0, 0.0, 0.0, NAN, None, None],
    "j1": [0.0, -0.0, 0.0, -0.0, NAN, None, None],
    "lgamma": [INF, INF, INF, INF, NAN, 0.0, INF],
    "llrint": [0, 0, 2**63 - 1, -(2**63), 0, 1, -1],
    "llround": [0, 0, 2**63 - 1, -(2**63), 0, 1, -1],
    "log10": [-INF, -INF, INF, NAN, NAN, 0.0, NAN],
    "log1p": [0.0, -0.0, INF, NAN, NAN, None, -INF],
    "logb": [-INF, -INF, INF, INF, NAN, 0.0, 0.0],
    "normcdf": [0.5, 0.5, 1.0, 0.0, NAN, None, None],
    "normcdfinv": [-INF, -INF, NAN, NAN, NAN, INF, NAN],
    "rcbrt": [INF, -INF, 0.0, -0.0, NAN, 1.0, -1.0],
    "rint": [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0],
    "round": [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0],
    "saturatef": [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0],
    "signbit": [0, 1, 0, 1, 0, 0, 1],
    "sinh": [0.0, -0.0, INF, -INF, NAN, None, None],
    "sinpi": [0.0, -0.0, NAN, NAN, NAN, 0.0, -0.0],
    "tan": [0.0, -0.0, NAN, NAN, NAN, None, None],
    "tgamma": [INF, -INF, INF, NAN, NAN, 1.0, NAN],
    "trunc": [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0],
    "y0": [-INF, -INF, 0.0, NAN, NAN, None, NAN],
    "y1": [-INF, -INF, 0.0, NAN, NAN, None, NAN],
}


@pytest.mark.parametrize("name", AT_SPECIAL)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_special_values_are_those_of_c(name, dtype):
    results = [run(name, np.array(SPECIAL, dtype), executor=e) for e in EXECUTORS]
    assert np.array_equal(*map(bits, results))
    counts = [value is not None for value in AT_SPECIAL[name]]
    known = [value for value in AT_SPECIAL[name] if value is not None]
    expected = np.array(known, results[0].dtype)
    assert np.array_equal(bits(results[0][counts]), bits(expected))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("atan2", np.arctan2), ("copysign", np.copysign), ("nextafter", np.nextafter),
     ("fmod", np.fmod), ("pow", np.power)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_special_pairs_are_those_of_c(name, expected, dtype):
    values = np.array([*SPECIAL, 0.5, -2.0, np.finfo(dtype).max], dtype)
    x, y = (np.array(column) for column in zip(*itertools.product(values, values), strict=True))
    results = [run(name, x, y, executor=e) for e in EXECUTORS]
    if name not in FUNCTIONS_OF_THE_LANGUAGE:
        assert np.array_equal(*map(bits, results))
    with np.errstate(all="ignore"):
        wanted = expected(x, y)
    signed = ~np.isnan(wanted)
    for result in results:
        np.testing.assert_allclose(result, wanted, rtol=4 * np.finfo(dtype).eps, atol=0)
        assert np.array_equal(np.signbit(result)[signed], np.signbit(wanted)[signed])


def test_lengths():
    generator = np.random.default_rng(4)
    vectors = generator.standard_normal((4, 200)) * 10.0 ** generator.integers(-200, 200, 200)
    for count, name in ((2, "hypot"), (3, "norm3d"), (4, "norm4d")):
        wide = np.sqrt((vectors[:count].astype(np.longdouble) ** 2).sum(0))
        inverse = {"hypot": "rhypot"}.get(name, f"r{name}")
        for executor in EXECUTORS:
            length = run(name, *vectors[:count], executor=executor)
            np.testing.assert_array_max_ulp(length, wide.astype(np.float64), 1)
            length = run(inverse, *vectors[:count], executor=executor)
            np.testing.assert_array_max_ulp(length, (1 / wide).astype(np.float64), 1)
    x, y = np.array([[INF, NAN], [NAN, INF], [NAN, 0], [0, -0.0]]).T
    assert np.array_equal(run("hypot", x, y), [INF, INF, NAN, 0], equal_nan=True)
    assert np.array_equal(run("rhypot", x, y), [0, 0, NAN, INF], equal_nan=True)


def test_orders_of_bessel_functions():
    x = np.array([0.0, -0.0, 3.0, -3.0, 1e-120])
    assert run("jn", np.full(5, 2, np.int32), x).tolist()[:2] == [0, 0]
    odd = run("jn", np.full(5, 3, np.int32), x)
    assert odd[3] == -odd[2]
    assert run("jn", np.full(5, -3, np.int32), x)[2] == -odd[2]
    assert run("jn", np.full(5, 2, np.int32), x)[4] == 1e-120**2 / 8
    assert run("yn", np.full(5, 4, np.int32), x)[0] == -INF
    assert math.isnan(run("yn", np.full(5, 4, np.int32), x)[3])
    assert float(libdevice.jn(2, 3.0)) == run("jn", np.array(2), np.array(3.0, np.float32))


def test_operands_are_promoted_and_checked():
    x = tile([1.0, 2.0], "fp32")
    assert libdevice.hypot(x, 1).dtype is tl.float32
    assert libdevice.hypot(x, tile([1.0], "fp64")).dtype is tl.float64
    assert libdevice.expm1(tile([1], "i32")).dtype is tl.float32
    assert array(libdevice.ldexp(x, tile([3, -1], "i32"))).tolist() == [8.0, 1.0]
    assert array(libdevice.atan2(arg0=x, arg1=x)).shape == (2,)
    assert libdevice.fast_tanhf is libdevice.tanh
    for mistake, message in (
        (lambda: libdevice.hypot(x), "hypot: expected the arguments x, y"),
        (lambda: libdevice.popc(x), "popc: expected integers, got fp32"),
        (lambda: libdevice.mul24(tile([1], "i64"), 1), "expected integers of 32 bits"),
        (lambda: libdevice.float2int_rn(tile([1.0], "fp64")), r"expected fp32, got fp64\[1\]"),
        (lambda: libdevice.tan(None), "tan: expected a number or a tile, got None"),
    ):
        with pytest.raises(CompileError, match=message):
            mistake()
