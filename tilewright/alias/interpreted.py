"""Telling kernels that run as ordinary Python from compiled ones, as Triton does by their class."""

from __future__ import annotations

from abc import ABCMeta

from tilewright.runtime.jit import JITFunction

__all__ = ["InterpretedFunction"]


class _IsInterpreted(ABCMeta):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, JITFunction) and instance.is_interpreted


class InterpretedFunction(metaclass=_IsInterpreted):
    """What `isinstance` says of kernels that were defined under `TRITON_INTERPRET=1`.

    They are `JITFunction`s like all others.

    >>> import tilewright
    >>> @tilewright.jit
    ... def kernel(x_ptr): ...
    >>> isinstance(kernel, InterpretedFunction)
    False
    """
