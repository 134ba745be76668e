"""What the tests launch on: copies of arrays in the memory of a GPU, here in this machine's."""

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests import executors
from tests.executors import DeviceCopies, HostArray
from tilewright.tools.tensor_descriptor import TensorDescriptor


@pytest.fixture
def copies(monkeypatch):
    monkeypatch.setattr(executors, "DeviceArray", HostArray)
    return DeviceCopies()


@tw.jit
def swap_kernel(pair, descriptor, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    first = tl.load(pair[0] + offsets)
    tl.store(pair[0] + offsets, tl.load(pair[1] + offsets))
    tl.store(pair[1] + offsets, first)
    descriptor.store([0, 0], descriptor.load([0, 0]) * 2)


def test_arrays_that_share_memory_share_it_there(copies):
    memory = np.arange(64, dtype=np.float32)
    table = np.asfortranarray(np.ones((4, 8), np.float32))
    rows = table.T  # in row-major order
    descriptor = TensorDescriptor(rows, rows.shape, [4, 1], [8, 4])
    first, second = memory[4:36], memory[20:52]
    swap_kernel[(1,)](copies.of((first, second)), copies.of(descriptor), BLOCK=16)
    expected = np.arange(64, dtype=np.float32)
    assert (memory == expected).all()
    copies.bring_back()
    expected[4:20], expected[20:36] = np.arange(20, 36), np.arange(4, 20)
    assert (memory == expected).all()
    assert (table == 2).all()


def test_what_cannot_be_written_stays(copies):
    constant = np.zeros(4, np.float32)
    constant.flags.writeable = False
    assert copies.of(3) == 3
    copies.of(constant)
    copies.bring_back()
    assert (constant == 0).all()
