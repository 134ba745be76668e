"""Functions of libraries of LLVM bitcode, CUDA's libdevice or the user's own, put into a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

import llvmlite.binding as llvm

from tilewright import ops
from tilewright.codegen.code import dtype, llvm_type
from tilewright.codegen.gpu.options import GpuOptions
from tilewright.codegen.nvidia.toolkit import find_libdevice
from tilewright.errors import Unsupported
from tilewright.ir.core import Function

__all__ = ["foreign_calls", "link_libraries"]

_LIBDEVICE = "libdevice"
# Of the functions of libdevice, those that may flush subnormal numbers do.
_FLUSHES = '!llvm.module.flags = !{!0}\n!0 = !{i32 4, !"nvvm-reflect-ftz", i32 1}\n'


def foreign_calls(function: Function) -> list[ops.ForeignCall]:
    """Return the calls of a function that take something from a library."""
    return [op for op in function.body.walk() if isinstance(op, ops.ForeignCall)]


def link_libraries(
    module: llvm.ModuleRef, context: llvm.ContextRef, function: Function, options: GpuOptions
) -> None:
    """Put what a function calls into its module, where LLVM then inlines it."""
    calls = foreign_calls(function)
    by_path: dict[str, list[ops.ForeignCall]] = {}
    for op in calls:
        by_path.setdefault(_path_of(op, options), []).append(op)
    for path, asked in by_path.items():
        with _parsed(path, context, asked[0]) as library:  # closed before its context is
            for op in asked:
                _check_signature(library, path, op)
            library.triple, library.data_layout = module.triple, module.data_layout
            names = list(_names(library))
            module.link_in(library)
        for name in names:
            module.get_function(name).linkage = "internal"
    if calls and options.enable_reflect_ftz:
        module.link_in(llvm.parse_assembly(_FLUSHES, context))


def _path_of(op: ops.ForeignCall, options: GpuOptions) -> str:
    named = {library.name: library.path for library in options.extern_libs}
    path = named.get(op.library) or op.path
    if not path and op.library == _LIBDEVICE:
        path = find_libdevice() or ""
    if not path:
        raise Unsupported(
            f"`{op.symbol}` is in the library `{op.library}`, of which no file is known",
            location=op.location,
            hint=f"name it in the launch: extern_libs={{{op.library!r}: 'path/of/it.bc'}}",
        )
    return path


def _parsed(path: str, context: llvm.ContextRef, op: ops.ForeignCall) -> llvm.ModuleRef:
    try:
        return llvm.parse_bitcode(Path(path).read_bytes(), context)
    except (OSError, RuntimeError) as error:
        version = ".".join(map(str, llvm.llvm_version_info))
        raise Unsupported(
            f"cannot read the library `{op.library}` of {path}: {str(error).strip()}",
            location=op.location,
            hint=f"it is a file of LLVM bitcode, of LLVM {version} or earlier",
        ) from error


def _check_signature(library: llvm.ModuleRef, path: str, op: ops.ForeignCall) -> None:
    types = ", ".join(llvm_type(dtype(value.type.element)) for value in op.args)
    asked = f"{llvm_type(op.element)} ({types})"
    try:
        found = str(library.get_function(op.symbol).global_value_type)
    except NameError:
        close = get_close_matches(op.symbol, list(_names(library)), 3)
        known = ", ".join(f"`{name}`" for name in close)
        raise Unsupported(
            f"there is no function `{op.symbol}` in {path}",
            location=op.location,
            hint=f"there is {known}" if close else "`llvm-nm` lists those that there are",
        ) from None
    if found != asked:
        raise Unsupported(
            f"`{op.symbol}` of {path} is a function {found}, not {asked}",
            location=op.location,
            hint="the types of its arguments and of its result stand in extern_elementwise",
        )


def _names(library: llvm.ModuleRef) -> Iterator[str]:
    functions: Sequence[llvm.ValueRef] = list(library.functions)
    return (f.name for f in functions if not f.is_declaration)
