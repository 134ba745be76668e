"""Functions of the user that operators of PyTorch know by a name, since they take text only."""

from typing import Any

import tilewright as tw

__all__ = ["function_named", "name_of_function"]

# A backward pass may come after the user has let go of them.
_used: dict[str, Any] = {}


def name_of_function(function: Any) -> str:
    """Return the name under which `function_named` finds a jit function; "" for None.

    Nothing is noted here: torch.compile calls this, too, and repeats what it notes too late.
    Raise `TypeError` for a function that no kernel can call.
    """
    if function is None:
        return ""
    if not isinstance(function, tw.JITFunction):
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"`{name}` is called in a kernel: decorate it with `@tilewright.jit`")
    return function.unique_name


def function_named(name: str) -> Any:
    """Return the jit function of that name; None for ""."""
    if not name:
        return None
    if name not in _used:
        _used[name] = tw.JITFunction.named(name)
    return _used[name]
