"""Compiling: from a request to machine code, through all the stages."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright import env
from tilewright.codegen.cpu.compile import generate
from tilewright.codegen.llvm import assembly, compile_to_object
from tilewright.errors import CompileError, LaunchError, Location
from tilewright.frontend.context import compiling_for
from tilewright.frontend.trace import Described, Runtime, trace
from tilewright.ir.core import Function
from tilewright.ir.parser import parse
from tilewright.ir.printer import to_text
from tilewright.ir.verifier import verify
from tilewright.locks import Lock
from tilewright.passes.accessed_parameters import accessed_parameters
from tilewright.passes.dump import write_code
from tilewright.passes.pipeline import optimize, prepare_for_cpu
from tilewright.passes.remove_assertions import remove_assertions
from tilewright.passes.written_parameters import written_parameters
from tilewright.runtime.cache import Entry, write_entry
from tilewright.runtime.compile_stage import CompileStage
from tilewright.runtime.host import host
from tilewright.runtime.override import Override
from tilewright.runtime.report import tell
from tilewright.runtime.request import Request
from tilewright.target import NvidiaTarget

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = [
    "Lowered",
    "begin_compile",
    "compile_kernel",
    "effects",
    "lower",
    "show_code",
    "tile_ir",
    "timed",
    "traced",
    "with_room",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel as LLVM IR, and what is written down beside its object in the cache."""

    llvm_ir: str
    header: dict[str, Any]


def compile_kernel(request: Request) -> Entry:
    """Take a kernel through all stages, and keep the result in the disk cache."""
    lowered = lower(request)
    with timed(request, CompileStage.OBJECT):
        object_bytes = compile_to_object(lowered.llvm_ir, host=host())
    return _finish(request, lowered, object_bytes)


def begin_compile(request: Request, executor: Executor) -> Callable[[], Entry]:
    """Start compiling, LLVM's part on an executor; return a function that waits for the result."""
    lowered = lower(request)
    future = executor.submit(compile_to_object, lowered.llvm_ir, host=host())

    def finish() -> Entry:
        with timed(request, CompileStage.OBJECT):
            object_bytes = future.result()
        return _finish(request, lowered, object_bytes)

    return finish


def _finish(request: Request, lowered: Lowered, object_bytes: bytes) -> Entry:
    """Keep an object in the disk cache and return it."""
    if request.is_portable:
        write_entry(request.cache_name, lowered.header, object_bytes)
    return Entry(lowered.header, object_bytes)


def lower(request: Request) -> Lowered:
    """Take a kernel through every stage but LLVM's.

    Raises `CompileError` for a kernel that is longer than the stages can follow.
    """
    return with_room(request, lambda: _lower(request))


def with_room(request: Request, work: Callable[[], T]) -> T:
    """Return `work()`, done in a thread with a deep stack where the kernel is a long one.

    Raises `CompileError` for one that is too long even so.
    """
    try:
        return work()
    except RecursionError:
        pass
    try:
        return _in_a_deep_thread(work)
    except RecursionError:
        raise CompileError(
            f"`{request.function.name}` is too long: its values depend on each other in a chain of "
            "thousands of operations",
            location=request.function.location,
            hint="use a loop, tl.range instead of tl.static_range, or several kernels",
        ) from None


def _lower(request: Request) -> Lowered:
    if request.override is not None and request.override.stage == "ptx":
        raise LaunchError(
            f"{request.override.path}: a kernel on the CPU has no PTX",
            hint='change its tile IR: kernel.asm["ttir"]',
        )
    with timed(request, CompileStage.TILE_IR):
        function = tile_ir(request)
    if env.debug_level() >= 3:
        tell(to_text(function))
    with timed(request, CompileStage.LLVM_IR):
        kernel = generate(prepare_for_cpu(function), host())
    show_code(function, {"ll": kernel.llvm_ir}, "s", lambda: assembly(kernel.llvm_ir, host=host()))
    header = {
        "symbol": kernel.symbol,
        "scratch_bytes": kernel.scratch_bytes,
        "assertions": [[text, place and asdict(place)] for text, place in kernel.assertions],
        **effects(request, function),
    }
    return Lowered(kernel.llvm_ir, header)


def show_code(
    function: Function, texts: Mapping[str, str], kind: str, assembly_text: Callable[[], str]
) -> None:
    """Show the code of a tile function where the environment asks for it.

    The assembly goes to stderr; it, and the other texts by their kind, go to files beside the IR.
    """
    if env.debug_level() >= 5:
        tell(assembly_text())
    directory = env.dump_directory()
    if directory is not None:
        write_code(directory, function, {**texts, kind: assembly_text()})


