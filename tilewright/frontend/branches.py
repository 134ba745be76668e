"""Branches on values that are known only when the kernel runs, and what joins after them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilewright.errors import CompileError
from tilewright.frontend.frame import (
    FLAGS,
    RESULT,
    RETURN,
    Arm,
    Frame,
)
from tilewright.frontend.structure import (
    Unusable,
    decay,
    describe,
    fits,
    has_tensor,
    leaves,
    rebuild,
    rename,
)
from tilewright.frontend.tensor import Tensor
from tilewright.ir.core import Value
from tilewright.ops import Full, If

__all__ = ["VALUE", "Branches", "placeholder"]

# The value of a conditional expression, while its arms are joined.
VALUE = "if"


class _Join:
    """Collects what the two arms of a branch yield, name by name."""

    def __init__(self, frame: Frame, then: Arm, other: Arm) -> None:
        self.frame = frame
        self.arms = (then, other)
        self.names: dict[str, Any] = {}
        self._yields: tuple[list[Value], list[Value]] = ([], [])
        self._pending: list[tuple[str, Any]] = []

    def inside(self, arm: Arm, make: Callable[[], Any]) -> Any:
        with self.frame.builder.inside(arm.block):
            return make()

    def flag(self, name: str) -> None:
        """Join a jump flag."""
        a, b = (arm.names[name] for arm in self.arms)
        if a is b:
            self.names[name] = a
            return
        values = [
            self.inside(arm, partial(self.frame.flag_value, flag))
            for arm, flag in zip(self.arms, (a, b), strict=True)
        ]
        self._choose(name, Tensor(values[0]), Tensor(values[1]))

    def variable(self, name: str, before: Any, dead: Sequence[bool]) -> None:
        """Join a variable; in a dead arm its value does not matter."""
        a, b = (arm.names.get(name, Unusable(UNASSIGNED)) for arm in self.arms)
        if a is b:
            self.names[name] = a
        elif all(dead):
            self.names[name] = Unusable(_UNREACHABLE)
        elif any(dead):
            self._from_live_arm(name, before, a if dead[1] else b, live=int(dead[0]))
        elif isinstance(a, Unusable) or isinstance(b, Unusable):
            self.names[name] = _partly_assigned(self.frame, name, a, b)
        else:
            self._both(name, a, b)

    def result(self, name: str, message: str) -> None:
        """Join a value that an arm without it leaves open (it is guarded by a flag)."""
        missing = [name not in arm.names for arm in self.arms]
        if all(missing):
            return
        if any(missing):
            live = int(missing[0])
            self._from_live_arm(name, None, self.arms[live].names[name], live)
            return
        a, b = (arm.names[name] for arm in self.arms)
        if fits(a, b):
            self._choose(name, a, b)
            return
        a, b = self._decayed(a, b)
        if not fits(a, b):
            raise CompileError(message.format(describe(a), describe(b)), hint=_SAME_TYPE)
        self._choose(name, a, b)

    def _from_live_arm(self, name: str, before: Any, value: Any, live: int) -> None:
        if value is before or not has_tensor(value):
            self.names[name] = value
            return
        dead_arm = self.arms[1 - live]
        other = dead_arm.names.get(name)
        if not fits(other, value):
            other = self.inside(dead_arm, lambda: placeholder(self.frame, value))
        self._choose(name, *((other, value) if live else (value, other)))

    def _both(self, name: str, a: Any, b: Any) -> None:
        a, b = self._decayed(a, b)
        if fits(a, b):
            self._choose(name, a, b)
            return
        self.names[name] = Unusable(
            f"`{{name}}` is {describe(a)} in one branch and {describe(b)} in the other",
            "give it one type in both, for instance with .to(...)",
        )

    def _decayed(self, a: Any, b: Any) -> tuple[Any, Any]:
        then, other = self.arms
        return self.inside(then, lambda: decay(a)), self.inside(other, lambda: decay(b))

    def _choose(self, name: str, a: Any, b: Any) -> None:
        for values, side in zip(self._yields, (a, b), strict=True):
            values += [leaf.value for leaf in leaves(side)]
        self._pending.append((name, a))

    def finish(self, condition: Value) -> dict[str, Any]:
        """Build the `If` and return the names after it."""
        then, other = (arm.block for arm in self.arms)
        then.yields, other.yields = map(tuple, self._yields)
        if not (then.ops or other.ops or then.yields):
            results: tuple[Value, ...] = ()
        else:
            results = self.frame.emit(If(condition, then, other))
        remaining = iter(results)
        for name, template in self._pending:
            self.names[name] = value = rebuild(template, remaining)
            rename(value, name)
        return self.names


UNASSIGNED = "`{name}` is used before it is assigned"
_UNREACHABLE = "`{name}` has no value on any path that reaches this place"
_SAME_TYPE = "convert one of them with .to(...)"


def _partly_assigned(frame: Frame, name: str, a: Any, b: Any) -> Unusable:
    first = a if isinstance(a, Unusable) else b
    both = isinstance(a, Unusable) and isinstance(b, Unusable)
    if both or first.reason != UNASSIGNED:
        return first
    place = frame.bound_at.get(name)
    where = f" (line {place.line})" if place else ""
    return Unusable(
        f"`{{name}}` is only assigned in one branch of an `if`{where}, but used after it",
        "assign `{name}` before the `if`, or in both branches",
    )


def placeholder(frame: Frame, value: Any) -> Any:
    """Return zeros of the types in `value`, for where nobody looks."""
    types = [leaf.value.type for leaf in leaves(value)]
    return rebuild(value, iter([frame.value(Full(_zero(t.element), t)) for t in types]))


def _zero(element: Any) -> int | float | bool:
    if element.is_bool():
        return False
    return 0.0 if element.is_floating() else 0


class Branches(Frame):
    """`if` and its kin."""

    def branch(
        self,
        condition: Tensor,
        then: Callable[[], None],
        other: Callable[[], None],
        rest: Sequence[ast.stmt],
        live: frozenset[str],
        live_after_rest: frozenset[str],
    ) -> bool:
        """Run two arms and join them; return whether the statements of `rest` were run, too.

        Where exactly one arm certainly jumps away, the rest is run inside the other, so that its
        names need no joining.
        """
        first, second = self.arm(then), self.arm(other)
        takes_rest = bool(rest) and first.ended != second.ended
        if takes_rest:
            open_arm = second if first.ended else first
            self.resume(open_arm, lambda: self.sequence(rest, live_after_rest))
        self.join(condition.value, first, second, live_after_rest if takes_rest else live)
        return takes_rest

    def join(
        self, condition: Value, then: Arm, other: Arm, live: frozenset[str] | None = None
    ) -> None:
        """Join two arms; `live` are the names wanted after them (None: all)."""
        join = _Join(self, then, other)
        for name in FLAGS:
            join.flag(name)
        join.result(RESULT, "the function returns {} on one path and {} on another")
        join.result(VALUE, "the sides of a conditional expression differ in type: {} and {}")
        for name in {**then.names, **other.names}:
            if name in FLAGS or name in {RESULT, VALUE}:
                continue
            dead = [not arm.needs(name, live, self.edges) for arm in (then, other)]
            join.variable(name, self.names.get(name), dead)
        self.names = join.finish(condition)
        self.ended = then.ended and other.ended

    def guarded(self, jumped: Tensor, run: Callable[[], None], live: frozenset[str]) -> None:
        """Run something only where no jump was taken."""
        not_jumped = self.negated(jumped)

        def rest() -> None:
            for flag in FLAGS:
                self.names[flag] = False
            self.names.pop(RESULT, None)
            run()

        then, other = self.arm(rest), self.arm(lambda: None)
        other.ended = True
        for flag in FLAGS:  # a flag that the rest leaves alone is what it was
            if then.names[flag] is False:
                then.names[flag] = self.names[flag]
        if then.names[RETURN] is self.names[RETURN] and RESULT in self.names:
            then.names[RESULT] = self.names[RESULT]
        self.join(not_jumped, then, other, live)
