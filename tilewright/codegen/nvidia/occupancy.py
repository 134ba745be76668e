"""How many blocks of a kernel run on a multiprocessor at once: one more, where that is free.

A kernel with products is assembled for one block, so that ptxas takes as many registers as it likes
instead of spilling some. If it takes few more than would let another block run beside those that
do, it is asked to get along with less: often it finds a way that costs next to nothing, and the
other block works while this one waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from tilewright.target import NvidiaTarget

if TYPE_CHECKING:
    from tilewright.codegen.nvidia.compile import PtxKernel

__all__ = ["MachineCode", "assemble_for_more_blocks", "for_one_block"]

_ONE_BLOCK = ".minnctapersm 1"  # what `generate` writes where `maxnreg` is not given
# A multiprocessor has four parts, and each the registers of its own warps. They are given out in
# eights to all threads of a warp ("Occupancy" in the CUDA C++ Best Practices Guide).
_PARTS, _PART_REGISTERS, _UNIT = 4, 16 << 10, 8
_DRIVER_BYTES = 1 << 10  # of shared memory, of each block
_NEAR = 9 / 8  # further from the step, ptxas has to spill


class MachineCode(Protocol):
    """What an assembler makes of a kernel: `stack_bytes` is what a thread has in local memory."""

    @property
    def registers(self) -> int: ...
    @property
    def stack_bytes(self) -> int: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


Made = TypeVar("Made", bound=MachineCode)


def assemble_for_more_blocks(
    kernel: PtxKernel, target: NvidiaTarget, make: Callable[[str], Made]
) -> Made:
    """Return what `make` makes of a kernel's PTX, or of PTX for one more block if that is free.

    It is free if nothing more lies in local memory, and the assembler warns of nothing.
    """
    made = make(kernel.ptx)
    if _ONE_BLOCK not in kernel.ptx or made.warnings or not made.registers:
        return made  # 0 where the assembler's words are not understood
    warps = kernel.num_warps
    blocks = _blocks(made.registers, warps, target) + 1
    shared = blocks * (kernel.shared_bytes + _DRIVER_BYTES)
    if shared > target.shared_bytes + _DRIVER_BYTES or blocks * warps > target.most_warps:
        return made
    most = _most_registers(blocks, warps, target)
    if made.registers > most * _NEAR:
        return made
    other = make(kernel.ptx.replace(_ONE_BLOCK, f".maxnreg {most}"))
    return made if other.stack_bytes > made.stack_bytes or other.warnings else other


def for_one_block(ptx: str) -> str:
    """Return PTX that was made for one more block as it was before.

    Another assembler than the one that was asked may have to spill registers for that block.
    """
    return re.sub(r"\.maxnreg \d+", _ONE_BLOCK, ptx, count=1)


def _blocks(registers: int, warps: int, target: NvidiaTarget) -> int:
    """How many blocks there are registers for."""
    given = -(-registers // _UNIT) * _UNIT
    return _PART_REGISTERS // (given * target.warp_size) * _PARTS // warps


def _most_registers(blocks: int, warps: int, target: NvidiaTarget) -> int:
    """How many registers a thread may have, so that so many blocks have enough."""
    warps_of_part = -(-blocks * warps // _PARTS)
    return _PART_REGISTERS // (warps_of_part * target.warp_size) // _UNIT * _UNIT
