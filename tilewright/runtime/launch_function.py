"""Launch functions in machine code: `launch(grid, *arguments, **named)` of a kernel.

It matches names with parameters, computes the grid if it is a function, and tries the launchers of
recent calls in turn. They check the arguments, and answer `NotImplemented` where they do not fit.
Whatever is unusual goes to the function that does the same in Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.runtime.deferred import Deferred
from tilewright.runtime.launcher_shared import (
    OncePerProcess,
    load_shared,
    new_builtin,
    python_layout_is_known,
)

if TYPE_CHECKING:
    from tilewright.runtime import launch_function_code
else:
    launch_function_code = Deferred("tilewright.runtime.launch_function_code")

__all__ = ["bind_launch_function"]

_COUNTS = struct.Struct("<2Q")


def bind_launch_function(
    name: str,
    names: Sequence[str],
    defaults: Sequence[Any],
    positional: int,
    remembered: list[Any],
    in_python: Callable[..., Any],
) -> Callable[..., Any]:
    """Return the launch function of a kernel whose parameters have these names.

    The first `positional` of them may be given by position. `remembered` has what is called before
    each launch, or None, and the recent launchers: tuples of a launcher, its options and what the
    launch returns. Both may be replaced at any time.
    """
    if not python_layout_is_known():
        return in_python
    # In the order of `LaunchSelf`.
    this = (
        _COUNTS.pack(len(names), positional),
        remembered,
        in_python,
        tuple(names),
        tuple(defaults),
        dict.fromkeys(names),
        1,
    )
    return new_builtin(name, _code(), this, takes_keywords=True)


def _load() -> int:
    loaded = load_shared("launch", launch_function_code.module_text)
    return loaded.address("tilewright_launch")


_code = OncePerProcess(_load)
