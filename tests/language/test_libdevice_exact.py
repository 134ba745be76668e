import math
from fractions import Fraction

import numpy as np
import pytest

from tests.language.libdevice_cases import EXECUTORS, bits, run

DIRECTIONS = ("rn", "rd", "ru", "rz")
FLOATS = (np.float32, np.float64)


def both(name, *operands):
    """The result of every executor, after a check that it is the same."""
    eager, compiled = (run(name, *operands, executor=executor) for executor in EXECUTORS)
    assert np.array_equal(bits(eager), bits(compiled)), name
    return eager


def rounded(exact, dtype, direction):
    """The float next to a fraction in a direction."""
    precision, lowest, overflow = (24, -149, 128) if dtype == np.float32 else (53, -1074, 1024)
    if exact == 0:
        return dtype(0)
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    quantum = max(exponent - precision + 1, lowest)
    whole, rest = divmod(size, Fraction(2) ** quantum)
    half = Fraction(2) ** (quantum - 1)
    away = {
        "rn": rest > half or (rest == half and whole % 2 == 1),
        "rz": False,
        "ru": exact > 0 and rest > 0,
        "rd": exact < 0 and rest > 0,
    }
    steps = whole + away[direction]
    if steps * Fraction(2) ** quantum >= Fraction(2) ** overflow:
        outward = direction in {"rn", "ru" if exact > 0 else "rd"}
        result = np.inf if outward else np.finfo(dtype).max
    else:
        result = math.ldexp(steps, quantum)
    return dtype(-result if exact < 0 else result)


def samples(dtype, count=60):
    """Numbers of all sizes, ordinary ones, whole ones, and those at the ends of the range."""
    generator = np.random.default_rng(2)
    width = 8 * np.dtype(dtype).itemsize
    patterns = generator.integers(0, 2**width, count, dtype=np.uint64)
    any_size = patterns.astype(f"u{width // 8}").view(dtype)
    info = np.finfo(dtype)
    edges = [info.max, -info.max, info.smallest_subnormal, info.tiny, -info.tiny, 0, 1 + info.eps]
    numbers = [
        any_size[np.isfinite(any_size)],
        generator.standard_normal(count).astype(dtype),
        generator.integers(-9, 9, count).astype(dtype),
        generator.choice(np.array(edges, dtype), count),
    ]
    return np.concatenate(numbers)


def shuffled(x, seed):
    return np.random.default_rng(seed).permutation(x)


OPERATIONS = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_arithmetic_is_rounded_in_the_direction(name, direction, dtype):
    x = samples(dtype)
    y = shuffled(x, 3)
    operation = OPERATIONS.get(name, lambda x, y: x / y)
    if name == "div":
        x, y = x[y != 0], y[y != 0]
    expected = [
        rounded(operation(Fraction(a), Fraction(b)), dtype, direction)
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    assert np.array_equal(both(f"{name}_{direction}", x, y), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_fma_is_rounded_in_the_direction(direction, dtype):
    x = samples(dtype)
    y, z = shuffled(x, 3), shuffled(x, 4)
    with np.errstate(all="ignore"):
        z[::3] = -(x * y)[::3]  # cancels
        z[1::3] *= dtype(1e-20)
    z[~np.isfinite(z)] = 1
    expected = [
        rounded(Fraction(a) * Fraction(b) + Fraction(c), dtype, direction)
        for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]
    assert np.array_equal(both(f"fma_{direction}", x, y, z), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_roots_and_reciprocals_in_directions(dtype):
    x = np.abs(samples(dtype))
    x = x[x > 0]
    for direction in DIRECTIONS:
        inverse = [rounded(1 / Fraction(a), dtype, direction) for a in x.tolist()]
        assert np.array_equal(both(f"rcp_{direction}", x), inverse)
    down, up = both("sqrt_rd", x), both("sqrt_ru", x)
    for a, low, high in zip(x.tolist(), down.tolist(), up.tolist(), strict=True):
        assert Fraction(low) ** 2 <= Fraction(a) <= Fraction(high) ** 2
    assert np.all((down == up) | (np.nextafter(down, dtype(np.inf)) == up))
    assert np.array_equal(both("sqrt_rz", x), down)
    assert np.array_equal(both("sqrt_rn", x), np.sqrt(x))


def test_inverse_roots_are_rounded_once():
    x = np.abs(samples(np.float32, 200))
    x = x[x > 0]
    wanted = (1 / np.sqrt(x.astype(np.longdouble))).astype(np.float32)
    assert np.array_equal(both("rsqrt_rn", x), wanted)


@pytest.mark.parametrize("dtype", FLOATS)
def test_directed_arithmetic_of_infinities_and_zeros(dtype):
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], dtype)
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y}
    for name, wanted in expected.items():
        for direction in DIRECTIONS:
            result = both(f"{name}_{direction}", x, y)
            assert np.array_equal(result, wanted, equal_nan=True)
    one = np.ones(1, dtype)
    assert np.signbit(both("add_rd", one, -one))
    assert np.signbit(both("fma_rd", one, one, -one))
    assert not np.signbit(both("add_ru", one, -one))


