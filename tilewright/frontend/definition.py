"""A function of the language before anything is done with it: source, parameters, identity."""

from __future__ import annotations

import ast
import enum
import functools
import hashlib
import inspect
import textwrap
import weakref
from collections import deque
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any, cast

from tilewright.errors import CompileError, Location
from tilewright.frontend.builtin import is_builtin
from tilewright.frontend.captures import Captures, Namespace, Reference, outside_names
from tilewright.frontend.constexpr import constexpr
from tilewright.frontend.extensions import refuse_syntax
from tilewright.frontend.liveness import Liveness
from tilewright.frontend.loop_else import without_loop_else
from tilewright.frontend.parameters import Parameter, read_parameters
from tilewright.frontend.source import SourceReader, SourceText
from tilewright.locks import cached_property

__all__ = ["AGGREGATE", "Definition", "Syntax"]

# The attribute in which the class of an aggregate has its functions.
AGGREGATE = "__tilewright_aggregate__"


class Syntax:
    """The syntax tree of a function, and which names are read after which of its statements."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self.tree = tree

    @cached_property
    def liveness(self) -> Liveness:
        return Liveness(self.tree)


# A tree is large: only those that were used lately are kept, for all functions together.
_RECENT: deque[Syntax] = deque(maxlen=32)


class Definition:
    """A Python function written in the language.

    The source is read from its file, or found where the function is made (`unsaved_source.py`), or
    given as `source`. It is parsed when first needed; a function without source is an error only
    when used.
    """

    def __init__(
        self,
        fn: FunctionType,
        *,
        source: str | None = None,
        noinline: bool = False,
        strict: bool = False,
        do_not_specialize: Iterable[str | int] = (),
        do_not_specialize_on_alignment: Iterable[str | int] = (),
    ) -> None:
        if not isinstance(fn, FunctionType):
            raise CompileError(
                f"a kernel must be a Python function, got {type(fn).__name__}",
                hint="write @tilewright.jit above a `def`",
            )
        functools.update_wrapper(cast("Any", self), fn)
        self.__qualname__ = fn.__qualname__
        self.fn: Any = fn  # None where the function has arrived without its body
        self.name = fn.__name__
        self.noinline = noinline
        self.is_strict = strict
        self.doc = fn.__doc__
        self.captures = Captures(fn)
        self.runnable: FunctionType | None = None  # the body as eager mode runs it
        self._reader = SourceReader(fn, source)
        self._syntax: weakref.ref[Syntax] | None = None
        self._unspecialised = (tuple(do_not_specialize), tuple(do_not_specialize_on_alignment))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.__module__}.{self.__qualname__}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name, as functions are; one whose `fn` is None without its body.

        What is left then is what a launch of compiled code asks for: the name, the place, and
        which parameters there are.
        """
        if self.fn is not None:
            return self.__qualname__
        names = ("name", "__name__", "__qualname__", "__module__", "noinline", "is_strict")
        state = {name: vars(self).get(name) for name in names}
        params = tuple(Parameter(p.num, p.name, is_constexpr=p.is_constexpr) for p in self.params)
        return _without_body, (type(self), {**state, "params": params, "_read": self._read})

    @cached_property
    def _read(self) -> tuple[SourceText, tuple[str, ...]]:
        """The source, and the names in it that are not its own: what needs no second look at it."""
        text, tree = self._reader.read()
        return text, outside_names(tree)

    @property
    def source(self) -> SourceText:
        """The text, and where it stands."""
        return self._read[0]

    @property
    def syntax(self) -> Syntax:
        """The syntax tree; hold on to it while its nodes are in use."""
        syntax = self._syntax() if self._syntax is not None else None
        if syntax is None:
            tree = self.source.parse()
            if self.is_strict:
                refuse_syntax(tree, Liveness(tree), self._at)
            syntax = Syntax(without_loop_else(tree))
            self._syntax = weakref.ref(syntax)
            _RECENT.append(syntax)
        return syntax

    def _unsafe_update_src(self, source: str) -> None:
        """Take another text for the function: what programs call that write functions.

        It has the name and the parameters of the Python function. Kernels that call this one take
        it over when their `hash` is set to None.
        """
        self._reader = SourceReader(self.fn, source)
        self.forget_compiled()

    def forget_compiled(self) -> None:
        """Forget what has been found out about the text, and made of it."""
        self._syntax = self.runnable = None
        for name, member in vars(Definition).items():
            if isinstance(member, cached_property):
                vars(self).pop(name, None)

    def forget_globals(self) -> None:
        """Read what the body takes from outside anew, when it is asked for."""
        for name in ("references", "fingerprint", "_reachable", "_recorded"):
            vars(self).pop(name, None)

    def _at(self, node: ast.AST, error: CompileError) -> CompileError:
        error.at(self.source.locate(node, self.name, None))
        return error

    @cached_property
    def params(self) -> tuple[Parameter, ...]:
        """The parameters, in order."""
        return read_parameters(self.fn, self.captures.all, *self._unspecialised)

    @property
    def arg_names(self) -> list[str]:
        return [p.name for p in self.params]

    @property
    def signature(self) -> inspect.Signature:
        """The parameters, as Python has them."""
        return inspect.signature(self.fn)

    @property
    def constexprs(self) -> list[int]:
        """The positions of the parameters that are `tl.constexpr`."""
        return [p.num for p in self.params if p.is_constexpr]

    @property
    def hash(self) -> str:
        """Another name of `cache_key`; set to None, it is found anew."""
        return self.cache_key

    @hash.setter  # noqa: A003 - the name of Triton
    def hash(self, value: None) -> None:
        self.forget_compiled()

    @property
    def src(self) -> str:
        """The source from `def` on, without indentation."""
        return self.source.dedented

    @property
    def file(self) -> str:
        return self._reader.file

    @property
    def first_line(self) -> int:
        """The line of the `def`."""
        return self.source.first_line

    @property
    def location(self) -> Location:
        """The place of the `def`."""
        text = self.source.lines[0]
        start = len(text) - len(text.lstrip())
        return Location(self.source.file, self.first_line, start, len(text), self.name)

    @cached_property
    def cache_key(self) -> str:
        """A digest of all that the function's meaning depends on.

        Its source, name and line, those of the functions it calls (and that they call), and the
        constants that they read. It is the same in every process and whatever is imported first.
        """
        functions = self._reachable
        parts = [self.fingerprint, *sorted({f.fingerprint for f in functions})]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """What the body reads from outside."""
        if self.is_strict:
            _ = self.syntax  # refuses what there is not
        return tuple(self.captures.references(self._read[1]))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of this function alone."""
        parts = [self.src, self.name, str(self.first_line), str(self.noinline), str(self.is_strict)]
        parts += [f"{p.name}={_value_digest(p.default)}" for p in self.params if p.has_default]
        parts += [f"{r.path}={_value_digest(r.value)}" for r in self.references]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @cached_property
    def _reachable(self) -> tuple[Definition, ...]:
        """This function and all those that it can call."""
        found: dict[Definition, None] = {}
        pending = [self]
        while pending:
            function = pending.pop()
            if function not in found:
                found[function] = None
                values = [r.value for r in function.references]
                values += [p.default for p in function.params]
                values += [m for v in values for m in _functions_of(v) or ()]
                pending += [v for v in values if isinstance(v, Definition)]
        return tuple(found)

    @cached_property
    def _recorded(self) -> tuple[tuple[Namespace, str, Any, str, Definition], ...]:
        return tuple(
            (reference.namespace, reference.name, reference.value, reference.path, function)
            for function in self._reachable
            for reference in function.references
            if (
                isinstance(reference.value, constexpr | Definition | int | float | str | tuple)
                and not isinstance(reference.value, enum.Enum)
            )
            or _functions_of(reference.value) is not None
        )

    def check_globals(self) -> None:
        """Raise `CompileError` if a constant or function that was read has changed since."""
        for namespace, name, value, path, function in self._recorded:
            now = namespace.get(name)
            if now is not value and _identity(now) != _identity(value):
                raise _changed(function, path, value, now)


def _changed(function: Definition, path: str, value: Any, now: Any) -> CompileError:
    """Return the error about a name of which the value that was compiled is no longer there."""
    if isinstance(value, Definition) and isinstance(now, Definition):
        place = now.location
        return CompileError(
            f"the function `{path}` that `{function.name}` calls has been defined again since it "
            f"was compiled ({place.file}:{place.line})",
            hint=f"run the definition of `{function.name}` again, which then calls the new one",
        )
    kind = function.captures.kind_of(path.partition(".")[0])
    return CompileError(
        f"{kind} `{path}` of `{function.name}` has changed since it was compiled: "
        f"it was {value!r}, now it is {now!r}",
        hint="define the kernel again, or pass the value as a tl.constexpr parameter",
    )


def _functions_of(value: Any) -> tuple[Any, ...] | None:
    """Return the functions of an aggregate, a class that kernels may call; None for others."""
    return vars(value).get(AGGREGATE) if isinstance(value, type) else None


def _without_body(kind: type[Definition], state: dict[str, Any]) -> Definition:
    """Return a function that has arrived without its body; it can be asked, not compiled."""
    function = kind.__new__(kind)
    vars(function).update(state, fn=None)
    return function


def _identity(value: Any) -> str:
    return value.cache_key if isinstance(value, Definition) else _value_digest(value)


def _value_digest(value: Any) -> str:
    """Return a text that is equal exactly for equal compile-time values, in every process."""
    if isinstance(value, constexpr):
        return f"constexpr({_value_digest(value.value)})"
    if isinstance(value, Definition):
        return f"function {value.fn.__module__}.{value.fn.__qualname__}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(_value_digest, value))})"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, FunctionType) and not is_builtin(value):
        return f"python {_qualified_name(value)} {_source_of(value)}"
    functions = _functions_of(value)
    if functions is not None:
        fields = [vars(base).get("__annotations__") for base in value.__mro__]
        texts = ", ".join(map(_value_digest, functions))
        return f"aggregate {_qualified_name(value)} {fields} {texts}"
    if callable(value):
        return f"{_qualified_name(value)}"
    if isinstance(value, enum.Enum):
        return f"{_qualified_name(type(value))}.{value.name}"
    return f"{type(value).__name__} {value!r}"


def _qualified_name(value: Any) -> str:
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', '')}.{name}"


def _source_of(function: FunctionType) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
