"""Kernels that are compiled before there is a call, and handed to other processes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.codegen.gpu.options import GpuOptions
from tilewright.compiler.arguments import launch_arguments
from tilewright.compiler.source import ASTSource
from tilewright.errors import LaunchError
from tilewright.runtime import codes, cuda, gpu_code
from tilewright.runtime.cache import Entry, entry_files, entry_name
from tilewright.runtime.default_target import current_gpu
from tilewright.runtime.deferred import Deferred
from tilewright.runtime.hooks import LazyDict, launch_facts
from tilewright.runtime.metadata import make_metadata, packed
from tilewright.runtime.options import check_options
from tilewright.runtime.override import read_override
from tilewright.runtime.request import Request
from tilewright.runtime.stages import Stages, gpu_stages, tile_stages
from tilewright.runtime.written_target import with_options
from tilewright.target import GPUTarget

if TYPE_CHECKING:
    from tilewright.runtime import build, gpu_build
else:
    build = Deferred("tilewright.runtime.build")
    gpu_build = Deferred("tilewright.runtime.gpu_build")

__all__ = ["CompiledSource", "compile"]


Options = Mapping[str, Any]


class CompiledSource:
    """What `compile` returns: machine code, and what is needed to launch it.

    Pickled, it can be launched in another process. `run` launches on all arguments by position,
    constants included, with the grid and what Triton's launchers take in front of them; it is there
    once `_init_handles` has loaded the code, on the current GPU. `asm` has the machine code
    (`"object"`, or `"ptx"` and `"cubin"`).
    """

    def __init__(
        self, src: ASTSource, request: Request, entry: Entry, target: GPUTarget, options: Options
    ) -> None:
        self.src, self.target, self.options = src, target, options
        self.header, self.payload = entry
        self.hash, self.name = request.hash, src.name
        self.module: Any = None
        self.function: Any = None
        self.metadata = make_metadata(
            options,
            hash=request.hash,
            name=self.header["symbol"],
            target=target,
            shared=self.header.get("shared_bytes", 0),
        )

    def __repr__(self) -> str:
        return f"<compiled source {self.name} {self.hash[:12]} for {self.target.backend}>"

    @property
    def asm(self) -> Mapping[str, Any]:
        """The machine code, and what it was made of; that needs the body of the function."""
        if self.target.backend == "cpu":
            llvm_ir = functools.cache(lambda: build.lower(self._request).llvm_ir)
            stages = tile_stages(self._request)
            return Stages({**stages, "llir": llvm_ir, "object": lambda: self.payload})
        size = self.header["ptx_bytes"]
        return gpu_stages(
            self._request,
            lambda: gpu_build.lower_for_gpu(self._request).kernel.llvm_ir,
            self.payload[:size].decode(),
            self.payload[size:],
        )

    @property
    def kernel(self) -> bytes:
        """The machine code; of a GPU PTX, where there was no assembler."""
        return bytes(self.payload[self.header.get("ptx_bytes", 0) :] or self.payload)

    @property
    def packed_metadata(self) -> tuple[int, int, int]:
        """What Triton's launchers take of the metadata."""
        return packed(self.metadata)

    @property
    def metadata_group(self) -> dict[str, str]:
        """The file of the disk cache that the kernel is kept in, by its name."""
        return entry_files(entry_name(self.name, self.hash))

    @property
    def _request(self) -> Request:
        return _request(self.src, self.target, self.options)

    def launch_metadata(self, grid: Any, stream: int, *values: Any) -> LazyDict:
        """Return what hooks around a launch are told."""
        return launch_facts(self.src.fn, self.metadata, self.function, grid, stream, values)

    def _init_handles(self) -> None:
        """Load the code; under this name generators of kernels ask for it."""
        if self.module is not None:
            return
        request = self._request
        if request.target is not None:
            gpu = cuda.device(current_gpu())
            request = request.for_target(request.target._replace(gpu=gpu))
        request.hash = self.hash  # which a function without its body does not tell
        code = codes.code_of(request, Entry(self.header, self.payload))
        self.module, self.function = code, self.header["symbol"]
        if isinstance(code, gpu_code.GpuCode):
            self.n_regs, self.n_spills = code.function.registers, code.function.local_bytes
            self.n_max_threads = code.function.most_threads
        self.run = _launch_function(code, request)


def _launch_function(code: codes.Code, request: Request) -> Callable[..., None]:
    """Return what launches code; the grid and what Triton's launchers take come first."""
    launcher = code.launcher

    def run(  # noqa: PLR0913, PLR0917 - the order is that of Triton's launchers
        x: int, y: int, z: int,
        stream: int | None, function: Any, packed: Any, facts: Any, enter: Any, leave: Any,
        *values: Any,
    ) -> None:  # fmt: skip
        if enter:
            enter(facts)
        # A launcher takes PyTorch's current stream.
        is_elsewhere = stream is not None and stream != code.stream
        if launcher is None or is_elsewhere or launcher(x, y, z, *values) is NotImplemented:
            arguments = launch_arguments(request.specializations, values)
            codes.run_code(code, (x, y, z), arguments, stream)
        if leave:
            leave(facts)

    return run


def compile(src: ASTSource, target: GPUTarget | None = None, options: Any = None) -> CompiledSource:
    """Compile a kernel for types that are written down; the disk cache is asked first.

    Without a target it is compiled for the CPU. `options` are those of a launch, as a dictionary or
    as attributes of an object.

    Raises `CompileError` for what the language does not allow, `LaunchError` for unknown options,
    and `Unsupported` for what the target lacks.

    >>> import tilewright, tilewright.language as tl
    >>> @tilewright.jit
    ... def clear(x_ptr, BLOCK: tl.constexpr):
    ...     tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)
    >>> source = ASTSource(clear, {"x_ptr": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 64})
    >>> ".entry" in compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 1}).asm["ptx"]
    True
    """
    if not isinstance(src, ASTSource):
        raise LaunchError(
            f"compile takes an ASTSource, not a {type(src).__name__}",
            hint="write `compile(ASTSource(kernel, signature, constants), target)`",
        )
    target = target or GPUTarget("cpu", "", 1)
    given = options if options is None or isinstance(options, Mapping) else vars(options)
    chosen = dict(given or {})
    check_options(src.name, chosen, ())
    request = _request(src, target, chosen)
    return CompiledSource(src, request, codes.entry_for(request), target, chosen)


def _request(src: ASTSource, target: GPUTarget, options: Options) -> Request:
    debug = bool(options.get("debug"))
    return Request(
        src.fn,
        src.specializations(),
        debug=debug,
        checks_overflow=debug and bool(options.get("sanitize_overflow", True)),
        version=str(getattr(src.fn, "version", None)),
        target=with_options(target, GpuOptions.among(options)),
        override=read_override(options.get("ir_override")),
    )
