"""Compiling on an executor while the program goes on: `AsyncCompileMode`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import ContextVar
from typing import Any, Self

from tilewright.errors import LaunchError

__all__ = ["AsyncCompileMode", "FutureKernel", "active_mode"]


class FutureKernel:
    """A kernel that may still be compiled; `result()` waits for it."""

    def __init__(self, finish: Callable[[], Any]) -> None:
        self._finish = finish
        self.kernel: Any = None

    def result(self, ignore_errors: bool = False) -> Any:
        """Return the kernel; with `ignore_errors` None for one that cannot be compiled."""
        if self.kernel is None:
            try:
                self.kernel = self._finish()
            except Exception:
                if not ignore_errors:
                    raise
        return self.kernel


class AsyncCompileMode:
    """Within it `kernel.warmup(...)` compiles on an executor, and returns a `FutureKernel`.

    At its end all kernels are compiled. With `ignore_errors` those that cannot be are left out.

    >>> import numpy as np, tilewright, tilewright.language as tl
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> @tilewright.jit
    ... def clear(x_ptr, BLOCK: tl.constexpr):
    ...     tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)
    >>> with ThreadPoolExecutor() as pool, AsyncCompileMode(pool):
    ...     futures = [clear.warmup(tl.float32, BLOCK=size, grid=(1,)) for size in (16, 32)]
    >>> [future.result().name for future in futures]
    ['clear', 'clear']
    """

    def __init__(self, executor: Executor, *, ignore_errors: bool = False) -> None:
        self.executor = executor
        self.ignore_errors = ignore_errors
        self._kernels: dict[Any, FutureKernel] = {}

    def submit(self, key: Any, begin: Callable[[Executor], Callable[[], Any]]) -> FutureKernel:
        """Begin compiling, unless that has been done for this key; `begin` returns what waits."""
        if key not in self._kernels:
            try:
                finish = begin(self.executor)
            except Exception as error:  # noqa: BLE001 - raised where the kernel is asked for
                finish = _raising(error)
            self._kernels[key] = FutureKernel(finish)
        return self._kernels[key]

    def __enter__(self) -> Self:
        if _active.get() is not None:
            raise LaunchError(
                "another AsyncCompileMode is active", hint="leave that one first, or use it"
            )
        _active.set(self)
        return self

    def __exit__(self, *_raised: object) -> None:
        _active.set(None)
        for future in self._kernels.values():
            future.result(self.ignore_errors)


def _raising(error: Exception) -> Callable[[], Any]:
    def finish() -> Any:
        raise error

    return finish


_active: ContextVar[AsyncCompileMode | None] = ContextVar("tilewright_compile_mode", default=None)


def active_mode() -> AsyncCompileMode | None:
    """Return the mode that the program is in, None where it is in none."""
    return _active.get()
