"""`cp.async` and bulk copies of plain bytes; tensor copies are handed on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.emulator.asynchrony import BulkCopy, PendingCopy
from tilewright.emulator.binding import Binder, numpy_type, opcode
from tilewright.emulator.floats import Array
from tilewright.emulator.groups import Group, Outcome, Signal, State, Step
from tilewright.emulator.instructions import tensor_copy
from tilewright.emulator.instructions.atomics import combine
from tilewright.emulator.instructions.control import do_nothing
from tilewright.emulator.instructions.mbarrier import (
    arrive_at,
    by_barrier,
    complete_bytes,
    find,
    shared_offsets,
)
from tilewright.emulator.machine import Machine
from tilewright.emulator.memory import typed
from tilewright.emulator.program import EmulatorError, Immediate, Instruction, Operand, Register

__all__: list[str] = []


@opcode("cp")
def _copy(binder: Binder, instruction: Instruction, pc: int) -> Step:
    if not instruction.has("bulk"):
        return _small_copy(binder, instruction, pc)
    if instruction.has("prefetch"):
        return do_nothing
    if instruction.has("commit_group"):
        return _commit(lambda: binder.machine.asynchronous.bulk_group)
    if instruction.has("wait_group"):
        return _wait_for_bulk(binder, instruction)
    if instruction.has("tensor"):
        return tensor_copy.bind(binder, instruction)
    return _bulk_copy(binder, instruction)


def _commit(counters: Callable[[], Array]) -> Step:
    def step(group: Group) -> None:
        counters()[group.mask] += 1

    return step


# -- cp.async -------------------------------------------------------------------------------------


def _small_copy(binder: Binder, instruction: Instruction, pc: int) -> Step:
    if instruction.has("commit_group"):
        return _commit(lambda: binder.machine.asynchronous.copy_group)
    if instruction.has("wait_group", "wait_all"):
        return _wait_for_copies(binder, instruction)
    if instruction.has("mbarrier"):
        return _arrive_after_copies(binder, instruction, pc)
    machine = binder.machine
    destination, source, size, *rest = instruction.operands
    to, origin = binder.address(destination), binder.address(source)
    itemsize = int(size.value) if isinstance(size, Immediate) else 0
    if itemsize not in {4, 8, 16}:
        raise EmulatorError("cp.async copies 4, 8 or 16 bytes")
    sizes = _source_sizes(binder, instruction, rest, itemsize)

    def step(group: Group) -> None:
        lanes = group.lanes
        values = _read_source(machine, instruction, origin(lanes), sizes()[lanes], lanes, itemsize)
        index = machine.index_shared(to(lanes), itemsize, lanes, instruction)
        state = machine.asynchronous
        state.copies.append(
            PendingCopy(
                lanes,
                state.copy_group[lanes],
                index,
                values,
                itemsize,
                machine.clock,
                np.zeros(lanes.size, bool),
            )
        )

    return step


def _source_sizes(
    binder: Binder, instruction: Instruction, rest: list[Operand], itemsize: int
) -> Callable[[], Array]:
    """Return a function for the bytes that each thread reads: a size, or a predicate to ignore."""
    width = binder.machine.width
    if len(rest) == int(instruction.has("L2::cache_hint")):
        return lambda: np.full(width, itemsize)
    if isinstance(rest[0], Register) and rest[0].bits == 1:
        ignored = np.asarray(binder.value(rest[0], "pred"))
        return lambda: np.where(ignored, 0, itemsize)
    sizes = np.broadcast_to(binder.value(rest[0], "u32"), (width,))
    return lambda: np.minimum(sizes, itemsize)


def _read_source(
    machine: Machine,
    instruction: Instruction,
    addresses: Array,
    sizes: Array,
    lanes: Array,
    itemsize: int,
) -> Array:
    """Return the bytes (threads, itemsize) that `cp.async` reads, zeros behind each one's size."""
    values = np.zeros((lanes.size, itemsize), np.uint8)
    for size in np.unique(sizes[sizes > 0]).tolist():
        chosen = np.flatnonzero(sizes == size)
        at, who = addresses[chosen], lanes[chosen]
        if size == itemsize:
            items = machine.load("global", at, size, who, instruction)
            values[chosen] = np.ascontiguousarray(items).view(np.uint8).reshape(-1, size)
            continue
        for i in range(size):
            values[chosen, i] = machine.load("global", at + np.uint64(i), 1, who, instruction)
    return values


def _deposit(machine: Machine, allows: Callable[[PendingCopy], Array]) -> None:
    """Write the pending copies that `allows` chooses, in the order of their issue."""
    left = []
    for copy in machine.asynchronous.copies:
        chosen = allows(copy) & ~copy.written
        if chosen.any():
            raw = np.ascontiguousarray(copy.values[chosen])
            items = raw.view(np.uint64) if copy.itemsize == 16 else raw.view(f"u{copy.itemsize}")
            memory = typed(machine.shared, copy.itemsize)
            memory[copy.index[chosen]] = items if copy.itemsize == 16 else items[:, 0]
            copy.written |= chosen
            if machine.races is not None:
                machine.races.copies_done(copy.lanes[chosen], copy.time)
        if not copy.written.all():
            left.append(copy)
    machine.asynchronous.copies = left


def _wait_for_copies(binder: Binder, instruction: Instruction) -> Step:
    machine = binder.machine
    pending = 0
    if instruction.has("wait_group"):
        operand = instruction.operands[0]
        pending = int(operand.value) if isinstance(operand, Immediate) else 0
    waits_for_all = instruction.has("wait_all")

    def step(group: Group) -> None:
        committed = machine.asynchronous.copy_group
        first_left = committed + 1 if waits_for_all else committed - pending
        _deposit(
            machine, lambda copy: group.mask[copy.lanes] & (copy.groups < first_left[copy.lanes])
        )

    return step


