"""Compiling for a GPU: from a request to PTX, and to machine code where that can be had."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tilewright import env
from tilewright.codegen.gpu.options import GpuOptions
from tilewright.codegen.nvidia.assembler import Assembled, assemble, find_ptxas
from tilewright.codegen.nvidia.compile import PtxKernel, generate, prepare
from tilewright.errors import InternalError
from tilewright.ir.core import Function
from tilewright.ir.printer import to_text
from tilewright.runtime.build import effects, show_code, tile_ir, timed, with_room
from tilewright.runtime.cache import Entry, write_entry
from tilewright.runtime.cuda import Device, link
from tilewright.runtime.cuda_errors import CudaError
from tilewright.runtime.gpu_target import GpuTarget
from tilewright.runtime.report import tell
from tilewright.runtime.request import Request
from tilewright.runtime.tensor_maps import to_literal
from tilewright.target import NvidiaTarget

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["assembled", "begin_compile_for_gpu", "compile_for_gpu", "lower_for_gpu", "write_ptx"]

# ptxas: registers are not handed over, matrix products are serialised, and the like.
_SLOWER = re.compile(r"C75\d\d")


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
    future = executor.submit(_cubin, lowered.kernel.ptx, _target(request).architecture)
    return lambda: _finish(request, lowered, future.result())


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
        "tensor_maps": [to_literal(tensor_map) for tensor_map in kernel.tensor_maps],
        "assertions": [[text, place and asdict(place)] for text, place in kernel.assertions],
        **effects(request, function),
    }
    return LoweredForGpu(kernel, header)


def write_ptx(
    request: Request, target: NvidiaTarget, options: GpuOptions
) -> tuple[Function, PtxKernel]:
    """Return a kernel as tile IR and as PTX, and show them where the environment asks for it."""
    with timed(request, "tile IR"):
        function = tile_ir(request)
    if env.debug_level() >= 3:
        tell(to_text(function))
    with timed(request, "PTX"):
        kernel = generate(prepare(function, target, options), target, options)
    show_code(function, {"ll": kernel.llvm_ir}, "ptx", lambda: kernel.ptx)
    return function, kernel


def _assembled_here(request: Request, lowered: LoweredForGpu) -> Entry:
    with timed(request, "machine code"):
        cubin = _cubin(lowered.kernel.ptx, _target(request).architecture)
    return _finish(request, lowered, cubin)


def _finish(request: Request, lowered: LoweredForGpu, cubin: bytes | None) -> Entry:
    """Keep PTX and machine code in the disk cache and return them."""
    ptx, gpu = lowered.kernel.ptx, _target(request).gpu
    if cubin is None and gpu is not None:
        with timed(request, "machine code from the driver"):
            cubin = _linked(gpu, ptx, request.function.name)
    text = ptx.encode()
    header = {**lowered.header, "ptx_bytes": len(text)}
    payload = text + (cubin or b"")
    if request.is_portable:
        write_entry(request.cache_name, header, payload)
    return Entry(header, payload)


def _cubin(ptx: str, target: NvidiaTarget) -> bytes | None:
    made = assembled(ptx, target)
    return None if made is None else made.cubin


def assembled(ptx: str, target: NvidiaTarget) -> Assembled | None:
    """Return what ptxas makes of PTX; None where there is none, or one that is too old for it."""
    ptxas = find_ptxas()
    if ptxas is None:
        return None
    try:
        return assemble(ptx, target, ptxas)
    except InternalError:
        return None  # the driver tells what is wrong, if it is the PTX


def _linked(gpu: Device, ptx: str, name: str) -> bytes | None:
    """Return what the driver's linker makes of PTX, None where that would be worse than loading it.

    The linker takes the PTX for a part of a program, in which registers cannot be handed from warp
    to warp. What the driver does when it loads PTX is not worse, but it does not give it away.
    """
    if "setmaxnreg" in ptx:
        return None
    try:
        cubin, log = link(gpu, ptx, name)
    except CudaError:
        return None  # loading the PTX tells what is wrong
    return None if _SLOWER.search(log) else cubin
