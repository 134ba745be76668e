"""`tl.target_info`: what a kernel is told that it is compiled for."""

from contextvars import Context

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright import CompileError, jit
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


def test_there_is_no_answer_outside_of_kernels():
    with pytest.raises(CompileError, match="only inside a kernel"):
        Context().run(tl.target_info.is_cuda)
