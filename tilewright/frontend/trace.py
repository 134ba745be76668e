"""Tracing: a kernel and the types of its arguments become a function of the tile IR."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.errors import CompileError, Location
from tilewright.frontend.arguments import bind_arguments
from tilewright.frontend.constexpr import same_tuple, unwrap
from tilewright.frontend.context import Tracing, activate, current
from tilewright.frontend.definition import Definition
from tilewright.frontend.frame import Readable
from tilewright.frontend.nested import NestedFunction, has_nested
from tilewright.frontend.parameters import Parameter
from tilewright.frontend.semantic import TensorDescriptor
from tilewright.frontend.source import SourceText
from tilewright.frontend.statements import Visitor
from tilewright.frontend.structure import decay, describe, key_of, leaves, rebuild, rename
from tilewright.frontend.tensor import Tensor
from tilewright.ir.builder import Builder
from tilewright.ir.core import Block, Function, Param
from tilewright.ir.types import TileType
from tilewright.ops import Call, Padding

__all__ = [
    "Argument",
    "Constant",
    "Described",
    "Runtime",
    "call_traced",
    "element_block",
    "nested_block",
    "trace",
]

_DEEPEST_CALL = 40


@dataclass(frozen=True)
class Runtime:
    """An argument that is known only at the launch; its value is promised to be divisible."""

    type: TileType
    divisible_by: int = 1


@dataclass(frozen=True)
class Constant:
    """An argument whose value the kernel is specialised on."""

    value: Any


@dataclass(frozen=True)
class Described:
    """A tensor descriptor that the host has made; its parts are known only at the launch.

    They are the base, a size for each axis, and a stride for each but the last.
    """

    base: Runtime
    sizes: tuple[Runtime, ...]
    strides: tuple[Runtime, ...]
    block_shape: tuple[int, ...]
    padding: Padding = Padding.ZERO
    round_f32_to_tf32: bool = False

    @property
    def parts(self) -> dict[str, Runtime]:
        """The parts in order, by the names of the parameters that they become."""
        sizes = {f"shape.{axis}": size for axis, size in enumerate(self.sizes)}
        strides = {f"strides.{axis}": stride for axis, stride in enumerate(self.strides)}
        return {"base": self.base, **sizes, **strides}

    def descriptor(self, parts: Sequence[Tensor]) -> TensorDescriptor:
        """Return what the kernel sees, over the values of the parts."""
        rank = len(self.sizes)
        return TensorDescriptor(
            parts[0],
            tuple(parts[1 : rank + 1]),
            (*parts[rank + 1 :], 1),
            self.block_shape,
            self.padding,
            self.round_f32_to_tf32,
        )


Argument = Runtime | Constant | Described | tuple["Argument", ...]


@dataclass
class _Callee:
    """A function traced for certain arguments; `result` shows the structure of what it returns."""

    function: Function
    result: Any


@dataclass
class _TraceSession:
    """What the functions of one trace share: the callees that exist, and those in progress."""

    callees: dict[Any, _Callee] = field(default_factory=dict)
    active: list[tuple[Any, Readable]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)

    def call(
        self, function: Readable, args: Sequence[Any], named: Mapping[str, Any], place: Location
    ) -> Any:
        """Emit a call into the current block and return its result.

        A nested function, or one that is given a nested function, is read into the block itself.
        """
        arguments = bind_arguments(function, args, named)
        values = tuple((name, key_of(value)) for name, value in arguments.items())
        key = (function, current().checks_overflow, values)
        if not isinstance(function, Definition) or has_nested(arguments):
            with self._entered(key, function, place):
                return _read_inline(self, function, arguments, place)
        callee = self.callees.get(key)
        if callee is None:
            with self._entered(key, function, place):
                callee = self._trace(function, arguments, place)
            self.callees[key] = callee
        operands = tuple(leaf.value for value in arguments.values() for leaf in leaves(value))
        results = current().emit(Call(callee.function, operands))
        return rebuild(callee.result, iter(results))

    def element_block(
        self, function: Readable, types: Sequence[TileType], count: int | None
    ) -> Block:
        """Return the region in which a function computes scalars."""
        return element_block(function, types, count)

    @contextlib.contextmanager
    def _entered(self, key: Any, function: Readable, place: Location) -> Iterator[None]:
        self._check_recursion(key, function, place)
        self.active.append((key, function))
        try:
            yield
        finally:
            self.active.pop()

    def _trace(
        self, function: Definition, arguments: Mapping[str, Any], place: Location
    ) -> _Callee:
        params: list[Param] = []
        inside = {}
        for name, value in arguments.items():
            own = [Param(leaf.value.type) for leaf in leaves(value)]
            inside[name] = rebuild(value, iter(own))
            rename(inside[name], name)
            params += own
        block = Block(tuple(params))
        checks_overflow = current().checks_overflow
        result = _run(self, function, block, inside, place, checks_overflow=checks_overflow)
        if has_nested({"result": result}):
            raise CompileError(
                f"`{function.name}` returns a function that was made inside it",
                location=function.location,
                hint="call the inner function there, or define it outside with @tilewright.jit",
            )
        block.yields = tuple(leaf.value for leaf in leaves(result))
        for op in block.walk():  # other calls share the function; inlining adds each one's place
            op.location = op.location and _without_caller(op.location, place)
        name = self._unique(function.name)
        traced = Function(name, block, function.location, function.noinline)
        return _Callee(traced, result)

    def _unique(self, name: str) -> str:
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        return f"{name}.{count}" if count else name

    def _check_recursion(self, key: Any, function: Readable, place: Location) -> None:
        names = [f.name for _, f in self.active]
        same = [i for i, (other, _) in enumerate(self.active) if other == key]
        if same:
            raise CompileError(
                f"endless recursion: {' -> '.join([*names[same[0] :], function.name])}",
                hint="a function may call itself only with other compile-time arguments, and must "
                "stop at an `if` on them",
            )
        if len(names) >= _DEEPEST_CALL:
            cycle = names[names.index(function.name) if function.name in names else 0 :]
            raise CompileError(
                f"calls are nested more than {_DEEPEST_CALL} deep: "
                f"{' -> '.join([*cycle[:4], '...', function.name])}",
                location=_innermost(place, 3),
                hint="end the recursion with an `if` on a compile-time argument",
            )


def _innermost(place: Location, count: int) -> Location:
    """Return the place with only the `count` innermost of its callers."""
    caller = _innermost(place.caller, count - 1) if place.caller and count else None
    return replace(place, caller=caller)


def _without_caller(place: Location, caller: Location) -> Location:
    """Return the place with its chain of callers cut off before `caller`."""
    if place.caller is None:
        return place
    inner = None if place.caller is caller else _without_caller(place.caller, caller)
    return replace(place, caller=inner)


_SESSION: ContextVar[_TraceSession | None] = ContextVar("tilewright_trace", default=None)


def _run(
    session: _TraceSession,
    function: Readable,
    block: Block,
    arguments: Mapping[str, Any],
    caller: Location | None,
    *,
    checks_overflow: bool = False,
    is_launched: bool = False,
) -> Any:
    """Read a function into a block and return its result."""
    builder = Builder(block)
    visitor = Visitor(function, session, builder, caller)
    visitor.is_launched = is_launched
    visitor.names.update(arguments)
    token = _SESSION.set(session)
    try:
        with activate(
            Tracing(builder, checks_overflow=checks_overflow, is_strict=function.is_strict)
        ):
            return visitor.run()
    finally:
        _SESSION.reset(token)


def _read_inline(
    session: _TraceSession, function: Readable, arguments: Mapping[str, Any], caller: Location
) -> Any:
    """Read a function into the current block and return its result."""
    context = current()
    assert isinstance(context, Tracing)
    visitor = Visitor(function, session, context.builder, caller)
    visitor.names.update(arguments)
    return visitor.run()


def trace(
    function: Definition,
    arguments: Mapping[str, Argument],
    *,
    checks_overflow: bool = False,
    is_launched: bool = False,
) -> Function:
    """Return the tile IR of a kernel for arguments of these types and values.

    Args:
        function: The kernel.
        arguments: One for each parameter; those with defaults may be left out. A tuple stands for
            a tuple argument, whose runtime items become parameters named `x.0`, `x.1`, and a
            `Described` for a descriptor, whose parts become `x.base`, `x.shape.0`, `x.strides.0`.
        checks_overflow: Assert that no sum, difference or product of int32 wraps.
        is_launched: Refuse a kernel that returns a value.

    Returns:
        A function whose parameters are the runtime arguments in order, and whose results are the
        runtime values that the kernel returns.

    Raises:
        CompileError: The kernel does something that the language does not allow.
    """
    params: list[Param] = []

    def value_of(argument: Argument, name: str) -> Any:
        if isinstance(argument, tuple):
            return same_tuple(
                argument, [value_of(item, f"{name}.{i}") for i, item in enumerate(argument)]
            )
        if isinstance(argument, Constant):
            return unwrap(argument.value)
        if isinstance(argument, Described):
            parts = argument.parts.items()
            return argument.descriptor([value_of(part, f"{name}.{n}") for n, part in parts])
        param = Param(argument.type, name, argument.divisible_by)
        params.append(param)
        return Tensor(param)

    values = {name: value_of(argument, name) for name, argument in arguments.items()}
    bound = bind_arguments(function, (), values)
    block = Block(tuple(params))
    session = _TraceSession()
    result = _run(
        session,
        function,
        block,
        bound,
        None,
        checks_overflow=checks_overflow,
        is_launched=is_launched,
    )
    block.yields = tuple(leaf.value for leaf in leaves(result))
    return Function(function.name, block, function.location, function.noinline)


def call_traced(function: Definition, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call a function from a function of the language that is itself being called in a trace."""
    session = _SESSION.get() or _TraceSession()
    place = current().location or function.location
    return session.call(function, args, named, place)


