"""Kernels as machine code, and the running of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.codegen.loading import LoadedObject
from tilewright.errors import LaunchError
from tilewright.runtime.arguments import Argument, leaves
from tilewright.runtime.dispatch import Extents
from tilewright.runtime.host import load_object
from tilewright.runtime.kernel_code import KernelCode
from tilewright.runtime.launch_parameters import Launcher
from tilewright.runtime.launcher import accept_torch, bind_launcher
from tilewright.runtime.parameter_bytes import parameter_bytes
from tilewright.runtime.pool import run_packed
from tilewright.runtime.request import Request

__all__ = ["MachineCode"]

_SLOT_BYTES = 8


class MachineCode(KernelCode[LoadedObject]):
    """The machine code of a kernel."""

    def __init__(self, request: Request, header: dict[str, Any], object_bytes: bytes) -> None:
        super().__init__(request, header)
        self._object_bytes = object_bytes
        self.scratch_bytes: int = header["scratch_bytes"]

    def _load(self) -> tuple[LoadedObject, Launcher | None]:
        loaded = load_object(self._object_bytes)
        made = loaded, self._bound(loaded)
        # They have served: a process may keep thousands of kernels.
        self._object_bytes = b""
        return made

    def _bound(self, loaded: LoadedObject) -> Launcher | None:
        parameters = self.parameters()
        if parameters is None:
            return None
        return bind_launcher(
            loaded,
            self.symbol,
            parameters,
            scratch_bytes=self.scratch_bytes,
            on_error=self._fail,
        )

    def run(self, grid: Extents, arguments: Sequence[Argument], stream: int | None = None) -> None:
        """Run the kernel on arguments that it was compiled for; there is no stream but 0.

        Raises `LaunchError` for a read-only array that the kernel writes to, for nothing in place
        of an array that it surely accesses, and for a `device_assert` that does not hold.
        """
        if stream:
            raise LaunchError(
                f"{self.request.function.name}: the CPU has no stream {stream}", hint="leave it out"
            )
        self.check(grid, arguments)
        run_packed(
            self.loaded.address(self.symbol),
            b"".join(parameter_bytes(leaf).ljust(_SLOT_BYTES, b"\0") for leaf in leaves(arguments)),
            grid,
            self.scratch_bytes,
            on_error=self._fail,
        )
        # The launcher has declined: perhaps because it does not know PyTorch's types yet.
        accept_torch()

    @property
    def place(self) -> str:
        return "the CPU"

    @property
    def entry(self) -> int:
        return self.loaded.address(self.symbol)

    @property
    def device(self) -> int:
        return 0

    @property
    def stream(self) -> int:
        return 0

    def wait(self) -> None:
        """Launches have ended when they return."""

    def _fail(self, code: int) -> None:
        raise self.failed(code)
