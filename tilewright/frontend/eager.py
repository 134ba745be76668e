"""Eager mode: the body of a kernel runs as ordinary Python, every op evaluated at once.

`print`, `breakpoint()` and any debugger work, at the user's own lines. Types and values are those
of the compiled kernel, because the same functions make the ops.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from types import FunctionType, SimpleNamespace, TracebackType
from typing import Any, cast

from tilewright.errors import CompileError, InternalError, Location, TilewrightError
from tilewright.frontend import iterators
from tilewright.frontend.arguments import bind_arguments
from tilewright.frontend.captures import MISSING
from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.context import Eager, activate, current
from tilewright.frontend.culprits import name_culprits
from tilewright.frontend.definition import Definition
from tilewright.frontend.expressions import (
    attribute_of,
    compare_values,
    join_truths,
    missing_attribute,
    negate,
    unpacked_items,
)
from tilewright.frontend.frame import is_our_fault
from tilewright.frontend.nested import function_tree, nested_parameters
from tilewright.frontend.pythonic import elements, python_function
from tilewright.frontend.rewrite import REST, RUNTIME, rewrite_function
from tilewright.frontend.semantic import condition, device_assert, to_tensor
from tilewright.frontend.statements import DECLARED, no_constant, returned_to_nobody
from tilewright.frontend.structure import decay, has_tensor, rename
from tilewright.frontend.tensor import Tensor
from tilewright.frontend.trace import nested_block
from tilewright.interpreter import Interpreter
from tilewright.ir.core import Block
from tilewright.ir.types import TileType

__all__ = ["call_eagerly", "require_no_result", "run_eagerly"]


def run_eagerly(function: Definition, arguments: Mapping[str, object], machine: Interpreter) -> Any:
    """Run a kernel for the machine's current program and return what it returns.

    Args:
        function: The kernel.
        arguments: For each parameter a tensor over an `Evaluated` value, or a compile-time value.
        machine: Memory, grid and place in it.

    Raises:
        TilewrightError: With the kernel's line, and the calls that led there.
    """
    __tracebackhide__ = True
    for name, value in arguments.items():
        rename(value, name)  # for messages
    try:
        with activate(Eager(machine)):
            return call_eagerly(function, (), arguments)
    except TilewrightError as error:
        if error.culprits:
            _name_culprits(error, error.__traceback__)
        error.at(_location(_kernel_frames(error.__traceback__)))
        raise
    except NameError as error:
        _, name, text = str(error).split("'")
        if "not associated with a value" not in text:
            raise
        raise CompileError(
            f"`{name}` is used before it is assigned",
            location=_location(_kernel_frames(error.__traceback__)),
            hint="assign it on every path that leads here",
        ) from None
    except _OF_PYTHON as error:
        # With its traceback debuggers still stop at the kernel's line.
        raise _as_compiling_says(error).with_traceback(error.__traceback__) from error
    except RecursionError as error:
        raise CompileError(
            "calls are nested too deep",
            location=_location(islice(_kernel_frames(error.__traceback__), 2)),
            hint="end the recursion with an `if` on a compile-time argument",
        ) from None


def require_no_result(function: Definition, result: Any) -> None:
    """Raise `CompileError` at the `return` where a launched kernel has returned a value."""
    if result is None:
        return
    error = returned_to_nobody(function.name)
    pending: list[ast.AST] = [*function.syntax.tree.body]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Return) and node.value is not None:
            error.at(function.source.locate(node, function.name, None))
        elif not isinstance(node, ast.FunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)
    raise error


# What Python raises where a kernel asks for what a value, or a function, has not. Errors that
# depend on numbers stay Python's own.
_OF_PYTHON = (TypeError, AttributeError)


def _as_compiling_says(error: Exception) -> TilewrightError:
    """Return an error of Python's own as compiling the same line reports it."""
    place = _location(_kernel_frames(error.__traceback__))
    if is_our_fault(error):
        return InternalError(f"{type(error).__name__}: {error}", location=place)
    if isinstance(error, AttributeError) and error.name is not None:
        missing = missing_attribute(error.obj, error.name)
        missing.at(place)
        return missing
    shown = CompileError(f"{type(error).__name__}: {error}", location=place)
    _name_culprits(shown, error.__traceback__, is_of_python=isinstance(error, TypeError))
    return shown


