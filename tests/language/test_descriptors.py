"""Descriptors that a kernel makes: blocks of arrays, loaded, stored and combined."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.language.blocks import load_block, store_block
from tilewright.errors import CompileError
from tilewright.ir.types import DTYPES

# Inside, across each end, beyond them, and at the ends of i32.
OFFSETS = [(0, 0), (2, 4), (-3, 12), (7, -5), (8, 0), (0, 20), (-8, 0), (0, -16)]
FAR = [(2**31 - 1, 0), (0, 2**31 - 4), (-(2**31), -(2**31))]


@pytest.fixture(params=["eager", "cpu", "sm_80"])
def everywhere(request):
    """`everywhere(kernel, grid, ...)`: as Python, on the CPU, on an emulated GPU."""

    def run(kernel, grid, *args, **named):
        launcher = kernel.debug if request.param == "eager" else kernel
        if request.param != "sm_80":
            return launcher[grid](*args, **named)
        with tw.emulate(request.param, races=True):
            return launcher[grid](*args, **named)

    return run


@tw.jit
def move(x_ptr, y_ptr, i, j, p, q, M, N, stride, PADDING: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [stride, 1], [8, 16], PADDING)
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [stride, 1], [8, 16])
    y.store([p, q], x.load([i, j]))


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_blocks_across_the_ends(everywhere, padding):
    memory = np.random.default_rng(0).random((9, 24), dtype=np.float32)
    x = memory[:, :19]  # rows with something behind them that is not of the array
    for load_at in OFFSETS + FAR:
        result = np.zeros_like(memory)
        everywhere(move, (1,), memory, result, *load_at, 0, 0, *x.shape, 24, PADDING=padding)
        block = load_block(x, load_at, (8, 16), 0 if padding == "zero" else np.nan)
        expected = np.zeros_like(memory)
        store_block(expected[:, :19], (0, 0), block)
        assert np.array_equal(result, expected, equal_nan=True), load_at
    for store_at in OFFSETS + FAR:
        result, expected = np.zeros_like(memory), np.zeros_like(memory)
        everywhere(move, (1,), memory, result, 0, 0, *store_at, *x.shape, 24, PADDING=padding)
        store_block(expected[:, :19], store_at, load_block(x, (0, 0), (8, 16)))
        assert np.array_equal(result, expected), store_at


@tw.jit
def load_of_rank(x_ptr, y_ptr, shape, strides, offsets, BLOCK: tl.constexpr, SIZE: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape, strides, BLOCK)
    tl.store(y_ptr + tl.arange(0, SIZE), x.load(offsets).reshape(SIZE))


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_every_rank(everywhere, rank):
    shape, block = (3, 2, 5, 3, 12)[-rank:], (2, 4, 2, 2, 8)[-rank:]
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    strides = tuple(s // 4 for s in x.strides)
    for offsets in ([1] * rank, [-1, 0, 3, 2, 8][-rank:]):
        result = np.zeros(block, np.int32)
        everywhere(
            load_of_rank, (1,), x, result, shape, strides, tuple(offsets),
            BLOCK=block, SIZE=result.size,
        )  # fmt: skip
        assert np.array_equal(result, load_block(x, offsets, block))


@tw.jit
def copy_of_type(x_ptr, y_ptr, N, PADDING: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [N], [1], [16], padding_option=PADDING)
    y = tl.make_tensor_descriptor(y_ptr, [16], [1], [16])
    y.store([0], x.load([N - 10]))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_type(everywhere, dtype):
    if dtype.name == "fp8e4b15":
        return  # NumPy has no arrays of it
    x = np.arange(20).astype(np.float32).astype(dtype.numpy)
    for padding in ("zero", "nan") if dtype.is_floating() else ("zero",):
        result = np.ones(16, dtype.numpy)
        everywhere(copy_of_type, (1,), x, result, 20, PADDING=padding)
        expected = load_block(x, (10,), (16,), 0 if padding == "zero" else np.nan)
        assert np.array_equal(result.astype(np.float32), expected.astype(np.float32), True)


@tw.jit
def pick_rows(x_ptr, y_ptr, rows_ptr, column, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [1, COLUMNS])
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [1, COLUMNS])
    rows = tl.load(rows_ptr + tl.arange(0, ROWS))
    y.scatter(x.gather(rows, column) + 1, rows, column)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.uint32])
def test_gather_and_scatter(everywhere, dtype):
    x = np.random.default_rng(0).integers(-99, 99, (20, 16)).astype(np.int16)
    rows = np.array([3, 19, 0, 20, 7, 2**15 - 1, 5, 4]).astype(dtype)
    if dtype != np.uint32:
        rows[2] = -1
    if dtype == np.int64:
        rows[4] = 2**32 + 1  # not row 1
    for column in (0, 8, -8):
        result, expected = np.zeros_like(x), np.zeros_like(x)
        everywhere(pick_rows, (1,), x, result, rows, column, 20, 16, ROWS=8, COLUMNS=16)
        for row in rows.tolist():
            block = load_block(x, (row, column), (1, 16)) + np.int16(1)
            store_block(expected, (row, column), block)
        assert np.array_equal(result, expected)


@tw.jit
def combine(x_ptr, y_ptr, i, j, M, N, KIND: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [4, 8])
    y = tl.make_tensor_descriptor(y_ptr, [4, 8], [8, 1], [4, 8])
    value = y.load([0, 0])
    if KIND == "add":
        x.atomic_add([i, j], value)
    elif KIND == "min":
        x.atomic_min([i, j], value)
    elif KIND == "max":
        x.atomic_max([i, j], value)
    elif KIND == "and":
        x.atomic_and([i, j], value)
    elif KIND == "or":
        x.atomic_or([i, j], value)
    else:
        x.atomic_xor([i, j], value)


COMBINE = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize("kind", COMBINE)
@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.float32, np.float16])
def test_atomics(everywhere, kind, dtype):
    if kind in {"and", "or", "xor"} and np.dtype(dtype).kind == "f":
        return
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 99, shape).astype(dtype) for shape in ((6, 8), (4, 8)))
    for at in ((1, 0), (-2, 4), (4, -3)):
        result, expected = x.copy(), x.copy()
        everywhere(combine, (1,), result, y, *at, 6, 8, KIND=kind)
        store_block(expected, at, y, COMBINE[kind])
        assert np.array_equal(result, expected)


@tw.jit
def with_wide_numbers(x_ptr, y_ptr, i, M, N):
    x = tl.make_tensor_descriptor(x_ptr, [M, N.to(tl.int64)], [N.to(tl.int64), 1], [4, 4])
    y = tl.make_tensor_descriptor(y_ptr, [4, 4], [4, 1], [4, 4])
    tl.store_tensor_descriptor(y, [0, 0], tl.load_tensor_descriptor(x, [i, i.to(tl.int16)]))


def test_numbers_of_any_width(everywhere):
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    for i in (3, 2**40 + 3, -(2**40) + 3):
        result = np.ones((4, 4), np.float32)
        everywhere(with_wide_numbers, (1,), x, result, i, 8, 8)
        assert np.array_equal(result, load_block(x, (i, 3), (4, 4)))


def test_a_size_below_zero_is_none(everywhere):
    result = np.ones((9, 24), np.float32)
    x = np.ones((9, 24), np.float32)
    everywhere(move, (1,), x, result, 0, 0, 0, 0, -5, 24, 24, PADDING="zero")
    assert (result == 1).all()


# ---- a descriptor as a value -----------------------------------------------------------------


@tw.jit
def doubled(descriptor, offsets):
    return descriptor.load(offsets) * 2


@tw.jit
def make(pointer, n):
    return tl.make_tensor_descriptor(pointer, [n], [1], [8])


@tw.jit
def chosen(x_ptr, y_ptr, n, swap):
    x, y = make(x_ptr, n), make(y_ptr, n)
    pair = (x, y)
    for i in tl.range(0, tl.cdiv(n, 8)):
        source, target = pair
        if swap:
            source, target = target, source
        target.store([8 * i], doubled(source, [8 * i]))
        pair = (target, source)
        if not swap:
            pair = (source, target)


def test_descriptors_in_calls_tuples_loops_and_branches(everywhere):
    for swap in (False, True):
        x, y = np.arange(20, dtype=np.float32), np.zeros(20, np.float32)
        everywhere(chosen, (1,), x, y, 20, swap)
        expected_x, expected_y = np.arange(20, dtype=np.float32), np.zeros(20, np.float32)
        pair = (expected_x, expected_y)
        for i in (0, 8, 16):
            source, target = pair[::-1] if swap else pair
            target[i : i + 8] = source[i : i + 8] * 2
            pair = (target, source) if swap else (source, target)
        assert np.array_equal(x, expected_x)
        assert np.array_equal(y, expected_y)


@tw.jit
def attributes(x_ptr, y_ptr, n):
    x = tl.make_tensor_descriptor(x_ptr, [n, 2 * n], [2 * n, 1], [2, 8])
    tl.static_assert(isinstance(x, tl.tensor_descriptor))
    tl.static_assert(x.dtype == tl.float16)
    tl.static_assert(x.block_shape[1] == 8)
    tl.static_assert(x.block_type.shape[0] == 2)
    tl.static_assert(isinstance(x.type, tl.tensor_descriptor_type))
    tl.static_assert(x.strides[1] == 1)
    tl.store(y_ptr, x.shape[1])
    tl.store(y_ptr + 1, x.strides[0])


def test_what_a_descriptor_says_of_itself(everywhere):
    y = np.zeros(2, np.int32)
    everywhere(attributes, (1,), np.zeros((8, 16), np.float16), y, 8)
    assert y.tolist() == [16, 16]


# ---- messages --------------------------------------------------------------------------------


@tw.jit
def _base(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr + tl.arange(0, 4), [n], [1], [4])


@tw.jit
def _counts(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n, n], [1], [4, 4])


@tw.jit
def _rank(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n] * 6, [n, n, n, n, n, 1], [2] * 6)


@tw.jit
def _sizes(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n, n], [n, 1], [4, 0])


@tw.jit
def _last_stride(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n, n], [1, n], [4, 4])


@tw.jit
def _stride(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n, n], [6, 1], [4, 4])


@tw.jit
def _padding(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n], [1], [4], "one")


@tw.jit
def _nan(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr.to(tl.pointer_type(tl.int32)), [n], [1], [4], "nan")


@tw.jit
def _offsets(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n, n], [n, 1], [4, 4]).load([0])


@tw.jit
def _tile(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n], [1], [4]).load([tl.arange(0, 4)])


@tw.jit
def _value(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n], [1], [4]).store([0], tl.zeros((8,), tl.float32))


@tw.jit
def _number(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n], [1], [4]).store([0], 1.0)


@tw.jit
def _const(x_ptr: tl.const, n):
    tl.make_tensor_descriptor(x_ptr, [n], [1], [4]).store([0], tl.zeros((4,), tl.float32))


@tw.jit
def _rows(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n, n], [n, 1], [2, 4]).gather(tl.arange(0, 4), 0)


@tw.jit
def _row(x_ptr, n):
    tl.make_tensor_descriptor(x_ptr, [n, n], [n, 1], [1, 4]).gather(0, 0)


@tw.jit
def _bits(x_ptr, n):
    x = tl.make_tensor_descriptor(x_ptr, [n], [1], [4])
    x.atomic_xor([0], x.load([0]))


@tw.jit
def _no_descriptor(x_ptr, n):
    tl.load_tensor_descriptor(x_ptr, [0])


MISTAKES = [
    (_base, "make_tensor_descriptor: the base must be a scalar pointer, got *fp32[4]"),
    (
        _counts,
        "make_tensor_descriptor: shape and strides need 2 entries, as block_shape has, got 2 and 1",
    ),
    (_rank, "make_tensor_descriptor: a descriptor has 1 to 5 axes, block_shape has 6"),
    (_sizes, "make_tensor_descriptor: the sizes of the block must be positive, got [4, 0]"),
    (_last_stride, "make_tensor_descriptor: the last stride must be the constant 1, got i32"),
    (
        _stride,
        (
            "make_tensor_descriptor: the stride of axis 0, 6 elements of fp32, is not a multiple "
            "of 16 bytes"
        ),
    ),
    (_padding, "make_tensor_descriptor: padding_option must be 'zero' or 'nan', got 'one'"),
    (_nan, "make_tensor_descriptor: padding_option 'nan' needs floats, the memory holds i32"),
    (_offsets, "descriptor load: expected 2 offsets, got 1"),
    (_tile, "descriptor load: offsets: expected scalar integers, got i32[4]"),
    (
        _value,
        "descriptor store: the value must have the shape of the block, [4], got fp32[8]",
    ),
    (_number, "descriptor store: the value must have the shape of the block, [4], got fp32"),
    (_const, "descriptor store: the pointer is declared const"),
    (_rows, "descriptor gather: the block must have one row, block_shape is [2, 4]"),
    (_row, "descriptor gather: x_offsets must be a 1-d tile of integers, got i32"),
    (_bits, "descriptor atomic_xor: not defined on fp32"),
    (_no_descriptor, "load_tensor_descriptor: expected a tensor descriptor, got *fp32"),
]


@pytest.mark.parametrize(("kernel", "message"), MISTAKES, ids=lambda x: getattr(x, "name", ""))
def test_mistakes_are_explained(launch, kernel, message):
    with pytest.raises(CompileError) as caught:
        launch(kernel, (1,), np.zeros((8, 8), np.float32), 8)
    assert caught.value.message == message
    assert caught.value.location.line > kernel.first_line


def test_eager_mode_checks_the_alignment():
    x = np.zeros((8, 9), np.float32)
    with pytest.raises(CompileError, match="the stride of axis 0, 9 elements of fp32, is not"):
        move.debug[(1,)](x, x, 0, 0, 0, 0, 8, 9, 9, PADDING="zero")
    x = np.zeros(80, np.float32)[1:73]
    with pytest.raises(CompileError, match=r"the address of the base, 0x.*4, is not a multiple"):
        move.debug[(1,)](x, x, 0, 0, 0, 0, 8, 8, 8, PADDING="zero")
