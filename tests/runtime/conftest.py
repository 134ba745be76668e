"""A GPU for machines without one; see `fake_cuda`."""

import sys

import numpy as np
import pytest

from tests.runtime.fake_cuda import FAKE_KEYS, FakeDriver, FakeTorch, Tensor
from tilewright.runtime import cuda, gpu_build, gpu_launcher, launcher, launcher_shared, lent


@pytest.fixture
def fake_driver(monkeypatch):
    """A driver in place of libcuda, and no ptxas."""
    fake = FakeDriver()
    monkeypatch.setattr(cuda._State, "driver", cuda.Driver(fake))
    monkeypatch.setattr(cuda._State, "devices", {})
    monkeypatch.setattr(gpu_launcher._shared, "made", None)
    monkeypatch.setattr(lent, "_kept", [])
    monkeypatch.setattr(gpu_build, "find_ptxas", lambda: None)
    return fake


@pytest.fixture
def fake_torch(monkeypatch, fake_driver):
    fake = FakeTorch()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", fake)
        patch.setattr(launcher_shared, "tensor_keys", lambda: FAKE_KEYS)
        yield fake
    if launcher._shared.made is not None:
        launcher._shared.made.fill()


@pytest.fixture
def tensor(fake_driver, fake_torch):
    """`tensor(array, device=0)` on the fake GPU."""

    def make(array, device=0):
        return Tensor(fake_driver, np.asarray(array), device)

    return make


@pytest.fixture
def arrays(tensor):
    """The arguments of `gpu_kernels.make_add()`: two arrays, the sum, and their length."""
    n = 100
    x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    return tensor(x), tensor(y), tensor(np.zeros(n, np.float32)), n