def call_eagerly(function: Definition, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call a function of the language in the current eager context."""
    context = current()
    outer, context.is_strict = context.is_strict, function.is_strict
    try:
        return _runnable(function)(**bind_arguments(function, args, named))
    finally:
        context.is_strict = outer


class _Globals(dict[str, Any]):
    """What the rewritten function sees outside itself, by the rules for kernels.

    Debuggers evaluate at a breakpoint what they are told to: they look behind `__getitem__`, where
    all that the function's module has is stored.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self.own = {RUNTIME: _Runtime, "__builtins__": builtins}
        self.definition = definition
        self.refresh()

    def __getitem__(self, name: str) -> Any:
        return self.own[name] if name in self.own else self.definition.captures.lookup(name)

    def refresh(self) -> None:
        """Take over what the module has by now."""
        self.update(self.definition.captures.all)
        self.update(self.own)


def _runnable(function: Definition) -> FunctionType:
    known = function.runnable
    if known is not None:
        cast("_Globals", known.__globals__).refresh()
    else:
        syntax = function.syntax
        module = rewrite_function(syntax.tree, syntax.liveness)
        code = compile(module, function.source.file, "exec", dont_inherit=True)
        (body,) = (c for c in code.co_consts if isinstance(c, type(code)))
        known = function.runnable = FunctionType(body, _Globals(function), function.name)
    return known


class _Runtime:
    """What the rewritten syntax calls; see `tilewright.frontend.rewrite`."""

    DECLARED = DECLARED
    decay = staticmethod(decay)
    elements = staticmethod(elements)
    attribute = staticmethod(attribute_of)
    negate = staticmethod(negate)
    tuple = tuple
    bind = staticmethod(to_tensor)

    @staticmethod
    def python(function: Any) -> Any:
        replaced = None if function is print else python_function(function)
        return function if replaced is None else replaced

    @staticmethod
    def bind_declared(old: Any, value: Any) -> Any:
        return unwrap(value) if old is DECLARED else to_tensor(value)

    @staticmethod
    def keep(name: str, value: Any) -> Any:
        if has_tensor(value):
            raise no_constant(name)
        return unwrap(value)

    @staticmethod
    def unpack(value: Any, pattern: Any) -> Any:
        if not isinstance(pattern, builtins.tuple):
            return to_tensor(value)
        items = unpacked_items(
            value, len(pattern), pattern.index(REST) if REST in pattern else None
        )
        return builtins.tuple(map(_Runtime.unpack, items, pattern))

    @staticmethod
    def refuse(message: str, hint: str) -> None:
        raise CompileError(message, hint=hint)

    @staticmethod
    def both(first: Any, *others: Callable[[], Any]) -> Any:
        return join_truths(True, first, others, _call)

    @staticmethod
    def either(first: Any, *others: Callable[[], Any]) -> Any:
        return join_truths(False, first, others, _call)

    @staticmethod
    def chain(left: Any, *links: builtins.tuple[str, Callable[[], Any]]) -> Any:
        def link(pair: builtins.tuple[str, Callable[[], Any]]) -> Any:
            nonlocal left
            right = pair[1]()
            result = compare_values(getattr(ast, pair[0]), left, right)
            left = right
            return result

        first, *others = links
        return join_truths(True, link(first), others, link)

    @staticmethod
    def choose(test: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
        if isinstance(test, Tensor):
            return to_tensor((then if bool(condition(test)) else other)())
        return (then if test else other)()

    @staticmethod
    def iterate(over: Any) -> Any:
        return over if isinstance(over, iterators.range) else builtins.tuple(elements(over))

    @staticmethod
    def is_dynamic(value: Any) -> bool:
        if isinstance(value, iterators.condition):
            value = value.condition
        return isinstance(value, Tensor | iterators.range)

    @staticmethod
    def result(value: Any, is_dynamic: bool) -> Any:
        return decay(value) if is_dynamic else unwrap(value)

    @staticmethod
    def nested(function: Any, line: int, column: int) -> Any:
        """Let a nested function compute elements; their region is read from its text."""
        function.element_block = partial(_element_block, function, (line, column))
        return function

    @staticmethod
    def check(test: Any, message: Any) -> None:
        device_assert(test, message)


def _element_block(
    function: FunctionType, place: tuple[int, int], types: Sequence[TileType], count: int | None
) -> Block:
    definition: Definition = cast("_Globals", function.__globals__).definition
    node = next(
        node
        for node in ast.walk(definition.syntax.tree)
        if isinstance(node, ast.FunctionDef | ast.Lambda)
        and (node.lineno, node.col_offset) == place
    )
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def lookup(name: str) -> Any:
        return cells[name].cell_contents if name in cells else definition.captures.lookup(name)

    positional = iter(function.__defaults__ or ())
    keywords = iter((function.__kwdefaults__ or {}).values())
    defaults = {id(n): next(positional) for n in node.args.defaults}
    defaults |= {id(n): next(keywords) for n in node.args.kw_defaults if n is not None}
    params = nested_parameters(node.args, lambda n: defaults[id(n)])
    return nested_block(function_tree(node), definition.source, params, lookup, types, count)


def _call(function: Callable[[], Any]) -> Any:
    return function()


def _location(frames: Iterable[tuple[Definition, str, Any]]) -> Location | None:
    """Return the innermost of some places in kernels, with those that led there."""
    place: Location | None = None
    for definition, code_name, node in frames:
        # A lambda or generator is a part of the function around it, not a call.
        is_part = code_name.startswith("<") and place is not None
        caller = place.caller if is_part and place is not None else place
        name = definition.name if code_name.startswith("<") else code_name
        place = definition.source.locate(node, name, caller)
    return place


def _name_culprits(
    error: TilewrightError, traceback: TracebackType | None, *, is_of_python: bool = False
) -> None:
    """Name the values that an error is about, as the innermost place in a kernel calls them."""
    *_, (definition, _, place) = _kernel_frames(traceback)
    for node in ast.walk(definition.syntax.tree):
        if isinstance(node, ast.expr | ast.AugAssign) and all(
            getattr(node, name) == getattr(place, name) for name in _PLACE
        ):
            values = partial(_value_of, place.names)
            name_culprits(error, node, values, is_of_python=is_of_python)
            return


def _value_of(names: Mapping[str, Any], name: str) -> Any:
    return names.get(name, MISSING)


_PLACE = ("lineno", "end_lineno", "col_offset", "end_col_offset")


def _kernel_frames(traceback: TracebackType | None) -> Iterator[tuple[Definition, str, Any]]:
    """The places in kernels that a traceback leads through: function, code and syntax."""
    while traceback is not None:
        namespace, code = traceback.tb_frame.f_globals, traceback.tb_frame.f_code
        if isinstance(namespace, _Globals):
            positions = list(code.co_positions())[traceback.tb_lasti // 2]
            line, end_line, column, end_column = positions
            node = SimpleNamespace(
                lineno=line or traceback.tb_lineno,
                end_lineno=end_line,
                col_offset=column or 0,
                end_col_offset=end_column,
                names=traceback.tb_frame.f_locals,
            )
            yield namespace.definition, code.co_name, node
        traceback = traceback.tb_next
