"""Compiling for a GPU: from a request to PTX, and to machine code where that can be had."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tilewright import env
from tilewright.codegen.gpu.options import GpuOptions
from tilewright.codegen.nvidia.assembler import Assembled, assemble
from tilewright.codegen.nvidia.compile import PtxKernel, generate, prepare
from tilewright.codegen.nvidia.occupancy import assemble_for_more_blocks
from tilewright.codegen.nvidia.toolkit import find_ptxas
from tilewright.errors import InternalError, LaunchError, Unsupported
from tilewright.ir.core import Function
from tilewright.ir.printer import to_text
from tilewright.runtime.build import effects, show_code, tile_ir, timed, with_room
from tilewright.runtime.cache import Entry, write_entry
from tilewright.runtime.compile_stage import CompileStage
from tilewright.runtime.gpu_linker import Linked, linked
from tilewright.runtime.gpu_target import GpuTarget
from tilewright.runtime.override import Override
from tilewright.runtime.report import tell
from tilewright.runtime.request import Request
from tilewright.runtime.tensor_maps import to_literal
from tilewright.target import NvidiaTarget

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["assembled", "begin_compile_for_gpu", "compile_for_gpu", "lower_for_gpu", "write_ptx"]


@dataclass(frozen=True, slots=True)
class LoweredForGpu:
    """A kernel as PTX, and what is written down beside it in the cache."""

    kernel: PtxKernel
    header: dict[str, Any]


def compile_for_gpu(request: Request) -> Entry:
    """Take a kernel through all stages, and keep the result in the disk cache."""
    return _assembled_here(request, lower_for_gpu(request))


def begin_compile_for_gpu(request: Request, executor: Executor) -> Callable[[], Entry]:
    """Start compiling, the assembler on an executor; return a function that waits for it."""
    lowered = lower_for_gpu(request)
    if isinstance(executor, ThreadPoolExecutor):
        whole = executor.submit(_assembled_here, request, lowered)
        return whole.result
    # Another process has ptxas, but not the GPU that the driver needs to assemble.
    future = executor.submit(assembled, lowered.kernel, _target(request).architecture)

    def finish() -> Entry:
        with timed(request, CompileStage.CUBIN):
            made = future.result()
        return _finish(request, lowered, made)

    return finish


def lower_for_gpu(request: Request) -> LoweredForGpu:
    """Take a kernel through every stage up to PTX."""
    return with_room(request, lambda: _lower(request))


def _target(request: Request) -> GpuTarget:
    assert request.target is not None
    return request.target


def _lower(request: Request) -> LoweredForGpu:
    architecture, options, _ = _target(request)
    function, kernel = write_ptx(request, architecture, options)
    header = {
        "symbol": kernel.symbol,
        "shared_bytes": kernel.shared_bytes,
        "threads": kernel.num_warps * architecture.warp_size,
        # A kernel that may start early must wait for the one before it somewhere.
        "overlaps": options.launch_pdl and "griddepcontrol.wait" in kernel.ptx,
        "passed": list(kernel.passed),
        "tensor_maps": [to_literal(tensor_map) for tensor_map in kernel.tensor_maps],
        "assertions": [[text, place and asdict(place)] for text, place in kernel.assertions],
        **effects(request, function),
    }
    return LoweredForGpu(kernel, header)


def write_ptx(
    request: Request, target: NvidiaTarget, options: GpuOptions
) -> tuple[Function, PtxKernel]:
    """Return a kernel as tile IR and as PTX, and show them where the environment asks for it."""
    with timed(request, CompileStage.TILE_IR):
        function = tile_ir(request, target)
    if env.debug_level() >= 3:
        tell(to_text(function))
    with timed(request, CompileStage.PTX):
        kernel = generate(prepare(function, target, options), target, options)
        if request.override is not None and request.override.stage == "ptx":
            kernel = _in_place_of(kernel, request.override)
    if env.shows_ptx():
        tell(kernel.ptx)
    show_code(function, {"ll": kernel.llvm_ir}, "ptx", lambda: kernel.ptx)
    return function, kernel


def _in_place_of(kernel: PtxKernel, replaced: Override) -> PtxKernel:
    """Return a kernel with the PTX of a file, which takes what its own takes."""
    if not re.search(rf"\.entry\s+{re.escape(kernel.symbol)}\b", replaced.text):
        raise LaunchError(
            f"{replaced.path}: there is no entry {kernel.symbol}",
            hint='start from the kernel\'s own text: kernel.asm["ptx"]',
        )
    return replace(kernel, ptx=replaced.text)


def _assembled_here(request: Request, lowered: LoweredForGpu) -> Entry:
    with timed(request, CompileStage.CUBIN):
        made = assembled(lowered.kernel, _target(request).architecture)
    return _finish(request, lowered, made)


def _finish(request: Request, lowered: LoweredForGpu, made: Assembled | Linked | None) -> Entry:
    """Keep PTX and machine code in the disk cache and return them."""
    gpu = _target(request).gpu
    if made is None and gpu is not None:
        with timed(request, CompileStage.CUBIN_OF_DRIVER):
            made = linked(gpu, lowered.kernel, request.function.name)
    text, cubin = (lowered.kernel.ptx, b"") if made is None else (made.ptx, made.cubin)
    header = {**lowered.header, "ptx_bytes": len(text.encode())}
    payload = text.encode() + cubin
    # Another process may find other libraries.
    if request.is_portable and not lowered.kernel.finds_libraries:
        write_entry(request.cache_name, header, payload)
    return Entry(header, payload)


def assembled(kernel: PtxKernel, target: NvidiaTarget) -> Assembled | None:
    """Return what ptxas makes of a kernel; None where there is none, or one too old for the PTX.

    Raises `Unsupported` where there are options for ptxas that it cannot be given.
    """
    ptxas, options = find_ptxas(), kernel.assembler_options
    if ptxas is None:
        if options:
            raise Unsupported(
                "`ptx_options` are for `ptxas`, and there is none",
                hint="install a CUDA toolkit, or leave them out",
            )
        return None
    try:
        return assemble_for_more_blocks(
            kernel, target, lambda ptx: assemble(ptx, target, ptxas, options)
        )
    except InternalError as error:
        if options:
            raise Unsupported(
                f"ptx_options={' '.join(options)!r}: {error.message}",
                hint="pass options that `ptxas --help` lists, or none",
            ) from None
        return None  # the driver tells what is wrong, if it is the PTX
