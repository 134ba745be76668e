"""Statements, and the order in which they run: the whole visitor."""
# ruff: noqa: N802 - visitors are named for the nodes they visit

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial
from typing import Any

from tilewright.errors import CompileError, CompileTimeAssertionFailure
from tilewright.frontend.expressions import apply_binary
from tilewright.frontend.frame import BREAK, CONTINUE, FLAGS, RESULT, RETURN
from tilewright.frontend.liveness import declares_constexpr
from tilewright.frontend.loops import Loops
from tilewright.frontend.refused_syntax import DELETE
from tilewright.frontend.semantic import condition, device_assert, to_tensor
from tilewright.frontend.structure import Unusable, has_tensor, leaves
from tilewright.frontend.tensor import Tensor

__all__ = ["Visitor", "no_constant", "returned_to_nobody"]

_INSTEAD = {
    "AsyncFunctionDef": ("a coroutine", "define a function outside, with @tilewright.jit"),
    "ClassDef": ("a class inside a kernel", "define it outside"),
    "Import": ("import inside a kernel", "import at the top of the file"),
    "ImportFrom": ("import inside a kernel", "import at the top of the file"),
    "Try": ("try", "a kernel raises nothing; use tl.device_assert or a mask"),
    "TryStar": ("try", "a kernel raises nothing; use tl.device_assert or a mask"),
    "Raise": ("raise", "use tl.device_assert, or tl.static_assert for compile-time conditions"),
    "With": ("with", ""),
    "AsyncWith": ("with", ""),
    "AsyncFor": ("async for", "use for"),
    "Global": ("global", "pass the value as a parameter, or read a tl.constexpr global"),
    "Nonlocal": ("nonlocal", "pass the value as a parameter"),
    "Match": ("match", "use if and elif"),
}

DECLARED = Unusable("`{name}` is declared as tl.constexpr, but not assigned yet")


