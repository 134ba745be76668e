"""The way from `kernel[grid](...)` to machine code, as short as Python allows.

For each kernel three functions are made from its signature, so that Python itself matches keywords
to parameters. Two launch (the grid is given, or computed from the arguments): they try the
launchers of recent calls in turn, which check the arguments in machine code and answer
`NotImplemented` where they do not fit. What is left goes to `state.launch`. The third only binds.
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
from tilewright.spelling import did_you_mean

__all__ = ["MISSING", "Binder", "Extents", "Grid", "State", "extents", "make_binder"]

Extents = tuple[int, int, int]
Grid = int | tuple[int, ...] | list[int] | Callable[[dict[str, Any]], Any]

MISSING: Final = type("Missing", (), {"__repr__": lambda _: "<missing>"})()

_MOST_PROGRAMS = 2**31


class State(Protocol):
    """What a launch function asks of its kernel."""

    recent: tuple[tuple[Callable[..., object], Mapping[str, Any], object], ...]
    check: Callable[[], None] | None

    def launch(self, grid: Extents, values: tuple[Any, ...], options: dict[str, Any]) -> object:
        """Launch in whatever way there is; values are in the order of the parameters."""


@dataclass(frozen=True, slots=True)
class Binder:
    """The functions made from one signature; see `make_binder`.

    `fixed(state, x, y, z)` returns a launch function, `computed(state)` one that takes the function
    that computes the grid before its arguments.
    """

    fixed: Callable[[State, int, int, int], Callable[..., Any]]
    computed: Callable[[State], Callable[..., Any]]
    bind: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]


# What is in a launch function once the grid is known, and the end of the function around it.
_LAUNCH = """\
        if {_}state.check is not None:
            {_}state.check()
        for {_}launcher, {_}given, {_}kernel in {_}state.recent:
            if (
                {_}given == {_}options
                and {_}launcher({_}x, {_}y, {_}z, {arguments}) is not {_}declined
            ):
                return {_}kernel
        return {_}state.launch(({_}x, {_}y, {_}z), ({arguments}), {_}options)
    {_}launch.__name__ = {_}launch.__qualname__ = {_}name
    return {_}launch
"""

_TEMPLATE = (
    """
def {_}fixed({_}state, {_}x, {_}y, {_}z):
    def {_}launch({signature}):
        {extra}
"""
    + _LAUNCH
    + """
def {_}computed({_}state):
    def {_}launch({_}grid, /, {signature}):
        {extra}
        try:
            {_}x, {_}y, {_}z = {_}extents({_}grid({{{meta}}}))
        except KeyError as {_}error:
            raise {_}no_key({_}name, {_}error, {names}) from {_}error
"""
    + _LAUNCH
    + """
def {_}bind({signature}):
    {extra}
    return ({arguments}), {_}options
"""
)


def make_binder(name: str, parameters: Sequence[Parameter]) -> Binder:
    """Make the launch functions of a kernel.

    They take its parameters, by position or by name, and launch options by name. What is missing
    is passed on as `MISSING`.
    """
    prefix = "_"
    while any(parameter.name.startswith(prefix) for parameter in parameters):
        prefix += "_"
    namespace: dict[str, Any] = {
        f"{prefix}name": name,
        f"{prefix}missing": MISSING,
        f"{prefix}declined": NotImplemented,
        f"{prefix}extents": extents,
        f"{prefix}refuse": _refuse_extra,
        f"{prefix}no_key": _no_key,
        **{f"{prefix}default{p.num}": p.default for p in parameters if p.has_default},
    }
    names = [parameter.name for parameter in parameters]
    takes_any_number = any(parameter.is_variadic for parameter in parameters)
    refuse = f"if {prefix}extra: {prefix}refuse({prefix}name, {len(parameters)}, {prefix}extra)"
    source = _TEMPLATE.format(
        _=prefix,
        signature=_signature(parameters, prefix),
        extra="pass" if takes_any_number else refuse,
        arguments="".join(f"{n}, " for n in names),
        meta=", ".join(f"{n!r}: {n}" for n in names),
        names=repr(names),
    )
    exec(_compiled(source), namespace)  # noqa: S102 - the text is ours
    return Binder(*(namespace[f"{prefix}{part}"] for part in ("fixed", "computed", "bind")))


@functools.lru_cache(maxsize=256)
def _compiled(source: str) -> CodeType:
    """Compile the functions; kernels with the same signature share the code."""
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

    Raises `LaunchError` for anything else, and for sizes below 0 or above 2^31 - 1.
    """
    if type(grid) is tuple and 1 <= len(grid) <= 3:
        # The usual case, on the way of each launch whose grid is computed.
        x, y, z = (*grid, 1, 1)[:3]
        if type(x) is type(y) is type(z) is int and 0 <= x | y | z < _MOST_PROGRAMS:
            return x, y, z
    sizes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    if not sizes or any(size != 1 for size in sizes[3:]):
        raise LaunchError(f"a grid has 1 to 3 sizes, not {len(sizes)}: {grid!r}")
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
        raise LaunchError(f"the grid {grid!r} is out of range: sizes are 0 to 2**31 - 1")
    return number
