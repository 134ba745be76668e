"""Kernels as code for a GPU, and the running of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from tilewright.codegen.gpu.failure import FAILURE
from tilewright.codegen.nvidia.occupancy import for_one_block
from tilewright.errors import Unsupported
from tilewright.runtime.arguments import Argument, leaves
from tilewright.runtime.cuda import Function, Module, current_stream, driver
from tilewright.runtime.cuda_errors import INVALID_CODE, CudaError
from tilewright.runtime.dispatch import Extents
from tilewright.runtime.gpu_launcher import Attributes, accept_torch, bind_gpu_launcher
from tilewright.runtime.kernel_code import KernelCode, check_grid
from tilewright.runtime.launch_parameters import Launcher
from tilewright.runtime.lent import keep_until_done
from tilewright.runtime.parameter_bytes import parameter_bytes
from tilewright.runtime.request import Request
from tilewright.runtime.tensor_maps import TensorMaps, from_literal, with_driver

__all__ = ["GpuCode"]

# CU_STREAM_LEGACY and 0 are the same stream.
_LEGACY_STREAM = 1


class GpuCode(KernelCode[Function]):
    """A kernel as PTX, and as machine code (`cubin`) where that could be had beforehand."""

    def __init__(self, request: Request, header: Mapping[str, Any], payload: bytes) -> None:
        super().__init__(request, header)
        target = request.target
        assert target is not None
        assert target.gpu is not None
        self.gpu, self.options = target.gpu, target.options
        self.without_tensor_maps: GpuCode | None = None
        self.shared_bytes: int = header["shared_bytes"]
        self.threads: int = header["threads"]
        self.passed: list[int] = header["passed"]
        self.ptx = payload[: header["ptx_bytes"]].decode()
        self.cubin = payload[header["ptx_bytes"] :] or None
        self._tensor_maps = TensorMaps(
            list(map(from_literal, header["tensor_maps"])),
            self.name,
            with_driver(self.gpu, self.name),
            lambda: request.function.location,
        )
        self._attributes = Attributes(
            is_cooperative=self.options.launch_cooperative_grid, overlaps=header["overlaps"]
        )

    @property
    def name(self) -> str:
        return str(self.request.function.name)

    @property
    def place(self) -> str:
        return f"GPU {self.gpu.number}"

    @property
    def entry(self) -> int:
        return self.function.address

    @property
    def device(self) -> int:
        return self.gpu.number

    @property
    def stream(self) -> int:
        return current_stream(self.gpu.number)

    @property
    def function(self) -> Function:
        """The entry, loaded on the GPU."""
        return self.loaded

    def _load(self) -> tuple[Function, Launcher | None]:
        function = self._function()
        return function, self._bound(function)

    def _function(self) -> Function:
        module = self._module()
        function = module.function(self.symbol, self.name, self.shared_bytes)
        if self.threads > function.most_threads:
            raise Unsupported(
                f"{self.name}: with {function.registers} registers each, a block has at most "
                f"{function.most_threads} threads, and the kernel has {self.threads}",
                hint="use fewer warps (`num_warps`), smaller tiles, or limit `maxnreg`",
            )
        return function

    def _module(self) -> Module:
        if self.cubin is not None:
            try:
                return Module(self.gpu, self.cubin, self.name)
            except CudaError as error:
                if error.code not in INVALID_CODE:
                    raise
                # Made by a newer assembler than this driver knows.
                self.cubin = None
                if self.options.maxnreg is None:
                    self.ptx = for_one_block(self.ptx)
        return Module(self.gpu, self.ptx.encode() + b"\0", self.name)

    def _bound(self, function: Function) -> Launcher | None:
        parameters = self.parameters()
        if parameters is None or self._assertions:
            return None  # assertions are looked at behind each launch
        return bind_gpu_launcher(
            function,
            parameters,
            threads=self.threads,
            attributes=self._attributes,
            passed=self.passed,
            tensor_maps=self._tensor_maps.maps,
            on_error=self._fail,
        )

    def fits(self, arguments: Sequence[Argument]) -> bool:
        """Whether there are tensor maps of all arrays: of one without elements there is none."""
        return self._tensor_maps.fit([argument.value for argument in leaves(arguments)])

    def _fail(self, code: int) -> None:
        driver().check(code, f"launching {self.name}")

    def run(self, grid: Extents, arguments: Sequence[Argument], stream: int | None = None) -> None:
        """Start the kernel on arguments that it was compiled for; it runs on while this returns.

        Raises `LaunchError` for a grid that GPUs do not have, as `check` does, and for a
        `device_assert` that does not hold: a kernel that has any is waited for.
        """
        check_grid(grid, self.gpu.target.largest_grid, self.name)
        self.check(grid, arguments)
        if all(grid):
            given = list(leaves(arguments))
            own = {_own_stream(argument) for argument in given if argument.view is not None}
            stream = self._stream(own) if stream is None else stream
            maps = self._tensor_maps.of_launch(
                [argument.value for argument in given], [argument.name for argument in given]
            )
            others = own - {stream, None}
            self._order(others, {stream})
            self.function.launch(
                grid,
                self.threads,
                stream,
                [*(parameter_bytes(given[number]) for number in self.passed), *maps],
                self._attributes.data,
                self._attributes.count,
            )
            self._order({stream}, others)
            views = [argument.view for argument in given if argument.view is not None]
            keep_until_done(self.gpu, stream, (view.array for view in views if view.is_lent))
            if self._assertions:
                self._require_assertions()
        # The launcher has declined: perhaps because it does not know PyTorch's types yet.
        accept_torch()

    def _require_assertions(self) -> None:
        """Wait for what was launched; raise `LaunchError` if an assertion does not hold in it."""
        if self.gpu.is_capturing(current_stream(self.gpu.number)):
            return
        number = self.function.module.exchange(FAILURE, 0, self.name)
        if number:
            raise self.failed(number)

    def _stream(self, own: AbstractSet[int | None]) -> int:
        """Where to launch: on a stream of the arrays where all have one, else PyTorch's current."""
        streams = [stream for stream in own if stream is not None]
        return min(streams) if streams and None not in own else current_stream(self.gpu.number)

    def _order(self, before: Iterable[int | None], after: Iterable[int | None]) -> None:
        for first in before:
            for second in after:
                if first is not None and second is not None:
                    self.gpu.order(first, second)

    def wait(self) -> None:
        """Wait until it has ended, unless it is only recorded; an error names the kernel."""
        if not self.gpu.is_capturing(current_stream(self.gpu.number)):
            self.gpu.synchronize(f"running {self.name}")


def _own_stream(argument: Argument) -> int | None:
    assert argument.view is not None
    stream = argument.view.stream
    return 0 if stream == _LEGACY_STREAM else stream
