"""Launches on a GPU, on a fake driver that runs them in the emulator."""

import ctypes
import struct
import sys

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime.fake_cuda import INVALID_VALUE
from tests.runtime.gpu_kernels import make_add, make_scalars
from tilewright.errors import LaunchError, Unsupported
from tilewright.runtime import cuda, dlpack, gpu_launcher, history, launcher_shared
from tilewright.runtime.arguments import specialize
from tilewright.runtime.arrays import dtype_of
from tilewright.runtime.launch_parameters import ArrayParameter, ConstantParameter
from tilewright.runtime.torch_interface import tensor_keys, torch_interface

# ---- what is launched


def test_the_first_launch_and_those_in_machine_code(arrays, fake_driver):
    add = make_add()
    for _ in range(3):
        arrays[2].numbers[:] = 0
        compiled = add[2,](*arrays, BLOCK=64)
        np.testing.assert_array_equal(arrays[2].numbers, arrays[0].numbers + arrays[1].numbers)
        assert add.recent[0][2] is compiled
    assert len(fake_driver.launches) == 3
    first, *others = fake_driver.launches
    assert first == others[0] == others[1]
    assert first.grid == (2, 1, 1)
    assert first.block == (128, 1, 1)
    assert fake_driver.calls.count("cuModuleLoadDataEx") == 1


