"""The state of reading one function: names, places, jumps taken, and the arms of branches.

`break`, `continue` and `return` become data: a flag says whether the jump was taken, and what
follows runs only where it was not. Flags live among the names, under Python's keywords, so that
branches and loops hand them on as they do variables. A flag is a Python bool where that is known,
else an i1 tensor.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.errors import CompileError, InternalError, Location, TilewrightError
from tilewright.frontend.captures import MISSING
from tilewright.frontend.culprits import name_culprits
from tilewright.frontend.definition import Syntax
from tilewright.frontend.parameters import Parameter
from tilewright.frontend.source import SourceText
from tilewright.frontend.structure import Unusable, rename
from tilewright.frontend.tensor import Tensor
from tilewright.ir.builder import Builder
from tilewright.ir.core import Block, Op, Value
from tilewright.ir.types import DTYPES, TileType
from tilewright.ops import Full, Invert, Or

__all__ = [
    "BREAK", "CONTINUE", "FLAGS", "RESULT", "RETURN", "Arm", "Edges", "Frame", "Readable",
    "Session", "is_our_fault",
]  # fmt: skip

RETURN, BREAK, CONTINUE = FLAGS = ("return", "break", "continue")
RESULT = "return value"
BOOL = TileType(DTYPES["i1"])


class Around(Protocol):
    """What there is outside a function."""

    def lookup(self, name: str) -> Any:
        """Return the value of a name, or raise `CompileError`."""


class Readable(Protocol):
    """A function that a frame can read, of a module or nested in another."""

    name: str
    is_strict: bool

    @property
    def params(self) -> tuple[Parameter, ...]:
        """The parameters, in order."""

    @property
    def arg_names(self) -> list[str]:
        """The names of the parameters."""

    @property
    def syntax(self) -> Syntax:
        """The syntax tree."""

    @property
    def source(self) -> SourceText:
        """The text, and where it stands."""

    @property
    def captures(self) -> Around:
        """The names outside."""

    @property
    def location(self) -> Location:
        """The place of the function."""


class Session(Protocol):
    """What a frame asks of the trace it belongs to."""

    def call(
        self, function: Readable, args: Sequence[Any], named: Mapping[str, Any], place: Location
    ) -> Any:
        """Call another function of the language and return its result."""

    def element_block(
        self, function: Readable, types: Sequence[TileType], count: int | None
    ) -> Block:
        """Return the region in which a function computes scalars."""


@dataclass(frozen=True)
class Edges:
    """The names that jumps of a loop take along: `continue` to its head, `break` behind it."""

    head: frozenset[str] = frozenset()
    behind: frozenset[str] = frozenset()


@dataclass
class Arm:
    """One way that a program can take: what it computes, and the names at its end."""

    block: Block
    names: dict[str, Any]
    ended: bool
    may_break: bool
    may_continue: bool

    def needs(self, name: str, live: frozenset[str] | None, edges: Edges) -> bool:
        """Whether the value that a name has at the end may be read later.

        `live` are the names that are read where the arm goes on without a jump (None: all).
        """
        return (
            (not self.ended and (live is None or name in live))
            or (self.may_continue and name in edges.head)
            or (self.may_break and name in edges.behind)
        )


# Python's own operators and functions run in the modules of the visitor, on the user's values; an
# exception that starts in one of these packages is a fault of ours.
_OURS = tuple(f"tilewright.{name}" for name in ("ir", "ops", "passes", "frontend.semantic"))


def is_our_fault(error: BaseException) -> bool:
    """Whether an error has its origin in Tilewright, not in what the user wrote."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
    return str(module).startswith(_OURS)


