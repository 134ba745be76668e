"""Arrays of PyTorch, CuPy, Numba, JAX and our own on a real GPU, on streams and in contexts."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime.gpu_kernels import make_add
from tilewright.errors import LaunchError
from tilewright.runtime import cuda

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
ROOT = Path(__file__).resolve().parents[2]
SIZE = 1 << 16
# Long enough that a kernel which does not wait for it reads what was there before.
CYCLES = 200_000_000


@tw.jit
def move(x_ptr, out_ptr, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Out = 2 x, where x has any strides and out has none between its elements."""
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(out_ptr + i * COLUMNS + j, 2 * tl.load(x_ptr + i * row + j * column))


class Interface:
    """An array by `__cuda_array_interface__` alone."""

    def __init__(self, tensor, stream=None, read_only=False):
        self.tensor = tensor
        self.__cuda_array_interface__ = {
            **tensor.detach().__cuda_array_interface__,
            "version": 3,
            "data": (tensor.data_ptr(), read_only),
            "stream": stream,
        }


def numbers(size=SIZE):
    return torch.arange(size, device="cuda", dtype=torch.float32)


def add(x, y, out, size=SIZE, kernel=None):
    (kernel or make_add())[(size + 1023) // 1024,](x, y, out, size, BLOCK=1024)


# ---- tensors


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.reshape(16, 64)[:8, :32],
        lambda x: x.reshape(64, 16)[:32, :8].T,
        lambda x: x.reshape(16, 64)[::2, 1:33],
        lambda x: x[5:261].reshape(8, 32),
        lambda x: x[7].expand(8, 32),
        lambda x: x.reshape(16, 64)[3:11, 32:],
    ],
)
def test_views_of_tensors(view):
    x, out = view(numbers(1024)), torch.empty(8, 32, device="cuda")
    for kernel in (move, tw.jit(move.fn)):
        kernel[1,](x, out, *x.stride(), ROWS=8, COLUMNS=32)
        assert torch.equal(out, 2 * x)
        kernel[1,](Interface(x), out.zero_(), *x.stride(), ROWS=8, COLUMNS=32)
        assert torch.equal(out, 2 * x)


def test_tensors_that_require_gradients():
    x, kernel = numbers().requires_grad_(), make_add()
    leaf, parameter = x * 1, torch.nn.Parameter(numbers())
    for array in (x, leaf, parameter, leaf.detach()):
        out = torch.empty(SIZE, device="cuda")
        add(array, array, out, kernel=kernel)
        assert torch.equal(out, 2 * numbers())
        assert x.grad is None


def test_another_stream_is_current():
    kernel, stream = make_add(), torch.cuda.Stream()
    x, out = torch.zeros(SIZE, device="cuda"), torch.zeros(SIZE, device="cuda")
    add(x, x, out, kernel=kernel)  # what follows is in machine code
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        x.fill_(3)
        add(x, x, out, kernel=kernel)
        assert not stream.query()
    assert not torch.cuda.current_stream().cuda_stream
    stream.synchronize()
    assert bool((out == 6).all())


@pytest.fixture
def other_context():
    """A context of the driver beside PyTorch's, which is current in this thread."""
    torch.cuda.current_stream()
    torch.zeros(1, device="cuda")
    library = cuda.driver().library
    before, made = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cuCtxGetCurrent(ctypes.byref(before)) == 0
    assert library.cuCtxCreate_v2(ctypes.byref(made), 0, 0) == 0
    assert library.cuCtxSetCurrent(made) == 0
    yield made.value
    assert library.cuCtxSetCurrent(before) == 0
    assert library.cuCtxDestroy_v2(made) == 0


def test_another_context_is_current(other_context):
    kernel, expected = make_add(), np.arange(SIZE, dtype=np.float32) * 2
    library, found = cuda.driver().library, ctypes.c_void_p()
    own = tw.DeviceArray.from_numpy(expected / 2)
    result = tw.DeviceArray(SIZE, tl.float32)
    for _ in range(2):
        result.copy_from(np.zeros_like(expected))
        add(own, own, result, kernel=kernel)
        np.testing.assert_array_equal(result.to_numpy(), expected)
        assert library.cuCtxGetCurrent(ctypes.byref(found)) == 0
        assert found.value == other_context


