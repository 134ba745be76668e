"""Writing the blocks of a function: what is more than a recipe, where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from tilewright import ops
from tilewright.codegen.code import Element
from tilewright.codegen.gpu.atomics import AtomicMachine, Atomics
from tilewright.codegen.gpu.barriers import BarrierMachine
from tilewright.codegen.gpu.block_copies import BlockCopies
from tilewright.codegen.gpu.control import ControlFlow
from tilewright.codegen.gpu.counting import count, sort_tile
from tilewright.codegen.gpu.diagnostics import DiagnosticMachine, Diagnostics
from tilewright.codegen.gpu.foreign_calls import write_call
from tilewright.codegen.gpu.inline_assembly import AssemblyMachine, write_assembly
from tilewright.codegen.gpu.memory import GlobalMemory
from tilewright.codegen.gpu.pipeline import Stages
from tilewright.codegen.gpu.products import Products
from tilewright.codegen.gpu.pull import Puller
from tilewright.codegen.gpu.reduce import Reductions
from tilewright.codegen.gpu.scan import scan_tile
from tilewright.errors import Unsupported
from tilewright.ir.core import Op

__all__ = ["BlockWriter", "Machine"]


class Machine(
    BarrierMachine,
    AtomicMachine,
    AssemblyMachine,
    DiagnosticMachine,
    Protocol,
):
    """What an architecture has to offer."""

    def hardware_number(self, register: ops.HardwareRegister) -> str:
        """Return a number that the hardware keeps."""

    def grid_dependency(self, *, releases: bool) -> None:
        """Wait for the launches before this one, or let those behind it start."""


class BlockWriter:
    """Writes the blocks of one function; how products and copies of blocks are made is given."""

    def __init__(
        self,
        puller: Puller,
        machine: Machine,
        atomics: Atomics,
        products: Products,
        copies: BlockCopies,
        stages: Stages,
    ) -> None:
        self.puller, self.machine = puller, machine
        self.code, self.uses, self.placement = puller.code, puller.uses, puller.placement
        self.memory = GlobalMemory(puller, self.placement, machine)
        self.atomics, self.products, self.copies = atomics, products, copies
        self.reductions = Reductions(puller, self.placement)
        self.diagnostics = Diagnostics(puller, self.placement, machine)
        self.control = ControlFlow(self, machine, stages)
        self._scopes: list[ExitStack] = []

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Write a block inside: what it keeps in shared memory is given up behind."""
        with ExitStack() as stack:
            self._scopes.append(stack)
            yield
            self._scopes.pop()

    def write_block(
        self, written: Iterable[Op], meanwhile: Callable[[], None] | None = None
    ) -> None:
        """Write the ops of a block; `meanwhile` writes what is done while the last products run."""
        self.write(written)
        self.control.start_copies()
        if meanwhile is not None:
            meanwhile()
        self.products.await_all()

    def write(self, written: Iterable[Op]) -> None:
        """Write ops at the current place; what is only a recipe is written where it is needed.

        Products may run on behind them.
        """
        for op in self.products.ordered(written, self.control.deferred):
            if isinstance(op, ops.Load) or not (
                op.results and all(self.uses.is_virtual(v) for v in op.results)
            ):
                with self.code.at(op.location), self.puller.shared.at(op.location):
                    if not self._opens(op):
                        self.control.start_copies()
                    self.products.await_for(op)
                    self._op(op)

    def _opens(self, op: Op) -> bool:
        """Whether an op may come before the copies that its iteration starts."""
        if op in self.puller.tiles or (isinstance(op, ops.Dot) and self._runs_on(op)):
            return True
        has_tiles = any(value.shape for value in (*op.operands, *op.results))
        return bool(op.results) and not has_tiles and not op.regions

    def _runs_on(self, op: ops.Dot) -> bool:
        return self.placement.product(op).runs_on and op not in self.control.deferred

    def _is_loaded(self, op: Op) -> bool:
        """Whether a loop has loaded it ahead."""
        puller = self.puller
        return op in puller.tiles or (op in puller.ahead and op in puller.scalars)

    def _op(self, op: Op) -> None:
        match op:
            case ops.Full() | ops.Assume():
                pass
            case ops.Assert():
                self.diagnostics.check(op)
            case ops.Print():
                self.diagnostics.show(op)
            case ops.Barrier():
                self.puller.shared.barrier()
            case ops.Load() | ops.DescriptorLoad() if self._is_loaded(op):
                pass
            case ops.DescriptorLoad():
                self._scopes[-1].enter_context(self.copies.loaded(op))
            case ops.DescriptorStore() | ops.DescriptorReduce():
                self.copies.store(op)
            case ops.Load() if op.shape:
                self.memory.load(op)
            case ops.Load():
                self.memory.load_scalar(op)
            case ops.Store() if op.pointer.shape:
                self.memory.store(op)
            case ops.Store():
                self.memory.store_scalar(op)
            case ops.Reduce():
                self.reductions.write(op)
            case ops.Scan():
                scan_tile(self.puller, self.placement, op)
            case ops.Histogram():
                count(self.puller, self.placement, op)
            case ops.Sort():
                sort_tile(self.puller, self.placement, op)
            case ops.AtomicRmw() | ops.AtomicCas():
                self.atomics.write(op)
            case ops.InlineAssembly():
                write_assembly(self.puller, self.placement, self.machine, op)
            case ops.ForeignCall():
                write_call(self.puller, self.placement, op)
            case ops.GridDependency(releases=releases):
                self.machine.grid_dependency(releases=releases)
            case ops.Dot():
                self.products.write(op, is_deferred=op in self.control.deferred)
            case ops.For():
                self.control.write_for(op)
            case ops.While():
                self.control.write_while(op)
            case ops.If():
                self.control.write_if(op)
            case ops.MapElements():
                self.control.write_map(op)
            case _:
                self._scalar(op)

    def _scalar(self, op: Op) -> None:
        puller = self.puller
        match op:
            case ops.ProgramId(axis=axis):
                puller.scalars[op] = Element(self.machine.program_number(axis), 1, 0)
            case ops.NumPrograms(axis=axis):
                puller.scalars[op] = Element(self.machine.program_count(axis), 1, 0)
            case ops.HardwareNumber(register=register):
                text = self._hardware_number(register)
                puller.scalars[op] = Element(text, 1, self.code.level)
            case ops.Hint(x=x):
                puller.scalars[op] = puller.scalar(x)
            case ops.Reshape(x=x) if x.shape:
                layout = self.placement.of_elements(x)
                puller.scalars[op] = puller.pull(x, layout, 0)
            case ops.Split(x=x):
                layout = self.placement.in_every_thread(x)
                for number, half in enumerate(op.results):
                    puller.scalars[half] = puller.pull(x, layout, number)
            case _ if any(v.shape for v in (*op.operands, *op.results)) or not op.results:
                raise Unsupported(
                    f"{op.op_name} on a GPU",
                    location=op.location,
                    hint="it runs on the CPU, on arrays in its memory",
                )
            case _:
                puller.scalars[op] = puller.apply(op, [puller.scalar(v) for v in op.operands])

    def _hardware_number(self, register: ops.HardwareRegister) -> str:
        warps = self.placement.num_warps
        match register:
            case ops.HardwareRegister.NUM_WARPS:
                return str(warps)
            case ops.HardwareRegister.NUM_THREADS:
                return str(warps * self.machine.warp_size)
            case _:
                return self.machine.hardware_number(register)
