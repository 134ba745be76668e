"""Locks that a forked child may take, whichever threads of its parent held them."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Lock", "cached_property"]

T = TypeVar("T")

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """What one thread at a time holds, as often as it likes.

    In the child of a fork only the thread that forked may hold it still: the others are not there
    to give it back. What it guards must be whole whenever another thread could look.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def take_from_others(self) -> None:
        """Be free, unless the calling thread holds it."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


class cached_property(functools.cached_property[T]):
    """Python's, which up to 3.11 has a lock of its own, held while the value is computed."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        self.lock = Lock()


def _after_fork_in_child() -> None:
    for lock in list(_locks):
        lock.take_from_others()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
