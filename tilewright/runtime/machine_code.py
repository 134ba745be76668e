"""Kernels as machine code, and the running of them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright import env
from tilewright.codegen.loading import LoadedObject
from tilewright.errors import LaunchError, Location
from tilewright.ir.types import PointerType
from tilewright.runtime.arguments import Argument, leaves, null_access, require_memory, specialize
from tilewright.runtime.cache import read_entry
from tilewright.runtime.dispatch import Extents
from tilewright.runtime.host import load_object
from tilewright.runtime.launch_parameters import (
    AddressParameter,
    FloatParameter,
    IntParameter,
    pack_argument,
)
from tilewright.runtime.launcher import accept_torch, bind_launcher
from tilewright.runtime.pool import run_packed
from tilewright.runtime.request import Request

__all__ = ["MachineCode", "find_kernel"]


class MachineCode:
    """The machine code of a kernel; loaded, and given a launcher, when it is first run."""

    def __init__(self, request: Request, header: dict[str, Any], object_bytes: bytes) -> None:
        self.request = request.without_values()
        self._object_bytes = object_bytes
        self.symbol: str = header["symbol"]
        self.scratch_bytes: int = header["scratch_bytes"]
        self._assertions: list[tuple[str, dict[str, Any] | None]] = header["assertions"]
        self.written = frozenset[str](header["written"])
        self._accessed: dict[str, dict[str, Any] | None] = header["accessed"]
        self._lock = threading.Lock()

    @property
    def launcher(self) -> Callable[..., object] | None:
        """The builtin that checks and launches, or None where only Python can check."""
        return self._made[1]

    @functools.cached_property
    def _made(self) -> tuple[LoadedObject, Callable[..., object] | None]:
        """The object in memory and its launcher: made once, whichever thread asks first."""
        with self._lock:
            if "_made" in self.__dict__:
                return self._made
            loaded = load_object(self._object_bytes)
            made = self.__dict__["_made"] = (loaded, self._bound(loaded))
            # They have served: a process may keep thousands of kernels.
            self._object_bytes = b""
            return made

    def _bound(self, loaded: LoadedObject) -> Callable[..., object] | None:
        parameters = self.request.parameters(self.written, self._accessed)
        if parameters is None:
            return None
        return bind_launcher(
            loaded,
            self.symbol,
            parameters,
            scratch_bytes=self.scratch_bytes,
            on_error=self._fail,
        )

    def launch(self, grid: Extents, values: Sequence[Any]) -> None:
        """Launch on values in the order of the parameters, constants included.

        Raises `LaunchError` where they are not what the kernel was compiled for.
        """
        if self.launcher is not None and self.launcher(*grid, *values) is not NotImplemented:
            return
        function = self.request.function
        if len(values) != len(function.params):
            raise LaunchError(
                f"{function.name} takes {len(function.params)} arguments, not {len(values)}"
            )
        arguments = list(map(specialize, function.params, values))
        for argument, known in zip(arguments, self.request.specializations.values(), strict=True):
            if argument.specialization.key != known.key:
                raise LaunchError(
                    f"`{argument.name}` is {argument.specialization.key}, but this kernel was "
                    f"compiled for {known.key}",
                    hint=f"let the types decide: `{function.name}[grid](...)`",
                )
        self.run(grid, arguments)

    def run(self, grid: Extents, arguments: Sequence[Argument]) -> None:
        """Run the kernel on arguments that it was compiled for.

        Raises `LaunchError` for a read-only array that the kernel writes to, for nothing in place
        of an array that it surely accesses, and for a `device_assert` that does not hold.
        """
        for argument in leaves(arguments):
            require_memory(argument)
            if argument.value == 0 and argument.name in self._accessed and all(grid):
                raise null_access(argument, _location(self._accessed[argument.name]))
            if argument.name.partition("[")[0] in self.written:
                _require_writable(argument)
        run_packed(
            self._made[0].address(self.symbol),
            b"".join(map(_packed, leaves(arguments))),
            grid,
            self.scratch_bytes,
            on_error=self._fail,
        )
        # The launcher has declined: perhaps because it does not know PyTorch's types yet.
        accept_torch()

    def _fail(self, code: int) -> None:
        text, place = self._assertions[code - 1]
        raise LaunchError(f"device-side assert: {text}", location=_location(place))


def find_kernel(request: Request) -> MachineCode | None:
    """Return the machine code of a request if it is in the disk cache.

    It needs none of the compiler: neither the passes nor the code generator is imported. Where the
    stages are to be shown, they have to be gone through.
    """
    is_shown = env.debug_level() >= 3 or env.dump_directory() is not None
    entry = read_entry(request.cache_name) if request.is_portable and not is_shown else None
    return None if entry is None else MachineCode(request, entry.header, entry.payload)


def _location(fields: Mapping[str, Any] | None) -> Location | None:
    if fields is None:
        return None
    return Location(**{**fields, "caller": _location(fields["caller"])})


def _require_writable(argument: Argument) -> None:
    if argument.view is not None and not argument.view.is_writable:
        raise LaunchError(
            f"`{argument.name}` is read-only, and the kernel writes to it",
            hint="pass a copy: `array.copy()`",
        )


def _packed(argument: Argument) -> bytes:
    element = argument.specialization.element
    if element is None or isinstance(element, PointerType):
        return pack_argument(AddressParameter(), argument.value)
    if not element.is_floating():
        return pack_argument(IntParameter(64), argument.value)
    if element.primitive_bitwidth >= 32:
        return pack_argument(FloatParameter(element.primitive_bitwidth), argument.value)
    half: bytes = element.numpy.type(argument.value).tobytes()
    return half.ljust(8, b"\0")
