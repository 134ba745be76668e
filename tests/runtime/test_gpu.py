"""Kernels on a real GPU, against PyTorch."""

import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from examples.attention import attention_kernel
from examples.elementwise import add_kernel
from examples.matmul import matmul_kernel
from examples.rows import layer_norm_kernel, softmax_kernel
from tests.runtime.gpu_kernels import MANY, make_add, make_many
from tilewright.errors import LaunchError
from tilewright.runtime import cuda, gpu_build
from tilewright.runtime.benchmark import do_bench

ROOT = Path(__file__).resolve().parents[2]
torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]


def random(*shape, dtype=None):
    generator = torch.Generator("cuda").manual_seed(0)
    found = torch.randn(*shape, device="cuda", generator=generator)
    return found if dtype is None else found.to(dtype)


@pytest.mark.parametrize("size", [1, 1000, 1 << 20, 1_000_003])
def test_add(size):
    x, y = random(size), random(size)
    out = torch.empty_like(x)
    compiled = add_kernel[(size + 1023) // 1024,](x, y, out, size, BLOCK=1024)
    assert torch.equal(out, x + y)
    assert compiled.n_spills == 0
    assert "ld.global" in compiled.asm["ptx"]


@pytest.mark.parametrize("columns", [7, 1000, 4096])
@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_softmax(columns, num_warps):
    x = random(33, columns)
    out = torch.empty_like(x)
    block = 1 << (columns - 1).bit_length()
    softmax_kernel[33,](x, out, columns, columns, columns, BLOCK=block, num_warps=num_warps)
    torch.testing.assert_close(out, torch.softmax(x, 1))


def test_numbers_of_every_type():
    many = make_many()
    for _ in range(3):
        out = torch.zeros(16, device="cuda")
        many[1,](out, *MANY, BLOCK=16)
        assert out.tolist() == [np.float32(sum(MANY))] * 16


def test_layer_norm():
    x, weight, bias = random(40, 1500), random(1500), random(1500)
    out, mean, rstd = torch.empty_like(x), *(torch.empty(40, device="cuda") for _ in range(2))
    layer_norm_kernel[40,](x, weight, bias, out, mean, rstd, 1500, 1500, 1e-5, BLOCK=2048)
    expected = torch.nn.functional.layer_norm(x, (1500,), weight, bias)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(256, 256, 256), (300, 200, 100)])
