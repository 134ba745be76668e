"""`@heuristics`: parameters computed from the other arguments at each launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.runtime.dispatch import Grid

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["Heuristics", "heuristics"]


class Heuristics:
    """A kernel some of whose parameters are computed; see `heuristics`."""

    def __init__(self, fn: Any, values: Mapping[str, Callable[..., Any]]) -> None:
        self.fn = fn
        self.arg_names: list[str] = fn.arg_names
        self.values = dict(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __getitem__(self, grid: Grid) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def run(self, *args: Any, grid: Grid, **kwargs: Any) -> Any:
        """Compute the parameters and launch."""
        return self.fn.run(*args, grid=grid, **self._computed(args, kwargs))

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compute the parameters and compile without launching."""
        return self.fn.warmup(*args, grid=grid, **self._computed(args, kwargs))

    def begin_compile(self, executor: Executor, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Compute the parameters and start compiling; see `JITFunction.begin_compile`."""
        started: Callable[[], Any] = self.fn.begin_compile(
            executor, *args, **self._computed(args, kwargs)
        )
        return started

    def _computed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        named = dict(zip(self.arg_names, args, strict=False))
        for name, rule in self.values.items():
            kwargs[name] = rule({**named, **kwargs})
        return kwargs


def heuristics(
    values: Mapping[str, Callable[[dict[str, Any]], Any]],
) -> Callable[[Any], Heuristics]:
    """Compute parameters of a kernel from its other arguments.

    `values` has a function for each such parameter: from the arguments by name to its value. They
    are called in order at each launch, and later ones see what earlier ones gave.

    >>> import tilewright, tilewright.language as tl
    >>> @tilewright.heuristics({"BLOCK": lambda args: tilewright.next_power_of_2(args["n"])})
    ... @tilewright.jit
    ... def kernel(x_ptr, n, BLOCK: tl.constexpr): ...
    """
    return lambda fn: Heuristics(fn, values)
