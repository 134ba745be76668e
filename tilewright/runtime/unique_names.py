"""Names that a process finds its functions again by, where only text may be passed on."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

from tilewright.locks import Lock

__all__ = ["find", "give_name"]

_lock = Lock()
_given: Counter[str] = Counter()
_functions: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def give_name(function: Any, name: str) -> str:
    """Return a name for a function that no other one of this process has or will have."""
    with _lock:
        _given[name] += 1
        unique = name if _given[name] == 1 else f"{name}#{_given[name]}"
        _functions[unique] = function
    return unique


def find(name: str) -> Any:
    """Return the function of a name; raise `LookupError` where there is none any more."""
    function = _functions.get(name)
    if function is None:
        raise LookupError(f"there is no function of the name {name!r} in this process")
    return function
