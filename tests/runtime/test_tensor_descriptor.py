"""Descriptors that the host makes: what they check, and how kernels take them."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.language.blocks import load_block, store_block
from tilewright.errors import LaunchError
from tilewright.tools.tensor_descriptor import TensorDescriptor


@pytest.fixture(params=["eager", "cpu", "sm_80", "sm_90a"])
def everywhere(request):
    """`everywhere(kernel, grid, ...)`: as Python, on the CPU, on an emulated GPU."""

    def run(kernel, grid, *args, **named):
        if request.param == "eager":
            return kernel.debug[grid](*args, **named)
        if request.param == "cpu":
            return kernel[grid](*args, **named)
        with tw.emulate(request.param, races=True):
            return kernel[grid](*args, **named)

    return run


@tw.jit
def double(x, y, i, j):
    y.store([i, j], x.load([i, j]) * 2)


def check_double(everywhere, x, descriptor, **options):
    """Double blocks of an array through descriptors, inside and across its ends."""
    block = tuple(descriptor.block_shape)
    for place in ((0, 0), (-1, 4), (x.shape[0] - 1, x.shape[1] - 3)):
        y = np.zeros((x.shape[0], 64), x.dtype)
        target = TensorDescriptor(y, x.shape, [64, 1], block)
        everywhere(double, (1,), descriptor, target, *place, **options)
        expected = np.zeros_like(y)
        store_block(expected[:, : x.shape[1]], place, load_block(x, place, block) * x.dtype.type(2))
        assert np.array_equal(y, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64])
def test_an_array_of_numpy(everywhere, dtype):
    x = np.arange(7 * 48).reshape(7, 48).astype(dtype)
    check_double(everywhere, x, TensorDescriptor.from_tensor(x, [4, 16]))
    part = x[1:5, 16:41]
    check_double(everywhere, part, TensorDescriptor.from_tensor(part, [4, 32]))


def test_a_tensor_of_pytorch(everywhere):
    torch = pytest.importorskip("torch")
    x = torch.arange(160, dtype=torch.float32).reshape(4, 40)
    check_double(everywhere, x.numpy(), TensorDescriptor.from_tensor(x, [4, 16]))
    turned = torch.arange(160, dtype=torch.float32).reshape(40, 4).T.contiguous().T
    with pytest.raises(LaunchError, match="the last axis must be contiguous, its stride is 40"):
        TensorDescriptor.from_tensor(turned, [4, 4])


def test_memory_of_another_type(everywhere):
    x, y = np.arange(32, dtype=np.int16), np.zeros(32, np.int16)
    descriptors = [
        TensorDescriptor.from_tensor(tw.reinterpret(array, tl.uint16), [32]) for array in (x, y)
    ]

    everywhere(shift, (1,), *descriptors)
    assert np.array_equal(y, x // 2)


@tw.jit
def shift(x, y):
    tl.static_assert(x.dtype == tl.uint16)
    y.store([0], x.load([0]) >> 1)


def test_the_strides_of_every_kind_of_array():
    torch = pytest.importorskip("torch")
    shape = (3, 4, 8)
    for array in (
        np.zeros(shape, np.float32),
        torch.zeros(shape),
        tw.reinterpret(np.zeros(shape, np.int32), tl.float32),
        memoryview(np.zeros(shape, np.float32)),
        tw.MockTensor(tl.float32, shape),
    ):
        descriptor = TensorDescriptor.from_tensor(array, [1, 2, 4])
        assert descriptor.shape == [3, 4, 8]
        assert descriptor.strides == [32, 8, 1]
        assert descriptor.block_shape == [1, 2, 4]


def test_a_change_of_sizes_is_no_new_kernel_and_one_of_the_block_is():
    x = np.arange(160, dtype=np.float32).reshape(4, 40)
    y = np.zeros_like(x)
    source, target = (TensorDescriptor.from_tensor(array, [4, 16]) for array in (x, y))
    first = double[(1,)](source, target, 0, 0)
    source.shape, target.shape = [3, 36], (3, 36)
    assert double[(1,)](source, target, 0, 0) is first
    source.block_shape = target.block_shape = [2, 8]
    y[:] = 0
    assert double[(1,)](source, target, 0, 0) is not first
    assert np.array_equal(y[:2, :8], 2 * x[:2, :8])
    assert not y[2:].any()
    assert not y[:, 8:].any()


def test_the_compiled_kernel_takes_descriptors_of_its_kind_only():
    x = np.arange(160, dtype=np.float32).reshape(4, 40)
    y = np.zeros_like(x)
    descriptors = [TensorDescriptor.from_tensor(array, [4, 16]) for array in (x, y)]
    compiled = double[(1,)](*descriptors, 0, 0)
    compiled[(1,)](*descriptors, 0, 0)
    descriptors[0].padding = "nan"
    with pytest.raises(LaunchError, match=r"`x` is descriptor\(\*fp32\[4, 16\]\):nan:16, but"):
        compiled[(1,)](*descriptors, 0, 0)


@tw.jit
def first_of(pair, optional, y_ptr, SIZE: tl.constexpr):
    x, (n, other) = pair
    tl.static_assert(optional is None)
    tl.store(y_ptr + tl.arange(0, SIZE), x.load([n]) + other.load([0]))


def test_descriptors_in_tuples(everywhere):
    x, y = np.arange(32, dtype=np.float32), np.zeros(16, np.float32)
    descriptor = TensorDescriptor.from_tensor(x, [16])
    everywhere(first_of, (1,), (descriptor, (8, descriptor)), None, y, SIZE=16)
    assert np.array_equal(y, x[8:24] + x[:16])


@tw.jit
def either(pointer_or_descriptor, y_ptr, n):
    if isinstance(pointer_or_descriptor, tl.tensor_descriptor):
        x = pointer_or_descriptor
    else:
        x = tl.make_tensor_descriptor(pointer_or_descriptor, [n], [1], [16])
    tl.store(y_ptr + tl.arange(0, 16), x.load([4]))


def test_a_kernel_that_takes_both(everywhere):
    x = np.arange(18, dtype=np.float32)
    for argument in (x, TensorDescriptor.from_tensor(x, [16])):
        y = np.ones(16, np.float32)
        everywhere(either, (1,), argument, y, 18)
        assert np.array_equal(y, load_block(x, (4,), (16,)))


@tw.jit
def copy_padded(x, y_ptr):
    tl.store(y_ptr + tl.arange(0, 16), x.load([8]))


def test_padding_and_rounding(everywhere):
    x = np.array([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -1 - 2**-11, 3e38, np.inf, np.nan] * 2)
    x = x.astype(np.float32)
    y = np.zeros(16, np.float32)
    everywhere(copy_padded, (1,), TensorDescriptor.from_tensor(x, [16], "nan"), y)
    assert np.array_equal(y, load_block(x, (8,), (16,), np.nan), equal_nan=True)
    everywhere(copy_padded, (1,), TensorDescriptor.from_tensor(x, [16], "zero", True), y)
    bits = (x[8:].view(np.uint32) + 0x1000) & 0xFFFFE000
    rounded = np.where(np.isfinite(x[8:]), bits.view(np.float32), x[8:])
    assert np.array_equal(y[:8], rounded, equal_nan=True)
    assert rounded[2] == 1 + 2**-10
    assert not y[8:].any()


def test_accesses_are_16_bytes_wide_where_rows_are_whole():
    x = np.zeros((64, 64), np.float16)
    with tw.emulate("sm_80"):
        for columns, count in ((64, 1), (63, 8)):
            descriptor = TensorDescriptor(x, [64, columns], [64, 1], [16, 64])
            ptx = double[(1,)](descriptor, descriptor, 0, 0).asm["ptx"]
            assert ptx.count("ld.global") == count
            assert ptx.count("ld.global.v4.b32") == (columns == 64)
            assert ptx.count("st.global.v4.b32") == (columns == 64)


# ---- autotuning ------------------------------------------------------------------------------


def set_blocks(arguments):
    for name in ("x", "y"):
        arguments[name].block_shape = [arguments["BLOCK"]]


@tw.autotune(
    [tw.Config({"BLOCK": block}, pre_hook=set_blocks) for block in (16, 32)],
    key=["n"],
    do_bench=lambda launch, quantiles: [launch() or 1.0] * len(quantiles),
)
@tw.jit
def increment(x, y, n, BLOCK: tl.constexpr):
    tl.static_assert(x.block_shape[0] == BLOCK)
    place = tl.program_id(0) * BLOCK
    y.store([place], y.load([place]) + x.load([place]))


def test_a_hook_sets_the_blocks_of_each_configuration():
    for _ in range(2):
        x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
        descriptors = [TensorDescriptor.from_tensor(array, [1]) for array in (x, y)]
        increment[lambda meta: (tw.cdiv(100, meta["BLOCK"]),)](*descriptors, 100)
        assert np.array_equal(y, x + 1)  # the trials have left no trace
    assert len(increment.configs_timings) == 2
    assert all(times[0] == 1.0 for times in increment.configs_timings.values())


# ---- messages --------------------------------------------------------------------------------


MATRIX = np.zeros((8, 8), np.float32)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            (3, [8], [1], [8]),
            "`base`: the base of a TensorDescriptor is an array, not a int",
        ),
        (
            (MATRIX, [8] * 6, [8] * 5 + [1], [8] * 6),
            "`base`: TensorDescriptor: 1 to 5 axes, block_shape has 6",
        ),
        (
            (MATRIX, [8], [8, 1], [8, 8]),
            (
                "`base`: TensorDescriptor: shape, strides and block_shape need a number for each "
                "axis, they have 1, 2 and 2"
            ),
        ),
        (
            (MATRIX, [8, -8], [8, 1], [8, 8]),
            "`base`: TensorDescriptor: the sizes [8, -8] are not all from 0 to 2**31 - 1",
        ),
        (
            (MATRIX, [8, 2**31], [8, 1], [8, 8]),
            "`base`: TensorDescriptor: the sizes [8, 2147483648] are not all from 0 to 2**31 - 1",
        ),
        (
            (MATRIX, [8, 8], [8, 1], [8, 0]),
            "`base`: TensorDescriptor: the sizes of the block must be positive, not [8, 0]",
        ),
        (
            (MATRIX, [8, 8], [8, 1], 8),
            "`base`: TensorDescriptor: block_shape is a sequence of ints, not 8",
        ),
        (
            (MATRIX, [8, 8], [1, 8], [4, 4]),
            "`base`: TensorDescriptor: the last axis must be contiguous, its stride is 8",
        ),
        (
            (MATRIX, [8, 6], [6, 1], [4, 4]),
            (
                "`base`: TensorDescriptor: the stride of axis 0, 6 elements of fp32, is not a "
                "multiple of 16 bytes"
            ),
        ),
        (
            (MATRIX, [8, 8], [8, 1], [4, 4], "one"),
            "`base`: TensorDescriptor: padding is 'zero' or 'nan', not 'one'",
        ),
        (
            (MATRIX.astype(np.int32), [8, 8], [8, 1], [4, 4], "nan"),
            "`base`: TensorDescriptor: elements of i32 have no NaN to pad with",
        ),
    ],
)
def test_mistakes_are_explained(fields, message):
    with pytest.raises(LaunchError) as caught:
        TensorDescriptor(*fields)
    assert caught.value.message == message


def test_the_address_is_checked():
    with pytest.raises(LaunchError, match=r"the address of the array, 0x.*, is not a multiple of"):
        TensorDescriptor.from_tensor(MATRIX[:, 1:5], [4, 4])


def test_a_launch_checks_again_and_names_the_parameter():
    descriptor = TensorDescriptor.from_tensor(MATRIX, [8, 8])
    descriptor.block_shape = [8]
    with pytest.raises(LaunchError, match=r"^`x`: TensorDescriptor: shape, strides and"):
        double[(1,)](descriptor, descriptor, 0, 0)


def test_what_a_launch_refuses(everywhere):
    frozen = MATRIX.copy()
    frozen.flags.writeable = False
    good, read_only = (TensorDescriptor.from_tensor(array, [8, 8]) for array in (MATRIX, frozen))
    everywhere(double, (1,), read_only, good, 0, 0)
    with pytest.raises(LaunchError, match=r"read-only"):
        everywhere(double, (1,), good, read_only, 0, 0)
    mock = TensorDescriptor.from_tensor(tw.MockTensor(tl.float32, (8, 8)), [8, 8])
    with pytest.raises(LaunchError, match="`x` is a MockTensor: it has no memory to run on"):
        everywhere(double, (1,), mock, good, 0, 0)


def test_compiling_without_memory():
    mock = TensorDescriptor.from_tensor(tw.MockTensor(tl.float32, (8, 8)), [8, 8])
    compiled = double.warmup(mock, mock, 0, 0, grid=(1,))
    good = TensorDescriptor.from_tensor(MATRIX.copy(), [8, 8])
    assert double[(1,)](good, good, 0, 0) is compiled


def test_eager_mode_finds_a_descriptor_that_is_larger_than_its_array():
    x = TensorDescriptor(MATRIX, [9, 8], [8, 1], [4, 8])
    with pytest.raises(LaunchError, match=r"out-of-bounds read of 4 bytes at byte 256 of `x`"):
        double.debug[(1,)](x, x, 6, 0)
