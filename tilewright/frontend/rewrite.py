"""The syntax tree of a kernel, changed so that Python itself can run it with the kernel's meaning.

Lines and columns stay, so that tracebacks and debuggers show the user's source. Functions of
`RUNTIME` do what Python's syntax does otherwise in a kernel:

======================  =================================================
in the kernel           run as
======================  =================================================
`x = e`                 `x = RUNTIME.bind(e)`
`x, y = e`              `x, y = RUNTIME.unpack(e, (None, None))`
`min(a, b)`             `RUNTIME.python(min)(a, b)`
`a and b`               `RUNTIME.both(a, lambda: b)`
`a < b < c`             `RUNTIME.chain(a, ("Lt", lambda: b), ("Lt", lambda: c))`
`a if c else b`         `RUNTIME.choose(c, lambda: a, lambda: b)`
`for i in e:`           `for i in RUNTIME.iterate(e):`
`return e`              `return RUNTIME.result(e, dynamic)`
`x.to`                  `RUNTIME.attribute(x, "to")`
`lambda x: e`           `RUNTIME.nested(lambda x: e, line, column)`
`x[i] = e`, `del x`,    `RUNTIME.refuse(message, hint)`
`yield e`
======================  =================================================

Where compiling turns compile-time values into tensors (a name that a loop carries, or that a
branch on a runtime value rebinds), so does the rewritten function.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.frontend.liveness import Liveness, assigned_names, declares_constexpr
from tilewright.frontend.pythonic import PYTHON_FUNCTIONS
from tilewright.frontend.refused_syntax import DELETE, YIELD, Refusal, refused_target
from tilewright.frontend.tensor import Tensor

__all__ = ["REST", "RUNTIME", "rewrite_function"]

RUNTIME = "__tilewright__"
REST = "*"  # in the pattern of an assignment, what takes the items that the others leave
_PYTHON_NAMES = {function.__name__ for function in PYTHON_FUNCTIONS}
_END_OF_LINE = 10_000
_IS_DYNAMIC = "__dynamic_return__"


def rewrite_function(tree: ast.FunctionDef, liveness: Liveness) -> ast.Module:
    """Return a module that defines the function; all its parameters take keywords."""
    rewriter = _Rewriter(tree, liveness)
    body = [_assignment(_IS_DYNAMIC, ast.Constant(False)), *rewriter.block(tree.body)]
    parameters = [node for node in ast.walk(tree.args) if isinstance(node, ast.arg)]
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.copy_location(ast.arg(arg=p.arg), p) for p in parameters],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    function = ast.parse(f"def {tree.name}(): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.args, function.body = arguments, body
    ast.copy_location(function, tree)
    module = ast.Module([function], type_ignores=[])
    return ast.fix_missing_locations(module)


def _assignment(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _runtime(function: str, *arguments: ast.expr) -> ast.expr:
    place = ast.Attribute(ast.Name(RUNTIME, ast.Load()), function, ast.Load())
    return ast.Call(place, list(arguments), [])


def _refusal(refusal: Refusal, node: ast.AST) -> ast.stmt:
    """Return the statement that refuses a node when it is reached, as compiling does."""
    message, hint = map(ast.Constant, refusal)
    refused: ast.stmt = _located(ast.Expr(_runtime("refuse", message, hint)), node)
    return refused


def _later(value: ast.expr) -> ast.expr:
    """Wrap an expression that may not have to be evaluated."""
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, value)


def _located(new: Any, old: ast.AST) -> Any:
    """Give a new node, and those inside it that have none, the place of an old one."""
    for node in ast.walk(new):
        if isinstance(node, ast.stmt | ast.expr | ast.excepthandler) and not hasattr(
            node, "lineno"
        ):
            ast.copy_location(node, old)
            if node.end_lineno != node.lineno:
                # A call is attributed to its last line, where a debugger would stop.
                node.end_lineno, node.end_col_offset = node.lineno, _END_OF_LINE
    return new


class _Rewriter(ast.NodeTransformer):
    def __init__(self, tree: ast.FunctionDef, liveness: Liveness) -> None:
        self._liveness = liveness
        results = [n.value for n in ast.walk(tree) if isinstance(n, ast.Return)]
        texts = {ast.dump(value) for value in results if isinstance(value, ast.Constant)}
        # Which `return` is reached makes no difference then: the constant stays one.
        self._has_one_result = len(texts) == 1 and all(isinstance(v, ast.Constant) for v in results)
        self._count = 0
        self._declared = {
            node.target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.value is None
            and declares_constexpr(node)
        }

    def generic_visit(self, node: ast.AST) -> Any:
        """Visit the fields of a copy: the tree is also what is compiled."""
        new = copy.copy(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(new, name, list(value))
        return super().generic_visit(new)

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            result += new if isinstance(new, list) else [new]
        return result

    def _name(self) -> str:
        self._count += 1
        return f"__condition_{self._count}__"

    # Bindings.

    def visit_Assign(self, node: ast.Assign) -> Any:
        value = self.visit(node.value)
        if len(node.targets) == 1:
            return self._bound(node, node.targets[0], value)
        name = self._name()
        first = _located(_assignment(name, value), node)
        return [
            first,
            *(
                self._bound(node, target, _located(ast.Name(name, ast.Load()), node))
                for target in node.targets
            ),
        ]

    def _bound(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> ast.stmt:
        if (refused := refused_target(target, takes_rest=True)) is not None:
            return _refusal(refused[1], refused[0])
        if isinstance(target, ast.Tuple | ast.List):
            value = _runtime("unpack", value, _pattern(target))
            target = _without_stars(target)
        elif isinstance(target, ast.Name):
            value = self._bind_name(target.id, value)
        bound: ast.stmt = _located(ast.Assign([target], value), node)
        return bound

    def _bind_name(self, name: str, value: ast.expr) -> ast.expr:
        if name in self._declared:
            return _runtime("bind_declared", ast.Name(name, ast.Load()), value)
        return _runtime("bind", value)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if not isinstance(node.target, ast.Name):
            return self._bound(node, node.target, node.value)
        old = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = ast.copy_location(ast.BinOp(old, node.op, self.visit(node.value)), node)
        return self._bound(node, node.target, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if not isinstance(node.target, ast.Name):
            return self._bound(node, node.target, node.target)
        keeps = declares_constexpr(node)
        if node.value is None:
            declared = ast.Attribute(ast.Name(RUNTIME, ast.Load()), "DECLARED", ast.Load())
            new = _assignment(node.target.id, declared) if keeps else ast.Pass()
            return _located(new, node)
        value = self.visit(node.value)
        if keeps:
            name = ast.Constant(node.target.id)
            return _located(_assignment(node.target.id, _runtime("keep", name, value)), node)
        return self._bound(node, node.target, value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self._bind_name(node.target.id, self.visit(node.value))
        return _located(ast.NamedExpr(node.target, value), node)

    def visit_Delete(self, node: ast.Delete) -> Any:
        return _refusal(DELETE, node)

    def visit_Yield(self, node: ast.Yield | ast.YieldFrom) -> Any:
        return _located(_runtime("refuse", *map(ast.Constant, YIELD)), node)

    visit_YieldFrom = visit_Yield  # noqa: N815 - the name of the node

    # Expressions.

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value = self.visit(node.value)
        # Numbers have attributes of tensors, too.
        if not isinstance(node.ctx, ast.Load) or not hasattr(Tensor, node.attr):
            return ast.copy_location(ast.Attribute(value, node.attr, node.ctx), node)
        return _located(_runtime("attribute", value, ast.Constant(node.attr)), node)

    def visit_Call(self, node: ast.Call) -> Any:
        call = self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _PYTHON_NAMES:
            call.func = _located(_runtime("python", call.func), node.func)
        return call

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        first, *others = map(self.visit, node.values)
        function = "both" if isinstance(node.op, ast.And) else "either"
        return _located(_runtime(function, first, *map(_later, others)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return _located(_runtime("negate", operand), node)
        return ast.copy_location(ast.UnaryOp(node.op, operand), node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        left, *others = map(self.visit, [node.left, *node.comparators])
        links = [
            ast.Tuple([ast.Constant(type(kind).__name__), _later(other)], ast.Load())
            for kind, other in zip(node.ops, others, strict=True)
        ]
        return _located(_runtime("chain", left, *links), node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test, then, other = map(self.visit, (node.test, node.body, node.orelse))
        return _located(_runtime("choose", test, _later(then), _later(other)), node)

    def visit_List(self, node: ast.List) -> Any:
        if isinstance(node.ctx, ast.Store):
            return node
        return ast.copy_location(ast.Tuple(list(map(self.visit, node.elts)), node.ctx), node)

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> Any:
        inner = ast.GeneratorExp(self.visit(node.elt), list(map(self.visit, node.generators)))
        return _located(_runtime("tuple", inner), node)

    visit_GeneratorExp = visit_ListComp  # noqa: N815 - the name of the node

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        items = _located(_runtime("elements", self.visit(node.iter)), node.iter)
        return ast.comprehension(node.target, items, list(map(self.visit, node.ifs)), 0)

    # Functions.

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        made = ast.Lambda(self._parameters(node.args), self.visit(node.body))
        return _located(_marked(made, node), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        inner = _Rewriter(node, Liveness(node))
        body = [_assignment(_IS_DYNAMIC, ast.Constant(False)), *inner.block(node.body)]
        made = ast.FunctionDef(node.name, self._parameters(node.args), body, [])
        marked = _assignment(node.name, _marked(ast.Name(node.name, ast.Load()), node))
        return [_located(made, node), _located(marked, node)]

    def _parameters(self, arguments: ast.arguments) -> ast.arguments:
        """Return the parameters without annotations, which say nothing here."""
        new = copy.deepcopy(arguments)
        for node in ast.walk(new):
            if isinstance(node, ast.arg):
                node.annotation = None
        new.defaults = list(map(self.visit, arguments.defaults))
        new.kw_defaults = [None if n is None else self.visit(n) for n in arguments.kw_defaults]
        return new

    # Control flow.

    def visit_If(self, node: ast.If) -> Any:
        name = self._name()
        test = _located(_assignment(name, self.visit(node.test)), node.test)
        chosen = ast.copy_location(ast.Name(name, ast.Load()), node.test)
        merged = [
            n for n in assigned_names([*node.body, *node.orelse]) if n in self._liveness.after[node]
        ]
        if _jumps(node.body) or _jumps(node.orelse):
            merged = []
        # What follows the branch is put at its end, so that a debugger does not go back.
        then, other = (
            [*self.block(arm), *self._decayed(arm[-1] if arm else node, name, merged)]
            for arm in (node.body, node.orelse)
        )
        branch = ast.copy_location(ast.If(chosen, then, other), node)
        return [test, *self._note_return(node, name), branch]

    def visit_For(self, node: ast.For) -> Any:
        if (refused := refused_target(node.target)) is not None:
            return _refusal(refused[1], refused[0])
        name = self._name()
        over = _located(_assignment(name, _runtime("iterate", self.visit(node.iter))), node.iter)
        source = ast.copy_location(ast.Name(name, ast.Load()), node.iter)
        loop = ast.For(node.target, source, self.block(node.body), [])
        return [
            over,
            *self._note_return(node, name),
            *self._decayed(node, name, self._carried(node)),
            ast.copy_location(loop, node),
        ]

    def visit_While(self, node: ast.While) -> Any:
        name = self._name()
        body = [*self._note_return(node, name), *self.block(node.body)]
        asked = ast.NamedExpr(ast.Name(name, ast.Store()), self.visit(node.test))
        loop = ast.While(_located(asked, node.test), body, [])
        return [*self._decayed(node, None, self._carried(node)), ast.copy_location(loop, node)]

    def _carried(self, node: ast.For | ast.While) -> list[str]:
        head = self._liveness.head[node]
        own = assigned_names([node.target]) if isinstance(node, ast.For) else []
        again = node.body if isinstance(node, ast.For) else [node.test, *node.body]
        names = [n for n in assigned_names(again) if n in head and n not in own]
        return names + [n for n in own if n in self._liveness.after[node]]

    def _note_return(self, node: ast.stmt, condition: str) -> Iterable[ast.stmt]:
        """Remember that which `return` is reached depends on a runtime value."""
        if self._has_one_result or not any(isinstance(n, ast.Return) for n in ast.walk(node)):
            return
        known = ast.Name(_IS_DYNAMIC, ast.Load())
        new = ast.BoolOp(ast.Or(), [known, _runtime("is_dynamic", ast.Name(condition, ast.Load()))])
        yield _located(_assignment(_IS_DYNAMIC, new), node)

    def _decayed(
        self, node: ast.stmt, condition: str | None, names: Sequence[str]
    ) -> Iterable[ast.stmt]:
        """Turn compile-time values of names into tensors where the condition is a runtime value."""
        if not names:
            return
        body: list[ast.stmt] = [
            ast.Try(
                [_assignment(name, _runtime("decay", ast.Name(name, ast.Load())))],
                [ast.ExceptHandler(ast.Name("NameError", ast.Load()), None, [ast.Pass()])],
                [],
                [],
            )
            for name in names
        ]
        if condition is None:
            yield from (_located(statement, node) for statement in body)
            return
        test = _runtime("is_dynamic", ast.Name(condition, ast.Load()))
        yield _located(ast.If(test, body, []), node)

    def visit_Return(self, node: ast.Return) -> Any:
        if node.value is None:
            return node
        value = _runtime("result", self.visit(node.value), ast.Name(_IS_DYNAMIC, ast.Load()))
        return _located(ast.Return(value), node)

    def visit_Assert(self, node: ast.Assert) -> Any:
        message = ast.Constant("") if node.msg is None else self.visit(node.msg)
        return _located(ast.Expr(_runtime("check", self.visit(node.test), message)), node)


def _marked(function: ast.expr, node: ast.FunctionDef | ast.Lambda) -> ast.expr:
    """Tell a nested function where its text is."""
    place = ast.Constant(node.lineno), ast.Constant(node.col_offset)
    return _runtime("nested", function, *place)


def _jumps(body: Sequence[ast.stmt]) -> bool:
    """Whether a branch certainly ends in a jump."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return _jumps(last.body) and _jumps(last.orelse)
    return isinstance(last, ast.Return | ast.Break | ast.Continue)


def _pattern(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Tuple | ast.List):
        return ast.Tuple(list(map(_pattern, target.elts)), ast.Load())
    return ast.Constant(REST if isinstance(target, ast.Starred) else None)


def _without_stars(target: ast.expr) -> ast.expr:
    """Return a target for what `unpack` returns, where `*rest` is one item."""
    if isinstance(target, ast.Starred):
        return target.value
    if not isinstance(target, ast.Tuple | ast.List):
        return target
    return ast.copy_location(ast.Tuple(list(map(_without_stars, target.elts)), target.ctx), target)
