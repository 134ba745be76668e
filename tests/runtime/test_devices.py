"""Two GPUs in one process, on a fake driver that refuses what belongs to the other's context."""

import gc
import threading
import types

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime.descriptor_kernels import move
from tests.runtime.gpu_kernels import make_add
from tilewright.errors import LaunchError
from tilewright.runtime import cuda
from tilewright.runtime.benchmark import do_bench
from tilewright.tools.tensor_descriptor import TensorDescriptor

CONTEXTS = (0xC0DE0000, 0xC0DE0001)
STREAMS = (0x100000, 0x200000)  # of each GPU


@pytest.fixture
def pair(tensor, fake_driver, fake_torch):
    """`pair(array)`: a copy on each GPU; both have a current stream of their own."""
    fake_torch.streams = dict(enumerate(STREAMS))
    fake_driver.stream_contexts = dict(zip(STREAMS, CONTEXTS, strict=True))
    return lambda array: [tensor(array, number) for number in (0, 1)]


def add_on(add, x, **options):
    out = type(x)(x.driver, np.zeros_like(x.numbers), x.number)
    compiled = add[2,](x, x, out, x.numbers.size, BLOCK=64, **options)
    np.testing.assert_array_equal(out.numbers, 2 * x.numbers)
    return compiled


def test_modules_belong_to_contexts_and_launches_go_to_their_streams(pair, fake_driver):
    add = make_add()
    for before in (0, *CONTEXTS, 0x77):
        fake_driver.context = before
        for number, x in enumerate(pair(np.arange(100, dtype=np.float32))):
            for _ in range(2):
                compiled = add_on(add, x)
                launch = fake_driver.launches[-1]
                assert (launch.context, launch.stream) == (CONTEXTS[number], STREAMS[number])
                assert compiled.code.gpu.number == number
                assert fake_driver.context == before
    owners = [fake_driver.owners[module] for module in fake_driver.modules]
    assert sorted(owners) == list(CONTEXTS)


def test_machine_code_goes_from_one_to_the_other(pair, fake_driver, monkeypatch):
    add, (first, second) = make_add(), pair(np.arange(100, dtype=np.float32))
    kernels = [add_on(add, x) for x in (first, second)]
    monkeypatch.setattr(type(add), "launch", None)
    fake_driver.context = CONTEXTS[1]
    for x, kernel in zip([first, second] * 2, kernels * 2, strict=True):
        fake_driver.calls.clear()
        assert add_on(add, x) is kernel
        switches = fake_driver.calls.count("cuCtxSetCurrent")
        assert switches == (0 if x is second else 2)
        assert fake_driver.context == CONTEXTS[1]


def test_modules_are_unloaded_in_their_contexts(pair, fake_driver):
    add, arrays = make_add(), pair(np.arange(100, dtype=np.float32))
    fake_driver.context = CONTEXTS[0]
    for x in arrays:
        add_on(add, x)
    assert len(fake_driver.modules) == 2
    del add
    gc.collect()
    assert not fake_driver.modules
    assert fake_driver.context == CONTEXTS[0]


def test_gpus_of_different_kinds_have_code_of_their_own(pair, fake_driver):
    fake_driver.capabilities[1] = (8, 0)
    add = make_add()
    kernels = [add_on(add, x) for x in pair(np.arange(100, dtype=np.float32))]
    assert [kernel.metadata.target.arch for kernel in kernels] == [90, 80]
    for kernel, name in zip(kernels, ("sm_90a", "sm_80"), strict=True):
        assert f".target {name}" in kernel.asm["ptx"]


def test_threads_launch_on_gpus_of_their_own(pair, fake_driver):
    add, arrays = make_add(), pair(np.arange(100, dtype=np.float32))
    for x in arrays:
        add_on(add, x)
    found = []
    for x in arrays:
        fake_driver.context = 0  # as in a new thread
        thread = threading.Thread(target=lambda x=x: found.append(add_on(add, x)))
        thread.start()
        thread.join()
    assert [kernel.code.gpu.number for kernel in found] == [0, 1]


def test_arrays_of_two_gpus_in_one_launch(pair, tensor):
    add, (x, y) = make_add(), pair(np.ones(64, np.float32))
    out = tensor(np.zeros(64, np.float32))
    for launched in (False, True):
        for arguments, names in (((x, y, out), "y_ptr"), ((x, x, y), "out_ptr")):
            with pytest.raises(LaunchError, match=f"on GPU 0, `{names}` is on GPU 1") as error:
                add[1,](*arguments, 64, BLOCK=64)
            assert "tensor.to(device)" in error.value.hint
        if not launched:
            add[1,](x, x, out, 64, BLOCK=64)


def test_a_compiled_kernel_takes_no_arrays_of_another_gpu(pair, fake_driver):
    add, (x, y) = make_add(), pair(np.ones(64, np.float32))
    compiled = add[1,](x, x, x, 64, BLOCK=64)
    count = len(fake_driver.launches)
    for other, place in ((y, "GPU 1"), (y.numbers, "the CPU")):
        with pytest.raises(LaunchError, match=f"`x_ptr` is on {place}, but .* for GPU 0") as error:
            compiled[1,](other, other, other, 64, 64)
        assert "add[grid]" in error.value.hint
    assert len(fake_driver.launches) == count
    here = np.ones(64, np.float32)
    of_host = make_add()[1,](here, here, here, 64, BLOCK=64)
    with pytest.raises(LaunchError, match=r"`x_ptr` is on GPU 0, but .* for the CPU"):
        of_host[1,](x, x, x, 64, 64)