def test_matmul(shape, dtype):
    m, n, k = shape
    dtype = getattr(torch, dtype)
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
    out = torch.empty(m, n, device="cuda")
    grid = (-(-m // 64) * -(-n // 64),)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 4}
    matmul_kernel[grid](a, b, out, m, n, k, k, 1, n, 1, n, 1, **blocks)
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    q, k, v = (random(4, 300, 64, dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    scale = math.log2(math.e) / 8
    blocks = {"HEAD": 64, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": causal}
    attention_kernel[5, 4](q, k, v, out, scale, 300, **blocks)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    torch.testing.assert_close(out, expected, rtol=2e-2, atol=2e-2)


def test_current_stream_is_used():
    x = torch.zeros(1 << 20, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(100):
            add_kernel[1024,](x, 1 + torch.zeros_like(x), x, 1 << 20, BLOCK=1024)
    stream.synchronize()
    assert bool((x == 100).all())


def test_arrays_on_two_devices_are_refused():
    x = random(8)
    with pytest.raises(LaunchError, match="several devices"):
        add_kernel[1,](x, x.cpu(), x, 8, BLOCK=8)


# ---- the runtime


def sums(size=1 << 16):
    x, y = random(size), random(size)
    return x, y, torch.empty_like(x), size


def test_launches_are_in_machine_code(monkeypatch):
    add = make_add()
    x, y, out, size = sums()
    compiled = add[size // 1024,](x, y, out, size, BLOCK=1024)
    assert compiled.code.launcher is not None
    monkeypatch.setattr(type(compiled.code), "run", None)
    for _ in range(3):
        out.zero_()
        assert add[size // 1024,](x, y, out, size, BLOCK=1024) is compiled
        assert torch.equal(out, x + y)
    parameter = torch.nn.Parameter(x)
    add[size // 1024,](parameter, y, out, size, BLOCK=1024)
    assert torch.equal(out, x + y)


def test_a_graph_records_launches():
    add = make_add()
    x, y, out, size = sums()
    add[size // 1024,](x, y, out, size, BLOCK=1024)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add[size // 1024,](x, y, out, size, BLOCK=1024)
    out.zero_()
    graph.replay()
    assert torch.equal(out, x + y)


def test_what_a_kernel_takes_is_known():
    compiled = add_kernel[64,](*sums(), BLOCK=1024, num_warps=8)
    assert 8 <= compiled.n_regs <= 255
    assert compiled.n_max_threads >= 256
    assert compiled.metadata.num_warps == 8
    assert compiled.asm["cubin"].startswith(b"\x7fELF")


@pytest.mark.parametrize("way", ["ptxas", "linker", "loading"])
def test_every_way_to_machine_code_is_right_and_alike(way, monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    if way == "ptxas" and gpu_build.find_ptxas() is None:
        pytest.skip("there is no ptxas")
    if way != "ptxas":
        monkeypatch.setattr(gpu_build, "find_ptxas", lambda: None)
    if way == "loading":
        monkeypatch.setattr(gpu_build, "linked", lambda *_: None)
    x = random(64, 4096, dtype=torch.float16)
    out = torch.empty_like(x)
    for _ in range(2):  # compiled, then from the disk cache
        kernel = tw.jit(softmax_kernel.fn)
        compiled = kernel[64,](x, out, 4096, 4096, 4096, BLOCK=4096)
        torch.testing.assert_close(out, torch.softmax(x, 1), rtol=1e-3, atol=1e-3)
        assert ("cubin" in compiled.asm) is (way != "loading")
        assert compiled.n_spills == 0


def test_other_arrays():
    add = make_add()
    x = np.arange(1000, dtype=np.float32)
    first, out = tw.DeviceArray.from_numpy(x), tw.DeviceArray(1000, tl.float32)
    add[1,](first, first, out, 1000, BLOCK=1024)
    np.testing.assert_array_equal(out.to_numpy(), 2 * x)
    mixed = torch.as_tensor(first, device="cuda")
    add[1,](mixed, first, out, 1000, BLOCK=1024)
    np.testing.assert_array_equal(out.to_numpy(), 2 * x)
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Stream(non_blocking=True):
        arrays = [cupy.asarray(x), cupy.ones(1000, cupy.float32), cupy.zeros(1000, cupy.float32)]
        add[1,](*arrays, 1000, BLOCK=1024)
        np.testing.assert_array_equal(cupy.asnumpy(arrays[2]), x + 1)


@tw.jit
def following(x_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.extra.cuda.gdc_launch_dependents()
    tl.extra.cuda.gdc_wait()
    other = n - 1 - place
    x = tl.load(x_ptr + place)
    tl.store(x_ptr + n + other, x + 1)


@pytest.mark.parametrize("pdl", [False, True])
def test_launches_that_overlap_wait_for_what_was_written(pdl):
    n, count = 1 << 18, 64
    x = torch.zeros(n * (count + 1), device="cuda")
    for step in range(count):
        following[n // 1024,](x[n * step :], n, BLOCK=1024, launch_pdl=pdl)
    expected = torch.arange(count + 1, device="cuda", dtype=torch.float32).repeat_interleave(n)
    assert torch.equal(x, expected)


@tw.jit
def meeting(count_ptr, x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Every program reads what another one has written, behind a barrier of all programs."""
    me, place = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(x_ptr + me * BLOCK + place, me + place)
    tl.debug_barrier()
    tl.atomic_add(count_ptr, 1, sem="release")
    while tl.atomic_add(count_ptr, 0, sem="acquire") < n:
        pass
    tl.debug_barrier()
    other = n - 1 - me
    tl.store(out_ptr + me * BLOCK + place, tl.load(x_ptr + other * BLOCK + place, volatile=True))


def test_programs_of_a_cooperative_grid_meet():
    n = torch.cuda.get_device_properties(0).multi_processor_count
    count, x, out = (torch.zeros(k, device="cuda", dtype=torch.int32) for k in (1, 64 * n, 64 * n))
    meeting[n,](count, x, out, n, BLOCK=64, launch_cooperative_grid=True)
    rows = torch.arange(n - 1, -1, -1, device="cuda", dtype=torch.int32)[:, None]
    expected = rows + torch.arange(64, device="cuda", dtype=torch.int32)
    assert torch.equal(out.reshape(n, 64), expected)
    with pytest.raises(LaunchError, match=r"launching meeting: (.|\n)*same time: launch fewer"):
        meeting[1 << 20,](count, x, out, n, BLOCK=64, launch_cooperative_grid=True)


def test_times_are_those_of_the_gpu():
    x = random(1 << 26)
    out = torch.empty_like(x)
    ours = do_bench(lambda: add_kernel[1 << 16,](x, x, out, 1 << 26, BLOCK=1024))
    theirs = do_bench(lambda: torch.add(x, x, out=out))
    # 512 MB and more are moved: far longer than a launch takes, and not what the host waits for.
    assert 0.05 < ours < 20
    assert 0.05 < theirs < 20


def test_autotuning_leaves_nothing_behind():
    @tw.autotune([tw.Config({"BLOCK": b}, num_warps=w) for b in (256, 1024) for w in (2, 8)], ["n"])
    @tw.jit
    def increment(x_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(x_ptr + offsets, x + 1, mask=offsets < n)

    x = torch.zeros(1 << 20, device="cuda")
    for launches in (1, 2):
        increment[lambda meta: ((1 << 20) // meta["BLOCK"],)](x, 1 << 20)
        assert bool((x == launches).all())
    assert len(increment.configs_timings) == 4


def test_out_of_memory_is_an_error_that_says_so():
    with pytest.raises(MemoryError, match="the GPU is out of memory"):
        tw.DeviceArray(1 << 45, tl.float32)


def test_debugging_on_arrays_of_the_gpu():
    add = make_add()
    x, y, out, size = sums(4096)
    add.debug[4,](x, y, out, size, BLOCK=1024)
    assert torch.equal(out, x + y)
    with pytest.raises(LaunchError, match="`y_ptr`"):
        add.debug[4,](x, y[:1000].clone(), out, size, BLOCK=1024)


@tw.jit(debug=True)
def checked(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n, other=0)
    tl.device_assert(x < 10, "too large")
    tl.store(out_ptr + place, x, mask=place < n)


def test_an_assertion_that_fails_leaves_the_gpu_usable():
    x, out = (torch.arange(n, device="cuda", dtype=torch.int32) for n in (9, 20))
    checked[4,](x, out, 9, BLOCK=256)
    with pytest.raises(LaunchError, match="device-side assert: too large"):
        checked[4,](out, out, 20, BLOCK=256)
    checked[4,](x, out, 9, BLOCK=256)
    assert out[:9].tolist() == list(range(9))


PROGRAM = """
import sys, torch
import tilewright as tw, tilewright.language as tl
@tw.jit(source=open(sys.argv[1]).read())
def kernel(x_ptr, offset, BLOCK: tl.constexpr): ...
x = torch.zeros(64, device="cuda")
"""

KERNEL = """
def kernel(x_ptr, offset, BLOCK: tl.constexpr):
    tl.store(x_ptr + offset + tl.arange(0, BLOCK), 1.0)
"""


def run_program(tmp_path, body, kernel=KERNEL, **environment):
    (tmp_path / "kernel.txt").write_text(kernel)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + textwrap.dedent(body))
    return subprocess.run(
        [sys.executable, str(program), str(tmp_path / "kernel.txt")],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_access_to_nothing_is_told_with_the_last_kernels(tmp_path):
    body = """
        kernel[1,](x, 1 << 40, BLOCK=64)
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            pass
        kernel[1,](x, 1 << 40, BLOCK=64)
    """
    done = run_program(tmp_path, body)
    assert "a kernel that was launched before has failed: an access outside" in done.stderr
    assert "`kernel`" in done.stderr
    done = run_program(tmp_path, "kernel[1,](x, 1 << 40, BLOCK=64)", TILEWRIGHT_DEBUG="1")
    assert "running kernel: a kernel that was launched before has failed" in done.stderr


def test_a_kernel_from_the_disk_needs_no_compiler(tmp_path):
    body = """
        kernel[1,](x, 0, BLOCK=64)
        assert bool((x == 1).all())
        print(sorted({"llvmlite", "tilewright.passes.pipeline"} & set(sys.modules)))
    """
    for expected in ("['llvmlite', 'tilewright.passes.pipeline']", "[]"):
        done = run_program(tmp_path, body, TILEWRIGHT_CACHE_DIR=str(tmp_path / "cache"))
        assert done.stdout.strip() == expected, done.stderr


def test_printing(tmp_path):
    body = "    tl.device_print('x: ', tl.load(x_ptr + tl.arange(0, BLOCK)) + 1)\n"
    text = f"def kernel(x_ptr, offset, BLOCK: tl.constexpr):\n{body}"
    done = run_program(tmp_path, "kernel[1,](x, 0, BLOCK=2)\ntorch.cuda.synchronize()\n", text)
    lines = [f"pid (0, 0, 0) idx ({i}) x: 1.000000" for i in range(2)]
    assert sorted(done.stdout.splitlines()) == lines


def test_contexts_are_as_they_were():
    add = make_add()
    arguments = sums()
    add[64,](*arguments, BLOCK=1024)
    with cuda.device(0).active():
        add[64,](*arguments, BLOCK=1024)
    assert torch.equal(arguments[2], arguments[0] + arguments[1])
