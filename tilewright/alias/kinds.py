"""Kinds of functions that Triton has classes for, and Tilewright tells apart in another way."""

from __future__ import annotations

from abc import ABCMeta

from tilewright.frontend.constexpr_function import is_constexpr_function
from tilewright.runtime.jit import JITFunction

__all__ = ["ConstexprFunction", "InterpretedFunction"]


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


class _IsConstexprFunction(ABCMeta):
    def __instancecheck__(cls, instance: object) -> bool:
        return is_constexpr_function(instance)


class ConstexprFunction(metaclass=_IsConstexprFunction):
    """What `isinstance` says of functions that `constexpr_function` has made.

    >>> import tilewright
    >>> @tilewright.constexpr_function
    ... def half(n):
    ...     return n // 2
    >>> isinstance(half, ConstexprFunction), isinstance(len, ConstexprFunction)
    (True, False)
    """
