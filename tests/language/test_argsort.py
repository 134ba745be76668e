"""The places that elements are sorted from, against a stable sort of NumPy."""

import ml_dtypes
import numpy as np
import pytest

import tilewright.language as tl
from tests.language.eager import array, tile
from tilewright import jit
from tilewright.errors import CompileError

FLOATS = [
    np.float16, ml_dtypes.bfloat16, np.float32, np.float64, ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fn,
]  # fmt: skip
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
SPECIAL = [0.0, np.nan, -0.0, np.inf, 1e-8, -np.inf, -np.nan, 0.0, 2.0, -2.0, np.inf]


def values_of(dtype, shape):
    random = np.random.default_rng(3)
    if dtype is np.bool_:
        return random.integers(0, 2, shape).astype(dtype)
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        x = random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        x[..., ::3] = random.choice(
            np.array([limits.min, limits.max, 0, 1], dtype), x[..., ::3].shape
        )
        return x
    x = np.round(random.standard_normal(shape) * 4).astype(dtype)
    x[..., : len(SPECIAL)] = np.array(SPECIAL).astype(dtype)[: shape[-1]]
    return x


def reference(x, axis, *, descending):
    wide = x.astype(np.float64) if x.dtype.kind in "fV" else x
    if not descending:
        return np.argsort(wide, axis, kind="stable")
    turned = np.argsort(np.flip(wide, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(turned, axis)


@jit
def order(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, DOWN: tl.constexpr):
    places = tl.arange(0, M)[:, None] * N + tl.arange(0, N)
    x = tl.load(x_ptr + places)
    tl.store(out_ptr + places, tl.argsort(x, AXIS, descending=DOWN))


@pytest.mark.parametrize("dtype", [np.bool_, *INTEGERS, *FLOATS])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((1, 64), -1), ((3, 37), 1), ((13, 5), 0)])
def test_it_is_numpys_stable_order(launch, dtype, descending, shape, axis):
    x = values_of(dtype, shape)
    out = np.full(shape, -1, np.int32)
    launch(order, (1,), x, out, *shape, axis, descending)
    np.testing.assert_array_equal(out, reference(x, axis, descending=descending))


def test_elements_gathered_by_it_are_sorted():
    x = tile(np.float32([3, np.nan, -1, 2, 3]))
    for descending in (False, True):
        places = x.argsort(descending=descending)
        assert places.dtype is tl.int32
        gathered, expected = x.gather(places, 0), tl.sort(x, descending=descending)
        np.testing.assert_array_equal(array(gathered), array(expected))


def test_it_takes_tiles_of_numbers():
    with pytest.raises(CompileError, match="argsort: expected a tile of numbers"):
        tl.argsort(tl.to_tensor(3))
    with pytest.raises(CompileError, match="argsort: no axis 1 in a tile of rank 1"):
        tl.argsort(tl.arange(0, 4), 1)