def test_descriptors_on_the_second_gpu(pair, fake_driver):
    for number, (x, y) in enumerate(
        zip(
            pair(np.arange(512, dtype=np.float32).reshape(16, 32)),
            pair(np.zeros((16, 32), np.float32)),
            strict=True,
        )
    ):
        for _ in range(2):
            y.numbers[:] = 0
            source, target = (TensorDescriptor(a, [16, 32], [32, 1], [8, 32]) for a in (x, y))
            move[1,](source, target, FROM=(8, 0), TO=(0, 0))
            np.testing.assert_array_equal(y.numbers[:8], x.numbers[8:])
            assert fake_driver.launches[-1].context == CONTEXTS[number]
            assert fake_driver.launches[-1].stream == STREAMS[number]


def test_what_is_recorded_on_the_second_gpu_is_not_waited_for(pair, fake_driver, monkeypatch):
    @tw.jit(debug=True)
    def checked(x_ptr, n):
        tl.device_assert(n > 0, "none")
        tl.store(x_ptr, n)

    _, x = pair(np.zeros(4, np.int32))
    fake_driver.runs, fake_driver.capturing = False, True
    asked = []
    monkeypatch.setattr(
        cuda.Device, "is_capturing", lambda gpu, stream: asked.append((gpu.number, stream)) or True
    )
    for _ in range(2):
        checked[1,](x, 5)
        assert fake_driver.launches[-1].context == CONTEXTS[1]
    assert asked == [(1, STREAMS[1])] * 2
    assert "cuCtxSynchronize" not in fake_driver.calls


def test_errors_name_the_gpu(pair, fake_driver):
    add, (x, y) = make_add(), pair(np.ones(64, np.float32))
    add[1,](x, x, x, 64, BLOCK=64)
    fake_driver.failures["cuModuleLoadDataEx"] = 2
    with pytest.raises(MemoryError, match="loading add on GPU 1"):
        add[1,](y, y, y, 64, BLOCK=64)
    fake_driver.failures.clear()
    fake_driver.context = CONTEXTS[0]
    add[1,](y, y, y, 64, BLOCK=64)
    fake_driver.failures["cuLaunchKernel"] = 1
    with pytest.raises(LaunchError, match="launching add"):
        add[1,](y, y, y, 64, BLOCK=64)
    assert fake_driver.context == CONTEXTS[0]


def test_own_arrays_on_the_second_gpu(fake_driver):
    add, fake_driver.context = make_add(), CONTEXTS[0]
    x = tw.DeviceArray.from_numpy(np.arange(64, dtype=np.float32), device=1)
    out = tw.DeviceArray(64, tl.float32, device=1)
    assert (x.device, out.device) == ("cuda:1", "cuda:1")
    add[1,](x, x, out, 64, BLOCK=64)
    np.testing.assert_array_equal(out.to_numpy(), 2 * np.arange(64))
    assert fake_driver.launches[-1].context == CONTEXTS[1]
    add.debug[1,](x, x, out, 64, BLOCK=64)
    assert fake_driver.context == CONTEXTS[0]


def test_launches_are_timed_on_the_gpu_where_they_run(pair, fake_driver, fake_torch):
    places = []

    def empty(size, dtype, device):
        places.append(device)
        address = fake_driver.allocate(size, 1)
        return types.SimpleNamespace(data_ptr=lambda: address)

    fake_torch.int8, fake_torch.empty = "int8", empty
    fake_driver.context, fake_driver.runs = CONTEXTS[0], False
    add, (_, x) = make_add(), pair(np.ones(64, np.float32))
    times = do_bench(lambda: add[1,](x, x, x, 64, BLOCK=64), rep=20, return_mode="all")
    assert set(times) == {1.0}
    assert places == ["cuda:1"]
    recorded = {stream for stream, _ in fake_driver.events.values()}
    assert recorded <= {STREAMS[1], 0}
    assert fake_driver.context == CONTEXTS[0]


@pytest.mark.parametrize("described", [False, True])
def test_each_gpu_is_tuned_for(pair, fake_driver, described):
    @tw.autotune([tw.Config({}, num_warps=n) for n in (1, 2)], key=[])
    @tw.jit
    def copy(x, y, BLOCK: tl.constexpr):
        if BLOCK:
            place = tl.arange(0, BLOCK)
            tl.store(y + place, tl.load(x + place))
        else:
            y.store([0, 0], x.load([0, 0]))

    chosen = []
    arrays = pair(np.ones((8, 32), np.float32)), pair(np.ones((8, 32), np.float32))
    fake_driver.runs = False
    copy.do_bench = lambda call, quantiles: [next(times)] * 3
    times = iter([1.0, 2.0, 2.0, 1.0])
    for given in zip(*arrays, strict=True):
        if described:
            given = [TensorDescriptor(a, [8, 32], [32, 1], [8, 32]) for a in given]  # noqa: PLW2901
        copy[1,](*given, BLOCK=0 if described else 256)
        chosen.append(copy.best_config.num_warps)
    assert chosen == [1, 2]
