"""`tilewright.emulate` and `TILEWRIGHT_EMULATE`: the code of a GPU, on arrays of the CPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.codegen.nvidia.toolkit import find_ptxas
from tilewright.errors import LaunchError
from tilewright.runtime.emulated import EmulatedKernel, emulation_of_environment

ROOT = Path(__file__).resolve().parent.parent.parent


@tw.jit
def scaled(x_ptr, out_ptr, factor, flag, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    if flag:
        x = (x * factor).to(x.dtype)
    tl.store(out_ptr + offsets, x, mask=offsets < n)


@tw.jit
def shifted(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets + 1))


@tw.jit
def summed(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK))))


def launch(x, out, **options):
    return scaled[(2,)](x, out, 2.5, True, len(x), BLOCK=64, **options)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_launches_inside_are_emulated(target):
    x = np.arange(100, dtype=np.float32)
    with tw.emulate(target, races=True) as emulation:
        out = np.zeros_like(x)
        kernel = launch(x, out)
        assert isinstance(kernel, EmulatedKernel)
        assert f".target {target}" in kernel.asm["ptx"]
        np.testing.assert_array_equal(out, 2.5 * x)
        assert launch(x, out) is kernel
        assert launch(x, out, num_warps=1) is not kernel
    assert len(emulation.launches) == 3
    assert not isinstance(launch(x, out), EmulatedKernel)


def test_a_kernel_that_ran_on_the_cpu_is_emulated_next():
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    for _ in range(3):
        launch(x, out)
    function = scaled[(2,)]
    with tw.emulate():
        assert isinstance(function(x, out, 2.5, True, 64, BLOCK=64), EmulatedKernel)
    assert not isinstance(function(x, out, 2.5, True, 64, BLOCK=64), EmulatedKernel)


def test_a_kernel_tells_what_it_takes(monkeypatch):
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    with tw.emulate("sm_80"):
        kernel = launch(x, out, num_warps=2)
        total = summed[(1,)](x, out, BLOCK=64)
    metadata = kernel.metadata
    assert (metadata.num_warps, metadata.num_stages, metadata.target.arch) == (2, 3, 80)
    assert metadata.shared == 0
    assert total.metadata.shared > 0
    if find_ptxas() is not None:
        assert kernel.n_regs > 0
        assert kernel.n_spills == 0
    monkeypatch.setattr("tilewright.runtime.gpu_build.find_ptxas", lambda: None)
    assert total.n_regs is None
    assert total.n_spills is None


def test_the_code_is_shown(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "5")
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    with tw.emulate("sm_80"):
        kernel = summed[(1,)](x, out, BLOCK=64, num_warps=1)
    assert kernel.asm["ptx"] in capsys.readouterr().err
    (directory,) = tmp_path.iterdir()
    assert (directory / "code.ptx").read_text() == kernel.asm["ptx"]
    assert (directory / "code.ll").read_text() == kernel.asm["llir"]
    summed[(1,)](x, out, BLOCK=64)
    assert "kernel" in (directory / "code.s").read_text()


def test_the_inner_of_two_emulations_counts():
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    with tw.emulate("sm_80") as outer:
        with tw.emulate("sm_90a") as inner:
            launch(x, out)
        launch(x, out)
    assert [len(e.launches) for e in (outer, inner)] == [1, 1]


def test_tensors_and_addresses_are_taken():
    torch = pytest.importorskip("torch")
    x = torch.ones(64, dtype=torch.bfloat16)
    out = torch.zeros_like(x)
    with tw.emulate():
        launch(x, out)
    assert out.tolist() == [2.5] * 64

    @tw.jit
    def by_address(x_ptr: tl.pointer_type(tl.float32), out_ptr):
        tl.store(out_ptr, tl.load(x_ptr))

    source, target = np.full(1, 3, np.float32), np.zeros(1, np.float32)
    with tw.emulate():
        by_address[(1,)](source.ctypes.data, target)
    assert target[0] == 3


def test_an_access_outside_names_the_array():
    x, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    with tw.emulate(), pytest.raises(LaunchError, match=r"out-of-bounds read .* of `x_ptr`"):
        shifted[(1,)](x, out, BLOCK=64)


def test_a_read_only_array_is_not_written():
    x, out = np.zeros(64, np.float32), np.zeros(64, np.float32)
    out.flags.writeable = False
    with tw.emulate(), pytest.raises(LaunchError, match="`out_ptr` is read-only"):
        launch(x, out)


def test_tuning_takes_the_first_configuration():
    @tw.autotune([tw.Config({"BLOCK": size}) for size in (64, 32)], key=["n"])
    @tw.jit
    def tuned(x_ptr, n, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), BLOCK)

    x = np.zeros(64, np.int32)
    with tw.emulate():
        tuned[(1,)](x, 64)
    assert (x == 64).all()
    assert not tuned.cache


def test_tuning_takes_the_first_configuration_that_fits():
    @tw.autotune([tw.Config({"BLOCK": 64}, num_warps=n) for n in (64, 2, 1)], key=[])
    @tw.jit
    def tuned(x_ptr, BLOCK: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, BLOCK), BLOCK)

    x = np.zeros(64, np.int32)
    with tw.emulate("sm_80") as emulation:
        tuned[(1,)](x)
    assert tuned.best_config.num_warps == 2
    assert (x == 64).all()
    assert repr(emulation) == "<emulated sm_80: launches of tuned (1); 0 findings>"


def test_warmup_compiles_for_the_emulated_gpu():
    with tw.emulate("sm_80"):
        kernel = shifted.warmup(tl.float32, tl.float32, BLOCK=64)
    assert ".target sm_80" in kernel.asm["ptx"]


def test_an_unknown_architecture_is_refused():
    with (
        pytest.raises(LaunchError, match=r"no architecture 'sm_42'.*\n.*sm_90a"),
        tw.emulate("sm_42"),
    ):
        pass


SCRIPT = """
import numpy as np, tilewright as tw, tilewright.language as tl

