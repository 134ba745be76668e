"""mbarriers: objects in shared memory that count arrivals and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.emulator.asynchrony import MBarrier
from tilewright.emulator.binding import Binder, Value, opcode
from tilewright.emulator.floats import Array
from tilewright.emulator.groups import Group, Outcome, Signal, State, Step
from tilewright.emulator.machine import Machine
from tilewright.emulator.memory import SHARED_WINDOW
from tilewright.emulator.program import Address, EmulatorError, Instruction, Sink

__all__ = ["arrive_at", "by_barrier", "complete_bytes", "find", "shared_offsets"]


def shared_offsets(addresses: Array) -> Array:
    """Return shared addresses, given those or generic ones."""
    offsets: Array = (addresses & np.uint64(SHARED_WINDOW - 1)).astype(np.int64)
    return offsets


def find(machine: Machine, block: int, address: int) -> MBarrier:
    """Return the mbarrier at an address."""
    barrier = machine.asynchronous.mbarriers.get((block, address))
    if barrier is None:
        raise EmulatorError(f"there is no initialised mbarrier at shared address {address}")
    return barrier


def by_barrier(machine: Machine, lanes: Array, offsets: Array) -> Iterator[tuple[int, int, Array]]:
    """Yield block, address and positions in `lanes` of each mbarrier that a group names."""
    keys = machine.block_of_thread[lanes] * (1 << 32) + offsets
    for key in np.unique(keys):
        yield int(key) >> 32, int(key) & 0xFFFFFFFF, np.flatnonzero(keys == key)


def _ended_phase(machine: Machine, block: int, address: int) -> bool:
    """Tell what waits that a phase has ended."""
    machine.progress += 1
    if machine.races is not None:
        machine.races.end_phase((block, address))
    return machine.wake(State.MBARRIER, block)


def arrive_at(
    machine: Machine, block: int, address: int, count: int, *, drop: bool = False
) -> bool:
    """Count arrivals; return whether that woke threads."""
    barrier, woke = find(machine, block, address), False
    if drop:
        barrier.expected -= count
    while count > 0:
        step = min(count, barrier.pending)
        if step <= 0:
            raise EmulatorError(
                f"the mbarrier at {address} has no arrival pending, but bytes: it counts too many"
            )
        barrier.pending -= step
        count -= step
        if barrier.complete():
            woke |= _ended_phase(machine, block, address)
    return woke


def complete_bytes(machine: Machine, block: int, address: int, size: int) -> bool:
    """Subtract bytes that have arrived; return whether that woke threads."""
    barrier = find(machine, block, address)
    barrier.transactions -= size
    return barrier.complete() and _ended_phase(machine, block, address)


@opcode("mbarrier")
def _mbarrier(binder: Binder, instruction: Instruction, pc: int) -> Step:
    match instruction.modifiers[0]:
        case "init":
            return _init(binder, instruction)
        case "inval":
            return _invalidate(binder, instruction)
        case "test_wait" | "try_wait":
            return _wait(binder, instruction, pc)
        case "arrive" | "arrive_drop":
            return _arrive(binder, instruction, pc)
        case "expect_tx" | "complete_tx":
            return _transactions(binder, instruction, pc)
    raise EmulatorError(f"`mbarrier.{instruction.modifiers[0]}` is not modelled")


def _init(binder: Binder, instruction: Instruction) -> Step:
    machine = binder.machine
    address = binder.address(instruction.operands[0])
    count = np.broadcast_to(binder.value(instruction.operands[1], "u32"), (machine.width,))

    def step(group: Group) -> None:
        lanes = group.lanes
        offsets = shared_offsets(address(lanes))
        for block, at, chosen in by_barrier(machine, lanes, offsets):
            machine.shared_bytes_at(block, at, 8, alignment=8, what="the mbarrier's address")
            expected = int(count[lanes[chosen[0]]])
            if expected < 1:
                raise EmulatorError(f"an mbarrier expects at least one arrival, not {expected}")
            machine.asynchronous.mbarriers[block, at] = MBarrier(expected, expected)
            if machine.races is not None:
                machine.races.reset((block, at))

    return step


def _invalidate(binder: Binder, instruction: Instruction) -> Step:
    machine, address = binder.machine, binder.address(instruction.operands[0])

    def step(group: Group) -> None:
        offsets = shared_offsets(address(group.lanes))
        for block, at, _ in by_barrier(machine, group.lanes, offsets):
            find(machine, block, at)
            del machine.asynchronous.mbarriers[block, at]

    return step


def _arrive(binder: Binder, instruction: Instruction, pc: int) -> Step:
    machine, operands = binder.machine, list(instruction.operands)
    out = Sink() if isinstance(operands[0], Address) else operands.pop(0)
    token = binder.target(out, "b64")
    address = binder.address(operands[0])
    expects, drops = instruction.has("expect_tx"), instruction.modifiers[0] == "arrive_drop"
    amount: Value = binder.value(operands[1], "u32") if len(operands) > 1 else np.uint32(1)
    amounts = np.broadcast_to(amount, (machine.width,))

    def step(group: Group) -> Outcome:
        lanes, woke = group.lanes, False
        offsets = shared_offsets(address(lanes))
        for block, at, chosen in by_barrier(machine, lanes, offsets):
            barrier = find(machine, block, at)
            token[lanes[chosen]] = barrier.phase
            total = int(amounts[lanes[chosen]].sum())
            if machine.races is not None:
                machine.races.release((block, at), lanes[chosen])
            if expects:
                barrier.transactions += total
                total = chosen.size
            woke |= arrive_at(machine, block, at, total, drop=drops)
        return _go_on(machine, group, pc, woke=woke)

    return step


def _go_on(machine: Machine, group: Group, pc: int, *, woke: bool) -> Outcome:
    if not woke:
        return None
    machine.pc[group.mask] = pc + 1
    return Signal.RESCHEDULE


def _transactions(binder: Binder, instruction: Instruction, pc: int) -> Step:
    machine, address = binder.machine, binder.address(instruction.operands[0])
    amounts = np.broadcast_to(binder.value(instruction.operands[1], "u32"), (machine.width,))
    sign = -1 if instruction.modifiers[0] == "expect_tx" else 1

    def step(group: Group) -> Outcome:
        lanes, woke = group.lanes, False
        for block, at, chosen in by_barrier(machine, lanes, shared_offsets(address(lanes))):
            total = int(amounts[lanes[chosen]].sum())
            if sign < 0:
                find(machine, block, at).transactions += total
            else:
                woke |= complete_bytes(machine, block, at, total)
        return _go_on(machine, group, pc, woke=woke)

    return step


def _wait(binder: Binder, instruction: Instruction, pc: int) -> Step:
    """Test a phase. The first time, copies have not arrived; later, `try_wait` waits for them.

    To say no for no reason is what the manual allows: code that does not ask again fails.
    """
    machine, operands = binder.machine, instruction.operands
    target = binder.target(operands[0], "pred")
    address = binder.address(operands[1])
    by_parity, blocks = instruction.has("parity"), instruction.modifiers[0] == "try_wait"
    state: Any = binder.value(operands[2], "u32" if by_parity else "u64")
    states = np.broadcast_to(state, (machine.width,))

    def ended(lanes: Array, offsets: Array) -> Array:
        done = np.zeros(lanes.size, bool)
        for block, at, chosen in by_barrier(machine, lanes, offsets):
            barrier = find(machine, block, at)
            if machine.has_tried[lanes[chosen]].any():
                waiting, barrier.loads = barrier.loads, []
                for load in waiting:
                    load()
            tokens = states[lanes[chosen]]
            if by_parity:
                done[chosen] = (barrier.phase & 1) != (tokens & np.uint32(1))
            else:
                done[chosen] = barrier.phase != tokens
            if machine.races is not None:
                machine.races.acquire((block, at), lanes[chosen[done[chosen]]])
        return done

    def step(group: Group) -> Outcome:
        lanes = group.lanes
        offsets = shared_offsets(address(lanes))
        done = ended(lanes, offsets)
        goes_on = done | machine.timed_out[lanes] | ~machine.has_tried[lanes] | (not blocks)
        target[lanes] = done
        machine.timed_out[lanes] = False
        machine.has_tried[lanes] = ~done
        if goes_on.all():
            return None
        machine.pc[lanes[goes_on]] = pc + 1
        stays = lanes[~goes_on]
        machine.pc[stays] = pc
        machine.waiting_for[stays] = offsets[~goes_on]
        machine.state[stays] = State.MBARRIER
        return Signal.RESCHEDULE

    return step
