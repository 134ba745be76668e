"""Reading PTX: the text that LLVM's NVPTX back end writes, and inline assembly inside it.

Scopes in braces rename what they declare, so that a kernel is one flat list of instructions with
unique register names and labels.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from dataclasses import dataclass, field
from math import prod

from tilewright.emulator.program import (
    Address,
    EmulatorError,
    Immediate,
    Instruction,
    Kernel,
    Module,
    Negated,
    Operand,
    Pair,
    Parameter,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)

__all__ = ["parse", "type_bits"]

_NAME = r"[A-Za-z_$%.][\w$%.]*"
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_STATEMENT = re.compile(r'(?:"[^"]*"|[^;"])*;')
_LABEL = re.compile(rf"({_NAME})\s*:(?!:)")
_HEX_FLOAT = re.compile(r"0([fFdD])([0-9A-Fa-f]+)$")
_INTEGER = re.compile(r"[-+]?(0[xX][0-9A-Fa-f]+|0[bB][01]+|\d+)U?$")
_DECIMAL = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?$|[-+]?\d+\.?[eE][-+]?\d+$|[-+]?\d+\.$")
_DECLARATION = re.compile(
    r"(?P<linkage>(?:\.(?:extern|visible|weak|common|internal|attribute\([^)]*\))\s+)*)"
    r"\.(?P<space>global|const|shared|local|param)\s+"
    r"(?:\.align\s+(?P<align>\d+)\s+)?(?:\.ptr\s+(?:\.\w+\s+)*(?:\.align\s+\d+\s+)?)?"
    r"(?:\.(?P<vector>v[24])\s+)?\.(?P<type>\w+)\s+"
    r"(?:\.ptr\s+(?:\.(?!align)\w+\s+)*(?:\.align\s+\d+\s+)?)?"
    rf"(?P<name>{_NAME})(?P<dims>(?:\s*\[\s*\d*\s*\])*)\s*(?:=\s*(?P<values>.*))?$",
    re.DOTALL,
)
_SPECIAL = re.compile(
    r"%(n?tid|n?ctaid|laneid|n?warpid|n?smid|gridid|n?clusterid|cluster_n?cta(id|rank)"
    r"|is_explicit_cluster|clock(64|_hi)?|globaltimer(_lo|_hi)?|lanemask_(eq|le|lt|ge|gt)"
    r"|(dynamic|total)_smem_size|reserved_smem_offset_(begin|end))(\.[xyzw])?$"
)


def type_bits(name: str) -> int:
    """Return the bits of a fundamental type: 32 for `u32`, 1 for `pred`."""
    if name == "pred":
        return 1
    digits = re.search(r"(\d+)(?:x(\d+))?$", name)
    if digits is None:
        raise EmulatorError(f"`.{name}` is not a type of PTX")
    return int(digits[1]) * int(digits[2] or 1)


def parse(text: str) -> Module:
    """Read a PTX module. Errors name the line."""
    return _ModuleParser(text).parse()


@dataclass
class _Scope:
    """What a pair of braces declares."""

    registers: dict[str, tuple[str, int]] = field(default_factory=dict)
    families: dict[str, tuple[int, int]] = field(default_factory=dict)  # prefix: bits, count
    names: dict[str, str] = field(default_factory=dict)  # labels and variables


class _Cursor:
    """A text without its comments, and a position in it."""

    def __init__(self, text: str) -> None:
        blank = _COMMENT.sub(
            lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text
        )
        self.text, self.position = blank, 0
        self._starts = [0, *(m.end() for m in re.finditer("\n", blank))]

    @property
    def line(self) -> int:
        return bisect_right(self._starts, self.position)

    def skip_blanks(self) -> bool:
        """Move to the next visible character; False at the end."""
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1
        return self.position < len(self.text)

    def starts_with(self, word: str | tuple[str, ...]) -> bool:
        return self.text.startswith(word, self.position)

    def take_line(self) -> str:
        end = self.text.find("\n", self.position)
        end = len(self.text) if end < 0 else end
        line, self.position = self.text[self.position : end], end
        return line.strip()

    def take_statement(self) -> str:
        found = _STATEMENT.match(self.text, self.position)
        if found is None:
            rest = self.text[self.position : self.position + 60].split("\n")[0]
            raise EmulatorError(f"PTX line {self.line}: no `;` ends the statement `{rest}`")
        self.position = found.end()
        return found[0][:-1].strip()

    def take_until(self, characters: str) -> str:
        start = self.position
        while self.position < len(self.text) and self.text[self.position] not in characters:
            self.position += 1
        return self.text[start : self.position]

    def take_block(self) -> str:
        """Take a balanced `{...}` or `(...)` and return what is inside."""
        closing = {"{": "}", "(": ")"}[opening := self.text[self.position]]
        depth, start = 0, self.position + 1
        while self.position < len(self.text):
            character = self.text[self.position]
            depth += (character == opening) - (character == closing)
            self.position += 1
            if not depth:
                return self.text[start : self.position - 1]
        raise EmulatorError(f"PTX line {self.line}: `{opening}` is never closed")


class _ModuleParser:
    def __init__(self, text: str) -> None:
        self.cursor = _Cursor(text)
        self.module = Module()
        self.files: dict[int, str] = {}
        for line in re.findall(r"^\s*(\.file\b.*)", self.cursor.text, re.MULTILINE):
            self.read_file(line)  # they may stand behind the kernels

    def parse(self) -> Module:
        cursor = self.cursor
        while cursor.skip_blanks():
            if cursor.starts_with((".file", ".version", ".address_size")):
                cursor.take_line()
            elif cursor.starts_with(".target"):
                self.module.target = cursor.take_line().removeprefix(".target").strip()
            elif cursor.starts_with(".section"):
                cursor.take_until("{")
                cursor.take_block()
            elif re.match(r"(\.\w+\s+)*\.(entry|func)\b", cursor.text[cursor.position :][:200]):
                self.read_function()
            elif cursor.starts_with(";"):
                cursor.position += 1
            else:
                self.read_variable()
        return self.module

    def read_file(self, line: str) -> None:
        found = re.match(r'\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?', line)
        if found:
            path = f"{found[2]}/{found[3]}" if found[3] else found[2]
            self.files[int(found[1])] = path

    def read_variable(self) -> None:
        line, statement = self.cursor.line, self.cursor.take_statement()
        if statement.startswith((".pragma", ".alias")):
            return
        self.module.variables.append(read_declaration(statement, line))

    def read_function(self) -> None:
        cursor, line = self.cursor, self.cursor.line
        head = cursor.take_until("({;")
        if ".func" in head:
            self.read_device_function(head)
            return
        kernel = Kernel(head.split()[-1])
        if cursor.starts_with("("):
            kernel.parameters = read_parameters(cursor.take_block(), line)
        for found in re.finditer(r"\.(\w+)\s*([\d,\s]*)", cursor.take_until("{;")):
            kernel.directives[found[1]] = tuple(int(x) for x in re.findall(r"\d+", found[2]))
        if not cursor.starts_with("{"):
            cursor.position += 1
            return
        _BodyParser(self, kernel).parse()
        self.module.kernels[kernel.name] = kernel

    def read_device_function(self, head: str) -> None:
        cursor = self.cursor
        name = head.rsplit(maxsplit=1)[-1] if not head.rstrip().endswith(".func") else ""
        while not cursor.starts_with("{") and not cursor.starts_with(";"):
            if cursor.starts_with("("):
                cursor.take_block()
            word = cursor.take_until("({;").strip()
            if not name and word:
                name = word.split()[0]
        self.module.functions.add(name)
        if cursor.starts_with("{"):
            cursor.take_block()
        else:
            cursor.position += 1


class _BodyParser:
    """Reads one kernel's body."""

    def __init__(self, parent: _ModuleParser, kernel: Kernel) -> None:
        self.cursor, self.files, self.kernel = parent.cursor, parent.files, kernel
        self.scopes: list[_Scope] = []
        self.source: tuple[str, int] | None = None
        self.callers: tuple[tuple[str, int], ...] = ()
        self.column = 0
        self.scope_count = 0

    def parse(self) -> None:
        cursor = self.cursor
        while cursor.skip_blanks():
            if cursor.starts_with("{"):
                cursor.position += 1
                self.open_scope()
            elif cursor.starts_with("}"):
                cursor.position += 1
                self.scopes.pop()
                if not self.scopes:
                    return
            elif cursor.starts_with((".loc ", ".loc\t")):
                self.read_location(cursor.take_line())
            elif cursor.starts_with(".section"):
                cursor.take_until("{")
                cursor.take_block()
            elif cursor.starts_with(";"):
                cursor.position += 1
            elif (label := _LABEL.match(cursor.text, cursor.position)) is not None:
                cursor.position = label.end()
                name = self.scopes[-1].names.get(label[1], label[1])
                self.kernel.labels[name] = len(self.kernel.instructions)
            else:
                self.read_statement()
        raise EmulatorError(f"PTX line {cursor.line}: kernel `{self.kernel.name}` has no end")

    def open_scope(self) -> None:
        """Enter braces; labels are known from the start, since a branch may lead forward."""
        scope = _Scope()
        self.scopes.append(scope)
        self.scope_count += 1
        if len(self.scopes) == 1:
            return
        position = self.cursor.position
        self.cursor.position -= 1
        inside = self.cursor.take_block()
        self.cursor.position = position
        for label in re.finditer(rf"(?:^|[;{{}}\n])\s*({_NAME})\s*:(?!:)", inside):
            scope.names[label[1]] = f"{label[1]}@{self.scope_count}"

    def read_location(self, line: str) -> None:
        """A place inside a called function follows the `.loc` of the call."""
        found = re.match(r"\.loc\s+(\d+)\s+(\d+)(?:\s+(\d+))?", line)
        if found:
            outer = () if self.source is None else (self.source, *self.callers)
            self.callers = outer if "inlined_at" in line else ()
            self.source = (self.files.get(int(found[1]), f"file {found[1]}"), int(found[2]))
            self.column = int(found[3] or 0)

    def read_statement(self) -> None:
        line, statement = self.cursor.line, self.cursor.take_statement()
        if statement.startswith(".reg"):
            self.declare_registers(statement, line)
        elif statement.startswith(".branchtargets"):
            here = [n for n in self.kernel.labels if self.is_here(n)]
            targets = statement.removeprefix(".branchtargets").split(",")
            self.kernel.branch_targets[here[-1]] = tuple(target.strip() for target in targets)
        elif statement.startswith(".pragma"):
            return
        elif statement.startswith("."):
            self.declare_variable(statement, line)
        else:
            self.kernel.instructions.append(self.read_instruction(statement, line))

    def is_here(self, label: str) -> bool:
        return self.kernel.labels[label] == len(self.kernel.instructions)

    def declare_variable(self, statement: str, line: int) -> None:
        variable = read_declaration(statement, line)
        unique = variable.name
        if len(self.scopes) > 1:
            unique = self.scopes[-1].names[variable.name] = f"{variable.name}@{self.scope_count}"
        self.kernel.variables.append(
            Variable(unique, variable.space, variable.type, variable.count, variable.alignment)
        )

    def declare_registers(self, statement: str, line: int) -> None:
        found = re.match(r"\.reg\s+(?:\.v[24]\s+)?\.(\w+)\s+(.*)$", statement, re.DOTALL)
        if found is None:
            raise EmulatorError(f"PTX line {line}: cannot read `{statement}`")
        scope, bits = self.scopes[-1], type_bits(found[1])
        if bits > 64:
            raise EmulatorError(f"PTX line {line}: registers of {bits} bits are not modelled")
        for name in found[2].split(","):
            family = re.match(r"(\S+?)<(\d+)>$", name.strip())
            suffix = f"@{self.scope_count}" if len(self.scopes) > 1 else ""
            if family:
                scope.families[family[1]] = (bits, int(family[2]))
                scope.names[f"<{family[1]}>"] = suffix
            else:
                scope.registers[name.strip()] = (name.strip() + suffix, bits)

    def find_register(self, name: str) -> Register | None:
        prefix = name.rstrip("0123456789")
        for scope in reversed(self.scopes):
            if name in scope.registers:
                return Register(*scope.registers[name])
            if prefix in scope.families and prefix != name:
                bits, count = scope.families[prefix]
                if int(name[len(prefix) :]) < count:
                    return Register(name + scope.names[f"<{prefix}>"], bits)
        return None

    def find_name(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
        return name

    def read_instruction(self, statement: str, line: int) -> Instruction:
        text = " ".join(statement.split())
        rest, predicate, is_negated = text, None, False
        if guard := re.match(r"@(!?)\s*(\S+)\s+", text):
            predicate, is_negated = self.find_register(guard[2]), guard[1] == "!"
            rest = text[guard.end() :]
            if predicate is None:
                raise EmulatorError(f"PTX line {line}: `{guard[2]}` is not declared: `{text}`")
        head, _, tail = rest.partition(" ")
        opcode, *modifiers = head.split(".")
        operands = tuple(self.read_operand(part, text, line) for part in split_top(tail))
        return Instruction(
            opcode, tuple(modifiers), operands, predicate, is_negated, line, self.source, text,
            self.callers, self.column,
        )  # fmt: skip

    def read_operand(self, text: str, statement: str, line: int) -> Operand:
        def inner(part: str) -> Operand:
            return self.read_operand(part, statement, line)

        text = text.strip()
        if text[:1] in {"{", "("} and text[-1:] in {"}", ")"}:
            return Vector(tuple(inner(part) for part in split_top(text[1:-1])))
        if text.startswith("[") and text.endswith("]"):
            first, *rest = split_top(text[1:-1])
            base, offset = self.split_offset(first)
            return Address(inner(base), offset, tuple(inner(part) for part in rest))
        if text.startswith("!"):
            return Negated(inner(text[1:]))
        if text == "_":
            return Sink()
        if "|" in text:
            first, _, second = text.partition("|")
            return Pair(inner(first), inner(second))
        if (number := read_number(text)) is not None:
            return number
        if (register := self.find_register(text)) is not None:
            return register
        if _SPECIAL.match(text):
            return Special(text[1:])
        if text == "WARP_SZ":
            return Immediate(32)
        if re.match(rf"{_NAME}(\s*\+\s*-?\d+)?$", text) and not text.startswith("%"):
            base, offset = self.split_offset(text)
            return Symbol(self.find_name(base), offset)
        raise EmulatorError(f"PTX line {line}: cannot read the operand `{text}` of `{statement}`")

    @staticmethod
    def split_offset(text: str) -> tuple[str, int]:
        found = re.match(r"(.+?)\s*(?:\+\s*(-?\s*\w+)|(-\s*\d+))$", text.strip())
        if found is None or not re.match(r"[A-Za-z_$%]", text.strip()):
            return text.strip(), 0
        return found[1], int((found[2] or found[3]).replace(" ", ""), 0)


def split_top(text: str) -> list[str]:
    """Split at the commas that are in no bracket."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "{[(") - (character in "}])")
        if character == "," and not depth:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def read_number(text: str) -> Immediate | None:
    """Read an integer, or a float in decimal or as its bits (`0f3F800000`)."""
    if found := _HEX_FLOAT.match(text):
        bits = int(found[2], 16)
        if found[1] in "fF":
            return Immediate(struct.unpack("<f", struct.pack("<I", bits))[0], bits)
        return Immediate(struct.unpack("<d", struct.pack("<Q", bits))[0], bits)
    if _INTEGER.match(text):
        digits = text.rstrip("U")
        unsigned = digits.lstrip("+-")
        is_octal = len(unsigned) > 1 and unsigned[0] == "0" and unsigned.isdigit()
        return Immediate(int(digits, 8) if is_octal else int(digits, 0))
    if _DECIMAL.match(text):
        return Immediate(float(text))
    return None


def read_declaration(statement: str, line: int) -> Variable:
    """Read the declaration of a variable in memory."""
    found = _DECLARATION.match(statement)
    if found is None:
        raise EmulatorError(f"PTX line {line}: cannot read `{' '.join(statement.split())}`")
    sizes = [int(size or 0) for size in re.findall(r"\[\s*(\d*)\s*\]", found["dims"])]
    values: list[int | float | Symbol] = []
    for part in re.split(r"[{},\s]+", found["values"] or ""):
        number = read_number(part) if part else None
        if number is not None:
            values.append(number.value if number.bits is None else number.bits)
        elif part:
            name, _, offset = part.removeprefix("generic(").partition("+")
            values.append(Symbol(name.rstrip(")"), int(offset.rstrip(")") or 0)))
    element = max(1, type_bits(found["type"]) // 8)
    lanes = int((found["vector"] or "v1")[1:])
    if sizes and not sizes[0]:
        sizes[0] = len(values) // max(1, prod(sizes[1:]))
    return Variable(
        found["name"],
        found["space"],
        found["type"],
        prod(sizes) * lanes,
        int(found["align"] or element * lanes),
        tuple(values),
        "extern" in found["linkage"],
    )


def read_parameters(text: str, line: int) -> tuple[Parameter, ...]:
    """Lay out the parameters of a kernel, each at its alignment."""
    parameters, offset = [], 0
    for part in split_top(text):
        variable = read_declaration(part, line)
        element = max(1, type_bits(variable.type) // 8)
        is_array = "[" in part
        offset += -offset % max(variable.alignment, element)
        size = element * variable.count
        parameters.append(Parameter(variable.name, offset, size, variable.type, is_array))
        offset += size
    return tuple(parameters)
