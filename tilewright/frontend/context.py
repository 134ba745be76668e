"""Where ops go: into a block (tracing a kernel) or straight to NumPy (running it eagerly).

The language's functions build ops and hand them to the current context. They do not know which kind
it is, so a kernel has one meaning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from tilewright.errors import CompileError, Location
from tilewright.interpreter import Interpreter
from tilewright.ir.builder import Builder
from tilewright.ir.core import Op, Value
from tilewright.ir.types import TileType
from tilewright.target import NvidiaTarget

__all__ = [
    "Context",
    "Eager",
    "Evaluated",
    "Tracing",
    "activate",
    "compiled_for",
    "compiling_for",
    "current",
    "is_eager",
    "is_inside",
]


class Context(Protocol):
    """Takes ops and returns their results."""

    location: Location | None

    is_strict: bool  # whether the function being read may use what Triton has, no more

    @property
    def checks_overflow(self) -> bool:
        """Whether sums, differences and products of int32 that wrap are errors."""

    def emit(self, op: Op) -> tuple[Value, ...]:
        """Take an op and return its results."""


class Tracing:
    """Appends ops to the builder's block."""

    def __init__(
        self, builder: Builder, *, checks_overflow: bool = False, is_strict: bool = False
    ) -> None:
        self.builder = builder
        self.is_strict = is_strict
        self.checks_overflow = checks_overflow

    @property
    def location(self) -> Location | None:
        return self.builder.location

    @location.setter
    def location(self, location: Location | None) -> None:
        self.builder.location = location

    def emit(self, op: Op) -> tuple[Value, ...]:
        return self.builder.emit(op).results


class Evaluated(Value):
    """A value that is known, eager mode's only kind; it holds no op, so nothing old lives on."""

    def __init__(self, type_: TileType, array: Any) -> None:
        self.type = type_
        self.array = np.asarray(array, type_.element.numpy)


_array = attrgetter("array")


class Eager:
    """Evaluates ops at once, on the interpreter's machine."""

    def __init__(self, machine: Interpreter) -> None:
        self.machine = machine
        self.is_strict = False
        self.location: Location | None = None

    @property
    def checks_overflow(self) -> bool:
        return self.machine.checks_overflow

    def emit(self, op: Op) -> tuple[Value, ...]:
        op.location = op.location or self.location
        with np.errstate(all="ignore"):
            arrays = self.machine.evaluate(op, _array)
        return tuple(
            Evaluated(result.type, array) for result, array in zip(op.results, arrays, strict=True)
        )


_CURRENT: ContextVar[Context | None] = ContextVar("tilewright_context", default=None)


def current() -> Context:
    """Return the context that ops go to, or raise outside a kernel."""
    context = _CURRENT.get()
    if context is None:
        message = "the functions of tilewright.language work only inside a kernel"
        raise CompileError(message, hint="launch the kernel: kernel[grid](...)")
    return context


def is_inside() -> bool:
    """Whether a kernel is being compiled or run eagerly right now."""
    return _CURRENT.get() is not None


def is_eager() -> bool:
    """Whether a kernel is being run eagerly right now."""
    return isinstance(_CURRENT.get(), Eager)


_TARGET: ContextVar[NvidiaTarget | None] = ContextVar("tilewright_target", default=None)


def compiled_for() -> NvidiaTarget | None:
    """Return the GPU that a kernel is being traced for; None where it is for the host."""
    return _TARGET.get()


@contextlib.contextmanager
def compiling_for(target: NvidiaTarget | None) -> Iterator[None]:
    """Trace for a target for a while."""
    token = _TARGET.set(target)
    try:
        yield
    finally:
        _TARGET.reset(token)


@contextlib.contextmanager
def activate(context: Context) -> Iterator[None]:
    """Make `context` the current one for a while."""
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)
