"""The only place that drives LLVM for native code: IR text in, objects and addresses out.

Every module is parsed in a context of its own, since types and constants pile up in a shared one.
LLVM ends the process when it cannot select an instruction: callers emit only what is known to
select, and the tests compile in a forked child.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import llvmlite
import llvmlite.binding as llvm

from tilewright.codegen.host import architecture, cpu_name, module_header, this_process
from tilewright.codegen.loading import LoadedObject, link_object
from tilewright.errors import InternalError
from tilewright.target import Host

__all__ = [
    "LoadedObject",
    "assembly",
    "compile_to_object",
    "host",
    "load_object",
    "module_header",
    "optimize_module",
    "optimized_ir",
    "parse_module",
    "version",
]

# An LLJIT never gives back the 10 KB of a library's symbol table, even when the library is
# unloaded; all of it goes with the LLJIT. So each serves a limited number of libraries.
_LIBRARIES_PER_JIT = 64


# ---- the host -------------------------------------------------------------------------------


@functools.cache
def host() -> Host:
    """Return the facts about this machine, found out once.

    Raises `Unsupported` on architectures other than x86-64 and AArch64.
    """
    known_architecture = architecture()
    _initialize()
    known = llvm.get_host_cpu_features()
    features = frozenset(name for name, present in known.items() if present)
    triple = llvm.get_process_triple()
    with llvm.Target.from_triple(triple).create_target_machine() as machine:
        data_layout = str(machine.target_data)
    is_x86 = known_architecture == "x86_64"
    return this_process(
        triple,
        data_layout,
        cpu=cpu_name(features) if is_x86 else str(llvm.get_host_cpu_name()),
        features=features,
        missing_features=frozenset(name for name, present in known.items() if not present),
    )


def version() -> str:
    """Return the versions of llvmlite and of its LLVM."""
    return f"{llvmlite.__version__};{'.'.join(map(str, llvm.llvm_version_info))}"


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    # A fork while another thread is inside LLVM would leave the child a lock nobody gives back.
    lock = llvm.ffi.lib._lock  # noqa: SLF001 - llvmlite offers no other way to hold it
    os.register_at_fork(
        before=lock.__enter__, after_in_parent=lock.__exit__, after_in_child=lock.__exit__
    )


# ---- compiling ------------------------------------------------------------------------------


def compile_to_object(text: str, *, host: Host, level: int = 3) -> bytes:
    """Return the object file of a module, optimised at `level` (0 to 3).

    At level 0 compiling is fastest, at 1 LLVM selects and schedules instructions with care, from 2
    on it also improves the IR.
    """
    with _optimized(text, host, level) as (machine, module):
        return bytes(machine.emit_object(module))


def optimized_ir(text: str, *, host: Host, level: int = 3) -> str:
    """Return the module as it is after the optimiser."""
    with _optimized(text, host, level) as (_, module):
        return str(module)


def assembly(text: str, *, host: Host, level: int = 3) -> str:
    """Return the assembly of a module."""
    with _optimized(text, host, level) as (machine, module):
        return str(machine.emit_assembly(module))


@contextmanager
def _optimized(
    text: str, host: Host, level: int
) -> Iterator[tuple[llvm.TargetMachine, llvm.ModuleRef]]:
    _initialize()
    context = llvm.create_context()
    try:
        with (
            parse_module(text, context) as module,
            _target_machine(host, level) as machine,
        ):
            if level > 1:
                optimize_module(module, machine, level)
            yield machine, module
    finally:
        context.close()


def _target_machine(host: Host, level: int) -> llvm.TargetMachine:
    return llvm.Target.from_triple(host.triple).create_target_machine(
        cpu=host.cpu, features=host.feature_string, opt=level, reloc="pic", codemodel="small"
    )


def parse_module(text: str, context: llvm.ContextRef) -> llvm.ModuleRef:
    """Return generated IR as a module of a context; `InternalError` where LLVM refuses it."""
    try:
        module = llvm.parse_assembly(text, context)
        module.verify()
    except RuntimeError as error:
        message = str(error).strip()
        raise InternalError(f"LLVM does not accept the generated IR: {message}") from error
    return module


def optimize_module(module: llvm.ModuleRef, machine: llvm.TargetMachine, level: int) -> None:
    """Run LLVM's passes for a machine on a module."""
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    # The code generator writes its vectors itself; a second opinion costs compile time.
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    # A pass builder collects callbacks with each use and a pass manager runs only once.
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    try:
        manager.run(module, builder)
    finally:
        # Python's method resolution hides llvmlite's own release of the pass manager, which
        # would leak 60 KB for each module.
        llvm.ffi.lib.LLVMPY_DisposeNewModulePassManger(manager)
        manager.detach()
        builder.close()
        options.close()


# ---- loading --------------------------------------------------------------------------------


class _LibraryObject(LoadedObject):
    """An object in a library of an LLJIT, linked when an address is first asked for."""

    def __init__(self, jit: llvm.LLJIT, library: str, tracker: llvm.ResourceTracker) -> None:
        self._jit = jit
        self._library = library
        self._trackers = [tracker]
        self._addresses: dict[str, int] = {}

    def address(self, symbol: str) -> int:
        if symbol not in self._addresses:
            try:
                tracker = self._jit.lookup(self._library, symbol)
            except RuntimeError as error:
                raise InternalError(f"cannot link {symbol!r}: {error}") from error
            self._trackers.append(tracker)
            self._addresses[symbol] = tracker[symbol]
        return self._addresses[symbol]


def load_object(object_bytes: bytes) -> LoadedObject:
    """Load an object made by `compile_to_object`, in this process or in an earlier one.

    Names that it does not define are looked up in the process (libc, libm, the Python C API).
    Raises `InternalError` for a damaged object and, now or when an address is asked for, for a name
    that is not found.
    """
    return link_object(object_bytes) or _load_into_library(object_bytes)


def _load_into_library(object_bytes: bytes) -> LoadedObject:
    number = next(_library_numbers)
    jit = _jit(number // _LIBRARIES_PER_JIT)
    library = f"tilewright.{number}"
    builder = llvm.JITLibraryBuilder().add_object_img(object_bytes).add_current_process()
    try:
        tracker = builder.link(jit, library)
    except RuntimeError as error:
        raise InternalError(f"cannot load an object: {error}") from error
    return _LibraryObject(jit, library, tracker)


_library_numbers = itertools.count()


@functools.lru_cache(maxsize=1)
def _jit(generation: int) -> llvm.LLJIT:
    """Return the LLJIT of a generation of libraries; older ones live on in their libraries."""
    # JITLink places an object in one piece, within reach of its own 32-bit displacements.
    return llvm.create_lljit_compiler(_target_machine(host(), 3), use_jit_link=True)
