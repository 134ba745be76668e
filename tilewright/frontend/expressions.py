"""Expressions: Python's operators on compile-time values and on tensors."""
# ruff: noqa: N802 - visitors are named for the nodes they visit

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from tilewright.errors import CompileError, TilewrightError, UnknownName
from tilewright.frontend.branches import VALUE, Branches
from tilewright.frontend.constexpr import unwrap
from tilewright.frontend.definition import Definition
from tilewright.frontend.extensions import extension
from tilewright.frontend.nested import NestedFunction, function_tree, nested_parameters
from tilewright.frontend.pythonic import elements
from tilewright.frontend.refused_syntax import YIELD, refused_target
from tilewright.frontend.semantic import condition, logical_and, logical_not, logical_or, to_tensor
from tilewright.frontend.semantic.values import is_number
from tilewright.frontend.structure import has_tensor
from tilewright.frontend.tensor import Tensor, constant_array

__all__ = [
    "Expressions", "apply_binary", "attribute_of", "compare_values", "join_truths",
    "missing_attribute", "negate", "unpacked_items",
]  # fmt: skip

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}

_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}

_INSTEAD = {
    "Dict": ("a dict", "use a tuple, or separate names"),
    "Set": ("a set", "use a tuple"),
    "DictComp": ("a dict comprehension", "use a list comprehension over a tuple"),
    "SetComp": ("a set comprehension", "use a list comprehension over a tuple"),
    "Await": ("await", "a kernel has no coroutines"),
}


def apply_binary(kind: type[ast.operator], a: Any, b: Any) -> Any:
    """Apply a binary operator, tensors deciding for themselves."""
    return _BINARY[kind](a, b)


def compare_values(kind: type[ast.cmpop], a: Any, b: Any) -> Any:
    """Compare two values; membership is for compile-time values."""
    if kind in {ast.In, ast.NotIn}:
        if has_tensor(a) or has_tensor(b):
            raise CompileError(
                "`in` needs compile-time values", hint="compare with == and join with | instead"
            )
        return (a in b) == (kind is ast.In)
    return _COMPARE[kind](a, b)


def join_truths(
    is_and: bool, result: Any, others: Iterable[Any], evaluate: Callable[[Any], Any]
) -> Any:
    """Join truths as `and` and `or` do: compile-time ones decide at once or drop out.

    What comes behind a tensor is evaluated, since its truth is not known, and may still decide:
    `tensor and False` is false at compile time.
    """
    joined: Tensor | None = None
    for value in chain([result], map(evaluate, others)):
        if not isinstance(value, Tensor):
            if bool(value) != is_and:
                return value
            result = value
        elif joined is None:
            joined = value
        else:
            joined = (logical_and if is_and else logical_or)(joined, value)
    return result if joined is None else joined


def negate(value: Any) -> Any:
    """Return `not value`."""
    return logical_not(value) if isinstance(value, Tensor) else not value


def unpacked_items(value: Any, count: int, rest: int | None = None) -> tuple[Any, ...]:
    """Return the items of a value that is assigned to so many targets.

    `rest` is the place of the starred target, which takes a tuple of what the others leave.
    """
    if not isinstance(value, tuple):
        text = f"a value of type {value.value.type}" if isinstance(value, Tensor) else repr(value)
        raise CompileError(
            f"cannot unpack {text}: it is no tuple",
            hint="assign it to one name; tl.split takes a tile apart",
        )
    if len(value) < count - 1 if rest is not None else len(value) != count:
        raise CompileError(
            f"cannot unpack {len(value)} values into {count} names",
            hint="give each value a name",
        )
    if rest is None:
        return value
    end = len(value) - (count - 1 - rest)
    return (*value[:rest], value[rest:end], *value[end:])


def missing_attribute(value: Any, name: str) -> UnknownName:
    """Return the error about an attribute that a value has not."""
    is_tensor = isinstance(value, Tensor)
    what = (
        f"a value of type {value.value.type}" if is_tensor else f"{type(value).__name__} {value!r}"
    )
    return UnknownName(f"{what} has no attribute `{name}`", hint=_attribute_hint(value, name))


def attribute_of(value: Any, name: str) -> Any:
    """Return an attribute; a compile-time number has those of the scalar that it becomes, too."""
    try:
        return getattr(value, name)
    except UnknownName:
        raise
    except AttributeError:
        if not (is_number(value) and hasattr(Tensor, name)):
            raise missing_attribute(value, name) from None
    extension(f"`.{name}` of the constant {value}", "give the parameter a type: `n: tl.int32`")
    return getattr(to_tensor(value), name)


