"""The two systems that run the same kernel files: Tilewright, and Triton where it is installed.

A file of `benchmarks/kernels/` says `import triton`. `load` runs its text as it is, with an
`__import__` of its own that answers that line with the package of the system, so both can be in one
process and neither finds the other in `sys.modules`.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["LIBRARY", "TILEWRIGHT", "TRITON", "System", "installed"]

KERNELS = Path(__file__).resolve().parent / "kernels"
TILEWRIGHT, TRITON = "tilewright", "triton"
LIBRARY = "library"  # the third column: what torch calls


class System:
    """A package that has Triton's names, and the kernel files as it sees them.

    `run` launches a kernel, named `file.kernel`; `compiling` is the same system where `run` only
    compiles, and `interpreting` one where it runs the body as Python (Tilewright alone has that
    beside compiled code).
    """

    def __init__(self, package: str, start: Callable[..., Any] | None = None) -> None:
        self.package = package
        self._start = start or _launch

    def run(self, kernel: str, grid: tuple[int, ...], *arguments: Any, **options: Any) -> Any:
        """Launch a kernel; `options` are its constants and those of the launch."""
        file, _, name = kernel.partition(".")
        return self._start(load(self.package, file)[name], grid, arguments, options)

    def descriptor(self, tensor: Any, block: tuple[int, ...]) -> Any:
        """A tensor descriptor of all of a tensor, for tiles of the shape `block`."""
        module = importlib.import_module(f"{self.package}.tools.tensor_descriptor")
        return module.TensorDescriptor.from_tensor(tensor, list(block))

    @property
    def version(self) -> str:
        return str(importlib.import_module(self.package).__version__)

    def compiling(self) -> System:
        return System(self.package, _compile)

    def interpreting(self) -> System:
        return System(self.package, _interpret)

    def recording(self, kernels: list[Any]) -> System:
        """The same system; the compiled kernels that it launches are added to a list."""

        def launch(*call: Any) -> None:
            kernels.append(_launch(*call))

        return System(self.package, launch)


def _launch(kernel: Any, grid: Any, arguments: Any, options: Mapping[str, Any]) -> Any:
    return kernel[grid](*arguments, **options)


def _compile(kernel: Any, grid: Any, arguments: Any, options: Mapping[str, Any]) -> Any:
    return kernel.warmup(*arguments, grid=grid, **options)


def _interpret(kernel: Any, grid: Any, arguments: Any, options: Mapping[str, Any]) -> Any:
    return kernel.debug[grid](*arguments, **options)


def installed() -> list[System]:
    """Tilewright, and Triton if it is there."""
    packages = [TILEWRIGHT, *([TRITON] if importlib.util.find_spec(TRITON) else [])]
    return [System(package) for package in packages]


@functools.cache
def load(package: str, file: str) -> dict[str, Any]:
    """Run a kernel file for a system and return its names."""
    path = KERNELS / f"{file}.py"
    names: dict[str, Any] = {
        "__name__": f"{package}_{file}",
        "__file__": str(path),
        "__builtins__": {**vars(builtins), "__import__": functools.partial(_import, package)},
    }
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
    return names


def _import(package: str, name: str, *rest: Any) -> ModuleType:
    first, dot, others = name.partition(".")
    return builtins.__import__(f"{package if first == TRITON else first}{dot}{others}", *rest)