@tw.jit
def double(x_ptr):
    offsets = tl.arange(0, 32)
    tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets))

x = np.ones(32, np.float32)
print(type(double[(1,)](x)).__name__, x.sum())
"""


def test_the_environment_asks_for_it(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    settings = {**os.environ, "TILEWRIGHT_EMULATE": "sm_80", "PYTHONPATH": str(ROOT)}
    output = subprocess.run(
        [sys.executable, path], env=settings, capture_output=True, text=True, check=True
    )
    assert output.stdout == "EmulatedKernel 64.0\n"


def test_the_environment_asks_for_races(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_EMULATE", "sm_80")
    emulation = emulation_of_environment()
    assert emulation.races
    assert emulation.target.architecture == "sm_80"
    monkeypatch.setenv("TILEWRIGHT_EMULATE", "sm_8")
    with pytest.raises(LaunchError, match="TILEWRIGHT_EMULATE=sm_8: there is no architecture"):
        emulation_of_environment()


@tw.jit
def number_kernel(out_ptr, value):
    tl.store(out_ptr, value)


@pytest.mark.filterwarnings("error")
@tw.jit
def waiting(flag_ptr, out_ptr, n):
    if tl.program_id(0) == 0:
        while tl.atomic_add(flag_ptr, 0) == 0:
            pass
    else:
        number = 1
        for i in range(n):
            number = (number ^ i) * 3
        tl.store(out_ptr, number)
        tl.atomic_xchg(flag_ptr, 1)


def test_a_program_that_waits_for_nobody_is_found(monkeypatch):
    monkeypatch.setattr("tilewright.emulator.scheduler._POLL_LIMIT", 100)
    with tw.emulate("sm_90a"), pytest.raises(LaunchError, match="again and again"):
        waiting[(1,)](np.zeros(1, np.int32), np.zeros(1, np.int32), 8)


@tw.jit
def counting(flag_ptr, out_ptr, STEP: tl.constexpr):
    number = 0
    while tl.atomic_add(flag_ptr, 0) == 0:
        number += STEP
        tl.store(out_ptr + tl.arange(0, 32), number)


@pytest.mark.parametrize(
    ("step", "message"),
    [(0, "again and again"), (1, "have looked 200 times at what others may change")],
)
def test_a_program_that_stores_while_it_waits_for_nobody_is_found(step, message, monkeypatch):
    monkeypatch.setattr("tilewright.emulator.scheduler._POLL_LIMIT", 100)
    monkeypatch.setattr("tilewright.emulator.scheduler._LOOK_LIMIT", 200)
    with tw.emulate("sm_90a"), pytest.raises(LaunchError, match=message) as caught:
        counting[(2,)](np.zeros(1, np.int32), np.zeros(32, np.int32), step)
    assert re.search(rf"block \(1, 0, 0\) warp 3 .*{Path(__file__).name}:\d+", str(caught.value))


@pytest.mark.parametrize("grid", [(1, 2**16), (2, 3, 2**31 - 1)])
def test_grids_that_gpus_do_not_have_are_not_emulated(grid):
    message = f"number_kernel: a GPU takes 65535 programs along axis {len(grid) - 1}, not"
    with tw.emulate("sm_90a"), pytest.raises(LaunchError, match=message):
        number_kernel[grid](np.zeros(1, np.float32), 1.0)


def test_a_program_may_wait_for_one_that_computes_for_long(monkeypatch):
    monkeypatch.setattr("tilewright.emulator.scheduler._POLL_LIMIT", 100)
    flag, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    with tw.emulate("sm_90a"):
        waiting[(2,)](flag, out, 5000)
    assert flag[0] == 1


def test_numbers_that_no_fp32_is_are_infinite_as_elsewhere():
    out = np.zeros(1, np.float32)
    with tw.emulate():
        number_kernel[1,](out, -1e39)
    assert out[0] == -np.inf


@tw.jit
def numbered(out_ptr, count_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, i)
    tl.store(count_ptr + tl.program_id(0), tl.num_programs(0))


@pytest.mark.parametrize("num_ctas", [2, 8])
def test_the_grid_counts_programs_whatever_blocks_a_cluster_has(num_ctas):
    out, counts = np.zeros(3 * 64, np.int32), np.zeros(3, np.int32)
    with tw.emulate("sm_90a", races=True):
        kernel = numbered[(3,)](out, counts, BLOCK=64, num_warps=8, num_ctas=num_ctas)
    np.testing.assert_array_equal(out, np.arange(3 * 64))
    assert counts.tolist() == [3, 3, 3]
    assert (kernel.metadata.num_warps, kernel.metadata.num_ctas) == (8, num_ctas)
    assert kernel.num_warps == min(8 * num_ctas, 32)


def test_configurations_with_clusters_are_tuned():
    tuned = tw.autotune([tw.Config({"BLOCK": 64}, num_warps=16, num_ctas=4)], key=[])(numbered)
    out, counts = np.zeros(64, np.int32), np.zeros(1, np.int32)
    with tw.emulate("sm_90a"):
        kernel = tuned[(1,)](out, counts)
    np.testing.assert_array_equal(out, np.arange(64))
    assert kernel.num_warps == 32


@tw.jit
def products(a_ptr, b_ptr, c_ptr, PRECISION: tl.constexpr, N: tl.constexpr):
    place = tl.arange(0, N)[:, None] * N + tl.arange(0, N)
    a, b = tl.load(a_ptr + place), tl.load(b_ptr + place)
    tl.store(c_ptr + place, tl.dot(a, b, input_precision=PRECISION))


@pytest.mark.parametrize(
    ("in_kernel", "of_launch", "is_exact"),
    [(None, None, False), (None, "ieee", True), ("tf32", "ieee", False), ("ieee", "tf32", True)],
)
def test_the_launch_says_how_precise_products_are(in_kernel, of_launch, is_exact, monkeypatch):
    a, b = np.random.default_rng(0).standard_normal((2, 16, 16), dtype=np.float32)
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee" if of_launch is None else "")
    for given in (of_launch,) if of_launch else ("tf32", None):
        out = np.zeros((16, 16), np.float32)
        with tw.emulate("sm_80"):
            products[(1,)](a, b, out, in_kernel, N=16, default_dot_input_precision=given)
        error = np.abs(out - a.astype(np.float64) @ b).max()
        assert (error < 1e-5) == (is_exact or given is None), error


def test_a_precision_of_the_environment_that_there_is_not(monkeypatch):
    monkeypatch.setenv("TRITON_F32_DEFAULT", "fp32")
    x = np.zeros((16, 16), np.float32)
    with tw.emulate("sm_80"), pytest.raises(LaunchError, match="TRITON_F32_DEFAULT=fp32"):
        products[(1,)](x, x, x, None, N=16)