INTEGERS = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_conversions_are_rounded_in_the_direction(direction):
    x = samples(np.float64)
    expected = [rounded(Fraction(a), np.float32, direction) for a in x.tolist()]
    assert np.array_equal(both(f"double2float_{direction}", x), expected)
    generator = np.random.default_rng(5)
    numbers = generator.integers(-(2**63), 2**63, 80) >> generator.integers(0, 60, 80)
    numbers = np.concatenate([numbers, [2**63 - 1, -(2**63), 0, 2**24 + 1]])
    for source, element in INTEGERS.items():
        for target, dtype in (("float", np.float32), ("double", np.float64)):
            if target == "double" and element(0).itemsize == 4 and direction != "rn":
                continue  # exact, so there is only one
            name, values = f"{source}2{target}_{direction}", numbers.astype(element)
            wanted = [rounded(Fraction(a), dtype, direction) for a in values.tolist()]
            assert np.array_equal(both(name, values), wanted), name


WHOLE = {"rn": np.rint, "rd": np.floor, "ru": np.ceil, "rz": np.trunc}


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_floats_become_integers_in_the_direction(direction):
    for source, dtype in (("float", np.float32), ("double", np.float64)):
        x = np.array([0.5, 1.5, -1.5, 2.75, -0.25, 1e9, 3e9, -3e9, 1e30, -1e30, np.nan], dtype)
        for target, element in INTEGERS.items():
            info = np.iinfo(element)
            wanted = [
                0 if math.isnan(v) else min(max(int(v), info.min), info.max)
                for v in WHOLE[direction](x).tolist()
            ]
            expected = np.array(wanted, element).view(f"i{info.bits // 8}")
            result = both(f"{source}2{target}_{direction}", x)
            assert result.dtype == expected.dtype
            assert np.array_equal(result, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_functions_agree_with_the_host(dtype):
    x = samples(dtype)
    y = shuffled(x, 6)
    for name, host in (("fmod", math.fmod), ("remainder", math.remainder)):
        wanted = [
            host(a, b) if b else math.nan for a, b in zip(x.tolist(), y.tolist(), strict=True)
        ]
        assert np.array_equal(bits(both(name, x, y)), bits(np.array(wanted, dtype)))
    assert np.array_equal(both("nextafter", x, y), np.nextafter(x, y))
    assert np.array_equal(both("fdim", x, y), np.where(x > y, both("sub_rn", x, y), 0))
    n = np.random.default_rng(7).integers(-2200, 2200, x.size).astype(np.int32)
    with np.errstate(all="ignore"):
        assert np.array_equal(bits(both("ldexp", x, n)), bits(np.ldexp(x, n)))
        assert np.array_equal(bits(both("scalbn", x, n)), bits(np.ldexp(x, n)))
    exponents = [math.frexp(a)[1] - 1 if a else -(2**31) for a in x.tolist()]
    assert both("ilogb", x).tolist() == exponents
    logb = [float(e) if a else -math.inf for e, a in zip(exponents, x.tolist(), strict=True)]
    assert both("logb", x).tolist() == logb
    halves = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 2**23 + 1.0], dtype)
    assert both("round", halves).tolist() == [1, -1, 2, 3, -3, 0, 2**23 + 1]
    assert both("llround", halves).tolist() == [1, -1, 2, 3, -3, 0, 2**23 + 1]
    assert both("rint", halves).tolist() == [0, 0, 2, 2, -2, 0, 2**23 + 1]
    assert both("nearbyint", halves).tolist() == both("llrint", halves).tolist()


