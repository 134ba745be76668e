"""Functions of real analysis as arithmetic: error in units in the last place, and special cases.

NumPy rounds each op as machines do, so what is measured here holds for generated code too. The
references are computed in fp64 for fp32, and in the widest float of the host for fp64.
"""

import math

import numpy as np
import pytest

from tilewright import ops
from tilewright.interpreter import Interpreter
from tilewright.ir.builder import Builder
from tilewright.ir.core import Block, Function, Param
from tilewright.ir.types import DTYPES, TileType
from tilewright.passes.expand_math import EXPANSIONS, expand_math
from tilewright.passes.expand_trigonometric import TWO_OVER_PI, TWO_OVER_PI_BITS

FLOATS = {"fp32": np.float32, "fp64": np.float64}

# The largest error ever measured, rounded up (over at least 50 million arguments for fp32).
BOUNDS = {
    (ops.Exp, "fp32"): 0.9, (ops.Exp, "fp64"): 0.9,
    (ops.Exp2, "fp32"): 0.9, (ops.Exp2, "fp64"): 0.8,
    (ops.Log, "fp32"): 0.95, (ops.Log, "fp64"): 0.85,
    (ops.Log2, "fp32"): 0.95, (ops.Log2, "fp64"): 0.85,
    (ops.Sin, "fp32"): 1.6, (ops.Sin, "fp64"): 0.85,
    (ops.Cos, "fp32"): 1.6, (ops.Cos, "fp64"): 0.85,
    (ops.Tanh, "fp32"): 1.75, (ops.Tanh, "fp64"): 1.75,
    (ops.Erf, "fp32"): 1.5, (ops.Erf, "fp64"): 1.15,
    (ops.Rsqrt, "fp32"): 1.5, (ops.Rsqrt, "fp64"): 1.5,
    (ops.Pow, "fp32"): 0.55, (ops.Pow, "fp64"): 1.1,
}  # fmt: skip

INF, NAN = math.inf, math.nan
needs_wide_reference = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="no float wider than fp64 to compare with"
)


def function_of(kind, element, count, operands):
    params = tuple(Param(TileType(DTYPES[element], (count,))) for _ in range(operands))
    body = Block(params)
    body.yields = (Builder(body).emit(kind(*params)),)
    return Function("f", body)


def expanded(kind, element, *arguments):
    """The op computed as the pass computes it."""
    function = expand_math(function_of(kind, element, len(arguments[0]), len(arguments)))
    with np.errstate(all="ignore"):
        (result,) = Interpreter().call(function, *arguments)
    return result


def erf(x):
    """The series exp(-x^2) sum 2^k x^(2k+1) / (2k+1)!!, whose terms have one sign.

    In fp64, the C library's function: within 1 ULP.
    """
    if x.dtype == np.float64:
        return np.vectorize(math.erf, otypes=[np.float64])(x)
    x = np.clip(x, -7, 7)
    term, total = x, x
    for k in range(1, 200):
        term = term * (2 * x * x) / (2 * k + 1)
        total = total + term
    half_sqrt_pi = np.sqrt(np.arctan(x.dtype.type(1)))  # sqrt(pi) / 2
    return total * np.exp(-x * x) / half_sqrt_pi


REFERENCES = {
    ops.Cos: np.cos, ops.Erf: erf, ops.Exp: np.exp, ops.Exp2: np.exp2, ops.Log: np.log,
    ops.Log2: np.log2, ops.Pow: np.power, ops.Rsqrt: lambda x: 1 / np.sqrt(x), ops.Sin: np.sin,
    ops.Tanh: np.tanh,
}  # fmt: skip


