"""Bundles of values with names and methods, as classes that kernels make and hand around.

To everything else an aggregate is a dataclass whose fields may hold tensors (`structure.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any, TypeVar, cast

from tilewright.errors import CompileError
from tilewright.frontend.builtin import builtin
from tilewright.frontend.constexpr import constexpr, unwrap
from tilewright.frontend.definition import AGGREGATE, Definition
from tilewright.frontend.semantic import to_tensor
from tilewright.frontend.structure import describe, has_tensor
from tilewright.frontend.tensor import Tensor

__all__ = ["aggregate", "aggregate_replace"]

C = TypeVar("C", bound=type)


def aggregate(cls: C) -> C:
    """Make a class whose instances bundle values in kernels: tiles, numbers, other aggregates.

    Fields are declared by annotations: `tl.tensor` for values of the running kernel, `tl.constexpr`
    for compile-time ones, or another class. The constructor takes them in order, unless there is an
    `__init__` in plain Python; afterwards they do not change (`tl.aggregate_replace`). Methods are
    functions of the language (`@jit`), of compile time (`@constexpr_function`), or plain Python.
    Aggregates are carried through loops and branches and returned from functions. Bases must be
    aggregates, too.

    >>> @aggregate
    ... class Range:
    ...     start: constexpr
    ...     size: constexpr = 4
    >>> Range(8).size
    4
    """
    for base in cls.__mro__[1:]:
        if base is not object and not is_aggregate(base):
            raise CompileError(
                f"`{cls.__name__}` is an aggregate, and its base `{base.__name__}` is none",
                hint="decorate the base, too",
            )
    own = [m for m in vars(cls).values() if isinstance(m, Definition | FunctionType)]
    inherited = [m for base in cls.__bases__ for m in getattr(base, AGGREGATE, ())]
    for name, member in list(vars(cls).items()):
        if isinstance(member, Definition):
            setattr(cls, name, _Method(member))
    if isinstance(vars(cls).get("__init__"), _Method):
        raise CompileError(
            f"the constructor of `{cls.__name__}` is a kernel function",
            hint="leave out @jit: a constructor is plain Python, and may compute with tiles",
        )
    made: Any = dataclasses.dataclass(cls, init="__init__" not in vars(cls), repr=False, eq=False)
    setattr(made, AGGREGATE, (*own, *inherited))
    made.__init__ = _constructor(made, made.__init__)
    made.__setattr__, made.__repr__ = _set_field, _show
    return cast("C", made)


def is_aggregate(cls: type) -> bool:
    """Whether a class was made by `aggregate`."""
    return AGGREGATE in vars(cls)


@builtin
def aggregate_replace(x: Any, /, **fields: Any) -> Any:
    """Return a copy of an aggregate with other values in some of its fields."""
    if not is_aggregate(type(x)):
        raise CompileError(
            f"aggregate_replace: expected an aggregate, got {describe(x)}",
            hint="pass a value of a class that is decorated by @tl.aggregate",
        )
    known = [field.name for field in dataclasses.fields(x)]
    for name in fields:
        if name not in known:
            raise CompileError(
                f"aggregate_replace: `{type(x).__name__}` has no field `{name}`",
                hint=f"its fields are {', '.join(known)}",
            )
    new = object.__new__(type(x))
    for name in known:
        setattr(new, name, fields.get(name, getattr(x, name)))
    object.__setattr__(new, "_is_complete", True)
    return new


class _Method:
    """A function of the language as a member: an instance's own is its first argument."""

    def __init__(self, function: Definition) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: type) -> Any:
        return (
            self.function if instance is None else MethodType(cast("Any", self.function), instance)
        )


def _constructor(cls: type, init: Callable[..., None]) -> Callable[..., None]:
    """Check that a constructor has set all fields; from then on they stay."""
    passed = {
        name: None
        for name in ("_semantic", "_generator")
        if name in inspect.signature(init).parameters
    }

    @functools.wraps(init)
    def construct(self: Any, *args: Any, **named: Any) -> None:
        init(self, *args, **{**passed, **named})
        if type(self) is not cls:  # the constructor of a base
            return
        missing = [name for name in _kinds(cls) if not hasattr(self, name)]
        if missing:
            raise CompileError(
                f"the constructor of `{cls.__name__}` leaves out the field `{missing[0]}`",
                hint=f"assign it in `__init__`: self.{missing[0]} = ...",
            )
        object.__setattr__(self, "_is_complete", True)

    return construct


def _set_field(self: Any, name: str, value: Any) -> None:
    kinds = _kinds(type(self))
    if name not in kinds:
        raise CompileError(
            f"`{type(self).__name__}` has no field `{name}`",
            hint=f"declare it in the class: `{name}: tl.tensor`, or `{name}: tl.constexpr`",
        )
    if getattr(self, "_is_complete", False):
        raise CompileError(
            f"the field `{name}` of a `{type(self).__name__}` cannot be assigned: values in a "
            "kernel do not change",
            hint=f"make another one: tl.aggregate_replace(x, {name}=...)",
        )
    object.__setattr__(self, name, _fitting(type(self), name, kinds[name], unwrap(value)))


def _fitting(cls: type, name: str, kind: Any, value: Any) -> Any:
    """Return a value for a field, or raise if it is none."""
    if kind is Tensor:
        value = to_tensor(value)
    if kind is constexpr:
        fits = not has_tensor(value)
    else:
        fits = not isinstance(kind, type) or isinstance(value, kind)
    if not fits:
        raise CompileError(
            f"the field `{name}` of `{cls.__name__}` is a {kind.__name__}, got {describe(value)}",
            hint="convert the value, or declare the field as what it is",
        )
    return value


def _kinds(cls: type) -> Mapping[str, Any]:
    """What the fields of an aggregate are declared as."""
    kinds: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not is_aggregate(base):
            continue
        for name, annotation in vars(base).get("__annotations__", {}).items():
            kinds[name] = _resolved(annotation)
    return kinds


# Annotations are texts under `from __future__ import annotations`.
_BY_NAME = {"constexpr": constexpr, "tensor": Tensor}


def _resolved(annotation: Any) -> Any:
    if isinstance(annotation, str):
        return _BY_NAME.get(annotation.rpartition(".")[2])
    return annotation


def _show(self: Any) -> str:
    fields = (f"{f.name}={describe(getattr(self, f.name))}" for f in dataclasses.fields(self))
    return f"{type(self).__name__}({', '.join(fields)})"
