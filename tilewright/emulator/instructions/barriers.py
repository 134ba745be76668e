"""Barriers of warps, blocks and clusters (of one block)."""

from __future__ import annotations

import numpy as np

from tilewright.emulator.binding import Binder, Value, opcode
from tilewright.emulator.groups import Group, Outcome, Signal, State, Step
from tilewright.emulator.instructions.warp import warp_step
from tilewright.emulator.machine import BARRIERS, CLUSTER_BARRIER
from tilewright.emulator.program import EmulatorError, Immediate, Instruction

__all__: list[str] = []


@opcode("bar", "barrier")
def _barrier(binder: Binder, instruction: Instruction, pc: int) -> Step:
    if instruction.has("warp"):
        return _warp_barrier(binder, instruction, pc)
    if instruction.has("cluster"):
        return _cluster_barrier(binder, instruction, pc)
    if instruction.has("red"):
        return _reducing_barrier(binder, instruction, pc)
    identifier = instruction.operands[0]
    index, goal = _index_and_goal(binder, instruction)
    if isinstance(identifier, Immediate) and int(identifier.value) >= BARRIERS:
        raise EmulatorError(f"a block has {BARRIERS} barriers")
    machine, waits = binder.machine, not instruction.has("arrive")

    def step(group: Group) -> Outcome:
        ready = machine.converge(group, pc)
        if not isinstance(ready, Group):
            return ready
        machine.pc[ready.mask] = pc + 1
        return machine.arrive(ready, index, goal, pc + 1 if waits else -1)

    return step


def _index_and_goal(binder: Binder, instruction: Instruction) -> tuple[Value, Value]:
    operands = instruction.operands
    index = binder.value(operands[0], "u32")
    goal = binder.value(operands[1], "u32") if len(operands) > 1 else np.uint32(0)
    return index, goal


def _warp_barrier(binder: Binder, instruction: Instruction, pc: int) -> Step:
    machine = binder.machine

    def body(group: Group) -> None:
        if machine.races is not None:
            machine.races.join_warps(group.mask)

    return warp_step(binder, pc, instruction.operands[0], body)


def _cluster_barrier(binder: Binder, instruction: Instruction, pc: int) -> Step:
    machine, index = binder.machine, np.uint32(CLUSTER_BARRIER)

    def arrive(group: Group) -> Outcome:
        ready = machine.converge(group, pc)
        if not isinstance(ready, Group):
            return ready
        machine.released[ready.mask] = False
        machine.pc[ready.mask] = pc + 1
        return machine.arrive(ready, index, 0, -1)

    def wait(group: Group) -> Outcome:
        blocked = group.mask & ~machine.released
        if not blocked.any():
            return None
        machine.pc[group.mask] = pc + 1
        machine.waiting_for[blocked] = CLUSTER_BARRIER
        machine.state[blocked] = State.BARRIER
        return Signal.RESCHEDULE

    return wait if instruction.has("wait") else arrive


def _reducing_barrier(binder: Binder, instruction: Instruction, pc: int) -> Step:
    """`bar.red`: at the second visit, after the barrier has opened, the result is there."""
    machine = binder.machine
    out, identifier, *count, source = instruction.operands
    counts = instruction.type == "u32"
    target = binder.target(out, "u32" if counts else "pred")
    condition = binder.condition(source)
    index = np.broadcast_to(binder.value(identifier, "u32"), (machine.width,))
    goal = binder.value(count[0], "u32") if count else np.uint32(0)
    operation = next(m for m in instruction.modifiers if m in {"popc", "and", "or"})
    pending = np.zeros(machine.width, bool)

    def step(group: Group) -> Outcome:
        if pending[group.lanes].any():
            lanes = group.lanes[pending[group.lanes]]
            blocks, ids = machine.block_of_thread[lanes], index[lanes]
            votes, size = machine.barrier_votes[blocks, ids], machine.barrier_size[blocks, ids]
            results = {"popc": votes, "and": votes == size, "or": votes > 0}
            target[lanes] = results[operation]
            pending[lanes] = False
            if lanes.size == group.count:
                return None
            machine.pc[group.mask] = pc
            machine.pc[lanes] = pc + 1
            return Signal.RESCHEDULE
        ready = machine.converge(group, pc)
        if not isinstance(ready, Group):
            return ready
        np.copyto(machine.votes, condition(), where=ready.where)
        pending[ready.lanes] = True
        return machine.arrive(ready, index, goal, pc)

    return step