class Visitor(Loops):
    """Reads one function into the builder's block."""

    is_launched = False  # whether nobody takes what the function returns

    def run(self) -> Any:
        """Run the body; return the function's result, compile-time values as they are."""
        self.sequence(self.syntax.tree.body, frozenset())
        result = self.names.get(RESULT)
        if result is not None and not self.ended:
            raise CompileError(
                f"`{self.function.name}` returns a value on some paths and nothing on others",
                location=self.bound_at[RESULT],
                hint="return a value of the same type on every path",
            )
        return result

    def sequence(self, statements: Sequence[ast.stmt], live: frozenset[str]) -> None:
        for i, statement in enumerate(statements):
            if self.ended:
                return
            jumped = self.any_flag(self.names, *FLAGS)
            if isinstance(jumped, Tensor):
                self.guarded(jumped, partial(self.sequence, statements[i:], live), live)
                return
            with self.at(statement):
                if self._statement(statement, statements[i + 1 :], live):
                    return

    def _statement(
        self, statement: ast.stmt, rest: Sequence[ast.stmt], live: frozenset[str]
    ) -> bool:
        """Run one statement; return whether it has also run the rest of its list."""
        if isinstance(statement, ast.If):
            return self._if(statement, rest, live)
        kind = type(statement).__name__
        visit = getattr(self, f"visit_{kind}", None)
        if visit is None:
            name, hint = _INSTEAD.get(kind, (kind, ""))
            raise CompileError(f"{name} is not part of the language", hint=hint)
        visit(statement)
        return False

    def _if(self, node: ast.If, rest: Sequence[ast.stmt], live: frozenset[str]) -> bool:
        test = self.expression(node.test)
        after = self.syntax.liveness.after[node]
        if not isinstance(test, Tensor):
            with self.at(node.test):
                taken = node.body if _known_condition(test) else node.orelse
            self.sequence(taken, after)
            return False
        with self.at(node.test):
            chooser = condition(test)
        return self.branch(
            chooser,
            lambda: self.sequence(node.body, after),
            lambda: self.sequence(node.orelse, after),
            rest,
            after,
            live,
        )

    # Jumps.

    def visit_Return(self, node: ast.Return) -> None:
        value = None if node.value is None else self.expression(node.value)
        if self.is_launched and value is not None:
            raise returned_to_nobody(self.function.name)
        self.names[RESULT] = value
        self.bound_at[RESULT] = self.place(node)
        self.names[RETURN] = self.ended = True

    def visit_Break(self, node: ast.Break) -> None:
        self.names[BREAK] = self.ended = True

    def visit_Continue(self, node: ast.Continue) -> None:
        self.names[CONTINUE] = self.ended = True

    # Bindings.

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.expression(node.value)
        for target in node.targets:
            self.assign(target, value)

    def assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                keeps = self.names.get(name) is DECLARED
                self.bind(name, value if keeps else to_tensor(value))
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                self.refuse_target(target, takes_rest=True)
                for inner, item in zip(elements, self.unpacked(target, value), strict=True):
                    self.assign(inner.value if isinstance(inner, ast.Starred) else inner, item)
            case _:
                self.refuse_target(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            self.refuse_target(node.target)
            return
        with self.at(node.target):
            left = self.read(node.target.id)
        right = self.expression(node.value)
        self.assign(node.target, apply_binary(type(node.op), left, right))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        is_constexpr = declares_constexpr(node)
        if not isinstance(node.target, ast.Name):
            self.refuse_target(node.target)
            return
        name = node.target.id
        if node.value is None:
            if is_constexpr:
                self.names[name] = DECLARED
            return
        value = self.expression(node.value)
        if not is_constexpr:
            self.assign(node.target, value)
            return
        if next(leaves(value), None) is not None:
            with self.at(node.value):
                raise no_constant(name)
        self.bind(name, value)

    # The rest.

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Call):
            self.expression(node.value)
            return
        with self.at(node.value):
            function, _ = self.call(node.value)
            if reason := getattr(function, "must_use_result", False):
                raise CompileError(
                    f"the result of `{function.__name__}` is not used"
                    + (f": {reason}" if isinstance(reason, str) else ""),
                    hint=f"assign it: {self._subject(node.value)} = {ast.unparse(node.value)}",
                )

    def _subject(self, call: ast.Call) -> str:
        """Return the variable that a call is about, `x` of `x.f(y)` and of `f(x, y)`."""
        owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        candidates = [node.id for node in (*owner, *call.args) if isinstance(node, ast.Name)]
        return next((name for name in candidates if name in self.names), "x")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.decorator_list:
            with self.at(node.decorator_list[0]):
                raise CompileError(
                    "a decorator inside a kernel is not part of the language",
                    hint="remove it: a function inside a kernel needs none",
                )
        self.bind(node.name, self.nested(node))

    def visit_Delete(self, node: ast.Delete) -> None:
        raise CompileError(DELETE.message, hint=DELETE.hint)

    def visit_Pass(self, node: ast.Pass) -> None:
        """Nothing to do."""

    def visit_Assert(self, node: ast.Assert) -> None:
        test = self.expression(node.test)
        message = "" if node.msg is None else self.expression(node.msg)
        if has_tensor(test):
            device_assert(test, message)
        elif not _known_condition(test):
            text = f"assert: {message}" if message else f"assert: {ast.unparse(node.test)} is false"
            raise CompileTimeAssertionFailure(text)


def no_constant(name: str) -> CompileError:
    """Return the error about a name that is declared as a constant and is none."""
    return CompileError(
        f"`{name}` is declared as tl.constexpr, but its value is known only when the kernel runs",
        hint="leave the annotation out, or compute it from tl.constexpr parameters alone",
    )


def returned_to_nobody(name: str) -> CompileError:
    """Return the error about a kernel that is launched and returns a value."""
    return CompileError(
        f"`{name}` returns a value, and nobody takes what a launched kernel returns",
        hint="write the value to memory with tl.store(pointer, value), or call the function from "
        "another kernel",
    )


def _known_condition(value: Any) -> bool:
    if isinstance(value, bool | int | float | str | tuple) or value is None:
        return bool(value)
    raise CompileError(f"{value!r} is no condition", hint="compare it: `x is not None`, `x == ...`")
