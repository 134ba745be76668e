"""The text of one LLVM function while it is being written, and the values in it.

Code is a stack of sections, one per open loop. A value that does not depend on the inner loops is
written to an outer section, before the loop that is still open: what does not vary is computed
once, without any later pass.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from tilewright.errors import Location, Unsupported
from tilewright.ir.core import Op
from tilewright.ir.types import DTYPES, DType, ElementType, PointerType
from tilewright.ops.numerics import narrow

__all__ = ["Code", "Element", "Section", "constant_text", "llvm_type", "memory_type", "vector"]

_NO_RULES: Mapping[type[Op], Callable[..., str]] = MappingProxyType({})
_LLVM_TYPES = {"fp16": "half", "fp32": "float", "fp64": "double"}


def llvm_type(element: ElementType) -> str:
    """Return the LLVM type of an element in a register; bf16 and fp8 are opaque bits there."""
    if isinstance(element, PointerType):
        return "ptr"
    return _LLVM_TYPES.get(element.short_name, f"i{element.primitive_bitwidth}")


def memory_type(element: ElementType) -> str:
    """Return the LLVM type of an element in memory: a bool takes a byte."""
    return "i8" if element is DTYPES["i1"] else llvm_type(element)


def vector(type_: str, lanes: int) -> str:
    """Return the type of `lanes` elements: the scalar type itself for one."""
    return type_ if lanes == 1 else f"<{lanes} x {type_}>"


def mangled(type_: str, lanes: int) -> str:
    """Return the suffix of an overloaded intrinsic's name: `v16f32`, `i64`."""
    short = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}.get(type_, type_)
    return short if lanes == 1 else f"v{lanes}{short}"


def constant_text(value: float, element: ElementType) -> str:
    """Return a compile-time number as an LLVM literal of the element's type."""
    if isinstance(element, PointerType):
        if value == 0:
            return "null"
        raise Unsupported(
            f"the constant pointer {value:#x}", hint="pass the array as an argument of the kernel"
        )
    if element.is_bool():
        return "true" if value else "false"
    if not element.is_floating():
        return str(int(value))
    if element.short_name in {"fp32", "fp64"}:
        with np.errstate(all="ignore"):
            exact = float(np.asarray(value).astype(element.numpy))
        return f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"
    bits = int(narrow(np.asarray(float(value)), element).view(f"u{element.itemsize}"))
    return f"0xH{bits:04X}" if element.short_name == "fp16" else str(bits)


class Element(NamedTuple):
    """A value in the code: `lanes` elements (1: a scalar), known from section `level` on."""

    text: str
    lanes: int
    level: int


@dataclass
class Section:
    """Code of one loop level, and what has been computed there already."""

    lines: list[str] = field(default_factory=list)
    known: dict[Any, Element] = field(default_factory=dict)


class SourceLines(Protocol):
    """Knows how an instruction says which line of the user's source it comes from."""

    def mark(self, location: Location) -> str:
        """Return what stands behind an instruction of this place."""


class _Place:
    """Marks what is written inside; entered for every element, so no generator."""

    __slots__ = ("_code", "_mark")

    def __init__(self, code: Code, mark: str) -> None:
        self._code, self._mark = code, mark

    def __enter__(self) -> None:
        self._swap()

    def __exit__(self, *raised: object) -> None:
        self._swap()

    def _swap(self) -> None:
        self._code.mark, self._mark = self._mark, self._code.mark


