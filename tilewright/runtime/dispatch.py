"""The way from `kernel[grid](...)` to machine code, as short as Python allows.

For each kernel a function is made from its signature, so that Python itself matches keywords to
parameters. Launches try the launchers of recent calls in turn, which check the arguments in
machine code and answer `NotImplemented` where they do not fit; `launch_function.py` does that in
machine code too. What is left goes to `state.launch`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, Protocol

from tilewright.errors import LaunchError
from tilewright.frontend.parameters import Parameter
from tilewright.runtime.launch_parameters import Launcher
from tilewright.spelling import did_you_mean

__all__ = ["MISSING", "Binder", "Extents", "Grid", "State", "extents", "make_binder"]

Extents = tuple[int, int, int]
Grid = int | tuple[int, ...] | list[int] | Callable[[dict[str, Any]], Any]

MISSING: Final = type("Missing", (), {"__repr__": lambda _: "<missing>"})()

_MOST_PROGRAMS = 2**31


class State(Protocol):
    """What a launch function asks of its kernel."""

    @property
    def recent(self) -> tuple[tuple[Launcher, Mapping[str, Any], object], ...]:
        """The launchers that are tried, their options, and what the launch then returns."""

    @property
    def check(self) -> Callable[[], None] | None:
        """What is called before they are tried."""

    def launch(self, grid: Extents, values: tuple[Any, ...], options: dict[str, Any]) -> object:
        """Launch in whatever way there is; values are in the order of the parameters."""


@dataclass(frozen=True, slots=True)
class Binder:
    """What is made from one signature; see `make_binder`.

    `match(*arguments, **named)` returns the values of all parameters, and the launch options; it
    raises `TypeError` where one is given twice. The first `positional` parameters may be given by
    position.
    """

    match: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]
    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    positional: int
    takes_any_number: bool

    def bind(self, *arguments: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the values of all parameters, and the launch options.

        Raises `LaunchError` where the call gives more than there are, or one of them twice.
        """
        try:
            return self.match(*arguments, **named)
        except TypeError:
            raise self._given_twice(arguments, named) from None

    def _given_twice(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> LaunchError:
        by_position = self.names[: min(len(arguments), self.positional)]
        twice = next(name for name in by_position if name in named)
        return LaunchError(
            f"{self.match.__name__}: `{twice}` is given twice, by position and by name",
            hint=f"the parameters are {', '.join(f'`{n}`' for n in self.names)}, in this order",
        )

    def launch_function(self, state: State) -> Callable[..., Any]:
        """Return the function `launch(grid, *arguments, **named)` of a kernel."""
        match, names = self.match, self.names

        def launch(grid: Grid, /, *arguments: Any, **named: Any) -> Any:
            try:
                values, options = match(*arguments, **named)
            except TypeError:
                raise self._given_twice(arguments, named) from None
            if callable(grid):
                try:
                    grid = _computed(grid, names, values, match.__name__)
                except Exception:
                    if any(value is MISSING for value in values):
                        return state.launch((1, 1, 1), values, options)  # it says which
                    raise
            x, y, z = extents(grid)
            if state.check is not None:
                state.check()
            for launcher, given, kernel in state.recent:
                if given == options and launcher(x, y, z, *values) is not NotImplemented:
                    return kernel
            return state.launch((x, y, z), values, options)

        return launch


def _computed(
    grid: Callable[[dict[str, Any]], Any], names: Sequence[str], values: Sequence[Any], name: str
) -> Any:
    try:
        return grid(dict(zip(names, values, strict=True)))
    except KeyError as error:
        raise _no_key(name, error, names) from error


_TEMPLATE = """
def {_}bind({signature}):
    {extra}
    return ({arguments}), {_}options
{_}bind.__name__ = {_}bind.__qualname__ = {_}name
"""


def make_binder(name: str, parameters: Sequence[Parameter]) -> Binder:
    """Make what matches the arguments of a kernel with its parameters.

    They are given by position or by name, and launch options by name. What is missing is passed on
    as `MISSING`.
    """
    prefix = "_"
    while any(parameter.name.startswith(prefix) for parameter in parameters):
        prefix += "_"
    defaults = tuple(p.default if p.has_default else MISSING for p in parameters)
    namespace: dict[str, Any] = {
        f"{prefix}name": name,
        f"{prefix}missing": MISSING,
        f"{prefix}refuse": _refuse_extra,
        **{f"{prefix}default{p.num}": p.default for p in parameters if p.has_default},
    }
    names = tuple(parameter.name for parameter in parameters)
    takes_any_number = any(parameter.is_variadic for parameter in parameters)
    refuse = f"if {prefix}extra: {prefix}refuse({prefix}name, {len(parameters)}, {prefix}extra)"
    source = _TEMPLATE.format(
        _=prefix,
        signature=_signature(parameters, prefix),
        extra="pass" if takes_any_number else refuse,
        arguments="".join(f"{n}, " for n in names),
    )
    exec(_compiled(source), namespace)  # noqa: S102 - the text is ours
    positional = sum(not parameter.is_keyword_only for parameter in parameters)
    return Binder(namespace[f"{prefix}bind"], names, defaults, positional, takes_any_number)


@functools.lru_cache(maxsize=256)
def _compiled(source: str) -> CodeType:
    """Compile the function; kernels with the same signature share the code."""
    return compile(source, "<launch>", "exec")


def _signature(parameters: Sequence[Parameter], prefix: str) -> str:
    positional: list[str] = []
    keyword: list[str] = []
    variadic = f"*{prefix}extra"
    for parameter in parameters:
        if parameter.is_variadic:
            variadic = f"*{parameter.name}"
            continue
        default = f"default{parameter.num}" if parameter.has_default else "missing"
        side = keyword if parameter.is_keyword_only else positional
        side.append(f"{parameter.name}={prefix}{default}")
    return ", ".join([*positional, variadic, *keyword, f"**{prefix}options"])


def _refuse_extra(name: str, expected: int, extra: tuple[Any, ...]) -> None:
    raise LaunchError(
        f"{name} takes {expected} arguments, but {expected + len(extra)} were given by position",
        hint="launch options are given by name: num_warps=4",
    )


def _no_key(name: str, error: KeyError, names: Sequence[str]) -> LaunchError:
    key = error.args[0] if error.args else ""
    has = ", ".join(f"`{n}`" for n in names)
    given = f"it is given a dictionary of the parameters: {has}"
    return LaunchError(
        f"{name}: the function that computes the grid raises KeyError: {key!r}",
        hint=f"{did_you_mean(str(key), names)} {given}".lstrip(),
    )


# ---- the grid -------------------------------------------------------------------------------


def extents(grid: Any) -> Extents:
    """Return the three sizes of a grid given as an int or as 1 to 3 ints.

    Sizes of 1 behind these say nothing, and are left out.
    Raises `LaunchError` for anything else, and for sizes below 0 or above 2^31 - 1.
    """
    if type(grid) is tuple and 1 <= len(grid) <= 3:
        # The usual case, on the way of each launch whose grid is computed.
        x, y, z = (*grid, 1, 1)[:3]
        if type(x) is type(y) is type(z) is int and 0 <= x | y | z < _MOST_PROGRAMS:
            return x, y, z
    sizes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    if not sizes or any(size != 1 for size in sizes[3:]):
        join = "join some axes, and divide tl.program_id(0) in the kernel"
        raise LaunchError(
            f"a grid has 1 to 3 sizes, not {len(sizes)}: {grid!r}",
            hint=join if sizes else "give at least one, how many programs there are: (1,)",
        )
    numbers = [_size(size, grid) for size in sizes[:3]]
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _size(size: Any, grid: Any) -> int:
    try:
        number = operator.index(size)
    except TypeError:
        hint = "divide with `//`, or round up: `tilewright.cdiv(n, BLOCK)`"
        raise LaunchError(
            f"the grid {grid!r} has the size {size!r}, which is no int",
            hint=hint if isinstance(size, float) else "a grid is an int or a tuple of 1 to 3 ints",
        ) from None
    if not 0 <= number < _MOST_PROGRAMS:
        negative = "a size cannot be negative: 0 programs do nothing"
        raise LaunchError(
            f"the grid {grid!r} is out of range: sizes are 0 to 2**31 - 1",
            hint="use larger blocks, or more axes" if number > 0 else negative,
        )
    return number
