"""Functions of the user that operators of PyTorch know by a name, since they take text only."""

from typing import Any

import tilewright as tw
from tilewright.kernels.arrays import torch

__all__ = ["function_named", "name_of_function"]

# A backward pass may come after the user has let go of them.
_used: dict[str, Any] = {}

_PLACE = ("batch", "head", "query", "key", "tensors")
_PARAMETERS = {
    "mask_mod": _PLACE,
    "score_mod": ("score", *_PLACE),
    "score_mod_gradient": ("gradient", "score", *_PLACE),
}


def name_of_function(**given: Any) -> str:
    """Return the name under which `function_named` finds a jit function; "" for None.

    Raise `TypeError` for a function that no kernel can call as the argument of that name.
    """
    ((argument, function),) = given.items()
    if function is None:
        return ""
    if not isinstance(function, tw.JITFunction):
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"`{name}` is called in a kernel: decorate it with `@tilewright.jit`")
    # `torch.compile` cannot trace how parameters are read.
    if torch is None or not torch.compiler.is_dynamo_compiling():
        _require_parameters(argument, function)
    return function.unique_name


def _require_parameters(argument: str, function: Any) -> None:
    """Raise `TypeError` unless a function takes as many numbers and arrays as it is given."""
    given = _PARAMETERS[argument]
    own = [parameter for parameter in function.params if not parameter.is_keyword_only]
    needed = [p for p in own if not (p.has_default or p.is_variadic)]
    is_variadic = any(parameter.is_variadic for parameter in own)
    if len(needed) > len(given) or (len(own) < len(given) and not is_variadic):
        raise TypeError(
            f"`{argument}` is called with {len(given)} arguments ({', '.join(given)}), and"
            f" `{function.__name__}` has the parameters ({', '.join(p.name for p in own)})"
        )


def function_named(name: str) -> Any:
    """Return the jit function of that name; None for ""."""
    if not name:
        return None
    if name not in _used:
        _used[name] = tw.JITFunction.named(name)
    return _used[name]