def nested_block(
    tree: ast.FunctionDef,
    source: SourceText,
    params: tuple[Parameter, ...],
    lookup: Callable[[str], Any],
    types: Sequence[TileType],
    count: int | None,
) -> Block:
    """Return the region of scalars of a function that stands inside a kernel."""
    session = _SESSION.get() or _TraceSession()
    return NestedFunction(tree, source, params, lookup, session).element_block(types, count)


def element_block(function: Readable, types: Sequence[TileType], count: int | None) -> Block:
    """Return the region in which a function computes `count` scalars from scalars of some types.

    None stands for any number. It is traced in every executor.
    """
    names = _element_names(function, len(types))
    params = tuple(Param(t, name) for t, name in zip(types, names, strict=True))
    block = Block(params)
    session = _SESSION.get() or _TraceSession()
    arguments = bind_arguments(function, list(map(Tensor, params)), {})
    try:
        caller = current().location
    except CompileError:
        caller = None
    result = _run(session, function, block, arguments, caller)
    with activate(Tracing(Builder(block))):
        result = decay(result)
    items = result if isinstance(result, tuple) else (result,)
    wanted = len(items) if count is None else count
    if len(items) != wanted or not all(isinstance(x, Tensor) and not x.shape for x in items):
        number = "only" if count is None else count
        raise CompileError(
            f"`{function.name}` must return {number} scalar(s), it returns {describe(result)}",
            hint="return as many values as it combines, each computed from the parameters",
        )
    block.yields = tuple(x.value for x in items)
    return block


def _element_names(function: Readable, count: int) -> list[str]:
    """Return what a function calls the scalars that it is given."""
    names: list[str] = []
    for parameter in function.params:
        if parameter.is_variadic:
            names += [f"{parameter.name}.{i}" for i in range(count - len(names))]
        else:
            names.append(parameter.name)
    if len(names) < count:
        raise CompileError(
            f"`{function.name}` takes {len(names)} values, it is given {count} elements",
            hint="give it a parameter for each, or take them as *values",
        )
    return names[:count]
