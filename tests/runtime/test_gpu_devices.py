"""Two real GPUs in one process: modules, streams, graphs, tuning, errors."""

import threading

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime.descriptor_kernels import move_described
from tests.runtime.gpu_kernels import make_add
from tilewright.errors import LaunchError
from tilewright.runtime import cuda
from tilewright.runtime.benchmark import do_bench
from tilewright.tools.tensor_descriptor import TensorDescriptor

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs"),
]
DEVICES = ("cuda:0", "cuda:1")
SIZE = 1 << 16


def numbers(device, shape=(SIZE,)):
    return torch.randn(*shape, device=device)


def add_on(add, device):
    x, y = numbers(device), numbers(device)
    out = torch.empty_like(x)
    compiled = add[SIZE // 1024,](x, y, out, SIZE, BLOCK=1024)
    assert torch.equal(out, x + y)
    return compiled


def current_context():
    context = cuda.c_void_p()
    cuda.driver().call("cuCtxGetCurrent", cuda.byref(context), doing="asking for the context")
    return context.value


@pytest.mark.parametrize("current", [0, 1])
def test_launches_go_where_the_arrays_are(current):
    add = make_add()
    with torch.cuda.device(current):
        torch.zeros(1, device="cuda")
        before = current_context()
        kernels = [add_on(add, device) for device in DEVICES * 3]
        assert torch.cuda.current_device() == current
        assert current_context() == before
    assert {kernel.code.gpu.number for kernel in kernels} == {0, 1}
    assert kernels[:2] * 2 == kernels[2:]


def test_streams_are_those_of_the_arrays_gpu():
    add = make_add()
    for device in DEVICES * 2:
        x, y = numbers(device), numbers(device)
        out = torch.zeros_like(x)
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            torch.cuda._sleep(10_000_000)
            y.add_(1)
            add[SIZE // 1024,](x, y, out, SIZE, BLOCK=1024)
        stream.synchronize()
        assert torch.equal(out, x + y)


def test_a_graph_records_launches_on_the_second():
    add, device = make_add(), DEVICES[1]
    x, y = numbers(device), numbers(device)
    out = torch.empty_like(x)
    add[SIZE // 1024,](x, y, out, SIZE, BLOCK=1024)
    with torch.cuda.device(1):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            add[SIZE // 1024,](x, y, out, SIZE, BLOCK=1024)
        out.zero_()
        y.add_(1)
        graph.replay()
        torch.cuda.synchronize()
    assert torch.equal(out, x + y)


def test_threads_launch_on_gpus_of_their_own():
    add, failures = make_add(), []

    def work(device):
        try:
            for _ in range(50):
                add_on(add, device)
        except Exception as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(device,)) for device in DEVICES * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_arrays_of_two_gpus_in_one_launch():
    add, (x, y) = make_add(), map(numbers, DEVICES)
    add_on(add, DEVICES[0])
    with pytest.raises(LaunchError, match="on GPU 0, `y_ptr` is on GPU 1"):
        add[SIZE // 1024,](x, y, x, SIZE, BLOCK=1024)


def test_descriptors():
    for device in DEVICES * 2:
        x, y = numbers(device, (64, 128)), torch.zeros(64, 128, device=device)
        move_described[4, 4](x, y, 64, 128, 128, BLOCK_M=16, BLOCK_N=32)
        assert torch.equal(x, y)


@tw.autotune([tw.Config({"BLOCK": 16}, num_warps=n) for n in (1, 4)], key=[])
@tw.jit
def copy(x, y, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    y.store([row, 0], x.load([row, 0]))


def test_each_gpu_is_tuned_for():
    for device in DEVICES:
        x, y = numbers(device, (64, 128)), torch.zeros(64, 128, device=device)
        copy[4,](*(TensorDescriptor.from_tensor(t, [16, 128]) for t in (x, y)))
        assert torch.equal(x, y)
    assert len(copy.cache) == 2


def test_times_are_those_of_the_second():
    add, device = make_add(), DEVICES[1]
    size = 1 << 26
    x = torch.zeros(size, device=device)
    milliseconds = do_bench(lambda: add[size // 1024,](x, x, x, size, BLOCK=1024))
    assert 0.01 < milliseconds < 50


def test_own_arrays_on_the_second():
    add = make_add()
    x = tw.DeviceArray.from_numpy(np.arange(64, dtype=np.float32), device=1)
    out = tw.DeviceArray(64, tl.float32, device=1)
    add[1,](x, x, out, 64, BLOCK=64)
    np.testing.assert_array_equal(out.to_numpy(), 2 * np.arange(64))
