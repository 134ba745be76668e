"""Kernels that are compiled before there is a call, and handed to other processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.codegen.gpu.options import GpuOptions
from tilewright.compiler.arguments import launch_arguments
from tilewright.compiler.source import ASTSource
from tilewright.compiler.target import GPUTarget
from tilewright.errors import LaunchError
from tilewright.runtime import codes, cuda, gpu_code
from tilewright.runtime.cache import Entry
from tilewright.runtime.hooks import LazyDict, launch_facts
from tilewright.runtime.metadata import make_metadata
from tilewright.runtime.options import check_options
from tilewright.runtime.request import Request

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
    def asm(self) -> dict[str, Any]:
        """The machine code, and on a GPU the text that it was made of."""
        if self.target.backend == "cpu":
            return {"object": self.payload}
        size = self.header["ptx_bytes"]
        made = {"ptx": self.payload[:size].decode(), "cubin": self.payload[size:]}
        return {stage: code for stage, code in made.items() if code}

    def launch_metadata(self, grid: Any, stream: int, *values: Any) -> LazyDict:
        """Return what hooks around a launch are told."""
        return launch_facts(self.src.fn, self.metadata, self.function, grid, stream, values)

    def _init_handles(self) -> None:
        """Load the code; under this name generators of kernels ask for it."""
        if self.module is not None:
            return
        request = _request(self.src, self.target, self.options)
        if request.target is not None:
            gpu = cuda.device(_current_gpu())
            request = request.for_target(request.target._replace(gpu=gpu))
        code = codes.code_of(request, Entry(self.header, self.payload))
        self.module, self.function = code, self.header["symbol"]
        if isinstance(code, gpu_code.GpuCode):
            self.n_regs, self.n_spills = code.function.registers, code.function.local_bytes
        self.run = _launch_function(code, request)


def _launch_function(code: codes.Code, request: Request) -> Callable[..., None]:
    """Return what launches code; the grid and what Triton's launchers take come first."""
    launcher = code.launcher

    def run(  # noqa: PLR0913, PLR0917 - the order is that of Triton's launchers
        x: int, y: int, z: int,
        stream: int, function: Any, packed: Any, facts: Any, enter: Any, leave: Any,
        *values: Any,
    ) -> None:  # fmt: skip
        if enter:
            enter(facts)
        if launcher is None or launcher(x, y, z, *values) is NotImplemented:
            codes.run_code(code, (x, y, z), launch_arguments(request.specializations, values))
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
    >>> sorted(compile(source, GPUTarget("cuda", 90, 32), {"num_warps": 1}).asm)[-1]
    'ptx'
    """
    if not isinstance(src, ASTSource):
        raise LaunchError(f"compile takes an ASTSource, not a {type(src).__name__}")
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
        target=target.with_options(GpuOptions.among(options)),
    )


def _current_gpu() -> int:
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None else 0