def test_tensors_while_another_context_is_current(other_context):
    library, found = cuda.driver().library, ctypes.c_void_p()
    with cuda.device(0).active():
        x, out = numbers(), torch.zeros(SIZE, device="cuda")
        torch.cuda.synchronize()
    for kernel in [make_add()] * 3:
        add(x, x, out, kernel=kernel)
        assert library.cuCtxGetCurrent(ctypes.byref(found)) == 0
        assert found.value == other_context
    with cuda.device(0).active():
        assert torch.equal(out, 2 * x)


# ---- arrays by interface


def test_arrays_that_only_have_the_interface():
    kernel, x, out = make_add(), numbers(), torch.zeros(SIZE, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        x += 1
    # The launch waits for the stream that the array names, and that stream for the launch.
    add(Interface(x, stream.cuda_stream), x, out, kernel=kernel)
    torch.cuda.current_stream().synchronize()
    assert torch.equal(out, 2 * numbers() + 2)
    add(Interface(x, 1), Interface(x, 2), Interface(out.zero_(), 1), kernel=kernel)
    torch.cuda.synchronize()
    assert torch.equal(out, 2 * x)
    with pytest.raises(LaunchError, match="`out_ptr` is read-only"):
        add(x, x, Interface(out, read_only=True), kernel=kernel)


def test_arrays_of_cupy():
    cupy = pytest.importorskip("cupy")
    kernel, x = make_add(), np.arange(SIZE, dtype=np.float32)
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(3):
            arrays = [cupy.asarray(x), cupy.ones(SIZE, cupy.float32), cupy.zeros(SIZE, "f4")]
            add(*arrays, kernel=kernel)
            np.testing.assert_array_equal(cupy.asnumpy(arrays[2]), x + 1)
    matrix = cupy.asarray(x[:1024]).reshape(32, 32)[:8].T[:, ::2]
    out = cupy.empty((32, 4), cupy.float32)
    steps = [step // 4 for step in matrix.strides]
    move[1,](matrix, out, *steps, ROWS=32, COLUMNS=4)
    assert bool((out == 2 * matrix).all())
    for dtype in ("int8", "uint16", "int64", "float16", "float64"):
        y = cupy.arange(64).astype(dtype)
        result = cupy.empty_like(y)
        add(y, y, result, 64, kernel=kernel)
        assert bool((result == y + y).all())
    mixed = torch.zeros(SIZE, device="cuda")
    add(cupy.asarray(x), torch.ones(SIZE, device="cuda"), mixed, kernel=kernel)
    assert torch.equal(mixed.cpu(), torch.from_numpy(x + 1))
    with pytest.raises(LaunchError, match="complex64"):
        add(cupy.zeros(8, "c8"), mixed, mixed, 8)


def test_cupy_waits_for_its_arrays():
    """A kernel on PyTorch's stream that fills an array of CuPy is done before CuPy goes on."""
    cupy = pytest.importorskip("cupy")
    kernel, ones = make_add(), torch.ones(SIZE, device="cuda")
    add(ones, ones, torch.empty(SIZE, device="cuda"), kernel=kernel)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        out = cupy.zeros(SIZE, cupy.float32)
        torch.cuda._sleep(CYCLES)
        ones.fill_(4)
        add(ones, ones, out, kernel=kernel)
        total = out + 1
    assert bool((cupy.asnumpy(total, stream=stream) == 9).all())


def test_arrays_of_numba():
    numba_cuda = pytest.importorskip("numba.cuda")
    if not numba_cuda.is_available():
        pytest.skip("Numba sees no GPU")
    x = np.arange(SIZE, dtype=np.float32)
    arrays = [numba_cuda.to_device(x), numba_cuda.to_device(x), numba_cuda.device_array(SIZE, "f4")]
    add(*arrays)
    np.testing.assert_array_equal(arrays[2].copy_to_host(), 2 * x)


# JAX takes most of the GPU's memory when it starts, unless it is told not to.
WITH_JAX = """
import sys
import numpy as np
try:
    import jax, jax.numpy as jnp
    if jax.default_backend() != "gpu":
        raise ImportError("JAX sees no GPU")
except (ImportError, RuntimeError) as error:
    print("skip:", error)
    sys.exit()
import tilewright as tw, tilewright.language as tl
from tests.runtime.gpu_kernels import make_add
from tilewright.errors import LaunchError

SIZE = 1 << 16
add, grid = make_add(), (64,)
out = tw.DeviceArray(SIZE, tl.float32)

def late(value):
    \"\"\"An array that is not there yet when it is passed on.\"\"\"
    matrix = jnp.full((4096, 4096), 1 / 4096, jnp.float32)
    for _ in range(20):
        matrix = matrix @ matrix
    return jnp.full((SIZE,), value, jnp.float32) * jnp.round(matrix[0, 0] * 4096)

expected = np.asarray(late(1))
for round in range(5):
    add[grid](late(round), late(1), out, SIZE, BLOCK=1024)
    result = out.to_numpy()
    assert (result == (round + 1) * expected).all(), (round, result[:4], expected[:4])

# What JAX is given back for other work is not read any more.
for round in range(20):
    ones = jnp.ones(SIZE, jnp.float32)
    add[grid](jnp.full((SIZE,), round, jnp.float32), ones, out, SIZE, BLOCK=1024)
    junk = [jnp.full((SIZE,), -1, jnp.float32) for _ in range(8)]
    assert (out.to_numpy() == round + 1).all(), round

for dtype in (jnp.bfloat16, jnp.float16, jnp.int32, jnp.int8):
    x = jnp.arange(64).astype(dtype)
    add[1,](x, x, out, 64, BLOCK=64)
    assert (out.to_numpy()[:64] == 2 * np.arange(64)).all(), dtype
try:
    add[grid](out, out, jnp.zeros(SIZE, jnp.float32), SIZE, BLOCK=1024)
except LaunchError as error:
    assert "`out_ptr` is read-only" in str(error), error
else:
    raise AssertionError("an array of JAX was written")
add[grid](late(2), late(2), out, SIZE, BLOCK=1024)
assert bool((jnp.asarray(out) == 4 * expected[0]).all())
print("ok", jax.__version__)
"""


def test_arrays_of_jax(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(WITH_JAX)
    environment = {"PYTHONPATH": str(ROOT), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("skip:"):
        pytest.skip(done.stdout.removeprefix("skip:").strip())
    assert done.stdout.startswith("ok")


# ---- our own


def test_own_arrays():
    x = np.arange(1000, dtype=np.float32)
    first, out, kernel = tw.DeviceArray.from_numpy(x), tw.DeviceArray(1000, tl.float32), make_add()
    for other in (first, torch.as_tensor(first, device="cuda")):
        out.copy_from(np.zeros_like(x))
        add(other, first, out, 1000, kernel=kernel)
        np.testing.assert_array_equal(out.to_numpy(), 2 * x)


def test_lent_memory_of_dlpack():
    """An object that only has DLPack, as JAX's arrays on a GPU."""

    class Dlpack:
        def __init__(self, tensor):
            self.tensor, self.dtype = tensor, tensor.dtype

        def __dlpack__(self, *, stream=None, **settings):
            return self.tensor.__dlpack__(stream=stream, max_version=(1, 0))

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    out = torch.zeros(SIZE, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        x = numbers()
        torch.cuda._sleep(CYCLES)
        x += 1
        array = Dlpack(x)
        add(array, array, out)
    torch.cuda.synchronize()
    assert torch.equal(out, 2 * numbers() + 2)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_own_arrays_on_two_gpus():
    kernel, x = make_add(), np.arange(SIZE, dtype=np.float32)
    for gpu in (0, 1, 0, 1):
        first, out = tw.DeviceArray.from_numpy(x, gpu), tw.DeviceArray(SIZE, tl.float32, gpu)
        add(first, first, out, kernel=kernel)
        np.testing.assert_array_equal(out.to_numpy(), 2 * x)
    other = tw.DeviceArray.from_numpy(x, 0)
    with pytest.raises(LaunchError, match="`x_ptr` is on GPU 1, `y_ptr` is on GPU 0"):
        add(out, other, out, kernel=kernel)
