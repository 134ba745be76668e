"""What compiled kernels of all targets show the user: names, options, and a way to launch them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tilewright.runtime.cache import entry_path
from tilewright.runtime.dispatch import extents
from tilewright.runtime.hooks import LazyDict, hooks, launch_facts
from tilewright.runtime.kernel_code import KernelCode
from tilewright.runtime.kernel_source import KernelSource
from tilewright.runtime.metadata import make_metadata, packed

__all__ = ["LaunchableKernel"]


class LaunchableKernel(ABC):
    """A kernel compiled for one set of types, constants and `options`."""

    def __init__(self, code: KernelCode, options: Mapping[str, Any]) -> None:
        self._code = code
        self.options = dict(options)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """Return a function that launches this very kernel on all arguments, by position."""
        sizes = extents(grid)

        def launch(*values: Any) -> None:
            describe = partial(self.launch_metadata, sizes, self._code.stream, *values)
            with hooks.around_launch(describe):
                self._code.launch(sizes, values)

        return launch

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
        path = entry_path(self._code.request.cache_name)
        return {path.name: str(path)} if path.exists() else {}

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
    def module(self) -> KernelCode:
        """The loaded code."""
        self._init_handles()
        return self._code

    @property
    def function(self) -> int:
        """The entry: its address, or the handle of the GPU's driver."""
        return self._code.entry

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What else the metadata say: `target`, `shared` (bytes of a block), ..."""
