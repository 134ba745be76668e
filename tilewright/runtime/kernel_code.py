"""What compiled kernels of all targets have in common: the checks around a launch."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tilewright.errors import LaunchError, Location
from tilewright.locks import Lock
from tilewright.runtime.arguments import (
    Argument,
    leaves,
    null_access,
    place_text,
    require_memory,
    specialize,
)
from tilewright.runtime.cache import entry_files
from tilewright.runtime.dispatch import Extents
from tilewright.runtime.hooks import hooks
from tilewright.runtime.launch_parameters import Launcher, LaunchParameter
from tilewright.runtime.request import Request

__all__ = ["KernelCode", "check_arguments", "check_grid", "checked_arguments", "location_of"]

_Loaded = TypeVar("_Loaded")


class KernelCode(ABC, Generic[_Loaded]):
    """A kernel as code for one target; `written` names the parameters that it stores through.

    It is loaded, and given a launcher, when it is first run. `lock` is held while anything of it is
    made for the first time; a hook may ask for more in the thread that holds it.
    """

    def __init__(self, request: Request, header: Mapping[str, Any]) -> None:
        self.request = request.without_values()
        self.symbol: str = header["symbol"]
        self.written = frozenset[str](header["written"])
        self._accessed: dict[str, dict[str, Any] | None] = header["accessed"]
        self._assertions: list[tuple[str, dict[str, Any] | None]] = header["assertions"]
        self.lock = Lock()
        self._made: tuple[_Loaded, Launcher | None] | None = None

    @property
    def files(self) -> dict[str, str]:
        """The file of the disk cache that the code is kept in, by its name."""
        return entry_files(self.request.cache_name)

    @property
    def loaded(self) -> _Loaded:
        """The code in memory, made once, whichever thread asks first."""
        return (self._made or self._make())[0]

    @property
    def launcher(self) -> Launcher | None:
        """The builtin that checks and launches, or None where only Python can check."""
        return (self._made or self._make())[1]

    def _make(self) -> tuple[_Loaded, Launcher | None]:
        """Load the code, with the hooks around that, and prepare the hook of its unloading."""
        with self.lock:
            if self._made is not None:
                return self._made
            name, key = self.request.function.name, self.request.hash
            if hooks.surround_loading:
                hooks.kernel_load_start_hook(None, None, name, self.files, key)
            made = self._made = self._load()
            told = weakref.finalize(self, _unloaded, self.entry, name, self.request.cache_name, key)
            told.atexit = False
            if hooks.surround_loading:
                hooks.kernel_load_end_hook(self, self.entry, name, self.files, key)
            return made

    @abstractmethod
    def _load(self) -> tuple[_Loaded, Launcher | None]:
        """Bring the code into memory and bind its launcher."""

    @abstractmethod
    def run(self, grid: Extents, arguments: Sequence[Argument], stream: int | None = None) -> None:
        """Run the kernel on arguments that it was compiled for."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it runs, in words."""

    @property
    @abstractmethod
    def entry(self) -> int:
        """The function: its address, or the handle of the GPU's driver."""

    @property
    @abstractmethod
    def device(self) -> int:
        """The number of the GPU; the CPU is 0, too."""

    @property
    @abstractmethod
    def stream(self) -> int:
        """The current stream of a GPU; 0 on the CPU."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until all launches have ended."""

    def parameters(self) -> list[LaunchParameter] | None:
        """What a launcher has to check, or None where only Python can."""
        return self.request.parameters(self.written, self._accessed)

    def launch(self, grid: Extents, values: Sequence[Any], stream: int | None = None) -> None:
        """Launch on values in the order of the parameters, constants included.

        It is launched on the current stream of a GPU, or on the one that is given. Raises
        `LaunchError` where the values are not what the kernel was compiled for.
        """
        own = stream if stream is not None and stream != self.stream else None
        launcher = self.launcher if own is None else None
        if launcher is None or launcher(*grid, *values) is NotImplemented:
            arguments = checked_arguments(self.request, values)
            self._check_places(arguments)
            self.run(grid, arguments, own)

    def _check_places(self, arguments: Sequence[Argument]) -> None:
        target = self.request.target
        gpu = None if target is None or target.gpu is None else target.gpu.number
        for argument in leaves(arguments):
            if argument.view is not None and argument.view.gpu != gpu:
                raise LaunchError(
                    f"`{argument.name}` is on {place_text(argument.view.gpu)}, but this kernel was "
                    f"compiled for {self.place}",
                    hint=f"let the arrays decide: `{self.request.function.name}[grid](...)`",
                )

    def check(self, grid: Extents, arguments: Sequence[Argument]) -> None:
        """Raise `LaunchError` for arguments that the kernel must not get."""
        check_arguments(grid, arguments, self.written, self._accessed)

    def failed(self, number: int) -> LaunchError:
        """Return the error about the assertion that fails; the first one has number 1."""
        text, place = self._assertions[number - 1]
        return LaunchError(f"device-side assert: {text}", location=location_of(place))


def _unloaded(entry: int, name: str, cache_name: str, key: str) -> None:
    if hooks.kernel_unload_hook:
        hooks.kernel_unload_hook(None, entry, name, entry_files(cache_name), key)


def checked_arguments(request: Request, values: Sequence[Any]) -> list[Argument]:
    """Return values, in the order of the parameters, as arguments.

    Raises `LaunchError` where they are not what the kernel was compiled for.
    """
    function = request.function
    if len(values) != len(function.params):
        raise LaunchError(
            f"{function.name} takes {len(function.params)} arguments, not {len(values)}",
            hint="pass one for each parameter, constants included",
        )
    arguments = list(map(specialize, function.params, values))
    for argument, known in zip(arguments, request.specializations.values(), strict=True):
        if argument.specialization.key != known.key:
            raise LaunchError(
                f"`{argument.name}` is {argument.specialization.key}, but this kernel was "
                f"compiled for {known.key}",
                hint=f"let the types decide: `{function.name}[grid](...)`",
            )
    return arguments


def check_arguments(
    grid: Extents,
    arguments: Sequence[Argument],
    written: Collection[str],
    accessed: Mapping[str, dict[str, Any] | None],
) -> None:
    """Raise `LaunchError` for arguments that a kernel must not get.

    That is a read-only array that it writes to, or nothing in place of an array that it surely
    accesses; both are known by name, the second with the place of the access.
    """
    for argument in leaves(arguments):
        require_memory(argument)
        if argument.value == 0 and argument.name in accessed and all(grid):
            raise null_access(argument, location_of(accessed[argument.name]))
        if argument.name.partition("[")[0] in written:
            _require_writable(argument)


def check_grid(grid: Extents, largest: Extents, name: str) -> None:
    """Raise `LaunchError` for a grid that the GPU does not have; one of no programs is fine."""
    if not all(grid):
        return
    for axis, (size, limit) in enumerate(zip(grid, largest, strict=True)):
        if size > limit:
            raise LaunchError(
                f"{name}: a GPU takes {limit} programs along axis {axis}, not {size}",
                hint="let axis 0 count them, and divide in the kernel"
                if axis
                else "use larger blocks",
            )


def location_of(fields: Mapping[str, Any] | None) -> Location | None:
    """Return a place in the user's source from its fields."""
    if fields is None:
        return None
    return Location(**{**fields, "caller": location_of(fields["caller"])})


def _require_writable(argument: Argument) -> None:
    if argument.view is not None and not argument.view.is_writable:
        raise LaunchError(
            f"`{argument.name}` is read-only, and the kernel writes to it",
            hint="pass a copy: `array.copy()`; arrays of JAX can never be written",
        )
