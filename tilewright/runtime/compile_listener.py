"""What the listener of compiling is told: of code that was made, or found in the disk cache."""

from __future__ import annotations

from dataclasses import asdict

from tilewright.runtime.cache import Entry, entry_files
from tilewright.runtime.compile_stage import CompileStage
from tilewright.runtime.hooks import CompileTimes, hooks
from tilewright.runtime.kernel_source import KernelSource
from tilewright.runtime.metadata import make_metadata
from tilewright.runtime.request import Request
from tilewright.target import GPUTarget

__all__ = ["tell_listener"]


def tell_listener(asked: Request, entry: Entry, seconds: float, *, cache_hit: bool) -> None:
    """Call the listener; `seconds` is what it took to get the code."""
    listener = hooks.compilation_listener
    if listener is None:
        return
    of_gpu = asked.target
    options = {} if of_gpu is None else asdict(of_gpu.options)
    metadata = make_metadata(
        options,
        hash=asked.hash,
        name=entry.header["symbol"],
        target=GPUTarget.of(of_gpu and of_gpu.architecture),
        shared=entry.header.get("shared_bytes", 0),
    )
    listener(
        src=KernelSource.of(asked.function, asked.specializations),
        metadata=metadata._asdict(),
        metadata_group=entry_files(asked.cache_name),
        times=_times(asked, seconds),
        cache_hit=cache_hit,
    )


def _times(asked: Request, seconds: float) -> CompileTimes:
    taken: dict[str, int] = {}
    for stage, time in asked.times.items():
        taken[stage.product] = taken.get(stage.product, 0) + round(time * 1e6)
    rest = round(seconds * 1e6) - sum(taken.values())
    to_tile_ir = taken.pop(CompileStage.TILE_IR.product, 0)
    return CompileTimes(to_tile_ir, list(taken.items()), max(0, rest))