def test_bits_of_integers():
    generator = np.random.default_rng(8)
    for dtype in (np.int32, np.int64, np.uint32, np.uint64):
        info = np.iinfo(dtype)
        x = generator.integers(info.min, info.max, 40, dtype, endpoint=True)
        x = np.concatenate([x >> 7, x, np.array([0, 1, info.min, info.max], dtype)])
        y = shuffled(x, 9)
        words = [a % 2**info.bits for a in x.tolist()]
        assert both("popc", x).tolist() == [a.bit_count() for a in words]
        assert both("clz", x).tolist() == [info.bits - a.bit_length() for a in words]
        assert both("ffs", x).tolist() == [(a & -a).bit_length() for a in words]
        reverse = [int(f"{a:0{info.bits}b}"[::-1], 2) for a in words]
        assert np.array_equal(both("brev", x), np.array(reverse, f"u{info.bits // 8}").view(dtype))
        pairs = list(zip(x.tolist(), y.tolist(), strict=True))
        assert both("mulhi", x, y).tolist() == [a * b >> info.bits for a, b in pairs]
        if info.bits == 32:
            assert both("hadd", x, y).tolist() == [(a + b) >> 1 for a, b in pairs]
            assert both("rhadd", x, y).tolist() == [(a + b + 1) >> 1 for a, b in pairs]
            difference = np.array([(abs(a - b) + 5) % 2**32 for a, b in pairs], np.uint32)
            result = both("sad", x, y, np.full(x.shape, 5, np.uint32))
            assert np.array_equal(result.view(np.uint32), difference)
            low = [_low_24(a, dtype) * _low_24(b, dtype) % 2**32 for a, b in pairs]
            assert np.array_equal(both("mul24", x, y).view(np.uint32), np.array(low, np.uint32))


def _low_24(x, dtype):
    low = x % 2**24
    return low - 2**24 if dtype == np.int32 and low >= 2**23 else low


def test_bytes_and_casts_of_bits():
    x = np.array([0x33221100, -1], np.int32)
    y = np.array([0x77665544, 0], np.int32)
    assert both("byte_perm", x, y, np.array([0x7531, 0x0404], np.int32)).tolist() == [
        0x77553311, np.int32(np.uint32(0xFF00FF00)),
    ]  # fmt: skip
    single, double = samples(np.float32), samples(np.float64)
    for name in ("float_as_int", "float_as_uint"):
        assert np.array_equal(both(name, single), single.view(np.int32))
    assert np.array_equal(both("int_as_float", single.view(np.int32)), single)
    assert np.array_equal(both("uint_as_float", single.view(np.uint32)), single)
    assert np.array_equal(both("double_as_longlong", double), double.view(np.int64))
    assert np.array_equal(both("longlong_as_double", double.view(np.int64)), double)
    high, low = both("double2hiint", double), both("double2loint", double)
    assert np.array_equal(high, (double.view(np.int64) >> 32).astype(np.int32))
    assert np.array_equal(both("hiloint2double", high, low), double)
    inverse = both("rcp64h", np.array([3.0, -0.7, 1e300]))
    np.testing.assert_allclose(inverse, 1 / np.array([3.0, -0.7, 1e300]), rtol=2**-20)
    assert not (inverse.view(np.int64) & 0xFFFFFFFF).any()
