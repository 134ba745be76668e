"""Arithmetic and casts of narrow floats, rewritten for targets that have neither.

What the rewritten function computes is compared bit for bit with the meaning of the ops.
"""

import numpy as np
import pytest

from tilewright import ops
from tilewright.interpreter import Interpreter, interpret
from tilewright.ir.builder import Builder
from tilewright.ir.core import Block, Function, Param
from tilewright.ir.types import DTYPES, PointerType, TileType
from tilewright.passes.legalize_casts import legalize_casts
from tilewright.passes.legalize_narrow_floats import legalize_narrow_floats
from tilewright.passes.widen_products import widen_products

FP8 = ["fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15"]
NARROW = ["fp16", "bf16", *FP8]
INTEGERS = ["i1", *(f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64))]
ROUNDINGS = ["rtne", "rtz"]


def tile(element, *shape):
    return TileType(DTYPES[element], shape)


def function_of(types, build):
    """A function of these parameters that returns what `build(builder, *params)` does."""
    params = tuple(map(Param, types))
    body = Block(params)
    body.yields = tuple(build(Builder(body), *params))
    return Function("f", body)


def unary(op, type_, *fields, **attributes):
    return function_of([type_], lambda b, x: [b.emit(op(x, *fields, **attributes))])


def legalize(function):
    legal = legalize_casts(legalize_narrow_floats(widen_products(function)))
    check_is_legal(legal)
    return legal


def check_is_legal(function):
    """Narrow floats are moved, not computed with."""
    moving = (ops.Bitcast, ops.Select, ops.Reshape, ops.Load, ops.Store, ops.Reduce, ops.Scan)
    for op in function.body.walk():
        narrow = {v.type.element.name for v in (*op.operands, *op.results)} & set(NARROW)
        if isinstance(op, ops.Cast) and narrow:
            assert (op.x.type.element.name, op.to.name) in {("fp32", "fp16"), ("fp16", "fp32")}
        elif isinstance(op, ops.Dot):
            assert not narrow & set(FP8)
        else:
            assert not narrow or isinstance(op, moving), op.op_name


def call(function, *arguments):
    with np.errstate(all="ignore"):
        return Interpreter().call(function, *arguments)


def bits_of(x):
    x = np.ascontiguousarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def assert_same_meaning(function, *arguments, exact_nan=True):
    for want, got in zip(
        call(function, *arguments), call(legalize(function), *arguments), strict=True
    ):
        different = bits_of(want) != bits_of(got)
        if not exact_nan:  # conversions from fp16 and fp8e5 keep the payload of a NaN
            with np.errstate(invalid="ignore"):
                different &= (want == want) | (got == got)
        where = np.argwhere(different)[:4]
        shown = [(hex(bits_of(want)[tuple(i)]), hex(bits_of(got)[tuple(i)])) for i in where]
        assert not len(where), f"{different.sum()} differ: {where.tolist()} {shown}"


def all_codes(element):
    dtype = DTYPES[element]
    bits = dtype.primitive_bitwidth
    return np.arange(1 << bits).astype(f"u{bits // 8}").view(dtype.numpy)


def fp32_patterns(count, seed=0):
    """Any bits; numbers in the range of narrow floats; ties of each width and their neighbours."""
    rng = np.random.default_rng(seed)
    anything = rng.integers(0, 2**32, count, np.uint32)
    sign = rng.integers(0, 2, count, np.uint32) << 31
    exponent = rng.integers(95, 160, count, np.uint32) << 23
    mantissa = rng.integers(0, 1 << 23, count, np.uint32)
    kept = rng.integers(8, 23, count, np.uint32)
    tie = ((mantissa >> kept << kept) | (1 << kept - 1)) + rng.integers(-1, 2, count)
    special = [0, 1, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF]
    special += [0x80000000 | x for x in special]
    parts = [
        anything,
        sign | exponent | mantissa,
        sign | exponent | (tie.astype(np.uint32) & 0x7FFFFF),
        np.array(special, np.uint32),
    ]
    return np.concatenate(parts).view(np.float32)


def fp64_patterns(count):
    x = fp32_patterns(count)
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        slightly = np.random.default_rng(1).choice([0, 2.0**-52, -(2.0**-53), 2.0**-30], len(x))
        near = x * (1 + slightly)
    anything = np.random.default_rng(2).integers(0, 2**64, count, np.uint64).view(np.float64)
    return np.concatenate([x, near, anything])


