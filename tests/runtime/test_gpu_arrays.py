"""Arrays of libraries that are not PyTorch, and arrays on several GPUs, on a fake driver."""

import gc
import weakref

import numpy as np
import pytest

import tilewright as tw
from tests.runtime.fake_cuda import CudaArray, DlpackArray
from tests.runtime.gpu_kernels import make_add
from tilewright.errors import LaunchError

NOT_READY = 600
CONTEXT = 0xC0DE0000


# ---- `__cuda_array_interface__`


def test_arrays_by_cuda_array_interface(arrays, fake_driver):
    add = make_add()
    x, y, out = (CudaArray(a, stream=0x51) for a in arrays[:3])
    for _ in range(2):
        arrays[2].numbers[:] = 0
        add[2,](x, y, out, 100, BLOCK=64)
        np.testing.assert_array_equal(arrays[2].numbers, arrays[0].numbers + arrays[1].numbers)
        assert fake_driver.launches[-1].stream == 0x51
    with pytest.raises(LaunchError, match="`out_ptr` is read-only"):
        add[2,](x, y, CudaArray(arrays[2], read_only=True), 100, BLOCK=64)


def test_streams_of_arrays_are_ordered(arrays, fake_driver, fake_torch):
    add = make_add()
    fake_torch.streams[0] = 0x99
    add[2,](
        CudaArray(arrays[0], stream=0x51), CudaArray(arrays[1], stream=1), arrays[2], 100, BLOCK=64
    )
    assert fake_driver.launches[-1].stream == 0x99
    assert sorted(fake_driver.orders[:2]) == [(0, 0x99), (0x51, 0x99)]
    assert sorted(fake_driver.orders[2:]) == [(0x99, 0), (0x99, 0x51)]


# ---- DLPack


def test_arrays_by_dlpack(arrays, fake_driver, fake_torch):
    """They are ready on the default stream."""
    add = make_add()
    x, y = map(DlpackArray, arrays[:2])
    for _ in range(2):
        arrays[2].numbers[:] = 0
        add[2,](x, y, CudaArray(arrays[2], stream=1), 100, BLOCK=64)
        np.testing.assert_array_equal(arrays[2].numbers, arrays[0].numbers + arrays[1].numbers)
        assert fake_driver.launches[-1].stream == 0
    assert set(x.streams) == set(y.streams) == {1}
    assert not fake_driver.orders
    fake_torch.streams[0] = 0x99
    add[2,](x, y, arrays[2], 100, BLOCK=64)
    assert fake_driver.launches[-1].stream == 0x99
    assert fake_driver.orders == [(0, 0x99), (0x99, 0)]


def test_arrays_that_cannot_say_whether_they_may_be_written_are_not(arrays):
    with pytest.raises(LaunchError, match="`out_ptr` is read-only") as caught:
        make_add()[2,](*arrays[:2], DlpackArray(arrays[2]), 100, BLOCK=64)
    assert "arrays of JAX can never be written" in str(caught.value)


class OfBefore(DlpackArray):
    """With an interface that does not say when the array is ready, of no address."""

    @property
    def __cuda_array_interface__(self):
        return {"version": 2, "shape": (100,), "typestr": "<f4", "data": (64, True)}


class Spread(DlpackArray):
    """An array of several devices, which has no one memory."""

    @property
    def __cuda_array_interface__(self):
        raise ValueError("only for arrays on one device")

    def __dlpack_device__(self):
        raise ValueError("only arrays on one device have DLPack")


def test_dlpack_is_asked_where_the_interface_does_not_say_when_arrays_are_ready(arrays):
    x = OfBefore(arrays[0])
    make_add()[2,](x, x, arrays[2], 100, BLOCK=64)
    np.testing.assert_array_equal(arrays[2].numbers, 2 * arrays[0].numbers)
    assert x.streams


def test_arrays_of_several_devices(arrays):
    with pytest.raises(LaunchError, match="`x_ptr`: the Spread does not give its memory: only arr"):
        make_add()[2,](Spread(arrays[0]), arrays[1], arrays[2], 100, BLOCK=64)


def test_lent_memory_is_kept_until_the_kernel_has_ended(arrays, fake_driver):
    add, out = make_add(), arrays[2]

    def launch():
        x = DlpackArray(arrays[0])
        add[2,](x, x, out, 100, BLOCK=64)
        return weakref.ref(x)

    fake_driver.failures["cuEventQuery"] = NOT_READY
    first, second = launch(), launch()
    gc.collect()
    assert first() is not None
    assert second() is not None
    del fake_driver.failures["cuEventQuery"]
    third = launch()
    gc.collect()
    assert first() is second() is None
    assert third() is not None
    fake_driver.capturing = True
    recorded = launch()
    gc.collect()
    assert recorded() is None


def test_own_arrays_tell_others_which_stream_to_wait_for(fake_driver, fake_torch):
    array = tw.DeviceArray(4, np.float32)
    for stream, told in ((0, 1), (0x99, 0x99)):
        fake_torch.streams[0] = stream
        assert array.__cuda_array_interface__["stream"] == told


# ---- several GPUs


@pytest.fixture(params=["own arrays", "interface", "DLPack", "tensors"])
def placed(request, tensor):
    """`placed(array, gpu)` is an array on a GPU, and what gives its numbers."""

    def make(array, gpu):
        if request.param == "own arrays":
            made = tw.DeviceArray.from_numpy(array, gpu)
            return made, made.to_numpy
        inner = tensor(array, gpu)
        kinds = {"interface": CudaArray, "DLPack": DlpackArray, "tensors": lambda x: x}
        return kinds[request.param](inner), lambda: inner.numbers

    make.is_writable = request.param != "DLPack"
    return make


def test_kernels_run_where_the_arrays_are(placed, tensor, fake_driver, fake_torch):
    add, numbers = make_add(), np.arange(64, dtype=np.float32)
    fake_torch.streams[0] = fake_torch.streams[1] = 0
    for before in (0, CONTEXT, CONTEXT + 1, 0x77):
        for gpu in (0, 1, 0):
            x, _ = placed(numbers, gpu)
            out, read = placed(np.zeros_like(numbers), gpu)
            if not placed.is_writable:
                inner = tensor(np.zeros_like(numbers), gpu)
                out, read = inner, lambda inner=inner: inner.numbers
            fake_driver.context = before
            add[1,](x, x, out, 64, BLOCK=64)
            assert fake_driver.context == before
            assert fake_driver.launches[-1].context == CONTEXT + gpu
            np.testing.assert_array_equal(read(), 2 * numbers)
    # One module for each GPU, loaded in its context.
    assert fake_driver.calls.count("cuModuleLoadDataEx") == 2


def test_arrays_on_two_gpus_are_an_error_that_names_them(placed, fake_driver):
    x, y = (placed(np.ones(8, np.float32), gpu)[0] for gpu in (0, 1))
    with pytest.raises(LaunchError, match=r"`x_ptr` is on GPU 0, `y_ptr` is on GPU 1"):
        make_add()[1,](x, y, x, 8, BLOCK=8)
    with pytest.raises(LaunchError, match=r"`x_ptr` is on GPU 1, `out_ptr` is on the CPU"):
        make_add()[1,](y, y, np.ones(8, np.float32), 8, BLOCK=8)
    assert not fake_driver.launches