def errors(kind, element, *arguments):
    """Errors in units in the last place; infinite where zero, infinity or NaN is wrong."""
    dtype = FLOATS[element]
    wide = np.longdouble if element == "fp64" else np.float64
    got = expanded(kind, element, *arguments)
    with np.errstate(all="ignore"):
        want = REFERENCES[kind](*(x.astype(wide) for x in arguments))
        rounded = want.astype(dtype)
        info = np.finfo(dtype)
        exponent = np.maximum(np.frexp(want)[1] - 1, info.minexp)
        error = np.abs(got.astype(wide) - want) / np.ldexp(wide(1), exponent - info.nmant)
    special = ~np.isfinite(rounded) | ~np.isfinite(got)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    error = np.where(special, np.where(same, 0, INF), error)
    wrong_zero = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded))
    return np.where(wrong_zero, INF, error)


def specials(dtype):
    info = np.finfo(dtype)
    values = [0, 0.5, 1, 1.5, 2, 3, 100, info.max, info.tiny, info.smallest_subnormal, INF, NAN]
    return np.array([*values, *(-v for v in values)], dtype)


def arguments_of(kind, element, count, seed):
    """All exponents; the range where results are ordinary; near 1; near multiples of pi/2."""
    rng = np.random.default_rng(seed)
    dtype = FLOATS[element]
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    bits = rng.integers(0, np.iinfo(unsigned).max, count, unsigned, endpoint=True)
    largest = math.log2(float(np.finfo(dtype).max))
    quarters = rng.integers(0, 2 ** rng.integers(1, 40, count)).astype(np.longdouble)
    half_pi = 2 * np.arctan(np.longdouble(1))
    parts = [
        bits.view(dtype),
        rng.uniform(-1, 1, count) * largest,
        rng.uniform(-10, 10, count),
        rng.uniform(-2, 2, count),
        quarters * half_pi,
        specials(dtype),
    ]
    return np.concatenate([part.astype(dtype) for part in parts])


def pow_arguments(element, count, seed):
    """Pairs of anything; results over the whole range, also of negative numbers; all specials."""
    rng = np.random.default_rng(seed)
    dtype = FLOATS[element]
    largest = math.log(float(np.finfo(dtype).max))
    anything = rng.permuted(np.stack([arguments_of(ops.Pow, element, count, seed)] * 2), axis=1)
    x = np.exp(rng.uniform(-0.9, 0.9, count) * largest).astype(dtype)
    y = (rng.uniform(-1.05, 1.05, count) * largest / np.log(x)).astype(dtype)
    near_1 = (1 + rng.uniform(-0.1, 0.1, count)).astype(dtype)
    far = (rng.uniform(-10, 10, count) * largest).astype(dtype)
    grid = [axis.ravel() for axis in np.meshgrid(specials(dtype), specials(dtype))]
    return (
        np.concatenate([anything[0], x, -x, near_1, grid[0]]),
        np.concatenate([anything[1], y, np.rint(y), far, grid[1]]),
    )


def measure(kind, element, count, seed=0):
    with np.errstate(all="ignore"):
        if kind is ops.Pow:
            arguments = pow_arguments(element, count, seed)
        else:
            arguments = (arguments_of(kind, element, count, seed),)
    error = errors(kind, element, *arguments)
    worst = int(error.argmax())
    return error[worst], tuple(float(x[worst]) for x in arguments)


def test_every_inexact_function_is_expanded_and_measured():
    inexact = {kind for kind in vars(ops).values() if is_inexact(kind)}
    assert inexact == set(EXPANSIONS)
    assert {kind for kind, _ in BOUNDS} == inexact
    assert all(bound <= kind.max_ulp for (kind, _), bound in BOUNDS.items())


def is_inexact(kind):
    return (
        isinstance(kind, type)
        and issubclass(kind, ops.MathFunction)
        and kind is not ops.MathFunction
        and kind.max_ulp > 0
    )


def samples(kind, element):
    """How many arguments of each sort take a tenth of a second or so."""
    return 400 if element == "fp64" or kind in {ops.Sin, ops.Cos, ops.Pow} else 6000


