"""Which parameter an argument belongs to, inside a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.errors import CompileError
from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.frame import Readable
from tilewright.spelling import unknown_parameters

__all__ = ["bind_arguments"]


def bind_arguments(
    function: Readable, args: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the value of every parameter; raise `CompileError` where they do not match.

    Arguments of a variadic parameter become one tuple.
    """
    rest = list(args)
    left = dict(named)
    bound: dict[str, Any] = {}
    missing = []
    for parameter in function.params:
        name = parameter.name
        if parameter.is_variadic:
            given = left.pop(name, ())
            bound[name] = tuple(rest) or given
            rest = []
        elif rest and not parameter.is_keyword_only:
            if name in left:
                raise CompileError(
                    f"`{function.name}` got two values for `{name}`",
                    hint="pass it by position or by name, not both",
                )
            bound[name] = rest.pop(0)
        elif name in left:
            bound[name] = left.pop(name)
        elif parameter.has_default:
            bound[name] = parameter.default
        else:
            missing.append(name)
            continue
        bound[name] = unwrap(bound[name])
    _check_complete(function, missing, rest, left)
    return bound


def _check_complete(
    function: Readable, missing: list[str], rest: list[Any], left: dict[str, Any]
) -> None:
    if left:
        raise unknown_parameters(function.name, left, function.arg_names)
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise CompileError(
            f"`{function.name}` needs a value for {names}",
            hint=f"pass it, or give it a default: `def {function.name}(..., {missing[0]}=...)`",
        )
    if rest:
        takes = len(function.params)
        raise CompileError(
            f"`{function.name}` takes {takes} arguments, got {takes + len(rest)}",
            hint="leave out what is too much; its parameters are "
            + ", ".join(p.name for p in function.params),
        )
