"""What compiled kernels tell of themselves, under the names that Triton's programs ask for."""

import contextlib

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime import gpu_kernels
from tilewright import LaunchError, Unsupported
from tilewright.compiler import ASTSource, GPUTarget, compile
from tilewright.runtime import gpu_build

CONSTANT = {
    "tmem_size": 0,
    "global_scratch_size": 0,
    "global_scratch_align": 1,
    "profile_scratch_size": 0,
    "profile_scratch_align": 1,
    "cluster_dims": (1, 1, 1),
}


@tw.jit
def fill(x_ptr, pair, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), pair[0] + pair[1])


def launched():
    return fill[(1,)](np.zeros(64, np.float32), (2, 1), BLOCK=64, num_warps=2)


def written_down(target):
    signature = {"x_ptr": "*fp32", "pair": ("i32", "i32"), "BLOCK": "constexpr"}
    return compile(ASTSource(fill, signature, {"BLOCK": 64}), target, {"num_warps": 2})


def check(kernel, target):
    metadata = kernel.metadata
    assert CONSTANT.items() <= metadata._asdict().items()
    assert (metadata.backend_name, metadata.warp_size) == (target.backend, target.warp_size)
    assert metadata.target == target
    assert "tilewright" in metadata.triton_version
    assert kernel.packed_metadata == (2, 1, metadata.shared)
    assert kernel.src.fn is fill
    assert kernel.src.name == kernel.name == "fill"
    for stage, text in (("source", "func @fill"), ("tir", "func @fill"), ("llir", "define")):
        assert text in kernel.asm[stage]


def check_source(kernel):
    source = kernel.src
    assert source.signature == {
        "x_ptr": "*fp32",
        "pair": ("i32", "constexpr"),
        "BLOCK": "constexpr",
    }
    assert source.constants == {(1, 1): 1, (2,): 64}
    assert source.attrs == {(0,): [["tt.divisibility", 16]]}


def test_on_the_cpu():
    kernel = launched()
    check(kernel, GPUTarget("cpu", kernel.metadata.target.arch, 1))
    check_source(kernel)
    kernel._init_handles()
    assert kernel.module is kernel.code
    assert kernel.function
    assert kernel.kernel == kernel.asm["object"]
    assert (kernel.n_regs, kernel.n_spills, kernel.n_max_threads) == (None, None, None)
    (name, path) = next(iter(kernel.metadata_group.items()))
    assert path.endswith(name)
    assert kernel.hash in name


def test_on_an_emulated_gpu():
    with tw.emulate("sm_90a"):
        kernel = launched()
    check(kernel, GPUTarget("cuda", 90, 32))
    check_source(kernel)
    kernel._init_handles()
    assert kernel.module is kernel
    assert kernel.function in kernel.asm["ptx"]
    assert kernel.kernel
    assert kernel.metadata_group == {}
    assert kernel.n_max_threads == 64
    assert (kernel.n_regs is None) == (kernel.n_spills is None)


@pytest.mark.parametrize("target", [None, "sm_80"])
def test_a_compiled_kernel_is_launched_again(target):
    """On all arguments, constants included: by a grid, and as Triton's launchers are called."""
    x, called = np.zeros(64, np.float32), []
    with tw.emulate(target) if target else contextlib.nullcontext():
        kernel = fill[(1,)](x, (2, 1), BLOCK=64)
    x[:] = 0
    kernel[(1,)](x, (4, 1), 64, stream=0)
    assert (x == 5).all()
    facts, hooks = object(), (called.append, called.append)
    described = kernel.function, kernel.packed_metadata, facts
    kernel.run(1, 1, 1, 0, *described, *hooks, x, (6, 1), 64)
    assert (x == 7).all()
    assert called == [facts, facts]
    with pytest.raises(LaunchError, match=r"`BLOCK` is =32, but this kernel was compiled for =64"):
        kernel[(1,)](x, (4, 1), 32)


def test_the_cpu_has_no_streams():
    x = np.zeros(64, np.float32)
    with pytest.raises(LaunchError, match="fill: the CPU has no stream 7"):
        launched()[(1,)](x, (2, 1), 64, stream=7)


def test_every_name_of_a_stage_is_listed():
    kernel = launched()
    assert {"source", "tir", "ttir", "llir"} <= set(kernel.asm)
    assert len(kernel.asm) == len(list(kernel.asm))
    assert kernel.asm["ttir"] is kernel.asm["tir"]


def test_a_stream_of_a_gpu(arrays, fake_driver):
    kernel = gpu_kernels.make_add()[(1,)](*arrays, 128)
    fake_driver.launches.clear()
    kernel[(1,)](*arrays, 128, stream=0x77)
    kernel.run(1, 1, 1, 0x78, kernel.function, None, None, None, None, *arrays, 128)
    kernel[(1,)](*arrays, 128)
    assert [launch.stream for launch in fake_driver.launches] == [0x77, 0x78, 0]


def test_on_a_gpu(arrays):
    kernel = gpu_kernels.make_add()[(1,)](*arrays, 128)
    assert kernel.metadata.target == GPUTarget("cuda", 90, 32)
    assert kernel.packed_metadata == (4, 1, 0)
    assert kernel.function == kernel.code.function.address
    assert kernel.kernel == kernel.asm["cubin"]
    assert kernel.src.constants == {(4,): 128}


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_of_types_that_are_written_down(backend):
    target = GPUTarget("cpu", "", 1) if backend == "cpu" else GPUTarget("cuda", 90, 32)
    kernel = written_down(target)
    check(kernel, target)
    assert kernel.kernel
    assert len(kernel.metadata_group) == 1


def test_options_of_the_assembler(tmp_path, monkeypatch):
    tool = tmp_path / "ptxas"
    tool.write_text('#!/bin/sh\necho "$@" > "$0.said"; case "$*" in *-bad*) exit 1; esac\n')
    tool.write_text(tool.read_text() + 'while [ "$1" != -o ]; do shift; done; echo made > "$2"\n')
    tool.chmod(0o755)
    monkeypatch.setattr(gpu_build, "find_ptxas", lambda: str(tool))
    source = ASTSource(fill, {"x_ptr": "*fp32", "pair": ("i32", "i32")}, {"BLOCK": 32})
    target = GPUTarget("cuda", 90, 32)
    kernel = compile(source, target, {"ptx_options": "-O1 --verbose"})
    assert kernel.asm["cubin"] == b"made\n"
    assert (tmp_path / "ptxas.said").read_text().split()[-2:] == ["-O1", "--verbose"]
    with pytest.raises(Unsupported, match="ptx_options='-bad': ptxas does not accept"):
        compile(source, target, {"ptx_options": "-bad"})
    monkeypatch.setattr(gpu_build, "find_ptxas", lambda: None)
    with pytest.raises(Unsupported, match="`ptx_options` are for `ptxas`, and there is none"):
        compile(source, target, {"ptx_options": "-O2"})


def test_machine_code_is_shown_by_nvdisasm(monkeypatch, tmp_path, arrays):
    kernel = gpu_kernels.make_add()[(1,)](*arrays, 128)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match=r"no `nvdisasm`"):
        kernel.asm["sass"]
    tool = tmp_path / "nvdisasm"
    tool.write_text('#!/bin/sh\necho "$1: EXIT ;"\n')
    tool.chmod(0o755)
    assert kernel.asm["sass"] == "-c: EXIT ;\n"