def _arrive_after_copies(binder: Binder, instruction: Instruction, pc: int) -> Step:
    """`cp.async.mbarrier.arrive`: the arrival of all copies so far; `noinc` was counted before."""
    machine, address = binder.machine, binder.address(instruction.operands[0])
    counted = instruction.has("noinc")

    def step(group: Group) -> Outcome:
        lanes, woke = group.lanes, False
        _deposit(machine, lambda copy: group.mask[copy.lanes])
        for block, at, chosen in by_barrier(machine, lanes, shared_offsets(address(lanes))):
            barrier = find(machine, block, at)
            if not counted:
                barrier.pending += chosen.size
            if machine.races is not None:
                machine.races.release((block, at), lanes[chosen])
            woke |= arrive_at(machine, block, at, chosen.size)
        if not woke:
            return None
        machine.pc[group.mask] = pc + 1
        return Signal.RESCHEDULE

    return step


# -- bulk copies ----------------------------------------------------------------------------------


def _wait_for_bulk(binder: Binder, instruction: Instruction) -> Step:
    machine, operand = binder.machine, instruction.operands[0]
    pending = int(operand.value) if isinstance(operand, Immediate) else 0

    def step(group: Group) -> None:
        state = machine.asynchronous
        left: list[BulkCopy] = []
        for copy in state.bulk_copies:
            if group.mask[copy.thread] and copy.group < state.bulk_group[copy.thread] - pending:
                copy.run()
                machine.progress += 1
                machine.changes += 1
                if machine.races is not None:
                    machine.races.bulk_read_done(copy.thread, copy.time)
            else:
                left.append(copy)
        state.bulk_copies = left

    return step


def _bulk_copy(binder: Binder, instruction: Instruction) -> Step:
    destination, source, size, *rest = instruction.operands
    machine = binder.machine
    to, origin = binder.address(destination), binder.address(source)
    sizes = np.broadcast_to(binder.value(size, "u32"), (machine.width,))
    operands = (to, origin, sizes)
    spaces = [m.partition("::")[0] for m in instruction.modifiers]
    spaces = [m for m in spaces if m in {"global", "shared"}]
    if spaces[0] == "global":
        return _bulk_out(machine, instruction, operands)
    if instruction.opcode == "cp" and instruction.has("reduce"):
        raise EmulatorError("cp.reduce.async.bulk into shared memory is not modelled")
    barrier = binder.address(rest[0])

    def step(group: Group) -> None:
        for lane in group.lanes.tolist():
            one = np.array([lane])
            block, count = int(machine.block_of_thread[lane]), int(sizes[lane])
            at = int(shared_offsets(barrier(one))[0])
            start = int(shared_offsets(to(one))[0])
            view = machine.shared_bytes_at(block, start, count, alignment=16, what="destination")
            address = int(origin(one)[0])
            _check_bulk(address, count)
            if machine.races is not None:
                machine.races.bulk_write(instruction, lane, np.arange(start, start + count), at)
                if spaces[1] == "global":
                    machine.races.global_copy(instruction, lane, _places(address, count), 1)

            def load(
                view: Array = view, address: int = address, block: int = block, at: int = at
            ) -> None:
                view[:] = _bytes_at(machine, block, address, view.size, spaces[1])
                complete_bytes(machine, block, at, view.size)

            find(machine, block, at).loads.append(load)
            machine.wake(State.MBARRIER, block)

    return step


def _bytes_at(machine: Machine, block: int, address: int, size: int, space: str) -> Array:
    if space == "shared":
        offset = int(shared_offsets(np.array([address], np.uint64))[0])
        return machine.shared_bytes_at(block, offset, size, alignment=16, what="source")
    return machine.memory.span(address, size)


def _places(address: int, count: int) -> Array:
    return np.arange(address, address + count, dtype=np.uint64)


def _check_bulk(address: int, size: int) -> None:
    if size % 16 or address % 16:
        raise EmulatorError(f"a bulk copy of {size} bytes at {address:#x}: multiples of 16 only")


def _bulk_out(
    machine: Machine,
    instruction: Instruction,
    operands: tuple[Callable[[Array], Array], Callable[[Array], Array], Array],
) -> Step:
    to, origin, sizes = operands
    reduces = instruction.has("reduce")
    operation = instruction.modifiers[-2] if reduces else ""
    operation = next((m for m in instruction.modifiers if m in _REDUCTIONS), operation)

    def step(group: Group) -> None:
        for lane in group.lanes.tolist():
            one = np.array([lane])
            block, count = int(machine.block_of_thread[lane]), int(sizes[lane])
            start, address = int(shared_offsets(origin(one))[0]), int(to(one)[0])
            _check_bulk(address, count)
            view = machine.shared_bytes_at(block, start, count, alignment=16, what="source")
            out = machine.memory.span(address, count, writing=True)
            if machine.races is not None:
                machine.races.bulk_read(instruction, lane, np.arange(start, start + count))
                machine.races.global_copy(instruction, lane, _places(address, count), 1)

            def run(view: Array = view, out: Array = out) -> None:
                if not reduces:
                    out[:] = view
                    return
                kind = numpy_type(instruction.type)
                function = combine(operation, instruction.type)
                out[:] = np.asarray(function(out.view(kind), view.view(kind))).view(np.uint8)

            state = machine.asynchronous
            state.bulk_copies.append(
                BulkCopy(lane, int(state.bulk_group[lane]), machine.clock, run)
            )

    return step


_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