class Code:
    """One function being written.

    With `source_lines`, instructions say where they come from. `rules` are the target's own ways to
    write ops, which go before those of `arithmetic`.
    """

    def __init__(
        self,
        features: frozenset[str] = frozenset(),
        source_lines: SourceLines | None = None,
        rules: Mapping[type[Op], Callable[..., str]] = _NO_RULES,
    ) -> None:
        self.features, self.rules = features, rules
        self._source_lines = source_lines
        self.mark = ""
        self.streams = False  # whether some stores went past the caches
        self.sections: list[Section] = [Section()]
        self.allocas: list[str] = []
        self.entry_lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.definitions: dict[str, str] = {}
        self._count = 0

    @property
    def is_x86(self) -> bool:
        return "sse2" in self.features

    @property
    def level(self) -> int:
        """The innermost open section."""
        return len(self.sections) - 1

    def name(self, hint: str = "v") -> str:
        self._count += 1
        return f"%{hint}{self._count}"

    def label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str, level: int | None = None) -> None:
        """Write an instruction to the section of `level` (the innermost one by default)."""
        self.sections[self.level if level is None else level].lines.append(text + self.mark)

    def place(self, label: str) -> None:
        """Start a basic block."""
        self.sections[-1].lines.append(f"{label}:")

    def at(self, location: Location | None) -> _Place:
        """Inside, instructions come from this place (from the one before where it is unknown)."""
        if self._source_lines is None or location is None:
            return _Place(self, self.mark)
        return _Place(self, self._source_lines.mark(location))

    def assign(self, text: str, level: int | None = None) -> str:
        """Write `%name = text` and return the name."""
        name = self.name()
        self.line(f"{name} = {text}", level)
        return name

    def alloca(self, type_: str) -> str:
        """Reserve a stack slot in the entry block (LLVM turns it into registers)."""
        name = self.name("slot")
        self.allocas.append(f"{name} = alloca {type_}, align 64")
        return name

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Write what runs once, when the function is entered."""
        outer, self.sections = self.sections, [Section()]
        yield
        self.entry_lines += self.sections[0].lines
        self.sections = outer

    def call(self, result: str, name: str, arguments: str, level: int | None = None) -> str:
        """Call a declared function; `arguments` is `type value, ...`. "" for a void result."""
        types = ", ".join(_argument_type(a) for a in _split(arguments))
        self.declarations[name] = f"declare {result} @{name}({types})"
        text = f"call {result} @{name}({arguments})"
        if result == "void":
            self.line(text, level)
            return ""
        return self.assign(text, level)

    def splat(self, element: Element, type_: str, lanes: int) -> str:
        """Return the element as `lanes` lanes."""
        if element.lanes == lanes:
            return element.text
        if not element.text.startswith("%"):
            return f"splat ({type_} {element.text})"
        key = ("splat", element.text, lanes)
        known = self.sections[element.level].known
        if key not in known:
            whole = vector(type_, lanes)
            one = self.assign(
                f"insertelement {whole} poison, {type_} {element.text}, i32 0", element.level
            )
            text = self.assign(
                f"shufflevector {whole} {one}, {whole} poison, <{lanes} x i32> zeroinitializer",
                element.level,
            )
            known[key] = Element(text, lanes, element.level)
        return known[key].text

    @contextlib.contextmanager
    def section(self) -> Iterator[Section]:
        """Write to a new innermost section, which ends up behind the outer one's code so far."""
        inner = Section()
        self.sections.append(inner)
        yield inner
        self.sections.pop()
        self.sections[-1].lines.append("\n".join(inner.lines))

    @contextlib.contextmanager
    def forgotten(self, level: int) -> Iterator[None]:
        """Inside, nothing is found again that sections inside `level` have computed."""
        hidden = [(section, section.known) for section in self.sections[level + 1 :]]
        for section, _ in hidden:
            section.known = {}
        yield
        for section, known in hidden:
            section.known = known

    @contextlib.contextmanager
    def guarded(self, condition: str) -> Iterator[None]:
        """Write inside what runs only where a condition holds; what it computes is known there.

        The branch is part of the inner section: what is written to an outer one goes before it.
        """
        inside, after = self.label("then"), self.label("next")
        with self.section():
            self.line(f"br i1 {condition}, label %{inside}, label %{after}")
            self.place(inside)
            yield
            self.line(f"br label %{after}")
            self.place(after)

    @contextlib.contextmanager
    def counted_loop(self, start: str, stop: str, step: str, type_: str = "i32") -> Iterator[str]:
        """Write a loop over start, start + step, ... < stop (which runs at least once)."""
        slot = self.alloca(type_)
        head = self.label("loop")
        with self.section():
            self.line(f"store {type_} {start}, ptr {slot}")
            self.line(f"br label %{head}")
            self.place(head)
            index = self.assign(f"load {type_}, ptr {slot}")
            yield index
            following = self.assign(f"add nuw nsw {type_} {index}, {step}")
            self.line(f"store {type_} {following}, ptr {slot}")
            more = self.assign(f"icmp slt {type_} {following}, {stop}")
            done = self.label("done")
            self.line(f"br i1 {more}, label %{head}, label %{done}")
            self.place(done)

    def lookup(self, key: Any) -> Element | None:
        """Return what has been computed under `key` in an open section."""
        for section in reversed(self.sections):
            if key in section.known:
                return section.known[key]
        return None

    def remember(self, key: Any, element: Element) -> Element:
        self.sections[element.level].known[key] = element
        return element


def _split(arguments: str) -> list[str]:
    """Split at the commas that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(arguments):
        depth += (c in "<({[") - (c in ">)}]")
        if c == "," and not depth:
            parts.append(arguments[start:i].strip())
            start = i + 1
    last = arguments[start:].strip()
    return [*parts, last] if last else parts


def _argument_type(argument: str) -> str:
    """`<4 x i32> %x` -> `<4 x i32>`."""
    if argument.startswith("<"):
        return argument[: argument.index(">") + 1]
    words = argument.split()
    if words[1:2] == ["align"]:
        return " ".join(words[:3])
    return " ".join(words[:2]) if words[1:] and words[1].startswith("addrspace") else words[0]


def dtype(element: ElementType) -> DType:
    """Return the element type of a tile that is known not to hold pointers."""
    assert isinstance(element, DType)
    return element
