"""Kernels on a GPU: compiled for the one that the arrays of a call are on, and launched there."""

from __future__ import annotations

import collections
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.codegen.gpu.options import GpuOptions
from tilewright.codegen.nvidia.compile import generate
from tilewright.errors import LaunchError
from tilewright.ir.printer import to_text
from tilewright.ir.types import DType, ElementType, PointerType
from tilewright.passes.pipeline import prepare_for_gpu
from tilewright.runtime.arguments import Argument, leaves, require_memory, specialize
from tilewright.runtime.build import tile_ir
from tilewright.runtime.cuda import Device, Module, current_stream, device
from tilewright.runtime.dispatch import Extents, extents
from tilewright.runtime.options import DEFAULTS
from tilewright.runtime.request import Request

__all__ = ["GpuKernel", "compile_for_gpu"]

_LARGEST_GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)
_named_tuple: Any = collections.namedtuple  # noqa: PYI024 - the fields are data
_Metadata = _named_tuple("Metadata", ["hash", "name", "target", "shared", *DEFAULTS])
_FORMATS = {"fp32": "<f", "fp64": "<d", "fp16": "<e"}


def compile_for_gpu(request: Request, number: int, options: Mapping[str, Any]) -> GpuKernel:
    """Compile a kernel for GPU `number` and load it there."""
    gpu = device(number)
    function = tile_ir(request)
    gpu_options = GpuOptions.among(options)
    prepared = prepare_for_gpu(function, fuses=gpu_options.enable_fp_fusion)
    ptx = generate(prepared, gpu.target, gpu_options)
    asm = {"tir": to_text(function), "llir": ptx.llvm_ir, "ptx": ptx.ptx}
    return GpuKernel(request, gpu, ptx.symbol, ptx.shared_bytes, ptx.num_warps, asm, options)


class GpuKernel:
    """A kernel compiled for one set of types, constants and options, on one GPU.

    `asm` has its tile IR (`"tir"`), LLVM IR (`"llir"`) and PTX (`"ptx"`). `n_regs` is the number of
    registers of a thread, `n_spills` the bytes of them that spill to memory.
    """

    def __init__(
        self,
        request: Request,
        gpu: Device,
        symbol: str,
        shared_bytes: int,
        num_warps: int,
        asm: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> None:
        self.request, self.gpu, self.asm = request, gpu, asm
        self.num_warps, self.options = num_warps, dict(options)
        self._function = Module(gpu, asm["ptx"]).function(symbol, shared_bytes)

    def __repr__(self) -> str:
        return f"<compiled kernel {self.name} {self.hash[:12]} on GPU {self.gpu.number}>"

    def __getitem__(self, grid: Any) -> Any:
        """Return a function that launches this very kernel on all arguments, by position."""
        sizes = extents(grid)
        params = self.request.function.params

        def launch(*values: Any) -> None:
            self.run(sizes, list(map(specialize, params, values)))

        return launch

    @property
    def name(self) -> str:
        return str(self.request.function.name)

    @property
    def hash(self) -> str:
        return self.request.hash

    @property
    def n_regs(self) -> int:
        return self._function.registers

    @property
    def n_spills(self) -> int:
        return self._function.local_bytes

    @property
    def metadata(self) -> Any:
        """What the kernel was compiled for: a named tuple with `name`, `hash`, `num_warps`, ..."""
        settings = {**DEFAULTS, **self.options, "num_warps": self.num_warps}
        return _Metadata(
            hash=self.hash,
            name=self.name,
            target=self.gpu.target.architecture,
            shared=self._function.shared_bytes,
            **settings,
        )

    def run(self, grid: Extents, arguments: Sequence[Argument]) -> None:
        """Start the kernel on PyTorch's current stream; it runs on while this returns."""
        for axis, (size, largest) in enumerate(zip(grid, _LARGEST_GRID, strict=True)):
            if size > largest:
                raise LaunchError(f"{self.name}: a GPU takes {largest} programs along axis {axis}")
        packed = []
        for argument in leaves(arguments):
            require_memory(argument)
            packed.append(_packed(argument))
        if all(grid):
            stream = current_stream(self.gpu.number)
            threads = self.gpu.target.warp_size * self.num_warps
            self._function.launch(grid, threads, stream, packed)


def _packed(argument: Argument) -> bytes:
    element: ElementType | None = argument.specialization.element
    if element is None or isinstance(element, PointerType):
        return struct.pack("<Q", argument.value)
    assert isinstance(element, DType)
    if element.name in _FORMATS:
        return struct.pack(_FORMATS[element.name], argument.value)
    if element.is_floating():
        narrow: bytes = element.numpy.type(argument.value).tobytes()
        return narrow
    size = element.itemsize
    return (int(argument.value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
