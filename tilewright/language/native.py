"""Inline assembly, and functions of libraries for GPUs."""

from __future__ import annotations

from typing import Any

from tilewright.frontend.builtin import builtin
from tilewright.frontend.semantic.native import call_foreign, inline_assembly

__all__ = ["extern_elementwise", "inline_asm_elementwise"]


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


@builtin
def extern_elementwise(
    lib_name: str, lib_path: str, args: Any, arg_type_symbol_dict: Any, is_pure: bool
) -> Any:
    """Return a tile whose elements a function of a library of LLVM bitcode computes.

    `arg_type_symbol_dict` has for each tuple of the element types of `args` the name of a function
    and the type of its result: `{(tl.float32,): ("__nv_tanhf", tl.float32)}`. `args` are tiles and
    numbers that broadcast against each other. The file is the one that the launch names for
    `lib_name` (`extern_libs={lib_name: path}`), else `lib_path`, else, for `"libdevice"`, what is
    installed of CUDA. Without `is_pure` it is called even if nobody asks for what it returns.
    Raises `Unsupported` where the kernel does not run on a GPU, or the file has no such function.
    """
    return call_foreign(lib_name, lib_path, args, arg_type_symbol_dict, is_pure)
