"""Reads the text form of functions that `printer` writes; `//` starts a comment.

    module   = function+                      the last one is the result
    function = ["noinline"] "func" "@"name params [loc] block
    params   = "(" {"%"name ":" type ["{" "divisible_by" "=" integer "}"] ","} ")"
    block    = "{" op* ["yield" values] "}"
    op       = [values "="] name operands [attributes] region* [":" types] [loc]
    region   = [name] params block

The ops that can be read are those that have been imported. What the type rule of an op finds is
reported at the op.
"""

from __future__ import annotations

import enum
import functools
import json
import re
import struct
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from tilewright.errors import CompileError, Location
from tilewright.ir.core import OPS, Block, Function, Op, Param, Value
from tilewright.ir.types import DTYPES, DType, ElementType, PointerType, TileType

__all__ = ["parse"]

_T = TypeVar("_T")

_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*)
      | (?P<value>%\w+)
      | (?P<function>@\w+)
      | (?P<nan>nan:0x[0-9a-f]{16})
      | (?P<number>-?(?:inf\b|nan\b|\d+(?:\.\d+)?(?:e[-+]?\d+)?))
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<word>\w+)
      | (?P<mark>[][(){}=:,*])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


def parse(text: str) -> Function:
    """Return the last function of `text`; a `CompileError` shows the line and the place in it."""
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self.tokenize())
        self.position = 0
        self.functions: dict[str, Function] = {}
        self.values: dict[str, Value] = {}

    # Tokens.

    def tokenize(self) -> Iterator[_Token]:
        start = 0
        while start < len(self.text):
            found = _TOKEN.match(self.text, start)
            if found is None or found.lastgroup is None:
                self.fail(f"unexpected character {self.text[start]!r}", start)
            if found.lastgroup != "blank":
                yield _Token(found.lastgroup, found[0], start)
            start = found.end()
        yield _Token("end", "the end of the text", len(self.text))

    @property
    def token(self) -> _Token:
        return self.tokens[self.position]

    def fail(self, problem: str, start: int | None = None) -> NoReturn:
        start = self.token.start if start is None else start
        line = self.text.count("\n", 0, start) + 1
        begin = self.text.rfind("\n", 0, start) + 1
        source = self.text[begin:].partition("\n")[0]
        caret = " " * (start - begin) + "^"
        raise CompileError(f"tile IR, line {line}: {problem}\n    {source}\n    {caret}")

    def take(self) -> _Token:
        token = self.token
        self.position += 1
        return token

    def accept(self, text: str) -> bool:
        found = self.token.text == text and self.token.kind != "string"
        self.position += found
        return found

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r}, found {self.token.text!r}")

    def expect_kind(self, kind: str, what: str) -> str:
        if self.token.kind != kind:
            self.fail(f"expected {what}, found {self.token.text!r}")
        return self.take().text

    def integer(self) -> int:
        start = self.token.start
        text = self.expect_kind("number", "an integer")
        if not re.fullmatch(r"-?\d+", text):
            self.fail(f"expected an integer, found {text!r}", start)
        return int(text)

    def separated(self, item: Callable[[], _T], end: str) -> tuple[_T, ...]:
        """Items between commas up to `end`."""
        if self.accept(end):
            return ()
        items = [item()]
        while self.accept(","):
            items.append(item())
        self.expect(end)
        return tuple(items)

    # Functions and blocks.

    def module(self) -> Function:
        function = self.function()
        while self.token.kind != "end":
            function = self.function()
        return function

    def function(self) -> Function:
        noinline = self.accept("noinline")
        self.expect("func")
        start = self.token.start
        name = self.expect_kind("function", "a function's name")[1:]
        if name in self.functions:
            self.fail(f"@{name} is defined twice", start)
        self.values = {}
        params = self.params()
        location = self.location()
        function = Function(name, self.block(params), location, noinline)
        self.functions[name] = function
        return function

    def params(self) -> tuple[Param, ...]:
        self.expect("(")
        return self.separated(self.param, ")")

    def param(self) -> Param:
        start = self.token.start
        name = self.expect_kind("value", "a parameter")
        self.expect(":")
        param = Param(self.type())
        if self.accept("{"):
            self.expect("divisible_by")
            self.expect("=")
            param.divisible_by = self.integer()
            self.expect("}")
        self.define(name, param, start)
        return param

    def block(self, params: tuple[Param, ...]) -> Block:
        block = Block(params)
        self.expect("{")
        while self.token.text not in {"}", "yield"} and self.token.kind != "end":
            block.ops.append(self.op())
        if self.accept("yield"):
            block.yields = self.values_until_no_comma(self.use)
        self.expect("}")
        return block

    def define(self, name: str, value: Value, start: int) -> None:
        if name in self.values:
            self.fail(f"{name} is defined twice", start)
        self.values[name] = value
        value.name = "" if name[1:].isdecimal() else name[1:]

    def use(self) -> Value:
        start = self.token.start
        name = self.expect_kind("value", "a value")
        if name not in self.values:
            self.fail(f"{name} is not defined here", start)
        return self.values[name]

    def values_until_no_comma(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        items = [item()]
        while self.accept(","):
            items.append(item())
        return tuple(items)

    # Ops.

    def op(self) -> Op:
        names: tuple[_Token, ...] = ()
        if self.token.kind == "value":
            names = self.values_until_no_comma(self.take)
            self.expect("=")
        start = self.token.start
        op_name = self.expect_kind("word", "an op")
        if op_name not in OPS:
            self.fail(f"there is no op {op_name!r}", start)
        cls = OPS[op_name]
        fields = self.operands(cls) | self.attributes(cls)
        for name in cls.region_fields:
            fields[name] = self.region(name)
        try:
            op = cls(**fields)
        except (CompileError, TypeError, ValueError, AttributeError) as error:
            # An attribute of the wrong kind can fail anywhere in a type rule.
            self.fail(error.message if isinstance(error, CompileError) else str(error), start)
        self.results(op, names, start)
        op.location = self.location()
        return op

    def results(self, op: Op, names: tuple[_Token, ...], start: int) -> None:
        if len(names) != len(op.results):
            self.fail(f"{op.op_name} has {len(op.results)} results, not {len(names)}", start)
        if op.results:
            self.expect(":")
            start = self.token.start
            written = self.values_until_no_comma(self.type)
            inferred = tuple(r.type for r in op.results)
            if written != inferred:
                self.fail(f"the result is {', '.join(map(str, inferred))}", start)
        for token, result in zip(names, op.results, strict=True):
            self.define(token.text, result, token.start)

    def operands(self, cls: type[Op]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for number, (name, variadic) in enumerate(cls.operand_fields):
            if number:
                self.expect(",")
            if variadic:
                self.expect("[")
                fields[name] = self.separated(self.use, "]")
            elif cls.field_kinds[name] == "optional" and self.accept("_"):
                fields[name] = None
            else:
                fields[name] = self.use()
        return fields

    def region(self, name: str) -> Block:
        outer = self.values
        self.values = outer.copy()
        self.accept(name)
        block = self.block(self.params())
        self.values = outer
        return block

    def attributes(self, cls: type[Op]) -> dict[str, Any]:
        names = {n.rstrip("_"): n for n, kind in cls.field_kinds.items() if kind == "attribute"}
        fields: dict[str, Any] = {}
        if not self.accept("{"):
            return fields

        def attribute() -> None:
            start = self.token.start
            name = self.expect_kind("word", "an attribute")
            if name not in names:
                self.fail(f"{cls.op_name} has no attribute {name!r}", start)
            self.expect("=")
            start = self.token.start
            try:
                fields[names[name]] = _as_declared(
                    _declared(cls.op_name)[names[name]], self.constant()
                )
            except ValueError as error:
                self.fail(str(error), start)

        self.separated(attribute, "}")
        return fields

    def constant(self) -> Any:
        token = self.token
        match token.kind:
            case "number":
                self.take()
                return int(token.text) if re.fullmatch(r"-?\d+", token.text) else float(token.text)
            case "nan":
                self.take()
                return struct.unpack("<d", int(token.text[4:], 16).to_bytes(8, "little"))[0]
            case "string":
                self.take()
                return json.loads(token.text)
            case "function":
                self.take()
                if token.text[1:] not in self.functions:
                    self.fail(f"{token.text} is not defined above", token.start)
                return self.functions[token.text[1:]]
        if self.accept("["):
            return self.separated(self.constant, "]")
        words = {"true": True, "false": False, "none": None}
        return words[self.take().text] if token.text in words else self.type()

    # Types and locations.

    def type(self) -> TileType:
        element = self.element()
        return TileType(element, self.separated(self.integer, "]") if self.accept("[") else ())

    def element(self) -> ElementType:
        is_pointer = self.accept("*")
        start = self.token.start
        name = self.expect_kind("word", "a type")
        const = is_pointer and name.startswith("k")
        dtype = DTYPES.get(name[const:])
        if dtype is None:
            self.fail(f"there is no type {name!r}", start)
        return PointerType(dtype, const) if is_pointer else dtype

    def location(self) -> Location | None:
        if not self.accept("loc"):
            return None
        self.expect("(")
        file = json.loads(self.expect_kind("string", "a file name"))
        self.expect(":")
        line = self.integer()
        self.expect(":")
        column = self.integer()
        self.expect(")")
        return Location(file, line, column - 1)


@functools.cache
def _declared(op_name: str) -> dict[str, Any]:
    """What the annotations of an op's attributes stand for."""
    return typing.get_type_hints(OPS[op_name])


def _as_declared(hint: Any, value: Any) -> Any:
    """Return a constant of the text as the field's annotation asks for it."""
    if typing.get_origin(hint) is tuple and isinstance(value, tuple):
        (item, *_) = typing.get_args(hint)
        return tuple(_as_declared(item, one) for one in value)
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        if isinstance(option, type) and issubclass(option, enum.Enum):
            return option(value)
    if isinstance(value, TileType) and TileType not in options and not value.shape:
        return value.element
    if isinstance(value, TileType) and not {TileType, DType, PointerType} & {*options}:
        message = f"expected {hint}, found the type {value}"
        raise ValueError(message)
    return value
