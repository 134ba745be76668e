"""What compiled kernels of all targets show the user: names, options, and a way to launch them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from tilewright.runtime.dispatch import Extents, extents
from tilewright.runtime.hooks import LazyDict, hooks, launch_facts
from tilewright.runtime.kernel_source import KernelSource
from tilewright.runtime.metadata import make_metadata, packed
from tilewright.runtime.request import Request

__all__ = ["LaunchableKernel"]


class Code(Protocol):
    """What there is to launch: the code for one target."""

    @property
    def request(self) -> Request:
        """What was compiled."""

    @property
    def entry(self) -> Any:
        """The function, once it is loaded: its address, the driver's handle, or a name."""

    @property
    def stream(self) -> int:
        """The current stream of a GPU; 0 elsewhere."""

    @property
    def files(self) -> dict[str, str]:
        """The file of the disk cache that it is kept in, by its name."""

    def launch(self, grid: Extents, values: Sequence[Any], stream: int | None = None) -> None:
        """Launch on values in the order of the parameters, constants included."""


class LaunchableKernel(ABC):
    """A kernel compiled for one set of types, constants and `options`."""

    def __init__(self, code: Code, options: Mapping[str, Any]) -> None:
        self._code = code
        self.options = dict(options)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """Return a function that launches this very kernel on all arguments, by position.

        It takes a `stream`, too: None stands for the current one.
        """
        sizes = extents(grid)

        def launch(*values: Any, stream: int | None = None) -> None:
            on = self._code.stream if stream is None else stream
            describe = partial(self.launch_metadata, sizes, on, *values)
            with hooks.around_launch(describe):
                self._code.launch(sizes, values, stream)

        return launch

    def run(  # noqa: PLR0913, PLR0917 - the order is that of Triton's launchers
        self,
        x: int, y: int, z: int,
        stream: int | None, function: Any, packed: Any, facts: Any, enter: Any, leave: Any,
        *values: Any,
    ) -> None:  # fmt: skip
        """Launch as Triton's launchers do: on all arguments, constants included.

        What was compiled is known here, so `function` and `packed` are not looked at; `enter` and
        `leave` are called with `facts`, where they are given.
        """
        if enter:
            enter(facts)
        self._code.launch((x, y, z), values, stream)
        if leave:
            leave(facts)

    def launch_metadata(self, grid: Any, stream: int, *values: Any) -> LazyDict:
        """Return what hooks around a launch are told."""
        described = self._code.request.function, self.metadata, self._code.entry
        return launch_facts(*described, grid, stream, values)

    @property
    def name(self) -> str:
        return str(self._code.request.function.name)

    @property
    def hash(self) -> str:
        return self._code.request.hash

    @property
    def metadata(self) -> Any:
        """What the kernel was compiled for: a named tuple with `name`, `hash`, `num_warps`, ..."""
        return make_metadata(
            self.options,
            hash=self.hash,
            name=self.name,
            debug=self._code.request.debug,
            **self.facts,
        )

    @property
    def packed_metadata(self) -> tuple[int, int, int]:
        """What Triton's launchers take of it."""
        return packed(self.metadata)

    @property
    def metadata_group(self) -> dict[str, str]:
        """The file of the disk cache that the kernel is kept in, by its name."""
        return self._code.files

    @property
    def src(self) -> KernelSource:
        """The kernel's function, and what it was compiled for."""
        request = self._code.request
        return KernelSource.of(request.function, request.specializations)

    @property
    @abstractmethod
    def kernel(self) -> bytes:
        """The machine code; of a GPU PTX, where it is only made from it while loading."""

    def _init_handles(self) -> None:
        """Load the code, as the first launch does; programs call it under this name."""
        _ = self._code.entry

    @property
    def module(self) -> Any:
        """The loaded code."""
        self._init_handles()
        return self._code

    @property
    def function(self) -> Any:
        """The entry: its address, the handle of the GPU's driver, or a name."""
        return self._code.entry

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What else the metadata say: `target`, `shared` (bytes of a block), ..."""
