"""Kernels compiled for types that are written down: what generators of kernels do."""

import pickle
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.compiler import ASTSource, GPUTarget, compile
from tilewright.compiler.backend import make_backend
from tilewright.errors import CompileError, LaunchError, Unsupported
from tilewright.runtime import build
from tilewright.tools.tensor_descriptor import TensorDescriptor

CPU, H200 = GPUTarget("cpu", "", 1), GPUTarget("cuda", 90, 32)
SIGNATURE = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}


@tw.jit
def twice(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, 2 * x, mask=offsets < n)


def source(fn=twice, signature=SIGNATURE, constants=None, attrs=None):
    return ASTSource(fn, signature, {"BLOCK": 64} if constants is None else constants, attrs)


def launch(kernel, grid, *values):
    kernel._init_handles()
    kernel.run(*grid, 0, kernel.function, kernel.metadata, None, None, None, *values)


def numbers(n):
    return np.arange(n, dtype=np.float32), np.zeros(n, np.float32)


def test_a_kernel_for_written_types():
    kernel = compile(source(), CPU, {"num_warps": 4, "debug": False})
    x, y = numbers(100)
    launch(kernel, (2, 1, 1), x, y, 100, 64)
    assert np.array_equal(y, 2 * x)
    assert (kernel.name, kernel.metadata.num_warps, kernel.metadata.hash) == (
        *("twice", 4),
        kernel.hash,
    )
    assert kernel.asm["object"]


def test_numbers_are_not_what_a_kernel_is_specialised_on():
    kernel = compile(source(), CPU)
    for n in (1, 16, 100):
        x, y = numbers(n)
        launch(kernel, (2, 1, 1), x, y, n, 64)
        assert np.array_equal(y, 2 * x)


def test_promises_are_checked_at_the_launch():
    kernel = compile(source(attrs={(0,): [["tt.divisibility", 16]]}), CPU)
    x, y = numbers(101)
    launch(kernel, (2, 1, 1), x[:100], y[1:], 100, 64)
    assert np.array_equal(y[1:], 2 * x[:100])
    with pytest.raises(LaunchError, match=r"`x_ptr`: the kernel was compiled for arrays at mult"):
        launch(kernel, (2, 1, 1), x[1:], y, 100, 64)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda x, y: (x, y, 2**40, 64), r"`n` is i32: 1099511627776 does not fit"),
        (lambda x, y: (x, y, "9", 64), r"`n` is i32: it takes a number, not '9'"),
        (lambda x, y: (3.5, y, 9, 64), r"`x_ptr` is \*fp32: it takes an array"),
        (lambda x, y: (x, y, 9), r"4 arguments are needed, not 3"),
    ],
)
def test_what_does_not_fit_is_refused(values, message):
    with pytest.raises(LaunchError, match=message):
        launch(compile(source(), CPU), (1, 1, 1), *values(*numbers(64)))


def test_nothing_in_place_of_an_array():
    @tw.jit
    def clear(x_ptr):
        tl.store(x_ptr, 0.0)

    with pytest.raises(LaunchError, match="`x_ptr` is None, and the kernel accesses it"):
        launch(compile(source(clear, {"x_ptr": "*fp32"}, {}), CPU), (1, 1, 1), None)


def test_what_the_elements_are_is_the_callers_word():
    x, y = numbers(64)
    launch(compile(source(), CPU), (1, 1, 1), x.view(np.int32), y.view(np.int32), 64, 64)
    assert np.array_equal(y, 2 * x)


def test_constants_go_by_name_or_by_path():
    keys = [
        {name: known.key for name, known in source(constants=constants).specializations().items()}
        for constants in ({"BLOCK": 64, "num_warps": 4}, {(3,): 64}, {3: 64})
    ]
    assert keys[0]["BLOCK"] == "=64"
    assert keys[0] == keys[1] == keys[2]


def test_parameters_left_out_are_none():
    @tw.jit
    def add(x_ptr, y_ptr, n):
        value = 1.0 if y_ptr is None else tl.load(y_ptr)
        tl.store(x_ptr, value + n)

    x = np.zeros(1, np.float32)
    kernel = compile(source(add, {"x_ptr": "*fp32", "n": "fp32"}, {}), CPU)
    launch(kernel, (1, 1, 1), x, None, 2.5)
    assert x[0] == 3.5


def test_tuples():
    @tw.jit
    def total(x_ptr, values):
        tl.store(x_ptr, values[0] + values[1] * values[2])

    x = np.zeros(1, np.float32)
    signature = {"x_ptr": "*fp32", "values": ("i32", "constexpr", "fp32")}
    kernel = compile(source(total, signature, {(1, 1): 10}), CPU)
    launch(kernel, (1, 1, 1), x, (7, 10, 0.5))
    assert x[0] == 12


def test_tensor_descriptors():
    @tw.jit
    def copy(x, y):
        y.store([0, 0], x.load([0, 0]))

    signature = {"x": "tensordesc<fp32[4, 8]>", "y": "tensordesc<fp32[4, 8]>"}
    array, copied = np.arange(40, dtype=np.float32).reshape(5, 8), np.zeros((5, 8), np.float32)
    descriptors = [TensorDescriptor.from_tensor(a, [4, 8]) for a in (array, copied)]
    launch(compile(source(copy, signature, {}), CPU), (1, 1, 1), *descriptors)
    assert np.array_equal(copied[:4], array[:4])
    assert not copied[4].any()


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ({**SIGNATURE, "x_ptr": "*what"}, r"gives `x_ptr` the type '\*what', which is none"),
        ({**SIGNATURE, "z": "i32"}, r"`twice` has no parameter `z`"),
    ],
)
def test_wrong_signatures(signature, message):
    with pytest.raises(CompileError, match=message):
        compile(source(signature=signature), CPU)


