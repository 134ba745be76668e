"""`tl.target_info`: what a kernel is told that it is compiled for."""

from contextvars import Context

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import jit
from tilewright.runtime.emulated import current_emulation


@jit
def helper():
    if tl.target_info.is_cuda():
        return tl.target_info.current_target().arch
    return 0


@jit
def describe(out_ptr):
    tl.store(out_ptr, helper())
    tl.store(out_ptr + 1, tl.target_info.cuda_capability_geq(8, 6))
    IS_HOPPER: tl.constexpr = tl.target_info.cuda_capability_geq(9)
    if IS_HOPPER:
        tl.store(out_ptr + 2, 1)
    tl.static_assert(not tl.target_info.is_hip())


def test_where_a_kernel_runs(launch):
    out = np.zeros(3, np.int32)
    launch(describe, (1,), out)
    emulation = current_emulation()
    arch = 0
    if emulation is not None:
        major, minor = emulation.target.compute_capability
        arch = 10 * major + minor
    elif launch.is_gpu:
        arch = out[0]  # whatever it is
    assert out.tolist() == [arch, arch >= 86, arch >= 90]


def test_one_kernel_on_several_targets():
    out = np.zeros(3, np.int32)
    for name, expected in (("sm_80", 80), ("sm_90a", 90), (None, 0), ("sm_89", 89)):
        if name is None:
            describe[(1,)](out)
        else:
            with tw.emulate(name):
                kernel = describe[(1,)](out)
            assert str(expected) in kernel.asm["tir"]
        assert out[0] == expected


def answers():
    return tl.target_info.current_target(), tl.target_info.cuda_capability_geq(9)


def test_host_code_is_told_what_kernels_run_on_by_default(monkeypatch):
    monkeypatch.setattr("tilewright.runtime.default_target.has_gpu", lambda: False)
    target, is_hopper = Context().run(answers)
    assert target.backend == "cpu"
    assert not is_hopper
    with tw.emulate("sm_90a"):
        target, is_hopper = Context().run(answers)
    assert target == ("cuda", 90, 32)
    assert is_hopper


def test_what_a_kernel_is_compiled_for_is_not_what_the_host_is_told(monkeypatch):
    monkeypatch.setattr(
        "tilewright.language.target_info._hosts_ask", [lambda: pytest.fail("is asked")]
    )
    out = np.zeros(3, np.int32)
    describe.debug[(1,)](out)
    assert not out.any()