def integer_patterns(element, count):
    """All magnitudes; sums of two powers of two and their neighbours: ties, or nearly."""
    dtype = DTYPES[element]
    low, high = dtype.integer_range
    if element == "i1":
        return np.array([False, True])
    rng = np.random.default_rng(3)
    anything = rng.integers(low, high, count, dtype.numpy)
    anything >>= rng.integers(0, dtype.primitive_bitwidth, count).astype(dtype.numpy)
    powers = rng.integers(0, dtype.primitive_bitwidth - 1, (2, count)).astype(dtype.numpy)
    ties = (dtype.numpy.type(1) << powers).sum(0, dtype=dtype.numpy)
    ties += rng.integers(0, 3, count).astype(dtype.numpy) - dtype.numpy.type(1)
    ends = np.array([low, high - 1], dtype.numpy)
    return np.concatenate([anything, ties % dtype.numpy.type(high), ends])


def check_cast(x, source, to, rounding):
    function = unary(ops.Cast, tile(source, len(x)), DTYPES[to], rounding)
    assert_same_meaning(function, x, exact_nan=source not in {"fp16", "fp8e5"})


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("to", NARROW)
@pytest.mark.parametrize(("source", "patterns"), [("fp32", fp32_patterns), ("fp64", fp64_patterns)])
def test_wide_floats_to_narrow(source, patterns, to, rounding):
    check_cast(patterns(4000), source, to, rounding)


@pytest.mark.slow
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("to", NARROW)
def test_many_floats_to_narrow(to, rounding):
    for seed in range(1, 9):
        check_cast(fp32_patterns(300_000, seed), "fp32", to, rounding)


def test_fp64_to_fp32_toward_zero():
    check_cast(fp64_patterns(20_000), "fp64", "fp32", "rtz")


@pytest.mark.parametrize("source", NARROW)
@pytest.mark.parametrize("to", [*NARROW, "fp32", "fp64", "i1", "i8", "u16", "i32", "u64"])
def test_every_narrow_float_to_anything(source, to):
    for rounding in ROUNDINGS:
        check_cast(all_codes(source), source, to, rounding)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", NARROW)
def test_integers_to_narrow_floats_round_once(source, to):
    for rounding in ROUNDINGS:
        check_cast(integer_patterns(source, 2000), source, to, rounding)


def test_largest_integers_round_once():
    # 2^63 + 2^55 is a tie of bf16, and what is 1 above it is not.
    x = np.array([2**63 + 2**55, 2**63 + 2**55 + 1, 2**64 - 1], np.uint64)
    for rounding, want in (("rtne", [0x5F00, 0x5F01, 0x5F80]), ("rtz", [0x5F00, 0x5F00, 0x5F7F])):
        function = legalize(unary(ops.Cast, tile("u64", 3), DTYPES["bf16"], rounding))
        assert bits_of(call(function, x)[0]).tolist() == want


def test_casts_that_targets_have_stay():
    for source, to in [("fp32", "fp16"), ("fp16", "fp32"), ("fp64", "fp32"), ("i64", "fp64")]:
        function = unary(ops.Cast, tile(source, 4), DTYPES[to])
        assert legalize_casts(function) is function


def test_a_cast_there_and_back_still_rounds():
    def build(b, x):
        return [b.emit(ops.Cast(b.emit(ops.Cast(x, DTYPES["bf16"])), DTYPES["fp32"]))]

    assert_same_meaning(function_of([tile("fp32", 12014)], build), fp32_patterns(4000))


BINARY = [ops.Add, ops.Sub, ops.Mul, ops.Div, ops.Rem, ops.Minimum, ops.Maximum]
UNARY = [ops.Neg, ops.Abs, ops.Sqrt, ops.Floor, ops.Ceil, ops.Trunc, ops.Rint, ops.Exp, ops.Sin]


def pairs(element, count=4000):
    rng = np.random.default_rng(4)
    codes = all_codes(element)
    return [rng.choice(codes, count) for _ in range(3)]


