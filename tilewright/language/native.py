"""Inline assembly."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.semantic.native import inline_assembly

__all__ = ["inline_asm_elementwise"]


@builtin
def inline_asm_elementwise(
    asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int
) -> Any:
    """Return tiles whose elements the target's own instructions compute from those of `args`.

    `asm` is PTX in which `$0`, `$1`, ... are the registers that `constraints` name as LLVM does: a
    letter for each (`r`, `f`: 32 bits, `l`, `d`: 64, `h`: 16), first of the results (`=r`), then of
    the arguments. `args` are tiles and numbers that broadcast against each other. It is run for
    `pack` elements at a time, neighbours where a thread has several: those of less than 32 bits
    share registers, others have one each. `dtype` is the result's element type; for a tuple of them
    there is a tuple of results. Without `is_pure` it is run even if nobody asks for what it
    returns. Beside NVIDIA GPUs, numeric instructions are run by every executor; others raise
    `Unsupported` there.

    >>> tl.inline_asm_elementwise(
    ...     "shl.b32 $0, $1, 3;", "=r,r", [tl.arange(0, 3)], tl.int32, True, 1
    ... )
    tensor([ 0,  8, 16], i32[3])
    """
    return inline_assembly(asm, constraints, args, dtype, is_pure, pack)