class Expressions(Branches):
    """Everything that has a value, calls excepted."""

    def expression(self, node: ast.expr) -> Any:
        kind = type(node).__name__
        visit = getattr(self, f"visit_{kind}", None)
        with self.at(node):
            if visit is None:
                name, hint = _INSTEAD.get(kind, (kind, ""))
                raise CompileError(f"{name} is not part of the language", hint=hint)
            return unwrap(visit(node))

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def visit_Name(self, node: ast.Name) -> Any:
        return self.read(node.id)

    def visit_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.items(node.elts))

    def visit_List(self, node: ast.List) -> tuple[Any, ...]:
        return tuple(self.items(node.elts))

    def items(self, nodes: Iterable[ast.expr]) -> Iterator[Any]:
        """The values of a display or of arguments, with `*tuple` spread out."""
        for node in nodes:
            if isinstance(node, ast.Starred):
                with self.at(node):
                    yield from elements(self.expression(node.value))
            else:
                yield self.expression(node)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.expression(node.left), self.expression(node.right)
        return apply_binary(type(node.op), left, right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        operand = self.expression(node.operand)
        if isinstance(node.op, ast.Not):
            return negate(operand)
        return _UNARY[type(node.op)](operand)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        first, *others = node.values
        return join_truths(is_and, self.expression(first), others, self.expression)

    def visit_Compare(self, node: ast.Compare) -> Any:
        left = self.expression(node.left)

        def link(pair: tuple[ast.cmpop, ast.expr]) -> Any:
            nonlocal left
            kind, right_node = pair
            right = self.expression(right_node)
            result = compare_values(type(kind), left, right)
            left = right
            return result

        first, *others = zip(node.ops, node.comparators, strict=True)
        return join_truths(True, link(first), others, link)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test = self.expression(node.test)
        if not isinstance(test, Tensor):
            return self.expression(node.body if test else node.orelse)
        with self.at(node.test):
            chooser = condition(test)

        def arm(side: ast.expr) -> None:
            self.names[VALUE] = to_tensor(self.expression(side))

        outer = self.names.pop(VALUE, None)
        then = self.arm(lambda: arm(node.body))
        other = self.arm(lambda: arm(node.orelse))
        self.join(chooser.value, then, other)
        value = self.names.pop(VALUE)
        if outer is not None:
            self.names[VALUE] = outer
        return value

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        return attribute_of(self.expression(node.value), node.attr)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value = self.expression(node.value)
        if isinstance(value, Definition):
            raise CompileError(
                f"`{value.name}` is a kernel, and kernels cannot launch each other",
                hint=f"call it like a function: {value.name}(...)",
            )
        return value[self.expression(node.slice)]

    def visit_Slice(self, node: ast.Slice) -> slice:
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else self.expression(part) for part in parts))

    def visit_Yield(self, node: ast.Yield | ast.YieldFrom) -> None:
        raise CompileError(YIELD.message, hint=YIELD.hint)

    visit_YieldFrom = visit_Yield  # noqa: N815 - the name of the node

    def visit_Lambda(self, node: ast.Lambda) -> NestedFunction:
        return self.nested(node)

    def nested(self, node: ast.FunctionDef | ast.Lambda) -> NestedFunction:
        """Return the function that a `lambda` or a `def` inside the kernel makes."""
        params = nested_parameters(node.args, self.expression)
        source = self.function.source
        return NestedFunction(function_tree(node), source, params, self.read, self.session)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        self.assign(node.target, self.expression(node.value))
        return self.read(node.target.id)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> str:
        return "".join(map(self.expression, node.values))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> str:
        value = self.expression(node.value)
        if isinstance(value, Tensor) and constant_array(value.value) is None:
            raise CompileError(
                "an f-string cannot show a value that is known only when the kernel runs",
                hint='give it to print as an argument of its own: print("x =", x)',
            )
        conversions: dict[int, Callable[[Any], str]] = {114: repr, 115: str, 97: ascii}
        convert = conversions.get(node.conversion)
        spec = "" if node.format_spec is None else self.expression(node.format_spec)
        return format(value if convert is None else convert(value), spec)

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> tuple[Any, ...]:
        outer = self.names
        self.names = dict(outer)
        try:
            return tuple(self._comprehended(node.elt, node.generators))
        finally:
            self.names = outer

    visit_GeneratorExp = visit_ListComp  # noqa: N815 - the name of the node

    def _comprehended(
        self, element: ast.expr, generators: list[ast.comprehension]
    ) -> Iterator[Any]:
        if not generators:
            yield self.expression(element)
            return
        generator, *inner = generators
        with self.at(generator.iter):
            items = elements(self.expression(generator.iter))
        for item in items:
            self.bind_pattern(generator.target, item)
            if all(self._known_truth(test) for test in generator.ifs):
                yield from self._comprehended(element, inner)

    def bind_pattern(self, target: ast.expr, value: Any) -> None:
        """Bind the target of a comprehension or an unrolled loop: compile-time values stay so."""
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            self.refuse_target(target)
            items = self.unpacked(target, value)
            for inner, item in zip(target.elts, items, strict=True):
                self.bind_pattern(inner, item)
        else:
            self.refuse_target(target)

    def refuse_target(self, target: ast.expr, *, takes_rest: bool = False) -> None:
        """Raise `CompileError` for a target of which a part can be bound nowhere in a kernel."""
        refused = refused_target(target, takes_rest=takes_rest)
        if refused is not None:
            part, refusal = refused
            with self.at(part):
                raise CompileError(refusal.message, hint=refusal.hint)

    def unpacked(self, target: ast.Tuple | ast.List, value: Any) -> tuple[Any, ...]:
        """Return the items of a value for a target of several names."""
        stars = [i for i, part in enumerate(target.elts) if isinstance(part, ast.Starred)]
        with self.at(target):
            return unpacked_items(value, len(target.elts), stars[0] if stars else None)

    def _known_truth(self, test: ast.expr) -> bool:
        value = self.expression(test)
        with self.at(test):
            return bool(value)


# What arrays call a conversion.
_CONVERSIONS = {
    "astype": "dtype", "type_as": "y.dtype", "float": "tl.float32", "half": "tl.float16",
    "double": "tl.float64", "int": "tl.int32", "long": "tl.int64", "bool": "tl.int1",
}  # fmt: skip


def _attribute_hint(value: Any, name: str) -> str:
    if isinstance(value, Tensor) and name in _CONVERSIONS:
        return f"convert it with x.to({_CONVERSIONS[name]})"
    try:
        names = [n for n in dir(value) if not n.startswith("_")]
    except TilewrightError:
        names = []
    close = [n for n in names if n.lower() == name.lower() or n.startswith(name[:4])]
    return f"did you mean {', '.join(close[:3])}?" if close else ""