@pytest.mark.parametrize("element", NARROW)
@pytest.mark.parametrize("op", BINARY)
def test_arithmetic_on_pairs(element, op):
    x, y, _ = pairs(element)
    function = function_of([tile(element, len(x))] * 2, lambda b, x, y: [b.emit(op(x, y))])
    assert_same_meaning(function, x, y, exact_nan=False)


@pytest.mark.parametrize("element", NARROW)
@pytest.mark.parametrize("op", UNARY)
def test_functions_of_every_narrow_float(element, op):
    x = all_codes(element)
    assert_same_meaning(unary(op, tile(element, len(x))), x, exact_nan=False)


@pytest.mark.parametrize("element", NARROW)
def test_fma_and_comparisons(element):
    def build(b, x, y, z):
        yield b.emit(ops.Fma(x, y, z))
        for predicate in ops.Predicate:
            yield b.emit(ops.Compare(predicate, x, y))

    operands = pairs(element)
    function = function_of([tile(element, len(operands[0]))] * 3, build)
    assert_same_meaning(function, *operands, exact_nan=False)


@pytest.mark.parametrize("element", NARROW)
@pytest.mark.parametrize("kind", [ops.Reduce, ops.Scan])
def test_each_step_of_a_reduction_rounds(element, kind):
    def build(b, x):
        params = tuple(Param(tile(element)) for _ in range(2))
        combine = Block(params)
        combine.yields = (Builder(combine).emit(ops.Add(*params)),)
        return b.emit(kind((x,), 0, combine)).results

    x = np.random.default_rng(5).uniform(0, 0.01, (37, 3)).astype(np.float32)
    (x,) = call(unary(ops.Cast, tile("fp32", 37, 3), DTYPES[element]), x)
    assert_same_meaning(function_of([tile(element, 37, 3)], build), x)


@pytest.mark.parametrize("element", NARROW)
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_keeps_infinities_and_zeros(element, descending):
    x = np.random.default_rng(6).permuted(all_codes(element))
    if element == "fp8e4b15":  # two codes for the largest number, and the sort gives one
        x = x[(bits_of(x) & 0x7F) != 0x7F]
    function = unary(ops.Sort, tile(element, len(x)), descending=descending)
    assert_same_meaning(function, x, exact_nan=False)


@pytest.mark.parametrize(("a", "b"), [(a, b) for a in FP8 for b in FP8[:2]] + [("fp16",) * 2])
@pytest.mark.parametrize("acc", ["fp32", "fp16"])
def test_products_of_narrow_floats(a, b, acc):
    rng = np.random.default_rng(7)
    operands = [
        call(
            unary(ops.Cast, tile("fp32", *shape), DTYPES[element]),
            rng.normal(size=shape).astype(np.float32),
        )[0]
        for element, shape in ((a, (5, 8)), (b, (8, 3)), (acc, (5, 3)))
    ]
    types = [tile(a, 5, 8), tile(b, 8, 3), tile(acc, 5, 3)]
    function = function_of(types, lambda build, *v: [build.emit(ops.Dot(*v))])
    assert_same_meaning(function, *operands)


@pytest.mark.parametrize("hexadecimal", [False, True])
def test_printing_shows_the_same(hexadecimal):
    printed = []
    for prepare in (lambda f: f, legalize_narrow_floats):
        function = function_of(
            [tile("bf16", 3)],
            lambda b, x: b.emit(ops.Print(": ", (x,), hexadecimal)).results,
        )
        machine = Interpreter(output=printed.append)
        machine.call(prepare(function), np.array([1, -0.5, np.inf], DTYPES["bf16"].numpy))
    assert printed[:3] == printed[3:]


def test_memory_moves_narrow_floats_as_they_are():
    pointer = TileType(PointerType(DTYPES["bf16"]))

    def build(b, source, target):
        x = b.emit(ops.Load(source))
        b.emit(ops.Store(target, b.emit(ops.Add(x, x))))
        return [b.emit(ops.Reshape(x, (1,)))]

    function = legalize(function_of([pointer, pointer], build))
    memory = np.array([1.5, 0], DTYPES["bf16"].numpy)
    address = memory.ctypes.data
    interpret(function, [address, address + 2])
    assert memory.tolist() == [1.5, 3.0]


def test_wide_arithmetic_stays():
    function = unary(ops.Neg, tile("fp32", 4))
    assert legalize_narrow_floats(function) is function