@needs_wide_reference
@pytest.mark.parametrize(("kind", "element"), BOUNDS, ids=lambda v: getattr(v, "op_name", v))
def test_error_is_within_the_bound(kind, element):
    error, where = measure(kind, element, samples(kind, element))
    assert error <= BOUNDS[kind, element], where


@needs_wide_reference
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "element"), BOUNDS, ids=lambda v: getattr(v, "op_name", v))
def test_error_is_within_the_bound_on_many_arguments(kind, element):
    for seed in range(1, 4):
        error, where = measure(kind, element, 8 * samples(kind, element), seed)
        assert error <= BOUNDS[kind, element], where


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(EXPANSIONS.keys() - {ops.Pow}, key=str))
def test_error_over_the_whole_of_fp32(kind):
    step = 2**17 if kind in {ops.Sin, ops.Cos} else 2**13
    for offset in (1, step // 3, step // 2 + 1):
        x = np.arange(offset, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
        error = errors(kind, "fp32", x)
        assert error.max() <= BOUNDS[kind, "fp32"], float(x[error.argmax()])


def nearest_to_quarter_turns(mantissa_bits, exponents):
    """Numbers M 2^e that are very near to multiples of pi/2.

    The continued fraction of 2^e 2/pi has the best denominators M.
    """
    found = []
    for e in exponents:
        numerator, denominator = TWO_OVER_PI << max(e, 0), 1 << (TWO_OVER_PI_BITS + max(-e, 0))
        older, newer = 1, 0
        while denominator:
            quotient, rest = divmod(numerator, denominator)
            older, newer = newer, quotient * newer + older
            if newer >= 2**mantissa_bits:
                break
            found.append(math.ldexp(newer, e))
            numerator, denominator = denominator, rest
    return np.array([x for x in found if x])


@needs_wide_reference
@pytest.mark.parametrize("kind", [ops.Sin, ops.Cos])
def test_hardest_arguments_of_sine_and_cosine(kind):
    x = nearest_to_quarter_turns(24, range(-24, 105, 3)).astype(np.float32)
    assert len(x) > 400
    assert errors(kind, "fp32", x).max() <= BOUNDS[kind, "fp32"]
    x = nearest_to_quarter_turns(53, range(-52, 971, 61))
    # The reference, of 64 bits, is itself off by up to half an ULP where the sine is smallest.
    assert errors(kind, "fp64", x).max() <= 1.25


@pytest.mark.parametrize("element", FLOATS)
def test_exact_results(element):
    dtype = FLOATS[element]
    powers = np.arange(*np.finfo(dtype).minexp * np.array([1, -1]), 1).astype(dtype)
    assert np.array_equal(
        expanded(ops.Exp2, element, powers), np.ldexp(dtype(1), powers.astype(int))
    )
    values = np.ldexp(dtype(1), powers.astype(int))
    assert np.array_equal(expanded(ops.Log2, element, values), powers)
    ones = np.ones(1, dtype)
    assert expanded(ops.Log, element, ones)[0] == 0
    assert expanded(ops.Exp, element, 0 * ones)[0] == 1
    assert expanded(ops.Cos, element, 0 * ones)[0] == 1
    assert expanded(ops.Pow, element, 3 * ones, 4 * ones)[0] == 81


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize(
    ("kind", "arguments", "want"),
    [
        (ops.Exp, (-INF,), 0.0),
        (ops.Exp, (INF,), INF),
        (ops.Exp2, (1e30,), INF),
        (ops.Exp2, (-1e30,), 0.0),
        (ops.Log, (0.0,), -INF),
        (ops.Log, (-0.0,), -INF),
        (ops.Log, (-1.0,), NAN),
        (ops.Log2, (-INF,), NAN),
        (ops.Log2, (INF,), INF),
        (ops.Sin, (-0.0,), -0.0),
        (ops.Sin, (INF,), NAN),
        (ops.Cos, (-INF,), NAN),
        (ops.Tanh, (-0.0,), -0.0),
        (ops.Tanh, (-INF,), -1.0),
        (ops.Erf, (-0.0,), -0.0),
        (ops.Erf, (INF,), 1.0),
        (ops.Rsqrt, (0.0,), INF),
        (ops.Rsqrt, (-0.0,), -INF),
        (ops.Rsqrt, (INF,), 0.0),
        (ops.Rsqrt, (-1.0,), NAN),
        # C99, annex F.9.4.4
        (ops.Pow, (0.0, -3.0), INF),
        (ops.Pow, (-0.0, -3.0), -INF),
        (ops.Pow, (-0.0, -2.0), INF),
        (ops.Pow, (-0.0, -INF), INF),
        (ops.Pow, (-0.0, 3.0), -0.0),
        (ops.Pow, (-0.0, 2.5), 0.0),
        (ops.Pow, (-1.0, INF), 1.0),
        (ops.Pow, (-1.0, -INF), 1.0),
        (ops.Pow, (1.0, NAN), 1.0),
        (ops.Pow, (NAN, 0.0), 1.0),
        (ops.Pow, (NAN, 1.0), NAN),
        (ops.Pow, (-1.0, NAN), NAN),
        (ops.Pow, (-2.0, 0.5), NAN),
        (ops.Pow, (0.5, -INF), INF),
        (ops.Pow, (-1.5, -INF), 0.0),
        (ops.Pow, (-0.5, INF), 0.0),
        (ops.Pow, (-1.5, INF), INF),
        (ops.Pow, (-INF, -3.0), -0.0),
        (ops.Pow, (-INF, -2.5), 0.0),
        (ops.Pow, (-INF, 3.0), -INF),
        (ops.Pow, (-INF, 0.5), INF),
        (ops.Pow, (INF, -1.0), 0.0),
        (ops.Pow, (INF, 0.5), INF),
        (ops.Pow, (-2.0, 3.0), -8.0),
    ],
    ids=str,
)
def test_special_cases(element, kind, arguments, want):
    got = expanded(kind, element, *(np.array([x], FLOATS[element]) for x in arguments))[0]
    assert (np.isnan(got) and np.isnan(want)) or got == want
    assert np.isnan(want) or np.signbit(got) == np.signbit(want)


@pytest.mark.parametrize("kind", EXPANSIONS)
def test_nan_with_any_payload_stays_nan(kind):
    bits = [0x7F800001, 0x7FC00003, 0x7FFFFFFF, 0xFF80FFFF, 0xFFC00001]
    x = np.array(bits, np.uint32).view(np.float32)
    operands = (x, x) if kind is ops.Pow else (x,)
    assert np.isnan(expanded(kind, "fp32", *operands)).all()


@pytest.mark.parametrize("element", ["fp16", "bf16"])
def test_narrow_floats_are_computed_in_fp32(element):
    dtype = DTYPES[element].numpy
    x = np.linspace(-3, 3, 101).astype(dtype)
    want = np.tanh(x.astype(np.float64))
    got = expanded(ops.Tanh, element, x)
    assert got.dtype == dtype
    spacing = 2.0 ** -DTYPES[element].mantissa_bits
    assert (np.abs(got.astype(np.float64) - want) <= 0.51 * spacing * np.abs(want)).all()


def test_scalars_and_tiles_of_any_rank():
    for shape in [(), (3, 5)]:
        param = Param(TileType(DTYPES["fp32"], shape))
        body = Block((param,))
        body.yields = (Builder(body).emit(ops.Exp(param)),)
        function = expand_math(Function("f", body))
        (result,) = Interpreter().call(function, np.zeros(shape, np.float32))
        assert result.shape == shape
        assert (result == 1).all()


def test_other_ops_stay():
    function = function_of(ops.Sqrt, "fp32", 4, 1)
    assert expand_math(function) is function
