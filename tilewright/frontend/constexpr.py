"""Values known at compile time, marked as such by the user: `BLOCK = tl.constexpr(128)`.

Inside the compiler a compile-time value is a plain Python object; `unwrap` makes one wherever a
`constexpr` arrives. The wrapper exists so that a module can mark its globals and a kernel its
parameters.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["constexpr", "same_tuple", "unwrap"]

_PLAIN = (bool, int, float, str, tuple, type(None))


def _wrap(value: Any) -> Any:
    """Wrap a plain result; a runtime value (from an operator with a tile) stays what it is."""
    return constexpr(value) if isinstance(value, _PLAIN) else value


def _binary(operation: Callable[[Any, Any], Any]) -> Callable[[constexpr, Any], Any]:
    def method(self: constexpr, other: Any) -> Any:
        return _wrap(operation(self.value, unwrap(other)))

    return method


def _reflected(operation: Callable[[Any, Any], Any]) -> Callable[[constexpr, Any], Any]:
    def method(self: constexpr, other: Any) -> Any:
        return _wrap(operation(unwrap(other), self.value))

    return method


def _unary(operation: Callable[[Any], Any]) -> Callable[[constexpr], Any]:
    def method(self: constexpr) -> Any:
        return _wrap(operation(self.value))

    return method


class constexpr:
    """A compile-time value; operators are Python's and give a `constexpr` again.

    As an annotation, `tl.constexpr` makes a parameter or a name of a kernel a compile-time value.

    >>> constexpr(7) // 2
    constexpr[3]
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value: Any = unwrap(value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value!r}]"

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __reduce__(self) -> tuple[type[constexpr], tuple[Any]]:
        return constexpr, (self.value,)

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, key: Any) -> Any:
        return _wrap(self.value[unwrap(key)])

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the value, for functions passed as compile-time arguments."""
        return self.value(*arguments, **named)

    __add__, __radd__ = _binary(operator.add), _reflected(operator.add)
    __sub__, __rsub__ = _binary(operator.sub), _reflected(operator.sub)
    __mul__, __rmul__ = _binary(operator.mul), _reflected(operator.mul)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _reflected(operator.truediv)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv), _reflected(operator.floordiv)
    __mod__, __rmod__ = _binary(operator.mod), _reflected(operator.mod)
    __pow__, __rpow__ = _binary(operator.pow), _reflected(operator.pow)
    __lshift__, __rlshift__ = _binary(operator.lshift), _reflected(operator.lshift)
    __rshift__, __rrshift__ = _binary(operator.rshift), _reflected(operator.rshift)
    __and__, __rand__ = _binary(operator.and_), _reflected(operator.and_)
    __or__, __ror__ = _binary(operator.or_), _reflected(operator.or_)
    __xor__, __rxor__ = _binary(operator.xor), _reflected(operator.xor)
    __lt__, __gt__ = _binary(operator.lt), _binary(operator.gt)
    __le__, __ge__ = _binary(operator.le), _binary(operator.ge)
    __eq__, __ne__ = _binary(operator.eq), _binary(operator.ne)
    __neg__, __pos__ = _unary(operator.neg), _unary(operator.pos)
    __invert__, __abs__ = _unary(operator.invert), _unary(abs)
    __floor__, __ceil__ = _unary(math.floor), _unary(math.ceil)
    __trunc__ = _unary(math.trunc)

    def logical_and(self, other: Any) -> Any:
        """Return `self and other` (the operator itself cannot be overloaded)."""
        return _wrap(self.value and unwrap(other))

    def logical_or(self, other: Any) -> Any:
        """Return `self or other`."""
        return _wrap(self.value or unwrap(other))


def unwrap(value: Any) -> Any:
    """Return the plain value behind a `constexpr`, also inside tuples; other values as they are."""
    if isinstance(value, constexpr):
        return value.value
    if isinstance(value, tuple):
        plain = tuple(map(unwrap, value))
        if all(a is b for a, b in zip(plain, value, strict=True)):
            return value
        return same_tuple(value, plain)
    return value


def same_tuple(like: tuple[Any, ...], items: Iterable[Any]) -> tuple[Any, ...]:
    """Return a tuple of these items, a named one where `like` is."""
    # A named tuple is made from its fields, a plain one from a sequence.
    return type(like)(*items) if hasattr(like, "_fields") else tuple(items)
