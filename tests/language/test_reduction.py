import ml_dtypes
import numpy as np
import pytest

import tilewright.language as tl
from tests.language.eager import array, tile
from tilewright.errors import CompileError
from tilewright.frontend.builtin import builtin
from tilewright.ir.types import DTYPES

NAN, INF = np.nan, np.inf


@pytest.fixture
def matrix():
    return np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("keep_dims", [False, True])
def test_reductions_follow_numpy(matrix, axis, keep_dims):
    x = tile(matrix)
    for ours, theirs in [(tl.sum, np.sum), (tl.max, np.max), (tl.min, np.min)]:
        result = array(ours(x, axis, keep_dims=keep_dims))
        np.testing.assert_allclose(result, theirs(matrix, axis, keepdims=keep_dims), rtol=1e-6)
        assert result.shape == theirs(matrix, axis, keepdims=keep_dims).shape


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("keep_dims", [False, True])
def test_indices_follow_numpy(matrix, axis, keep_dims):
    x = tile(matrix)
    largest, where = tl.max(x, axis, return_indices=True, keep_dims=keep_dims)
    assert np.array_equal(array(where), np.argmax(matrix, axis, keepdims=keep_dims))
    assert np.array_equal(array(largest), np.max(matrix, axis, keepdims=keep_dims))
    assert where.dtype is tl.int32
    smallest = tl.argmin(x, axis, keep_dims=keep_dims)
    assert np.array_equal(array(smallest), np.argmin(matrix, axis, keepdims=keep_dims))


@pytest.mark.parametrize(
    ("dtype", "summed"),
    [
        ("i1", "u32"),
        ("i8", "i32"),
        ("i16", "i32"),
        ("u8", "u32"),
        ("u16", "u32"),
        ("i64", "i64"),
        ("u64", "u64"),
        ("fp16", "fp16"),
        ("bf16", "bf16"),
        ("fp32", "fp32"),
    ],
)
def test_types_of_sums(dtype, summed):
    x = tile([1, 1, 1, 1], dtype)
    assert tl.sum(x, 0).dtype is DTYPES[summed]
    assert float(tl.sum(x, 0)) == 4
    scanned = "fp32" if dtype == "bf16" else summed
    assert tl.cumsum(x, 0).dtype is DTYPES[scanned]
    assert array(tl.cumsum(x)).tolist() == [1, 2, 3, 4]
    assert tl.sum(x, 0, dtype=tl.float64).dtype is tl.float64
    assert tl.cumprod(x).dtype is DTYPES["fp32" if dtype == "bf16" else dtype]


@pytest.mark.parametrize(
    ("dtype", "widened", "with_indices"),
    [
        ("fp16", "fp32", "fp16"),
        ("bf16", "fp32", "fp32"),
        ("i8", "i32", "i8"),
        ("u8", "i32", "u8"),
        ("u16", "i32", "u16"),
        ("u32", "u32", "u32"),
        ("fp64", "fp64", "fp64"),
    ],
)
def test_types_of_extremes(dtype, widened, with_indices):
    x = tile([1, 3, 2, 0], dtype)
    assert tl.max(x, 0).dtype is DTYPES[widened]
    assert tl.min(x, 0).dtype is DTYPES[widened]
    assert tl.topk(x, 2).dtype is DTYPES[widened]
    assert tl.topk(x, 4).dtype is DTYPES[dtype]
    assert tl.max(x, 0, return_indices=True)[0].dtype is DTYPES[with_indices]
    assert array(tl.topk(x, 3)).tolist() == [3, 2, 1]
    assert array(tl.topk(x, 3, descending=False)).tolist() == [0, 1, 2]


def test_narrow_floats_are_summed_in_fp32():
    ones = tile(np.ones(1024), "bf16")
    assert float(tl.sum(ones, 0)) == 1024
    assert float(tl.sum(tile(np.full(4096, 0.1), "fp16"))) == pytest.approx(409.5, abs=0.3)


@pytest.mark.parametrize(
    ("values", "largest", "smallest"),
    [
        ([INF, NAN], 0, 0),
        ([NAN, INF], 1, 1),
        ([NAN, 6, 8], 2, 1),
        ([NAN, NAN], 0, 0),
        ([1, NAN, 1], 0, 0),
        ([-INF, NAN, NAN, -INF], 0, 0),
        ([5, NAN, 7, NAN, 7, 2], 2, 5),
    ],
)
def test_nan_is_worse_than_any_number(values, largest, smallest):
    x = tile(np.float32(values))
    assert int(tl.argmax(x, 0)) == largest
    assert int(tl.argmin(x, 0)) == smallest
    assert np.array_equal(array(tl.max(x, 0)), np.fmax.reduce(values), equal_nan=True)
    assert np.array_equal(array(tl.min(x, 0)), np.fmin.reduce(values), equal_nan=True)


def test_ties():
    x = tile([3, 1, 3, 1, 2], "i32")
    assert int(tl.argmax(x, 0)) == 0
    assert int(tl.argmax(x, 0, tie_break_left=False)) == 2
    assert int(tl.argmin(x, 0)) == 1
    assert int(x.argmin(0, tie_break_left=False)) == 3


