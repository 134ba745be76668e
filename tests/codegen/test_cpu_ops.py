"""Every op on every dtype: the CPU target computes what `evaluate` says."""

import numpy as np
import pytest

from tests.codegen import tile_harness
from tests.codegen.tile_harness import (
    interpret,
    pointers,
    run_both,
    run_on_cpu,
    same_bits,
    ulp_difference,
)
from tilewright import ops
from tilewright.ir.builder import Builder
from tilewright.ir.core import OPS, Block, Function, Param
from tilewright.ir.types import DTYPES, DType, PointerType, TileType
from tilewright.ops.elementwise import Elementwise
from tilewright.ops.math import MathFunction
from tilewright.ops.numerics import narrow

SIZES = (1, 5, 16, 37)
NUMBERS = [d for d in DTYPES.values() if not d.is_bool()]
FLOATS = [d for d in NUMBERS if d.is_floating()]


def values(dtype: DType, shape, seed: int = 0) -> np.ndarray:
    """Random elements with the special ones among them."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool():
        return rng.integers(0, 2, shape).astype(bool)
    if not dtype.is_floating():
        low, high = dtype.integer_range
        full = rng.integers(low, high, shape, dtype=dtype.numpy, endpoint=True)
        small = rng.integers(max(low, -3), 4, shape).astype(dtype.numpy)
        return np.where(rng.random(shape) < 0.5, full, small).astype(dtype.numpy)
    x = rng.normal(size=shape) * np.exp2(rng.integers(-8, 8, shape))
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 0.5, -1.5])
    x = np.where(rng.random(shape) < 0.3, rng.choice(special, shape), x)
    if dtype.name == "fp8e4b15":
        return narrow(x.astype(np.float32), dtype)
    with np.errstate(all="ignore"):
        return x.astype(np.float32).astype(dtype.numpy)


def ldexp_operands(dtype: DType) -> list[np.ndarray]:
    """Numbers from 1/2 to 2, and whole exponents that reach every kind of result."""
    rng = np.random.default_rng(0)
    reach = 2 * dtype.exponent_bias
    x = rng.uniform(0.5, 2, 150) * rng.choice([-1, 1], 150)
    n = rng.integers(-reach, reach, 150)
    return [v.astype(dtype.numpy) for v in (x, n)]


def elementwise_cases():
    for cls in OPS.values():
        if not issubclass(cls, Elementwise):
            continue
        for dtype in DTYPES.values():
            accepted = cls.accepts == "any" or (cls.accepts == "float") == dtype.is_floating()
            if not accepted or (issubclass(cls, ops.MulHigh) and dtype.is_bool()):
                continue
            if cls is ops.Ldexp and dtype.primitive_bitwidth < 32:
                continue  # narrow floats do not hold the exponents
            variants = [{}]
            if cls is ops.Compare:
                variants = [{"predicate": p} for p in ops.Predicate]
            elif cls in {ops.Minimum, ops.Maximum}:
                variants = [{"propagate_nan": flag} for flag in (False, True)]
            yield pytest.param(cls, dtype, variants, id=f"{cls.op_name}-{dtype.name}")


@pytest.mark.parametrize(("cls", "dtype", "variants"), list(elementwise_cases()))
def test_elementwise(cls, dtype, variants):
    count = sum(kind == "operand" for kind in cls.field_kinds.values())
    arrays = [values(dtype, 150, seed) for seed in range(count)]
    if cls is ops.Ldexp:
        arrays = ldexp_operands(dtype)

    def build(emit, *tiles):
        names = [n for n, kind in cls.field_kinds.items() if kind == "operand"]
        fields = dict(zip(names, tiles, strict=True))
        return [emit(cls(**fields, **attributes)) for attributes in variants]

    bound = tile_harness.ulp_bound(cls) if issubclass(cls, MathFunction) else 0
    for want, got in run_both(arrays, build, [dtype] * count):
        if bound and dtype.primitive_bitwidth >= 32:
            assert ulp_difference(got, want) <= bound
        elif bound:  # computed in fp32 and rounded: a last bit may tip over
            wide_got, wide_want = (
                x.astype(np.float32) if dtype.name != "fp8e4b15" else x for x in (got, want)
            )
            np.testing.assert_allclose(
                wide_got, wide_want, rtol=2.0 ** (1 - dtype.mantissa_bits), atol=1e-2
            )
        else:
            assert same_bits(got, want), (arrays, got, want)


@pytest.mark.parametrize("source", list(DTYPES.values()), ids=lambda d: d.name)
def test_cast(source):
    targets = [(d, r) for d in DTYPES.values() for r in ("rtne", "rtz")]

    def build(emit, x):
        return [emit(ops.Cast(x, d, r)) for d, r in targets]

    results = run_both([values(source, 203)], build, [source])
    for (target, rounding), (want, got) in zip(targets, results, strict=True):
        assert same_bits(got, want), (target.name, rounding, got, want)


@pytest.mark.parametrize("size", SIZES)
def test_select_and_hint(size):
    def build(emit, c, x, y):
        return emit(ops.Hint(emit(ops.Select(c, x, y)), "multiple_of", (1,)))

    for dtype in DTYPES.values():
        arrays = [values(DTYPES["i1"], size), values(dtype, size, 1), values(dtype, size, 2)]
        ((want, got),) = run_both(arrays, build, [DTYPES["i1"], dtype, dtype])
        assert same_bits(got, want)


SHAPES = [(4, 8), (3, 5), (1, 7), (16, 16), (2, 3, 5), (33, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["fp32", "i8", "i64", "i1"])
def test_shapes(shape, name):
    dtype = DTYPES[name]
    rank, size = len(shape), int(np.prod(shape))

    def build(emit, x, y):
        reverse = tuple(reversed(range(rank)))
        joined = emit(ops.Join(x, y))
        halves = emit(ops.Split(joined)).results
        tail = emit(ops.Reshape(joined, (2 * size,)))
        return [
            emit(ops.Permute(x, reverse)),
            emit(ops.Reshape(x, (size,))),
            emit(ops.Reshape(emit(ops.Permute(x, reverse)), (size,))),
            emit(ops.Reshape(x, reverse and tuple(shape[i] for i in reverse))),
            joined, tail, *halves,
            *(emit(ops.Cat(x, y, axis)) for axis in range(rank)),
            emit(ops.Broadcast(emit(ops.ExpandDims(x, 0)), (3, *shape))),
            emit(ops.Broadcast(emit(ops.ExpandDims(x, rank)), (*shape, 6))),
        ]  # fmt: skip

    for want, got in run_both([values(dtype, shape), values(dtype, shape, 1)], build, [dtype] * 2):
        assert same_bits(got, want)


def region(*elements: DType, build) -> Block:
    params = [Param(TileType(e)) for e in elements * 2]
    builder = Builder(Block(tuple(params)))
    result = build(builder.emit, *params)
    builder.block.yields = result if isinstance(result, tuple) else (result,)
    return builder.block


def whole_numbers(shape, dtype, seed=0):
    """Numbers whose sums are exact, so that the order does not matter."""
    return np.random.default_rng(seed).integers(0, 8, shape).astype(dtype.numpy)


REDUCIBLE = [d for d in NUMBERS if not d.is_fp8()]


@pytest.mark.parametrize(
    "shape", [(1,), (7,), (64,), (100,), (4, 8), (5, 37), (40, 3), (3, 4, 20)], ids=str
)
@pytest.mark.parametrize("dtype", REDUCIBLE, ids=lambda d: d.name)
def test_reduce(shape, dtype):
    combines = {"add": ops.Add, "maximum": ops.Maximum, "minimum": ops.Minimum, "mul": ops.Mul}

    def build(emit, x):
        results = []
        for axis in range(len(shape)):
            for cls in combines.values():
                block = region(dtype, build=lambda e, a, b, c=cls: e(c(a, b)))
                results += emit(ops.Reduce((x,), axis, block, commutative=True)).results
        return results

    x = whole_numbers(shape, dtype) if dtype.is_floating() else values(dtype, shape)
    x = np.minimum(x, np.ones((), x.dtype)) if dtype.primitive_bitwidth == 16 else x
    for want, got in run_both([x], build):
        assert same_bits(got, want)


def first_largest(emit, x, i, y, j):
    """The larger value with its index; of equals, the smaller index."""
    larger = emit(ops.Compare("gt", x, y))
    tie = emit(ops.And(emit(ops.Compare("eq", x, y)), emit(ops.Compare("lt", i, j))))
    keep = emit(ops.Or(larger, tie))
    return emit(ops.Select(keep, x, y)), emit(ops.Select(keep, i, j))


@pytest.mark.parametrize("commutative", [True, False])
@pytest.mark.parametrize("shape", [(1,), (9,), (50,), (6, 33), (33, 6)], ids=str)
def test_reduce_pairs(shape, commutative):
    def build(emit, x, i):
        block = region(DTYPES["fp32"], DTYPES["i32"], build=first_largest)
        return [
            r
            for axis in range(len(shape))
            for r in emit(ops.Reduce((x, i), axis, block, commutative=commutative)).results
        ]

    index = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    for want, got in run_both([whole_numbers(shape, DTYPES["fp32"]), index], build):
        assert same_bits(got, want)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(1,), (13,), (4, 8), (5, 37), (3, 4, 6)], ids=str)
def test_scan(shape, reverse):
    def recurrence(emit, a1, b1, a2, b2):
        return emit(ops.Mul(a1, a2)), emit(ops.Add(emit(ops.Mul(a2, b1)), b2))

    def build(emit, a, b):
        block = region(DTYPES["fp32"], DTYPES["fp32"], build=recurrence)
        add = region(DTYPES["fp32"], build=lambda e, x, y: e(ops.Add(x, y)))
        results = []
        for axis in range(len(shape)):
            results += emit(ops.Scan((a, b), axis, block, reverse=reverse)).results
            results += emit(ops.Scan((a,), axis, add, reverse=reverse)).results
        return results

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for _ in range(2)]
    for want, got in run_both(arrays, build):
        assert same_bits(got, want)  # one element at a time, so even rounding agrees


@pytest.mark.parametrize("shape", [(1,), (2,), (37,), (128,), (3, 20)], ids=str)
@pytest.mark.parametrize("dtype", REDUCIBLE, ids=lambda d: d.name)
def test_sort(shape, dtype):
    def build(emit, x):
        return [emit(ops.Sort(x, descending=flag)) for flag in (False, True)]

    for want, got in run_both([values(dtype, shape)], build):
        assert same_bits(got, want)


@pytest.mark.parametrize("name", ["i8", "i32", "u16", "i64"])
def test_gather_and_histogram(name):
    index_type = DTYPES[name]
    rng = np.random.default_rng(3)
    source = rng.normal(size=(9, 20)).astype(np.float32)
    index = rng.integers(0 if name[0] == "u" else -2, 24, (9, 33)).astype(index_type.numpy)
    flat = index.reshape(-1)
    mask = rng.random(flat.size) < 0.7

    def build(emit, x, i, f, m):
        along_0 = emit(ops.Permute(x, (1, 0)))
        turned = emit(ops.Permute(i, (1, 0)))
        return [
            emit(ops.Gather(x, i, 1)), emit(ops.Gather(along_0, turned, 0)),
            emit(ops.Histogram(16, f, m)), emit(ops.Histogram(25, f)),
        ]  # fmt: skip

    for want, got in run_both([source, index, flat, mask], build):
        assert same_bits(got, want)


@pytest.mark.parametrize(
    "dims", [(1, 1, 1), (4, 2, 8), (16, 16, 16), (33, 17, 5), (20, 40, 64)], ids=str
)
@pytest.mark.parametrize(
    ("kind", "acc"),
    [("fp32", "fp32"), ("fp64", "fp64"), ("fp16", "fp32"), ("fp16", "fp16"), ("bf16", "fp32"),
     ("i8", "i32"), ("u8", "i32"), ("fp8e4nv", "fp32"), ("fp8e5", "fp32")],
)  # fmt: skip
def test_dot(dims, kind, acc):
    m, n, k = dims
    dtype, acc_type = DTYPES[kind], DTYPES[acc]
    a, b = whole_numbers((m, k), dtype), whole_numbers((k, n), dtype, 1)
    c = whole_numbers((m, n), acc_type, 2)

    def build(emit, a, b, c):
        zero = emit(ops.Full(0 if acc == "i32" else 0.0, c.type))
        turned = emit(
            ops.Dot(
                emit(ops.Permute(b, (1, 0))),
                emit(ops.Permute(a, (1, 0))),
                emit(ops.Permute(c, (1, 0))),
            )
        )
        return [emit(ops.Dot(a, b, c)), emit(ops.Dot(a, b, zero)), turned]

    for want, got in run_both([a, b, c], build, [dtype, dtype, acc_type]):
        assert same_bits(got, want)


def test_dot_batched():
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 5, s).astype(np.float32) for s in ((2, 3, 4, 8), (2, 3, 8, 6), (2, 3, 4, 6))
    ]
    for want, got in run_both(arrays, lambda emit, a, b, c: emit(ops.Dot(a, b, c))):
        assert same_bits(got, want)


ATOMIC_CASES = [
    (kind, dtype)
    for kind in ops.AtomicKind
    for dtype in NUMBERS
    if (dtype.primitive_bitwidth >= 32 or dtype.name in {"fp16", "bf16"})
    and not (dtype.is_floating() and kind in {"and", "or", "xor"})
]


@pytest.mark.parametrize(("kind", "dtype"), ATOMIC_CASES, ids=lambda x: getattr(x, "name", str(x)))
def test_atomic(kind, dtype):
    pointer = TileType(PointerType(dtype))
    params = [Param(pointer, n) for n in ("memory", "values", "old")]
    builder = Builder(Block(tuple(params)))
    emit = builder.emit
    value = emit(ops.Load(pointers(emit, params[1], (21,))))
    lanes = emit(ops.Arange(0, 21))
    mask = emit(ops.Compare("ne", lanes, emit(ops.Full(4, lanes.type))))
    where = emit(ops.Rem(lanes, emit(ops.Full(8, lanes.type))))
    places = emit(ops.PointerAdd(emit(ops.Broadcast(params[0], (21,))), where))
    old = emit(ops.AtomicRmw(kind, places, value, mask))
    emit(ops.Store(pointers(emit, params[2], (21,)), old))
    function = Function("atomic", builder.block)
    memory, given = values(dtype, 8), values(dtype, 21, 1)
    sides = []
    for run in (interpret, run_on_cpu):
        arrays = [memory.copy(), given.copy(), np.zeros(21, dtype.numpy)]
        run(function, [a.ctypes.data for a in arrays])
        sides.append(arrays)
    for want, got in zip(*sides, strict=True):
        assert same_bits(got, want)


@pytest.mark.parametrize("name", ["i8", "u16", "i32"])
@pytest.mark.parametrize("size", [9, 17, 33])
def test_store_of_one_truncated_lane(name, size):
    """A mask known to have one lane must not store the element as wide as it once was."""

    def build(emit, x):
        return emit(ops.Cast(x, DTYPES[name]))

    ((want, got),) = run_both([values(DTYPES["i64"], size)], build)
    assert same_bits(got, want)
