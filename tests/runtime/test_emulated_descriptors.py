"""Blocks of every type and rank through tensor maps, on an emulated GPU."""

import numpy as np
import pytest

import tilewright as tw
from tests.language.blocks import load_block, store_block
from tests.runtime.descriptor_kernels import DTYPES, PLACES, move, move_described, move_to, numbers
from tilewright.errors import LaunchError
from tilewright.tools.tensor_descriptor import TensorDescriptor


def copies(kernel):
    """Whether there are tensor copies in a kernel: loads, and stores."""
    ptx = kernel.asm["ptx"]
    return "tile.mbarrier" in ptx, "tile.bulk_group" in ptx


def check(shape, block, place, dtype, padding="zero"):
    """Move a block from `place` to the origin, and one from there to `place`."""
    origin, kernels = (0,) * len(shape), []
    array, strides = numbers(shape, dtype)
    inside = array[..., : shape[-1]]
    x = TensorDescriptor(array, shape, strides, block, padding)
    fill = np.nan if padding == "nan" else 0
    with tw.emulate("sm_90a", races=True):
        for source, target in ((place, origin), (origin, place)):
            result = np.zeros_like(array)
            y = TensorDescriptor(result, shape, strides, block)
            kernels.append(move[(1,)](x, y, FROM=source, TO=target))
            expected = np.zeros_like(array)
            loaded = load_block(inside, source, block, fill)
            store_block(expected[..., : shape[-1]], target, loaded)
            np.testing.assert_array_equal(result.astype(float), expected.astype(float))
    return kernels


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_every_type(dtype):
    kernels = check(*PLACES[2][:2], (9, -16), dtype)
    assert [copies(kernel) for kernel in kernels] == [(True, True), (True, False)]


@pytest.mark.parametrize(
    ("rank", "place"), [(rank, place) for rank, (*_, places) in PLACES.items() for place in places]
)
def test_every_rank(rank, place):
    kernels = check(*PLACES[rank][:2], place, np.dtype(np.float16))
    # No copy from shared memory begins below 0.
    assert [copies(kernel) for kernel in kernels] == [(True, True), (True, min(place) >= 0)]


@pytest.mark.parametrize("columns", [48, 49, 51, 55, 56])
@pytest.mark.parametrize("name", ["int8", "float16", "float32", "float64"])
def test_rows_of_every_size(name, columns):
    """Copies from shared memory write whole pieces of 16 bytes: others store what is left."""
    (array, strides), block = numbers((5, columns), DTYPES[name]), (4, 32)
    x = TensorDescriptor(array, array.shape, strides, block)
    with tw.emulate("sm_90a", races=True):
        for place in ((0, 0), (2, 32), (-1, 0), (0, -16), (3, 64), (2**31 - 16, 2**31 - 16)):
            result = np.zeros_like(array)
            y = TensorDescriptor(result, (5, columns), strides, block)
            kernel = move_to[1,](x, y, *place)
            assert copies(kernel) == (True, True)
            expected = np.zeros_like(array)
            store_block(expected[:, :columns], place, array[:4, :32])
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "float8_e5m2"])
def test_padding_with_nan(name):
    for kernel in check(*PLACES[2][:2], (9, -16), DTYPES[name], "nan"):
        # There is no tensor map that fills bytes with NaN.
        assert copies(kernel)[0] == ("float8" not in name)


def test_descriptors_made_of_arguments():
    x, _ = numbers((45, 70), np.float16, 8)
    y = np.zeros_like(x)
    with tw.emulate("sm_90a", races=True):
        kernel = move_described[3, 3](x, y, 45, 70, 72, BLOCK_M=16, BLOCK_N=32)
        assert copies(kernel) == (True, True)
        np.testing.assert_array_equal(y[:, :70], x[:, :70])
        assert not y[:, 70:].any()
        with pytest.raises(
            LaunchError, match=r"move_described: `x_ptr`: tensor descriptor: .* 0, 70 elements"
        ):
            move_described[3, 3](x, y, 45, 70, 70, BLOCK_M=16, BLOCK_N=32)
        move_described[0, 3](x, y, 45, 70, 70, BLOCK_M=16, BLOCK_N=32)


def test_arrays_without_elements():
    block, fill = (8, 16), TensorDescriptor(np.full((8, 16), 7.0), [8, 16], [16, 1], [8, 16])
    for shape in ((0, 40), (40, 0)):
        empty = TensorDescriptor(np.ones((8, 48)), shape, [48, 1], block)
        with tw.emulate("sm_90a", races=True) as emulation:
            kernel = move[(1,)](empty, fill, FROM=(0, 0), TO=(0, 0))
            move[(1,)](fill, empty, FROM=(0, 0), TO=(0, 0))
        assert copies(kernel) == (True, True)
        assert copies(emulation.launches[0][0]) == (False, False)
        assert not fill.base.any()
        assert (empty.base == 1).all()
        fill.base[:] = 7


def test_other_architectures_make_no_tensor_maps():
    x, strides = numbers((16, 32), np.float16)
    y = np.zeros_like(x)
    for target in ("sm_80", "sm_89"):
        with tw.emulate(target):
            described = [TensorDescriptor(a, (16, 32), strides, (8, 32)) for a in (x, y)]
            kernel = move[(1,)](*described, FROM=(8, 0), TO=(0, 0))
        assert copies(kernel) == (False, False)
        np.testing.assert_array_equal(y[:8], x[8:])