def test_bits():
    x = tile([5, 3, 8], "i32")
    assert int(tl.xor_sum(x, 0)) == 5 ^ 3 ^ 8
    assert int(tl.reduce_or(x, 0)) == 15
    assert bool(tl.reduce_or(tile([False, True]), 0))
    for function in (lambda y: tl.xor_sum(y, 0), lambda y: tl.reduce_or(y, 0)):
        with pytest.raises(CompileError, match="expected integers"):
            function(tile([1.0], "fp32"))


def test_counting_a_mask_scans_to_positions():
    kept = tl.cumsum(tile([5, -1, 7, 12], "i32") >= 0, 0) - 1
    assert array(kept).tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_follow_numpy(matrix, axis, reverse):
    def scanned(function):
        flipped = np.flip(matrix, axis) if reverse else matrix
        result = function(flipped, axis)
        return np.flip(result, axis) if reverse else result

    x = tile(matrix)
    np.testing.assert_allclose(
        array(tl.cumsum(x, axis, reverse=reverse)), scanned(np.cumsum), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        array(tl.cumprod(x, axis, reverse=reverse)), scanned(np.cumprod), rtol=1e-5
    )


@builtin
def compose(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@builtin
def half_and_add(a, b):
    return 0.5 * a + b


def test_a_combine_function_of_pairs_that_does_not_commute():
    a, b = np.random.default_rng(1).uniform(0.5, 1.5, (2, 33)).astype(np.float32)
    _, ours = tl.associative_scan((tile(a), tile(b)), 0, compose)
    expected, total = [], 0.0
    for x, y in zip(a, b, strict=True):
        total = x * total + y
        expected.append(total)
    np.testing.assert_allclose(array(ours), expected, rtol=1e-5)
    _, last = tl.reduce((tile(a), tile(b)), 0, compose)
    np.testing.assert_allclose(float(last), expected[-1], rtol=1e-5)


def test_a_scan_is_sequential():
    x = tile(np.float32([1, 2, 3, 4]))
    assert array(tl.associative_scan(x, 0, half_and_add)).tolist() == [1, 2.5, 4.25, 6.125]
    assert tl.reduce(x, 0, tl.maximum).dtype is tl.float32


def test_combine_mistakes_are_named():
    x = tile([1, 2], "i32")
    with pytest.raises(CompileError, match="expected a function of the language"):
        tl.reduce(x, 0, lambda a, b: a + b)
    with pytest.raises(CompileError, match="must keep the types"):
        tl.reduce(x, 0, half_and_add)
    with pytest.raises(CompileError, match="inputs must have one shape"):
        tl.reduce((x, tile([1, 2, 3], "i32")), 0, compose)
    with pytest.raises(CompileError, match="sum: no axis 1 in a tile of rank 1"):
        tl.sum(x, 1)


def test_sorting_puts_nan_last_and_keeps_every_element():
    x = tile(np.float32([INF, 3.14, NAN, -1]))
    assert np.array_equal(array(x.sort()), np.float32([-1, 3.14, INF, NAN]), equal_nan=True)
    falling = array(tl.sort(x, descending=True))
    assert np.array_equal(falling, np.float32([NAN, INF, 3.14, -1]), equal_nan=True)


def test_sorting_along_any_axis(matrix):
    x = tile(matrix)
    for axis in (0, 1):
        assert np.array_equal(array(tl.sort(x, axis)), np.sort(matrix, axis))
    assert np.array_equal(array(tl.topk(x, 3, 0)), np.sort(matrix, 0)[::-1][:3])
    with pytest.raises(CompileError, match="k must be between 1 and 7, got 8"):
        tl.topk(x, 8)
    halves = np.concatenate([np.sort(matrix[0])[:4], np.sort(matrix[1])[::-1][:3]])
    assert np.array_equal(array(tl.bitonic_merge(tile(halves))), np.sort(halves))


def test_histogram():
    x = tile([0, 2, 2, 9, -1, 1], "i32")
    assert array(tl.histogram(x, 4)).tolist() == [1, 1, 2, 0]
    assert array(tl.histogram(x, 4, mask=x != 2)).tolist() == [1, 1, 0, 0]
    with pytest.raises(CompileError, match="expected integers"):
        tl.histogram(tile([1.0], "fp32"), 4)
    for bins, message in ((0, "must be positive"), (2**21, "has 2097152 elements, the limit is")):
        with pytest.raises(CompileError, match=message):
            tl.histogram(x, bins)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_softmax_along_either_axis(matrix, dtype):
    x = tile(matrix.astype(dtype))
    for dim in (0, 1):
        wide = np.exp(array(x).astype(np.float64))
        expected = wide / wide.sum(dim, keepdims=True)
        np.testing.assert_allclose(
            array(tl.softmax(x, dim)).astype(np.float64), expected, rtol=0.02, atol=1e-3
        )
    assert np.array_equal(array(tl.softmax(x)), array(x.softmax(dim=0)))