def tile_ir(request: Request, target: NvidiaTarget | None = None) -> Function:
    """Return the optimised tile IR of a request, for another target than its own if one is given.

    Raises `CompileError` for what the language does not allow, with a hint where a number was
    passed in place of an array.
    """
    try:
        function = traced(request, target)
        replaced = request.override
        if replaced is None or replaced.stage == "ptx":
            return optimize(function)
        return _in_place_of(function, replaced, request)
    except CompileError as error:
        _explain_addresses(request, error)
        raise


def _in_place_of(function: Function, replaced: Override, request: Request) -> Function:
    """Return the tile IR that a file has, which takes what the kernel takes."""
    read = parse(replaced.text)
    verify(read)
    if [p.type for p in read.body.params] != [p.type for p in function.body.params]:
        raise LaunchError(
            f"{replaced.path}: the parameters are not those of `{request.function.name}` for these "
            "arguments",
            hint='start from the kernel\'s own text: kernel.asm["ttir"]',
        )
    if replaced.stage == "tir":
        return read
    return optimize(read if request.debug else remove_assertions(read))


def traced(request: Request, target: NvidiaTarget | None = None) -> Function:
    """Return the tile IR of a request before any pass has seen it."""
    arguments = {name: s.traced for name, s in request.specializations.items()}
    if target is None and request.target is not None:
        target = request.target.architecture
    with compiling_for(target):
        function = trace(
            request.function,
            arguments,
            checks_overflow=request.checks_overflow,
            is_launched=True,
        )
    return function if request.debug else remove_assertions(function)


def effects(request: Request, function: Function) -> dict[str, Any]:
    """Return what a launch has to know of the tile IR, for the header of a cache entry."""
    accessed = _accessed_names(request, function)
    return {
        "written": sorted(_written_names(request, function)),
        "accessed": {name: place and asdict(place) for name, place in accessed.items()},
    }


def _written_names(request: Request, function: Function) -> frozenset[str]:
    """The parameters of the kernel through which it may store; a tuple counts as one."""
    owners = _owners(request)
    return frozenset(owners[position] for position in written_parameters(function))


def _accessed_names(request: Request, function: Function) -> dict[str, Location | None]:
    """The parameters that must not be null; tuples are not looked into."""
    owners = _owners(request)
    accessed = accessed_parameters(function)
    found = ((owners[position], place) for position, place in accessed.items())
    return {n: place for n, place in found if request.specializations[n].element is not None}


def _owners(request: Request) -> list[str]:
    """For each parameter of the tile IR the one of the kernel that it belongs to."""
    return [
        name
        for name, known in request.specializations.items()
        for _ in range(_count_runtime(known.traced))
    ]


def _count_runtime(traced: Any) -> int:
    if isinstance(traced, tuple):
        return sum(map(_count_runtime, traced))
    if isinstance(traced, Described):
        return len(traced.parts)
    return isinstance(traced, Runtime)


_LEAST_ADDRESS = 2**20


def _explain_addresses(request: Request, error: CompileError) -> None:
    """Say what to do about an int that the kernel uses as a pointer, where that was the mistake."""
    # Small numbers are sizes.
    addresses = {n: hex(v) for n, v in request.values.items() if v >= _LEAST_ADDRESS}
    if "pointer" not in error.message or not addresses:
        return
    given = ", ".join(f"`{name}` got the number {value}" for name, value in addresses.items())
    error.hint = (
        f"{given}. If that is a `data_ptr()`: pass the array itself, or say in the kernel what the "
        f'address points to, `{next(iter(addresses))}: "*fp32"`'
    )


# Frames of Python that compiling may stack, since operands are followed to where they come from,
# and a stack that holds them.
_DEEPEST = 30_000
_STACK_BYTES = 1 << 29
_deep_compilations = Lock()


def _in_a_deep_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread with a large stack, where recursion may go deep."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    with _deep_compilations:
        usual_limit = sys.getrecursionlimit()
        usual_stack = threading.stack_size(_STACK_BYTES)
        sys.setrecursionlimit(max(usual_limit, _DEEPEST))
        try:
            thread = threading.Thread(target=run, name="tilewright compiler")
            thread.start()
            thread.join()
        finally:
            threading.stack_size(usual_stack)
            sys.setrecursionlimit(usual_limit)
    if errors:
        raise errors[0]
    return results[0]


@contextlib.contextmanager
def timed(request: Request, stage: CompileStage) -> Iterator[None]:
    """Note how long a stage takes, and tell it from TILEWRIGHT_DEBUG=2 on."""
    started = time.perf_counter()
    yield
    seconds = time.perf_counter() - started
    request.times[stage] = seconds
    if env.debug_level() >= 2:
        tell(f"[tilewright] {request.function.name}: {stage.words} {seconds * 1e3:.1f} ms")
