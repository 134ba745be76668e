"""Values, ops, blocks and functions of the tile IR. Knows no particular op.

An op *is* the value it computes; an op with several results (or none) is read through `Result`s. An
op is a class whose annotations say what each field is:

=====================  =====================================================
annotation             meaning
=====================  =====================================================
`Value`                an operand
`Value | None`         an operand that may be absent
`tuple[Value, ...]`    any number of operands
`Block`                a region
anything else          an attribute: a number, string, bool, tuple, `DType`,
                       `TileType`, `Function` or enum member
=====================  =====================================================

Constructor, printer, parser, clone and CSE key come from these annotations. The type rule (`infer`)
runs in the constructor, so ill-typed IR cannot exist. Ops are never changed once built: passes
build new ones.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, dataclass_transform

from tilewright.errors import CompileError, Location
from tilewright.ir.types import TileType

__all__ = [
    "OPS",
    "Block",
    "Effect",
    "Function",
    "MachineOp",
    "Op",
    "Param",
    "Result",
    "Value",
    "require",
]


class Effect(enum.Flag):
    """What an op does beside computing its value."""

    NONE = 0
    READ = enum.auto()
    WRITE = enum.auto()


class Value:
    """Something computed: a block parameter, an op or a result of one. Equal means identical."""

    type: TileType
    name: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape


class Param(Value):
    """A parameter of a block or function; `divisible_by` is what a caller promises of its value."""

    def __init__(self, type_: TileType, name: str = "", divisible_by: int = 1) -> None:
        self.type = type_
        self.name = name
        self.divisible_by = divisible_by


class Result(Value):
    """The `index`-th result of an op that has several."""

    def __init__(self, op: Op, index: int, type_: TileType) -> None:
        self.op = op
        self.index = index
        self.type = type_


@dataclass(eq=False)
class Block:
    """A straight line of ops with parameters; `yields` are the values handed back."""

    params: tuple[Param, ...] = ()
    ops: list[Op] = field(default_factory=list)
    yields: tuple[Value, ...] = ()

    @property
    def effect(self) -> Effect:
        """The union of what the ops inside do."""
        effect = Effect.NONE
        for op in self.ops:
            effect |= op.effects
        return effect

    def walk(self) -> Iterator[Op]:
        """Every op, outer before inner, in program order."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


OPS: dict[str, type[Op]] = {}

_KINDS = {
    "Value": "operand",
    "Value | None": "optional",
    "tuple[Value, ...]": "operands",
    "Block": "region",
}


@dataclass_transform(eq_default=False)
class Op(Value):
    """Base of all ops; see the module text for how a subclass declares itself."""

    op_name: ClassVar[str] = ""
    effect: ClassVar[Effect] = Effect.NONE
    field_kinds: ClassVar[dict[str, str]] = {}
    field_names: ClassVar[tuple[str, ...]] = ()
    operand_fields: ClassVar[tuple[tuple[str, bool], ...]] = ()
    region_fields: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        own = {
            name: _KINDS.get(annotation, "attribute")
            for name, annotation in inspect.get_annotations(cls).items()
            if not annotation.startswith("ClassVar")
        }
        cls.field_kinds = {**cls.field_kinds, **own}
        cls.defaults = {**cls.defaults, **{n: cls.__dict__[n] for n in own if n in cls.__dict__}}
        cls.field_names = tuple(cls.field_kinds)
        # To a type checker the class is a dataclass, whose `__match_args__` are made for it.
        cls.__match_args__ = cls.field_names  # type: ignore[attr-defined, misc]
        cls.operand_fields = tuple(
            (name, kind == "operands")
            for name, kind in cls.field_kinds.items()
            if kind in {"operand", "optional", "operands"}
        )
        cls.region_fields = tuple(n for n, kind in cls.field_kinds.items() if kind == "region")
        if abstract:
            return
        cls.op_name = _snake_case(cls.__name__)
        if not cls.__doc__ or cls.op_name in OPS:
            message = f"op {cls.__name__} has no docstring or is declared twice"
            raise TypeError(message)
        OPS[cls.op_name] = cls

    def __init__(self, *args: Any, location: Location | None = None, **kwargs: Any) -> None:
        names = self.field_names
        values = dict(zip(names, args, strict=False)) | kwargs
        if len(values) != len(names):
            values = {**self.defaults, **values}
        if len(args) > len(names) or values.keys() != self.field_kinds.keys():
            message = f"{self.op_name}: expected the fields {', '.join(names)}, got {list(values)}"
            raise TypeError(message)
        self.__dict__.update(values)
        self.location = location
        try:
            types = self.infer()
        except CompileError as error:
            raise error.at(location) from None
        if isinstance(types, TileType):
            self.type = types
            self.results: tuple[Value, ...] = (self,)
        else:
            self.results = tuple(Result(self, i, t) for i, t in enumerate(types))

    def infer(self) -> TileType | Sequence[TileType]:
        """Return the type of the result (or of each of several), or raise `CompileError`."""
        raise NotImplementedError

    def evaluate(self, *operands: Any) -> Any:
        """Compute the result with NumPy from the operands' arrays: the definition of correct.

        Operands arrive in field order (`None` where an optional one is absent, a tuple for a
        variadic field). Ops that need more than their operands derive from `MachineOp`.
        """
        raise NotImplementedError

    @property
    def effects(self) -> Effect:
        """What this op does, regions included."""
        effect = self.effect
        for region in self.regions:
            effect |= region.effect
        return effect

    @property
    def operands(self) -> tuple[Value, ...]:
        """All operands, flat, in field order."""
        fields = self.__dict__
        flat: list[Value] = []
        for name, variadic in self.operand_fields:
            if variadic:
                flat += fields[name]
            elif fields[name] is not None:
                flat.append(fields[name])
        return tuple(flat)

    @property
    def regions(self) -> tuple[Block, ...]:
        return tuple(getattr(self, name) for name in self.region_fields)

    @property
    def attributes(self) -> dict[str, Any]:
        return {n: getattr(self, n) for n, kind in self.field_kinds.items() if kind == "attribute"}

    def rebuild(
        self, value: Callable[[Value], Value], block: Callable[[Block], Block] = lambda b: b
    ) -> Op:
        """Return this op over other operands and regions (itself when nothing differs)."""
        fields: dict[str, Any] = {}
        changed = False
        for name, kind in self.field_kinds.items():
            old = new = getattr(self, name)
            if kind == "operand" or (kind == "optional" and old is not None):
                new = value(old)
            elif kind == "operands":
                new = tuple(map(value, old))
                changed |= any(a is not b for a, b in zip(new, old, strict=True))
                new = new if changed else old
            elif kind == "region":
                new = block(old)
            fields[name] = new
            changed |= new is not old
        if not changed:
            return self
        op = type(self)(**fields, location=self.location)
        op.name = self.name
        return op


class MachineOp(Op, abstract=True):
    """An op whose meaning needs the machine: memory, the program's place in the grid, or regions.

    Its `evaluate` takes the interpreter's `Machine` before the operands.
    """


def _snake_case(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def require(condition: object, message: str, hint: str = "") -> None:
    """Raise `CompileError` unless `condition` holds: for type rules."""
    if not condition:
        raise CompileError(message, hint=hint)


@dataclass(eq=False)
class Function:
    """A kernel or a function it calls, from `body.params` to the results `body.yields`."""

    name: str
    body: Block
    location: Location | None = None
    noinline: bool = False

    @property
    def params(self) -> tuple[Param, ...]:
        return self.body.params
