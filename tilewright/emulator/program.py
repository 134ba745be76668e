"""What a PTX text says, as data: variables, kernels, instructions and their operands."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.errors import Location, TilewrightError

__all__ = [
    "Address",
    "EmulatorError",
    "Immediate",
    "Instruction",
    "Kernel",
    "Module",
    "Negated",
    "Operand",
    "Pair",
    "Parameter",
    "Register",
    "Sink",
    "Special",
    "Symbol",
    "Variable",
    "Vector",
]


class EmulatorError(TilewrightError):
    """The PTX cannot be read, or what it does is not allowed."""


@dataclass(frozen=True, slots=True)
class Register:
    """A register by its unique name; a predicate has one bit."""

    name: str
    bits: int


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A number; `bits` is set for floats written by their bit pattern."""

    value: int | float
    bits: int | None = None


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, parameter, function or label, with a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """Operands in braces or parentheses."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset, more...]`; a tensor address has its coordinates in `rest`."""

    base: Operand
    offset: int = 0
    rest: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations, `d|p`."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """A predicate read as its opposite, `!p`."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """The destination `_`: the result is dropped."""


Operand = Register | Special | Immediate | Symbol | Vector | Address | Pair | Negated | Sink


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, with its line in the PTX and the source line that `.loc` gives it.

    `callers` are the lines of the calls that led there, the innermost first; `column` is that of
    the source, from 1 on, or 0.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    predicate: Register | None
    predicate_negated: bool
    line: int
    source: tuple[str, int] | None
    text: str
    callers: tuple[tuple[str, int], ...] = ()
    column: int = 0

    @property
    def type(self) -> str:
        """The last modifier, which is the type of most instructions."""
        return self.modifiers[-1] if self.modifiers else ""

    def has(self, *modifiers: str) -> bool:
        """Whether any of the modifiers is there."""
        return any(modifier in self.modifiers for modifier in modifiers)

    def place(self) -> str:
        """Where this is, for messages."""
        source = f", {self.source_text()}" if self.source else ""
        return f"PTX line {self.line}{source}: `{self.text}`"

    def location(self) -> Location | None:
        """The source line, with those of its callers; None where it is not known."""
        if self.source is None:
            return None
        caller = None
        for file, line in reversed(self.callers):
            caller = Location(file, line, caller=caller)
        return Location(*self.source, max(0, self.column - 1), caller=caller)

    def source_text(self) -> str:
        """The source line and those of its callers, "" where they are not known."""
        lines = [] if self.source is None else [self.source, *self.callers]
        return ", called from ".join(f"{file}:{line}" for file, line in lines)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel: its place in the parameter space."""

    name: str
    offset: int
    size_bytes: int
    type: str
    is_array: bool


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in memory; `values` are numbers or symbols of its element type."""

    name: str
    space: str
    type: str
    count: int
    alignment: int
    values: tuple[int | float | Symbol, ...] = ()
    is_external: bool = False


@dataclass
class Kernel:
    """An entry: parameters, instructions, and where its labels lead."""

    name: str
    parameters: tuple[Parameter, ...] = ()
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class Module:
    """All of a PTX text."""

    target: str = ""
    kernels: dict[str, Kernel] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    functions: set[str] = field(default_factory=set)
