"""What GPUs have: instructions in their own assembly, and numbers of the hardware."""

from __future__ import annotations

import enum
from typing import ClassVar

from tilewright.errors import Unsupported
from tilewright.ir.core import Block, Effect, MachineOp, Op, Value, require
from tilewright.ir.types import DTYPES, DType, TileType
from tilewright.ops.machine import Machine
from tilewright.ops.numerics import Array
from tilewright.ops.ptx import Signature, check_dollars, expansion, read_constraints

__all__ = [
    "ForeignCall", "GridDependency", "HardwareNumber", "HardwareRegister", "InlineAssembly",
]  # fmt: skip


class InlineAssembly(MachineOp):
    """Elements computed by PTX, `pack` of them at a time.

    `constraints` name the registers of the results, then those of `args`, as LLVM's inline assembly
    does. Elements of less than 32 bits share registers. Numeric instructions are ops on tiles for
    machines that are no NVIDIA GPUs, which have no others.
    """

    args: tuple[Value, ...]
    assembly: str
    constraints: str
    elements: tuple[DType, ...]
    is_pure: bool
    pack: int = 1

    def infer(self) -> tuple[TileType, ...]:
        require(
            self.pack >= 1 and self.pack & (self.pack - 1) == 0,
            f"inline_asm_elementwise: pack must be a power of two, got {self.pack}",
            hint="pack=1 takes one element of each argument at a time",
        )
        shapes = {value.shape for value in self.args}
        require(
            len(shapes) <= 1,
            "inline_asm_elementwise: the arguments differ in shape",
            hint="broadcast them to one shape: tl.broadcast(x, y)",
        )
        shape = shapes.pop() if shapes else ()
        outputs, inputs = read_constraints(self.signature)  # raises where they do not fit
        check_dollars(self.assembly, sum(r.count for r in (*outputs, *inputs)))
        return tuple(TileType(element, shape) for element in self.elements)

    @property
    def effects(self) -> Effect:
        return Effect.NONE if self.is_pure else Effect.READ | Effect.WRITE

    @property
    def signature(self) -> Signature:
        """What goes in and comes out, as registers hold it."""
        arguments = tuple(value.type.element for value in self.args)
        return Signature(self.constraints, self.elements, arguments, self.pack, self.location)

    @property
    def expansion(self) -> Block:
        """The ops that do the same, over the tiles of the arguments."""
        shape = self.results[0].shape if self.results else ()
        return expansion(self.assembly, self.signature, shape)

    def evaluate(self, machine: Machine, args: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(machine.run(self.expansion, *args))


class ForeignCall(Op):
    """Elements computed by a function of a library for the target, named `library`, at `path`.

    Which file that is may be left to the launch: then the path is empty.
    """

    args: tuple[Value, ...]
    library: str
    path: str
    symbol: str
    element: DType
    is_pure: bool

    def infer(self) -> TileType:
        shapes = {value.shape for value in self.args}
        require(
            len(shapes) <= 1,
            "extern_elementwise: the arguments differ in shape",
            hint="broadcast them to one shape: tl.broadcast(x, y)",
        )
        return TileType(self.element, shapes.pop() if shapes else ())

    @property
    def effects(self) -> Effect:
        return Effect.NONE if self.is_pure else Effect.READ | Effect.WRITE

    def evaluate(self, args: tuple[Array, ...]) -> Array:
        raise Unsupported(
            f"`{self.symbol}` runs on the GPU that its library is made for, not in the interpreter",
            location=self.location,
            hint="the functions of tl.extra.libdevice run everywhere",
        )


class HardwareRegister(enum.StrEnum):
    """A number that the hardware keeps."""

    GLOBAL_TIMER = "globaltimer"
    MULTIPROCESSOR = "smid"
    NUM_THREADS = "num_threads"
    NUM_WARPS = "num_warps"


class HardwareNumber(MachineOp):
    """A number of the hardware, which is another each time it is asked for."""

    effect: ClassVar[Effect] = Effect.READ | Effect.WRITE
    register: HardwareRegister

    def infer(self) -> TileType:
        is_timer = self.register is HardwareRegister.GLOBAL_TIMER
        return TileType(DTYPES["i64" if is_timer else "i32"])

    def evaluate(self, machine: Machine) -> Array:
        raise Unsupported(
            f"only an NVIDIA GPU has tl.extra.cuda.{self.register}()",
            location=self.location,
            hint="launch on arrays of an NVIDIA GPU, or emulate one: `tilewright.emulate(...)`",
        )


class GridDependency(MachineOp):
    """Wait for the launches before this one, or let those behind it start (`releases`).

    Where launches follow each other anyway there is nothing to do.
    """

    effect: ClassVar[Effect] = Effect.READ | Effect.WRITE
    releases: bool

    def infer(self) -> tuple[TileType, ...]:
        return ()

    def evaluate(self, machine: Machine) -> None:
        """Launches follow each other here."""
