"""Functions of the user that operators of PyTorch know by a name, since they take text only."""

from typing import Any

import tilewright as tw

__all__ = ["function_named", "name_of_function"]

_FUNCTIONS: dict[str, Any] = {}


def name_of_function(function: Any) -> str:
    """Return the name under which `function_named` finds a jit function; "" for None.

    Raise `TypeError` for a function that no kernel can call.
    """
    if function is None:
        return ""
    if not isinstance(function, tw.JITFunction):
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"`{name}` is called in a kernel: decorate it with `@tilewright.jit`")
    name = f"{function.__module__}.{function.__qualname__}"
    while _FUNCTIONS.setdefault(name, function) is not function:
        name += "'"
    return name


def function_named(name: str) -> Any:
    """Return the jit function of that name; None for ""."""
    return _FUNCTIONS[name] if name else None