class Frame:
    """Base of the visitor: what its themes (expressions, calls, branches, loops) share."""

    def __init__(
        self, function: Readable, session: Session, builder: Builder, caller: Location | None
    ) -> None:
        self.function = function
        self.syntax = function.syntax
        self.session = session
        self.builder = builder
        self.caller = caller
        self.names: dict[str, Any] = dict.fromkeys(FLAGS, False)
        self.ended = False
        self.bound_at: dict[str, Location] = {}
        self.edges = Edges()

    # What the themes provide.

    def expression(self, node: ast.expr) -> Any:
        """Return the value of an expression."""
        raise NotImplementedError

    def sequence(self, statements: Sequence[ast.stmt], live: frozenset[str]) -> None:
        """Run statements; `live` are the names that are read after them."""
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind a target to a value."""
        raise NotImplementedError

    # Places and errors.

    def place(self, node: ast.AST) -> Location:
        return self.function.source.locate(node, self.function.name, self.caller)

    @contextlib.contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Stamp ops and errors with the place of a node."""
        outer = self.builder.location
        self.builder.location = place = self.place(node)
        try:
            yield
        except TilewrightError as error:
            if error.culprits:
                name_culprits(error, node, self._known)
            error.at(place)
            raise
        except RecursionError:
            raise CompileError(
                "the kernel is nested too deeply",
                location=place,
                hint="loop in place of calls of calls; split long expressions",
            ) from None
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            kind = InternalError if is_our_fault(error) else CompileError
            shown = kind(message, location=place)
            if isinstance(error, TypeError):
                name_culprits(shown, node, self._known, is_of_python=True)
            raise shown from error
        finally:
            self.builder.location = outer

    # Names.

    def edges_of(self, node: ast.For | ast.While, names: Iterable[str]) -> Edges:
        """Return which of the names the jumps of a loop take along."""
        liveness, bound = self.syntax.liveness, frozenset(names)
        return Edges(bound & liveness.head[node], bound & liveness.after[node])

    def read(self, name: str) -> Any:
        """Return the value of a name, or raise `CompileError` saying why it has none."""
        if name not in self.names:
            if name in self.syntax.liveness.local_names:
                raise CompileError(
                    f"`{name}` is used before it is assigned",
                    hint=f"assign it first: {name} = ..., for instance above the loop or the `if`",
                )
            return self.function.captures.lookup(name)
        value = self.names[name]
        if isinstance(value, Unusable):
            raise CompileError(value.reason_for(name), hint=value.hint_for(name))
        return value

    def _known(self, name: str) -> Any:
        return self.names.get(name, MISSING)

    def bind(self, name: str, value: Any) -> None:
        rename(value, name)
        self.names[name] = value
        if self.builder.location is not None:
            self.bound_at[name] = self.builder.location

    # Ops on values.

    def emit(self, op: Op) -> tuple[Value, ...]:
        return self.builder.emit(op).results

    def value(self, op: Op) -> Value:
        (result,) = self.emit(op)
        return result

    def flag_value(self, flag: bool | Tensor) -> Value:
        """Return a flag as an IR value."""
        return flag.value if isinstance(flag, Tensor) else self.value(Full(flag, BOOL))

    def any_flag(self, names: Mapping[str, Any], *flags: str) -> bool | Tensor:
        """Return whether one of the flags is set in `names`."""
        result: bool | Tensor = False
        for name in flags:
            flag = names[name]
            if flag is True or result is True:
                result = True
            elif result is False:
                result = flag
            elif flag is not False:
                result = Tensor(self.value(Or(result.value, flag.value)))
        return result

    def negated(self, flag: Tensor) -> Value:
        return self.value(Invert(flag.value))

    def arm(self, run: Callable[[], None], block: Block | None = None) -> Arm:
        """Run something into a block of its own, on a copy of the names."""
        outer = self.names, self.ended
        self.names, self.ended = dict(self.names), False
        block = block or Block()
        try:
            with self.builder.inside(block):
                run()
            may_break, may_continue = (self.names[f] is not False for f in (BREAK, CONTINUE))
            return Arm(block, self.names, self.ended, may_break, may_continue)
        finally:
            self.names, self.ended = outer

    def resume(self, arm: Arm, run: Callable[[], None]) -> None:
        """Go on in an arm where it stopped."""
        outer = self.names
        self.names = arm.names
        try:
            more = self.arm(run, arm.block)
        finally:
            self.names = outer
        vars(arm).update(vars(more))
