"""Code for a request, on whichever target: from the disk cache, or compiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from tilewright import env
from tilewright.errors import LaunchError
from tilewright.runtime.arguments import Argument
from tilewright.runtime.cache import Entry, read_entry
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.dispatch import Extents
from tilewright.runtime.hooks import hooks
from tilewright.runtime.report import tell

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tilewright.runtime import (
        build,
        compile_listener,
        compiled,
        gpu_build,
        gpu_code,
        gpu_kernel,
        gpu_target,
        machine_code,
    )
    from tilewright.runtime.request import Request

    Code = machine_code.MachineCode | gpu_code.GpuCode
    Compiled = compiled.CompiledKernel | gpu_kernel.GpuKernel
else:
    build = Deferred("tilewright.runtime.build")
    compile_listener = Deferred("tilewright.runtime.compile_listener")
    compiled = Deferred("tilewright.runtime.compiled")
    gpu_build = Deferred("tilewright.runtime.gpu_build")
    gpu_code = Deferred("tilewright.runtime.gpu_code")
    gpu_kernel = Deferred("tilewright.runtime.gpu_kernel")
    gpu_target = Deferred("tilewright.runtime.gpu_target")
    machine_code = Deferred("tilewright.runtime.machine_code")

__all__ = ["begin_code", "code_for", "code_of", "entry_for", "kernel_of", "run_code"]


def code_for(asked: Request) -> Code:
    """Return the code of a request, compiled if it is not in the disk cache."""
    return code_of(asked, entry_for(asked))


def entry_for(asked: Request) -> Entry:
    """Return what the disk cache keeps of a request, compiled if it is not there."""
    started = time.perf_counter()
    found = _from_disk(asked)
    if found is not None:
        return _told(asked, found, _since(started), cache_hit=True)
    of_cpu = asked.target is None
    made = build.compile_kernel(asked) if of_cpu else gpu_build.compile_for_gpu(asked)
    return _told(asked, made, _since(started), cache_hit=False)


def _since(started: float) -> float:
    return time.perf_counter() - started


def _told(asked: Request, entry: Entry, seconds: float, *, cache_hit: bool) -> Entry:
    """Tell the listener of an entry, if there is one, and how long it took."""
    if hooks.compilation_listener is not None:
        compile_listener.tell_listener(asked, entry, seconds, cache_hit=cache_hit)
    return entry


def code_of(asked: Request, entry: Entry) -> Code:
    """Return what the disk cache keeps of a request as code that can run."""
    if asked.target is None:
        return machine_code.MachineCode(asked, entry.header, entry.payload)
    return gpu_code.GpuCode(asked, entry.header, entry.payload)


def begin_code(asked: Request, executor: Executor) -> Callable[[], Code]:
    """Start compiling on an executor; return a function that waits for the code."""
    started = time.perf_counter()
    found = _from_disk(asked)
    if found is not None:
        seconds = _since(started)
        return lambda: code_of(asked, _told(asked, found, seconds, cache_hit=True))
    if asked.target is None:
        finish = build.begin_compile(asked, executor)
    else:
        finish = gpu_build.begin_compile_for_gpu(asked, executor)
    begun = _since(started)

    def wait() -> Code:
        resumed = time.perf_counter()
        entry = finish()
        return code_of(asked, _told(asked, entry, begun + _since(resumed), cache_hit=False))

    return wait


def kernel_of(code: Code, options: Mapping[str, Any]) -> Compiled:
    """Return code as the user sees it."""
    if code.request.target is None:
        return compiled.CompiledKernel(cast("machine_code.MachineCode", code), options)
    return gpu_kernel.GpuKernel(cast("gpu_code.GpuCode", code), options)


def run_code(
    code: Code, grid: Extents, arguments: Sequence[Argument], stream: int | None = None
) -> None:
    """Run code on arguments that it was compiled for; a stream of None stands for theirs.

    Where an array has no elements, and so no tensor map, code without these runs in its place.
    """
    if code.request.target is not None and all(grid):
        of_gpu = cast("gpu_code.GpuCode", code)
        code = of_gpu if of_gpu.fits(arguments) else _without_tensor_maps(of_gpu)
    code.run(grid, arguments, stream)


def _without_tensor_maps(code: gpu_code.GpuCode) -> gpu_code.GpuCode:
    with code.lock:
        if code.without_tensor_maps is None:
            code.without_tensor_maps = _compiled_without_tensor_maps(code)
        return code.without_tensor_maps


def _compiled_without_tensor_maps(code: gpu_code.GpuCode) -> gpu_code.GpuCode:
    assert code.request.target is not None
    if getattr(code.request.function, "fn", None) is None:
        raise LaunchError(
            f"{code.name} is to be compiled again, for an array without elements, but comes "
            "from another process without its source",
            hint="compile it in this process (torch._inductor.config.compile_threads = 1), or "
            "do not launch it on such an array",
        )
    architecture, options, gpu = code.request.target
    asked = code.request.for_target(
        gpu_target.GpuTarget(architecture, replace(options, tensor_maps=False), gpu)
    )
    return cast("gpu_code.GpuCode", code_for(asked))


def _from_disk(asked: Request) -> Entry | None:
    """Return what an earlier process has kept.

    It needs none of the compiler: neither the passes nor the code generator is imported. Where the
    stages are to be shown, they have to be gone through.
    """
    if env.debug_level() >= 3 or env.dump_directory() is not None or not asked.is_portable:
        return None
    if env.always_compile():
        return None
    started = time.perf_counter()
    entry = read_entry(asked.cache_name)
    if entry is not None and env.debug_level() >= 2:
        milliseconds = _since(started) * 1e3
        tell(f"[tilewright] {asked.function.name}: from disk {milliseconds:.1f} ms")
    return entry
