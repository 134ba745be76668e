"""`@heuristics`: parameters and launch options computed from the arguments at each launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.errors import LaunchError
from tilewright.frontend.function import not_called
from tilewright.runtime.dispatch import Grid
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.kernel_interface import KernelInterface
from tilewright.runtime.options import DEFAULTS
from tilewright.spelling import did_you_mean

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["DecoratedKernel", "Heuristics", "heuristics", "kernel_below"]


class DecoratedKernel(KernelInterface):
    """A kernel with more decorators than `jit`: what it has not itself, `fn` below it has."""

    fn: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `LaunchError`: a kernel is not run without a grid."""
        name = self.base_fn.name
        raise not_called(
            name,
            f"launch it with {name}[grid](...); a kernel calls what stands below its decorators",
        )

    @property
    def computed(self) -> frozenset[str]:
        """The parameters that the decorators give."""
        below: frozenset[str] = getattr(self.fn, "computed", frozenset())
        return below

    @property
    def debug(self) -> DecoratedDebug:
        """`kernel.debug[grid](...)`: ordinary Python, by `interpret`; see `JITFunction.debug`."""
        return DecoratedDebug(self)


class Heuristics(DecoratedKernel):
    """A kernel some of whose parameters are computed; see `heuristics`."""

    def __init__(self, fn: Any, values: Mapping[str, Callable[..., Any]]) -> None:
        self.fn = fn
        self.base_fn = kernel_below("heuristics", fn)
        self.arg_names: list[str] = fn.arg_names
        self.values = dict(values)
        for name in self.values.keys() - {*self.arg_names, *DEFAULTS}:
            hint = did_you_mean(name, [*self.arg_names, *DEFAULTS])
            raise LaunchError(
                f"heuristics of {self.base_fn.name}: `{name}` is neither a parameter of the "
                "kernel nor a launch option",
                hint=hint or f"the parameters are {', '.join(f'`{n}`' for n in self.arg_names)}",
            )

    @property
    def computed(self) -> frozenset[str]:
        return super().computed | self.values.keys()

    def __getitem__(self, grid: Grid) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def run(self, *args: Any, grid: Grid, **kwargs: Any) -> Any:
        """Compute the parameters and launch."""
        return self.fn.run(*args, grid=grid, **self._computed(args, kwargs))

    def interpret(self, *args: Any, grid: Grid, **kwargs: Any) -> None:
        """Compute the parameters and run the body as ordinary Python."""
        self.fn.debug[grid](*args, **self._computed(args, kwargs))

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
            if name in named:
                raise LaunchError(
                    f"heuristics of {self.base_fn.name}: `{name}` is given by position, and "
                    "computed from the other arguments",
                    hint="leave it out of the call, and give what follows it by name",
                )
            try:
                kwargs[name] = rule({**named, **kwargs})
            except KeyError as error:
                raise self._no_key(name, error, {**named, **kwargs}) from error
        return kwargs

    def _no_key(self, name: str, error: KeyError, given: Mapping[str, Any]) -> LaunchError:
        """Return the error about a function that asks for what it is not given."""
        key = str(error.args[0]) if error.args else ""
        asks = f"{self.base_fn.name}: the function that computes `{name}`"
        if key in self.arg_names and key not in given:
            call = ", ".join(n for n in self.arg_names if n not in self.values)
            return LaunchError(
                f"{asks} asks for the argument `{key}`, which the call does not give",
                location=self.base_fn.location,
                hint=f"{self.base_fn.name}[grid]({call})",
            )
        has = ", ".join(f"`{n}`" for n in given)
        return LaunchError(
            f"{asks} raises KeyError: {key!r}",
            hint=f"{did_you_mean(key, given)} it is given a dictionary of {has}".lstrip(),
        )


class DecoratedDebug:
    """`kernel.debug` of a kernel with more decorators than `jit`."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __bool__(self) -> bool:
        return bool(self._kernel.fn.debug)

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        return partial(self._kernel.interpret, grid=grid)


def kernel_below(decorator: str, fn: Any) -> JITFunction:
    """Return the kernel that a decorator is applied to, below the decorators in between.

    Raises `LaunchError` where there is none.
    """
    kernel = getattr(fn, "base_fn", fn)
    if isinstance(kernel, JITFunction):
        return kernel
    name = getattr(fn, "__name__", type(fn).__name__)
    raise LaunchError(
        f"@{decorator} stands above a kernel, and `{name}` is none",
        hint=f"write `@tilewright.jit` between `@tilewright.{decorator}(...)` and the `def`",
    )


def heuristics(
    values: Mapping[str, Callable[[dict[str, Any]], Any]],
) -> Callable[[Any], Heuristics]:
    """Compute parameters of a kernel from its other arguments.

    `values` has a function for each such parameter: from the arguments by name to its value. They
    are called in order at each launch, and later ones see what earlier ones gave. Launch options
    (`num_warps`) can be computed as well.

    >>> import tilewright, tilewright.language as tl
    >>> @tilewright.heuristics({"BLOCK": lambda args: tilewright.next_power_of_2(args["n"])})
    ... @tilewright.jit
    ... def kernel(x_ptr, n, BLOCK: tl.constexpr): ...
    """
    return lambda fn: Heuristics(fn, values)