def test_machine_code_makes_the_calls(arrays, fake_driver, monkeypatch):
    add = make_add()
    compiled = add[2,](*arrays, BLOCK=64)
    monkeypatch.setattr(compiled.code.function, "launch", None)
    assert add[2,](*arrays, BLOCK=64) is compiled
    assert add[lambda meta: (meta["n"] // meta["BLOCK"] + 1,)](*arrays, BLOCK=64) is compiled
    assert add[2, 3, 4](*arrays, BLOCK=64) is compiled
    assert [launch.grid for launch in fake_driver.launches[1:]] == [(2, 1, 1)] * 2 + [(2, 3, 4)]


@pytest.mark.parametrize("by_machine_code", [True, False])
def test_scalars_are_packed(tensor, fake_driver, by_machine_code):
    fake_driver.runs = False
    scalars = make_scalars()
    out = tensor(np.zeros(2, np.float32))
    values = [-5, 2**40, 2**63 + 1, 0.1, 0.2, True, -3, "text"]
    compiled = scalars[1,](out, *values)
    assert compiled.code.launcher is not None
    if not by_machine_code:
        fake_driver.launches.clear()
        arguments = list(map(specialize, scalars.params, [out, *values]))
        compiled.code.run((1, 1, 1), arguments)
    launch = fake_driver.launches[-1]
    formats = ["<Q", "<i", "<q", "<Q", "<f", "<d", "<?", "<b"]
    packed = [struct.pack(f, v) for f, v in zip(formats, [out.data_ptr(), *values], strict=False)]
    assert launch.arguments == packed


def make_partial():
    @tw.jit
    def partial(a_ptr, unread_ptr, out_ptr, n, flag, unread, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out_ptr + i, tl.load(a_ptr + i, mask=i < n, other=0))

    return partial


@pytest.mark.parametrize("by_machine_code", [True, False])
def test_what_a_kernel_does_not_read_is_not_passed(arrays, fake_driver, by_machine_code):
    a, unread, out, _ = arrays
    partial = make_partial()
    values = [a, unread, out, 30, True, 2.5]
    compiled = partial[1,](*values, BLOCK=64)
    if not by_machine_code:
        out.numbers[:] = 0
        arguments = list(map(specialize, partial.params, [*values, 64]))
        compiled.code.run((1, 1, 1), arguments)
    expected = [struct.pack("<Q", array.data_ptr()) for array in (a, out)]
    assert fake_driver.launches[-1].arguments == [*expected, struct.pack("<i", 30)]
    assert compiled.asm["ptx"].count("\t.param ") == 3
    np.testing.assert_array_equal(out.numbers[:30], a.numbers[:30])
    assert not out.numbers[30:64].any()


def test_a_kernel_that_reads_nothing_takes_nothing(arrays, fake_driver):
    @tw.jit
    def nothing(x_ptr, n):
        pass

    for _ in range(2):
        nothing[3,](arrays[0], 5)
        assert fake_driver.launches[-1].arguments == []
    with pytest.raises(LaunchError, match="cannot take"):
        nothing[3,](object(), 5)


def test_the_current_stream_is_asked_for_at_each_launch(arrays, fake_driver, fake_torch):
    add = make_add()
    for stream in (0, 0xABC, 0xDEF, 0):
        fake_torch.streams[0] = stream
        add[2,](*arrays, BLOCK=64)
        assert fake_driver.launches[-1].stream == stream


def test_the_context_is_made_current_and_given_back(arrays, fake_driver):
    add = make_add()
    own = 0xC0DE0000
    for before in (0, own, 0x77, own + 1):
        fake_driver.context = before
        add[2,](*arrays, BLOCK=64)
        assert fake_driver.launches[-1].context == own
        assert fake_driver.context == before


def test_nothing_is_switched_where_the_context_is_current(arrays, fake_driver):
    add = make_add()
    add[2,](*arrays, BLOCK=64)
    fake_driver.context = 0xC0DE0000
    fake_driver.calls.clear()
    add[2,](*arrays, BLOCK=64)
    assert fake_driver.calls == ["cuCtxGetCurrent", "cuLaunchKernel"]


def test_each_gpu_has_its_own_kernel(tensor, fake_driver, fake_torch):
    add = make_add()
    kernels = []
    fake_torch.streams[1] = 0x111
    for device in (0, 1, 0, 1):
        x = tensor(np.ones(64, np.float32), device)
        kernels.append(add[1,](x, x, x, 64, BLOCK=64))
        launch = fake_driver.launches[-1]
        assert launch.context == 0xC0DE0000 + device
        assert launch.stream == 0x111 * device
        assert (x.numbers == 2).all()
    assert kernels[0] is kernels[2] is not kernels[1] is kernels[3]


def test_arrays_on_two_devices_are_refused(tensor):
    add = make_add()
    x, y = tensor(np.ones(8, np.float32)), tensor(np.ones(8, np.float32), 1)
    add[1,](x, x, x, 8, BLOCK=8)
    with pytest.raises(LaunchError, match="is on GPU 0, `y_ptr` is on GPU 1"):
        add[1,](x, y, x, 8, BLOCK=8)
    with pytest.raises(LaunchError, match="`y_ptr` is on the CPU"):
        add[1,](x, np.ones(8, np.float32), x, 8, BLOCK=8)


def test_other_specialisations_have_other_kernels(tensor, arrays, fake_driver):
    add = make_add()
    first = add[2,](*arrays, BLOCK=64)
    others = [
        add[2,](*arrays, BLOCK=128),
        add[2,](*arrays, BLOCK=64, num_warps=8),
        add[2,](*arrays[:3], 96, BLOCK=64),
        add[2,](*(tensor(a.numbers.astype(np.int32)) for a in arrays[:3]), 100, BLOCK=64),
    ]
    assert len({id(kernel) for kernel in (first, *others)}) == 5
    assert [launch.block[0] for launch in fake_driver.launches] == [128, 128, 256, 128, 128]
    assert add[2,](*arrays, BLOCK=64) is first


def test_an_empty_grid_launches_nothing(arrays, fake_driver):
    add = make_add()
    for _ in range(2):
        add[0,](*arrays, BLOCK=64)
    assert not fake_driver.launches


def test_grids_that_gpus_do_not_have(arrays):
    add = make_add()
    add[2,](*arrays, BLOCK=64)
    for grid in ((1, 2**16), (1, 1, 2**16)):
        with pytest.raises(LaunchError, match=r"takes 65535 programs along axis ., not 65536"):
            add[grid](*arrays, BLOCK=64)


def test_launch_attributes(arrays, fake_driver):
    add = make_add()
    for _ in range(2):
        fake_driver.calls.clear()
        add[2,](*arrays, BLOCK=64, launch_cooperative_grid=True)
        assert fake_driver.launches[-1].attributes == [(2, 1)]
        assert "cuLaunchKernelEx" in fake_driver.calls
        # The kernel does not wait for the one before it, so it must not overlap with it.
        add[2,](*arrays, BLOCK=64, launch_pdl=True)
        assert fake_driver.launches[-1].attributes == []
    fake_driver.failures["cuLaunchKernelEx"] = 720
    with pytest.raises(LaunchError, match=r"launching add: (.|\n)*same time: launch fewer"):
        add[2,](*arrays, BLOCK=64, launch_cooperative_grid=True)


def test_a_kernel_that_waits_for_the_one_before_may_start_early(arrays, fake_driver):
    @tw.jit
    def increment(x_ptr, out_ptr, BLOCK: tl.constexpr):
        place = tl.arange(0, BLOCK)
        tl.extra.cuda.gdc_wait()
        tl.store(out_ptr + place, tl.load(x_ptr + place) + 1)

    for _ in range(2):
        increment[1,](arrays[0], arrays[2], BLOCK=64, launch_pdl=True)
        assert fake_driver.launches[-1].attributes == [(6, 1)]
        increment[1,](arrays[0], arrays[2], BLOCK=64)
        assert fake_driver.launches[-1].attributes == []


# ---- arguments that are left to Python


def test_narrow_floats(tensor, fake_driver):
    @tw.jit
    def halves(out_ptr, x: tl.float16, y: tl.bfloat16):
        tl.store(out_ptr, x.to(tl.float32) + y.to(tl.float32))

    out = tensor(np.zeros(1, np.float32))
    for _ in range(2):
        halves[1,](out, 0.5, 3.0)
    assert fake_driver.launches[1].arguments[1:] == [struct.pack("<e", 0.5), b"\x40\x40"]
    assert out.numbers == 3.5
    halves[1,](out, 1e9, 1e39)
    infinite = [struct.pack("<e", np.inf), b"\x80\x7f"]
    assert fake_driver.launches[2].arguments[1:] == infinite


def test_a_tensor_that_cannot_be_viewed(arrays, fake_torch, fake_driver):
    add = make_add()
    add[2,](*arrays, BLOCK=64)
    fake_torch.view_fails = True
    add[2,](*arrays, BLOCK=64)
    assert len(fake_driver.launches) == 2


def test_a_pytorch_without_the_c_functions(arrays, fake_torch, fake_driver, monkeypatch):
    monkeypatch.delattr(fake_torch.Tensor, "__dlpack_c_exchange_api__")
    add = make_add()
    fake_torch.streams[0] = 0xABC
    for _ in range(2):
        add[2,](*arrays, BLOCK=64)
        assert fake_driver.launches[-1].stream == 0xABC
    np.testing.assert_array_equal(arrays[2].numbers, arrays[0].numbers + arrays[1].numbers)


def test_nothing_in_place_of_an_array(tensor, fake_driver):
    @tw.jit
    def copy(x_ptr, out_ptr):
        tl.store(out_ptr, tl.load(x_ptr))

    x, empty = tensor(np.ones(1, np.float32)), tensor(np.zeros(0, np.float32))
    for _ in range(2):
        with pytest.raises(LaunchError, match="`x_ptr` has no elements"):
            copy[1,](empty, x)
        copy[1,](x, x)
    assert len(fake_driver.launches) == 2


def test_own_device_arrays(fake_driver):
    add = make_add()
    x = np.arange(64, dtype=np.float32)
    device_x = tw.DeviceArray.from_numpy(x)
    out = tw.DeviceArray(64, tl.float32)
    for _ in range(2):
        add[1,](device_x, device_x, out, 64, BLOCK=64)
    np.testing.assert_array_equal(out.to_numpy(), 2 * x)
    assert out.device == "cuda:0"
    size = len(fake_driver.memory)
    del out
    assert len(fake_driver.memory) == size - 1


def test_the_body_runs_as_python_on_copies(fake_driver):
    add = make_add()
    x = tw.DeviceArray.from_numpy(np.arange(64, dtype=np.float32))
    add.debug[1,](x, x, x, 64, BLOCK=64)
    np.testing.assert_array_equal(x.to_numpy(), 2 * np.arange(64))
    with tw.emulate("sm_80"):
        add[1,](x, x, x, 64, BLOCK=64)
    np.testing.assert_array_equal(x.to_numpy(), 4 * np.arange(64))
    assert not fake_driver.launches


def test_out_of_bounds_on_the_gpu_is_found_on_copies(tensor):
    add = make_add()
    x, short = (tw.DeviceArray.from_numpy(np.zeros(n, np.float32)) for n in (64, 32))
    with pytest.raises(LaunchError, match="`y_ptr`"):
        add.debug[1,](x, short, x, 64, BLOCK=64)
    unknown = tensor(np.zeros(64, np.float32))
    with pytest.raises(LaunchError, match="`y_ptr`: how large the memory of the Tensor is"):
        add.debug[1,](x, unknown, x, 64, BLOCK=64)


def test_compiling_for_arrays_that_are_not_there(fake_driver):
    mock = tw.MockTensor(tl.float32, device="cuda")
    compiled = make_add().warmup(mock, mock, mock, 64, BLOCK=64)
    assert compiled.metadata.target.arch == 90
    with pytest.raises(LaunchError, match="no memory"):
        make_add()[1,](mock, mock, mock, 64, BLOCK=64)


# ---- errors


def test_an_error_of_a_launch_names_the_kernel(arrays, fake_driver):
    add = make_add()
    add[2,](*arrays, BLOCK=64)
    fake_driver.failures["cuLaunchKernel"] = INVALID_VALUE
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"launching add: .*CUDA_ERROR_1: words about 1"):
            add[2,](*arrays, BLOCK=64)
    fake_driver.failures.clear()
    add[2,](*arrays, BLOCK=64)


def test_out_of_memory_and_out_of_resources(arrays, fake_driver):
    add = make_add()
    add[2,](*arrays, BLOCK=64)
    for code, error, words in ((2, MemoryError, "out of memory"), (701, Unsupported, "registers")):
        fake_driver.failures["cuLaunchKernel"] = code
        with pytest.raises(error, match=f"launching add: .*{words}"):
            add[2,](*arrays, BLOCK=64)
    fake_driver.failures = {"cuModuleLoadDataEx": 2}
    with pytest.raises(MemoryError, match=r"loading add on GPU 0: .*out of memory"):
        make_add()[2,](*arrays, BLOCK=64)
    fake_driver.failures = {"cuMemAlloc_v2": 2}
    with pytest.raises(MemoryError, match="allocating 400 bytes on GPU 0"):
        tw.DeviceArray(100, tl.float32)


def test_errors_of_earlier_kernels(arrays, fake_driver):
    first, second = make_add(), make_scalars()
    first[2,](*arrays, BLOCK=64)
    second[1,](arrays[2], 1, 2, 3, 0.5, 0.5, False, 1, None)
    first[2,](*arrays, BLOCK=64)
    fake_driver.failures["cuLaunchKernel"] = 700
    with pytest.raises(
        LaunchError, match=r"launched before has failed: an access outside"
    ) as error:
        second[1,](arrays[2], 1, 2, 3, 0.5, 0.5, False, 1, None)
    assert "latest first: `scalars`, `add`" in str(error.value)
    assert "TILEWRIGHT_INTERPRET=1" in str(error.value)


def test_the_history_goes_round():
    numbers = [history.register(f"kernel{i}", i) for i in range(20)]
    before = history.launches()
    for number in numbers:
        history.note_launch(number)
    assert history.launches() == before + 20
    assert history.last_gpu() == 19
    assert history.recent_names() == [f"kernel{i}" for i in range(19, 3, -1)]


def test_a_launch_that_is_reported_waits_for_its_end(arrays, fake_driver, monkeypatch, capsys):
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    add = make_add()
    add[2,](*arrays, BLOCK=64)
    assert "on GPU 0" in capsys.readouterr().err
    fake_driver.failures["cuCtxSynchronize"] = 716
    with pytest.raises(LaunchError, match=r"running add: .*misaligned"):
        add[2,](*arrays, BLOCK=64)
    fake_driver.capturing = True
    add[2,](*arrays, BLOCK=64)


def test_too_many_registers(arrays, fake_driver):
    fake_driver.registers = 255
    add = make_add()
    with pytest.raises(Unsupported, match=r"add: with 255 registers each, a block has at most 257"):
        add[2,](*arrays, BLOCK=64, num_warps=16)


# ---- the compiled kernel


def test_what_a_compiled_kernel_tells(arrays, fake_driver):
    compiled = make_add()[2,](*arrays, BLOCK=64, num_stages=2)
    assert (compiled.n_regs, compiled.n_spills) == (32, 0)
    metadata = compiled.metadata
    assert (metadata.num_warps, metadata.num_stages, metadata.num_ctas) == (4, 2, 1)
    assert (metadata.name, metadata.target.arch, metadata.shared) == ("add", 90, 0)
    assert list(compiled.asm) == ["source", "tir", "llir", "ptx", "cubin", "sass", "ttir"]
    assert "func @add" in compiled.asm["tir"]
    assert "define ptx_kernel void @kernel_add" in compiled.asm["llir"]
    assert ".entry kernel_add" in compiled.asm["ptx"]
    assert compiled.asm["cubin"].startswith(b"CUBIN:")
    with pytest.raises(KeyError, match="the stages are source, tir, llir, ptx, cubin, sass"):
        compiled.asm["asm"]


def test_a_compiled_kernel_is_launched_itself(arrays, fake_driver):
    compiled = make_add()[2,](*arrays, BLOCK=64)
    arrays[2].numbers[:] = 0
    compiled[2,](*arrays, 64)
    np.testing.assert_array_equal(arrays[2].numbers, arrays[0].numbers + arrays[1].numbers)
    with pytest.raises(LaunchError, match="compiled for"):
        compiled[2,](*arrays, 32)


def test_warmup_compiles_for_the_gpu_of_the_arrays(arrays, fake_driver):
    add = make_add()
    compiled = add.warmup(*arrays, BLOCK=64, grid=(1,))
    assert "ptx" in compiled.asm
    assert not fake_driver.launches
    assert add[2,](*arrays, BLOCK=64) is compiled


# ---- PyTorch's own tensors, on the CPU in place of a GPU


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
def _first_gpu(tensor, result):
    result[0] = 0
    return 0


@pytest.fixture(params=["C interface", "DLPack"])
def torch_as_gpu(request, monkeypatch, fake_driver):
    """PyTorch, whose tensors on the CPU are taken for some of the GPU 0."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(dlpack, "CUDA", dlpack.CPU)
    fake_driver.runs = False
    found = None
    if request.param == "C interface":
        found = torch_interface()
        assert found is not None
        index = ctypes.cast(_first_gpu, ctypes.c_void_p).value
        found = found._replace(get_device_index=index)
    keys = tensor_keys()
    keys = keys._replace(usual_on_gpu=keys.usual_on_cpu)
    monkeypatch.setattr(launcher_shared, "tensor_keys", lambda: keys)
    for module in (gpu_launcher, launcher_shared):
        monkeypatch.setattr(module, "torch_interface", lambda: found)
    return torch


def bound(parameters):
    text = ".version 8.3\n.target sm_90a\n.entry k(.param .u64 p) { ret; }"
    function = cuda.Module(cuda.device(0), text.encode(), "k").function("k", "k", 0)
    return gpu_launcher.bind_gpu_launcher(
        function,
        parameters,
        threads=128,
        attributes=gpu_launcher.Attributes(),
        passed=(0,),
        on_error=pytest.fail,
    )


def test_tensors_of_pytorch(torch_as_gpu, fake_driver):
    torch = torch_as_gpu
    launch = bound([ArrayParameter("bf16", divisible_by_16=True), ConstantParameter(None)])
    x = torch.zeros(64, dtype=torch.bfloat16)
    others = [x[1:], x.half(), x.to_sparse(), x.to("meta"), x.numpy, None, 5]
    others += [torch._neg_view(x), torch._efficientzerotensor(64, dtype=torch.bfloat16)]
    others += [without_memory(torch, 0), without_memory(torch, 8)]
    assert [launch(1, 1, 1, other, None) for other in others] == [NotImplemented] * len(others)

    def wrapped(row):
        assert launch(1, 1, 1, row, None) is NotImplemented
        return row

    torch.func.vmap(wrapped)(x.reshape(1, 64))
    for good in (x, torch.nn.Parameter(x), x[8:], x.reshape(8, 8).T):
        counts = sys.getrefcount(good)
        assert launch(1, 1, 1, good, None) is None
        (address, *_) = fake_driver.launches[-1].arguments
        assert address == struct.pack("<Q", good.data_ptr())
        assert sys.getrefcount(good) == counts


def without_memory(torch, first):
    tensor = torch.zeros(64, dtype=torch.bfloat16)
    view = tensor[first:]
    tensor.untyped_storage().resize_(0)
    return view


def test_tensors_without_elements(torch_as_gpu, fake_driver):
    launch = bound([ArrayParameter("fp32")])
    empty = torch_as_gpu.zeros(0)
    if gpu_launcher.torch_interface() is None:
        assert launch(1, 1, 1, empty) is NotImplemented  # of a null pointer it cannot tell
        return
    assert launch(1, 1, 1, empty) is None
    assert fake_driver.launches[-1].arguments == [bytes(8)]
    assert bound([ArrayParameter("fp32", may_be_null=False)])(1, 1, 1, empty) is NotImplemented


def test_launchers_tell_the_dtypes_of_pytorch_apart(torch_as_gpu):
    torch = torch_as_gpu
    tensors = [torch.zeros(16, dtype=getattr(torch, name)) for name in _TORCH_NAMES]
    for tensor in tensors:
        launch = bound([ArrayParameter(dtype_of(tensor.dtype).short_name)])
        taken = [other for other in tensors if launch(1, 1, 1, other) is None]
        assert [other.dtype for other in taken] == [tensor.dtype]


def test_tensors_on_other_gpus_are_declined(torch_as_gpu, fake_driver, monkeypatch):
    torch = torch_as_gpu
    launch = bound([ArrayParameter("fp32")])
    x = torch.zeros(4)
    assert launch(1, 1, 1, x) is None
    monkeypatch.setattr(dlpack, "CUDA", dlpack.CPU | 1 << 32)
    assert bound([ArrayParameter("fp32")])(1, 1, 1, x) is NotImplemented


_TORCH_NAMES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16"]
_TORCH_NAMES += ["float32", "float64", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"]


def test_every_dtype_of_pytorch_is_told_apart():
    torch = pytest.importorskip("torch")
    for name in _TORCH_NAMES:
        found = dlpack.open_dlpack(torch.zeros(2, 3, dtype=getattr(torch, name)).T)
        assert found.dtype is dtype_of(getattr(torch, name))
        assert (found.shape, found.strides) == ((3, 2), (1, 3))


@pytest.mark.parametrize("registers", [0, 15, 256, "many", 1.5])
def test_limits_of_registers_that_there_are_not(arrays, registers):
    with pytest.raises(LaunchError, match="`maxnreg` is None or an int from 16 to 255"):
        make_add()[2,](*arrays, BLOCK=64, maxnreg=registers)
