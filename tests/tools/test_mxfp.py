"""The microscaling formats as PyTorch tensors, against NumPy types of the same formats."""

import ml_dtypes
import numpy as np
import pytest

from tilewright.errors import LaunchError
from tilewright.tools.mxfp import MXFP4Tensor, MXScaleTensor

torch = pytest.importorskip("torch")


def test_numbers_are_rounded_to_the_nearest_code():
    halves = np.arange(-8, 8, 0.125, dtype=np.float32)
    values = np.concatenate([halves, np.float32([1e-20, -1e-20, -0.0, 100, -100])])
    made = MXFP4Tensor(data=torch.from_numpy(values))
    expected = values.astype(ml_dtypes.float4_e2m1fn)
    assert np.array_equal(made.data.numpy(), expected.view(np.uint8))
    assert np.array_equal(made.to(torch.float32).numpy(), expected.astype(np.float32))


def test_what_is_no_number_becomes_the_largest():
    made = MXFP4Tensor(data=torch.tensor([np.inf, -np.inf, np.nan]))
    assert made.to(torch.float32).tolist() == [6, -6, 6]


@pytest.mark.parametrize("shape", [(5, 7), (4, 6, 3)])
@pytest.mark.parametrize("dim", [0, 1])
def test_two_codes_in_a_byte(shape, dim):
    made = MXFP4Tensor(size=shape).random()
    packed = made.to_packed_tensor(dim)
    assert packed.shape[dim] == -(-shape[dim] // 2)
    first = packed.select(dim, 0)
    assert torch.equal(first & 15, made.data.select(dim, 0))
    assert torch.equal(first >> 4, made.data.select(dim, 1))
    assert torch.equal(made.unpack_packed_tensor(packed, dim, shape), made.data)


def test_scales_are_powers_of_two_below():
    values = torch.tensor([1.0, 1.99, 2.0, 0.3, 3e38, 1e-45, 0.0, -1.0, np.inf, np.nan])
    made = MXScaleTensor(data=values)
    assert made.data.tolist() == [127, 127, 128, 125, 254, 0, 255, 255, 255, 255]
    every = MXScaleTensor(size=256)
    every.data = torch.arange(256, dtype=torch.uint8)
    expected = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    assert np.array_equal(every.to(torch.float32).numpy(), expected, equal_nan=True)


def test_random_scales_of_a_range():
    codes = MXScaleTensor(size=(1000,)).random(low=0.25, high=8.0).data
    assert set(codes.tolist()) == {125, 126, 127, 128, 129, 130}
    with pytest.raises(LaunchError, match="no power of two from 8 to 4"):
        MXScaleTensor(size=3).random(8, 4)


def test_what_they_do_not_take():
    with pytest.raises(LaunchError, match="takes `data` or `size`"):
        MXFP4Tensor()
    with pytest.raises(LaunchError, match=r"torch\.float32, not torch\.float16"):
        MXFP4Tensor(size=2).random().to(torch.float16)