def test_wrong_targets_and_options():
    with pytest.raises(LaunchError, match="neither a parameter of the kernel nor a launch option"):
        compile(source(), CPU, {"num_wraps": 4})
    with pytest.raises(LaunchError, match="takes an ASTSource, not a str"):
        compile("twice", CPU)
    with pytest.raises(Unsupported, match="there is no backend 'hip'"):
        compile(source(), GPUTarget("hip", "gfx942", 64))
    for other in (70, 103, 121):
        with pytest.raises(Unsupported, match=f"no target for compute capability {other}") as said:
            compile(source(), GPUTarget("cuda", other, 32))
        assert "7.5, 8.0 to 8.9, 9.0, 10.0 and 12.0" in str(said.value)


def test_the_disk_cache_is_asked_first(monkeypatch):
    compile(source(), CPU)
    monkeypatch.setattr(build, "compile_kernel", lambda request: pytest.fail("compiled again"))
    compile(source(), CPU, SimpleNamespace(num_warps=8))


def test_assertions_are_compiled_in_for_debugging():
    @tw.jit
    def check(x_ptr):
        tl.device_assert(tl.load(x_ptr) > 0, "not positive")

    x = np.zeros(1, np.float32)
    signature = {"x_ptr": "*fp32"}
    launch(compile(source(check, signature, {}), CPU, {"debug": False}), (1, 1, 1), x)
    with pytest.raises(LaunchError, match="not positive"):
        launch(compile(source(check, signature, {}), CPU, {"debug": True}), (1, 1, 1), x)


def test_hooks_are_called_around_a_launch():
    called = []
    kernel = compile(source(), CPU)
    kernel._init_handles()
    x, y = numbers(64)
    facts = kernel.launch_metadata((1, 1, 1), 0, x, y, 64, 64)
    hooks = [
        lambda facts: called.append(("before", facts.get()["name"])),
        lambda facts: called.append(("after", y[1])),
    ]
    kernel.run(1, 1, 1, 0, kernel.function, kernel.metadata, facts, *hooks, x, y, 64, 64)
    assert called == [("before", "twice"), ("after", 2.0)]


# ---- in other processes


def without_body(kernel):
    """Take off what Inductor takes off before it pickles a function."""
    fn = kernel.src.fn
    kept = fn.fn, fn.__globals__, fn.used_global_vals
    fn.fn = fn.__globals__ = fn.used_global_vals = None
    try:
        return pickle.dumps({**vars(kernel), "run": None, "metadata": kernel.metadata._asdict()})
    finally:
        fn.fn, fn.__globals__, fn.used_global_vals = kept


CHILD = """
import pickle, sys
import numpy as np
from tilewright.compiler import CompiledSource
from tilewright.runtime.hooks import hooks
kernel = CompiledSource.__new__(CompiledSource)
vars(kernel).update(pickle.load(sys.stdin.buffer))
loaded = []
if len(sys.argv) > 1:
    hooks.kernel_load_end_hook.add(lambda *told: loaded.append(told[-1] == kernel.hash))
kernel._init_handles()
assert loaded == [True] * (len(sys.argv) - 1)
x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
kernel.run(2, 1, 1, 0, kernel.function, None, None, None, None, x, y, 100, 64)
fn = kernel.src.fn
assert np.array_equal(y, 2 * x)
assert fn.arg_names == ["x_ptr", "y_ptr", "n", "BLOCK"], fn.arg_names
assert [p.num for p in fn.params if p.is_constexpr] == [3]
assert "tests" not in sys.modules
print(fn.__name__, fn.location.line)
"""


@pytest.mark.parametrize("hooks", [[], ["hooked"]])
def test_another_process_launches_without_the_source(hooks):
    data = without_body(compile(source(), CPU))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *hooks], input=data, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == f"twice {twice.location.line}\n"


def test_functions_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(twice)) is twice


# ---- GPUs


def test_code_for_a_gpu_needs_none(monkeypatch):
    kernel = compile(source(), H200, {"num_warps": 2, "num_stages": 1})
    assert ".target sm_90a" in kernel.asm["ptx"]
    assert kernel.metadata.name in kernel.asm["ptx"]
    assert kernel.metadata.target == H200


def test_launch_on_a_gpu(fake_driver, fake_torch, tensor):
    kernel = compile(source(), GPUTarget("cuda", 80, 32), {"num_warps": 2})
    x = np.arange(100, dtype=np.float32)
    given, result = tensor(x), tensor(np.zeros(100, np.float32))
    launch(kernel, (2, 1, 1), given, result, 100, 64)
    assert np.array_equal(result.numbers, 2 * x)
    assert kernel.n_regs > 0
    assert kernel.n_spills == 0


def test_a_launch_goes_to_the_stream_that_is_named(fake_driver, fake_torch, tensor):
    kernel = compile(source(), GPUTarget("cuda", 80, 32), {"num_warps": 2})
    kernel._init_handles()
    given, result = tensor(np.ones(100, np.float32)), tensor(np.zeros(100, np.float32))
    fake_torch.streams[0] = 7
    for stream in (7, 9, None):
        kernel.run(2, 1, 1, stream, *[None] * 5, given, result, 100, 64)
    assert [launch.stream for launch in fake_driver.launches] == [7, 9, 7]
    assert np.array_equal(result.numbers, np.full(100, 2))


# ---- what is asked about targets


def test_backends():
    on_cpu, on_gpu = make_backend(CPU), make_backend(H200)
    assert on_cpu.hash() != on_gpu.hash()
    assert on_gpu.parse_options({"num_warps": 8}).num_warps == 8
    assert "fp8e4nv" in on_gpu.parse_options({}).supported_fp8_dtypes
    assert on_gpu.parse_options({}).extern_libs is None
