"""Kernels are assembled once more where another block would fit a multiprocessor for free."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.systems import TILEWRIGHT, load
from tests.codegen.gpu import harness
from tilewright.codegen.nvidia.assembler import Assembled
from tilewright.codegen.nvidia.compile import PtxKernel
from tilewright.codegen.nvidia.occupancy import assemble_for_more_blocks
from tilewright.codegen.nvidia.toolkit import find_ptxas
from tilewright.runtime.gpu_build import assembled

HOPPER = harness.TARGETS["h100"]


class Assembler:
    """Takes as many registers as it is told for one block, and answers as told for more."""

    def __init__(self, registers, **more):
        self.answers = [Assembled("", registers, 0, 8, (), b"one")]
        other = {"registers": 0, "spilled_bytes": 0, "stack_bytes": 8, "warnings": ()} | more
        self.answers.append(Assembled(ptx="", cubin=b"more", **other))
        self.asked = []

    def __call__(self, ptx):
        self.asked.append(ptx)
        return self.answers[len(self.asked) - 1]


def chosen(assembler, *, num_warps=8, shared_bytes=0, ptx=".minnctapersm 1", target=HOPPER):
    """The name of the machine code that is kept, and the texts that were assembled."""
    kernel = PtxKernel(ptx, "", "kernel", shared_bytes, num_warps)
    return assemble_for_more_blocks(kernel, target, assembler).cubin, assembler.asked


@pytest.mark.parametrize(
    ("num_warps", "registers", "most"),
    [(8, 136, 128), (8, 144, 128), (4, 189, 168), (8, 88, 80), (16, 72, 64), (2, 189, 168)],
)
def test_a_little_above_a_step_one_more_block_is_made_room_for(num_warps, registers, most):
    code, asked = chosen(Assembler(registers), num_warps=num_warps)
    assert code == b"more"
    assert asked == [".minnctapersm 1", f".maxnreg {most}"]


@pytest.mark.parametrize(("num_warps", "registers"), [(8, 145), (8, 255), (4, 190), (1, 145)])
def test_far_above_a_step_it_is_not(num_warps, registers):
    assert chosen(Assembler(registers), num_warps=num_warps) == (b"one", [".minnctapersm 1"])


def test_both_blocks_need_shared_memory():
    half = (228 << 10) // 2 - (1 << 10)
    assert chosen(Assembler(136), shared_bytes=half)[0] == b"more"
    assert chosen(Assembler(136), shared_bytes=half + 1) == (b"one", [".minnctapersm 1"])


@pytest.mark.parametrize(
    ("architecture", "code"), [("sm_80", b"more"), ("sm_89", b"one"), ("sm_120a", b"one")]
)
def test_a_multiprocessor_has_room_for_the_warps_of_all_blocks(architecture, code):
    assembler = Assembler(36)  # 48 warps of three blocks: a fourth would make 64
    target = harness.ARCHITECTURES[architecture]
    assert chosen(assembler, num_warps=16, target=target)[0] == code


def test_where_the_number_of_registers_is_not_known_nothing_is_tried():
    assert chosen(Assembler(0)) == (b"one", [".minnctapersm 1"])


def test_who_gives_maxnreg_gets_what_they_ask_for():
    assert chosen(Assembler(136), ptx=".maxnreg 136") == (b"one", [".maxnreg 136"])


@pytest.mark.parametrize("cost", [{"stack_bytes": 16}, {"warnings": ("C7510",)}])
def test_what_is_not_free_is_not_taken(cost):
    assert chosen(Assembler(136, **cost))[0] == b"one"


@pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")
@pytest.mark.parametrize("maxnreg", [None, 144])
def test_two_blocks_of_causal_attention_run_at_once(maxnreg):
    q, k, v, out = (np.zeros((1, 1, 256, 64), np.float16) for _ in range(4))
    kernel = harness.kernel_of(
        load(TILEWRIGHT, "attention")["pointer_attention_kernel"],
        [q, k, v, out, np.zeros((1, 1, 256), np.float32), 0.1, 256],
        HEAD=64, BLOCK_M=128, BLOCK_N=64, IS_CAUSAL=True, num_warps=8, num_stages=3,
        maxnreg=maxnreg,
    )  # fmt: skip
    made = assembled(kernel, HOPPER)
    assert (made.ptx == kernel.ptx) == (maxnreg is not None)
    assert (made.registers <= 128) == (maxnreg is None)
    assert not made.stack_bytes
