"""Timing and autotuning on a GPU, by the clock of a fake one."""

import types

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tests.runtime.gpu_kernels import make_add
from tilewright.runtime import cuda
from tilewright.runtime.benchmark import do_bench
from tilewright.runtime.gpu_timing import GpuTimer


def make_increment(configs, **options):
    @tw.autotune([tw.Config(*config) for config in configs], key=["n"], **options)
    @tw.jit
    def increment(x_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(x_ptr + offsets, x + 1, mask=offsets < n)

    return increment


def test_launches_are_timed_by_the_gpus_clock(arrays, fake_driver, fake_torch):
    fake_torch.int8 = "int8"
    memory = types.SimpleNamespace(data_ptr=lambda: fake_driver.allocate(4 << 16))
    fake_torch.empty = lambda *_, **__: memory
    fake_driver.milliseconds = 7.0
    fake_driver.runs = False
    add = make_add()
    times = do_bench(lambda: add[2,](*arrays, BLOCK=64), rep=100, return_mode="all")
    assert times == [7.0] * 14
    first_run = fake_driver.calls.index("cuEventRecord")
    assert "cuMemsetD8Async" in fake_driver.calls[first_run:]


def test_what_starts_nothing_is_timed_by_the_host(fake_driver):
    calls = []
    times = do_bench(lambda: calls.append(1), warmup=0, rep=0, return_mode="all")
    assert len(times) == 1
    assert "cuEventRecord" not in fake_driver.calls


def test_memory_for_the_cache_without_pytorch(fake_driver):
    gpu = cuda.device(0)
    timer = GpuTimer(gpu)
    ((data, _),) = fake_driver.memory.values()
    assert data.size == 4 * gpu.l2_bytes
    assert timer.measure(lambda: None, 1, 1, lambda: None) == [0.0] * 1000


def test_the_fastest_configuration_is_chosen_and_nothing_is_left_behind(fake_driver):
    increment = make_increment([({"BLOCK": 64}, 4), ({"BLOCK": 64}, 8), ({"BLOCK": 64}, 2)], rep=5)
    x = tw.DeviceArray.from_numpy(np.arange(100, dtype=np.float32))
    fake_driver.milliseconds_of = {128: 3.0, 256: 1.0, 64: 2.0}
    increment[2,](x, 100)
    assert increment.best_config.num_warps == 8
    assert [t[0] for t in increment.configs_timings.values()] == [3.0, 1.0, 2.0]
    np.testing.assert_array_equal(x.to_numpy(), np.arange(100) + 1)


def test_configurations_that_do_not_fit_are_left_out(fake_driver):
    fake_driver.registers = 255
    increment = make_increment([({"BLOCK": 64}, 16), ({"BLOCK": 64}, 4)], rep=5)
    x = tw.DeviceArray.from_numpy(np.zeros(100, np.float32))
    increment[2,](x, 100)
    assert increment.best_config.num_warps == 4
    assert (x.to_numpy() == 1).all()


def test_each_device_is_tuned_for_itself(fake_driver):
    increment = make_increment([({"BLOCK": 64},), ({"BLOCK": 128},)], rep=5)
    host, first, second = (
        np.zeros(100, np.float32),
        *(tw.DeviceArray.from_numpy(np.zeros(100, np.float32), device) for device in (0, 1)),
    )
    for x in (host, first, second, host):
        increment[2,](x, 100)
    assert len(increment.cache) == 3
    assert (host == 2).all()
    assert (second.to_numpy() == 1).all()


def test_results_are_kept_for_each_kind_of_gpu(fake_driver, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))

    def tune():
        increment = make_increment([({"BLOCK": 64},), ({"BLOCK": 128},)], rep=5, cache_results=True)
        increment[2,](tw.DeviceArray.from_numpy(np.zeros(100, np.float32)), 100)
        return len([path for path in tmp_path.iterdir() if "-tuning-" in path.name])

    assert tune() == 2
    assert tune() == 2
    fake_driver.capability = (8, 0)
    monkeypatch.setattr(cuda._State, "devices", {})
    assert tune() == 4
