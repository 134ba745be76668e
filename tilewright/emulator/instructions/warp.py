"""Instructions of a warp: shuffles, votes, matches, reductions, election."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.emulator.binding import Binder, numpy_type, opcode
from tilewright.emulator.floats import Array
from tilewright.emulator.groups import LANES, Group, Outcome, Step, lane_bits
from tilewright.emulator.instructions.floating import maximum, minimum
from tilewright.emulator.program import EmulatorError, Instruction, Operand, Pair, Sink

__all__ = ["warp_step"]


def _pair(binder: Binder, operand: Operand, type: str) -> tuple[Array, Array]:
    """Return the arrays of `d|p`; what is absent is dropped."""
    if isinstance(operand, Pair):
        return binder.target(operand.first, type), binder.target(operand.second, "pred")
    return binder.target(operand, type), binder.target(Sink(), "pred")


def warp_step(
    binder: Binder, pc: int, members: Operand | None, body: Callable[[Group], None]
) -> Step:
    """Make a step that runs when all lanes of `members` (default: those that live) are here."""
    machine = binder.machine
    mask = None if members is None else binder.value(members, "u32")

    def step(group: Group) -> Outcome:
        ready = machine.converge(group, pc, mask)
        if not isinstance(ready, Group):
            return ready
        body(ready)
        return None if ready is group else ready

    return step


@opcode("shfl")
def _shuffle(binder: Binder, instruction: Instruction, pc: int) -> Step:
    machine, mode = binder.machine, instruction.modifiers[1]
    out, source, amount, clamp, members = instruction.operands
    target, predicate = _pair(binder, out, "b32")
    value = np.broadcast_to(binder.value(source, "b32"), (machine.width,))
    amount_of, clamp_of = binder.value(amount, "b32"), binder.value(clamp, "b32")
    lane = machine.specials["laneid"].astype(np.int64)
    first = np.arange(machine.width) - lane

    def body(group: Group) -> None:
        step = (np.asarray(amount_of) & np.uint32(31)).astype(np.int64)
        bound = (np.asarray(clamp_of) & np.uint32(31)).astype(np.int64)
        segment = ((np.asarray(clamp_of) >> np.uint32(8)) & np.uint32(31)).astype(np.int64)
        highest = (lane & segment) | (bound & ~segment)
        match mode:
            case "up":
                chosen = lane - step
                inside = chosen >= highest
            case "down":
                chosen = lane + step
                inside = chosen <= highest
            case "bfly":
                chosen = lane ^ step
                inside = chosen <= highest
            case _:
                chosen = (lane & segment) | (step & ~segment)
                inside = chosen <= highest
        origin = np.where(inside, chosen, lane)
        moved = value[first + origin]
        np.copyto(target, moved, where=group.where)
        np.copyto(predicate, inside, where=group.where)

    return warp_step(binder, pc, members, body)


@opcode("vote")
def _vote(binder: Binder, instruction: Instruction, pc: int) -> Step:
    out, source, *rest = instruction.operands
    condition = binder.condition(source)
    mode = next(m for m in instruction.modifiers if m in {"all", "any", "uni", "ballot"})
    target = binder.target(out, "b32" if mode == "ballot" else "pred")
    members = binder.value(rest[0], "u32") if rest else np.uint32(0xFFFFFFFF)

    def body(group: Group) -> None:
        here = lane_bits(group.mask).repeat(LANES) & members
        ballot = lane_bits(condition() & group.mask).repeat(LANES) & members
        match mode:
            case "ballot":
                result = ballot
            case "any":
                result = ballot != 0
            case "all":
                result = ballot == here
            case _:
                result = (ballot == here) | (ballot == 0)
        np.copyto(target, result, where=group.where)

    return warp_step(binder, pc, rest[0] if rest else None, body)


def _member_matrix(group: Group, members: Any, width: int) -> Array:
    """Return for each warp and lane which lanes take part with it: (warps, lanes, lanes)."""
    bits = np.broadcast_to(members, (width,)).reshape(-1, LANES, 1)
    shifts = np.arange(LANES, dtype=np.uint32)
    named = (bits >> shifts) & np.uint32(1)
    return np.asarray((named != 0) & group.mask.reshape(-1, 1, LANES))


@opcode("match")
def _match(binder: Binder, instruction: Instruction, pc: int) -> Step:
    out, source, members_operand = instruction.operands
    target, predicate = _pair(binder, out, "b32")
    width = binder.machine.width
    value = np.broadcast_to(binder.value(source, instruction.type), (width,))
    members = binder.value(members_operand, "u32")
    matches_all = instruction.has("all")
    weights = np.uint32(1) << np.arange(LANES, dtype=np.uint32)

    def body(group: Group) -> None:
        rows = value.reshape(-1, LANES)
        taking_part = _member_matrix(group, members, width)
        equal = (rows[:, :, None] == rows[:, None, :]) & taking_part
        bits = (equal * weights).sum(2, dtype=np.uint32).reshape(-1)
        if matches_all:
            same = (equal == taking_part).all(2).reshape(-1)
            np.copyto(predicate, same, where=group.where)
            bits = np.where(same, bits, np.uint32(0))
        np.copyto(target, bits, where=group.where)

    return warp_step(binder, pc, members_operand, body)


@opcode("redux")
def _reduce(binder: Binder, instruction: Instruction, pc: int) -> Step:
    type, operation = instruction.type, instruction.modifiers[1]
    out, source, members_operand = instruction.operands
    target = binder.target(out, type)
    width, dtype = binder.machine.width, numpy_type(type)
    value = np.broadcast_to(binder.value(source, type), (width,))
    members = binder.value(members_operand, "u32")
    magnitude, nan = instruction.has("abs"), instruction.has("NaN")

    def combine(columns: Array, taking_part: Array) -> Array:
        functions: dict[str, tuple[Any, Any]] = {
            "add": (np.add, 0),
            "and": (np.bitwise_and, -1),
            "or": (np.bitwise_or, 0),
            "xor": (np.bitwise_xor, 0),
        }
        if operation in functions:
            function, identity = functions[operation]
            neutral = np.int64(identity).astype(dtype)
        elif dtype.kind == "f":
            pick = minimum if operation == "min" else maximum
            result = np.full(columns.shape[:2], np.nan, dtype) if not nan else None
            for i in range(LANES):
                column = np.where(taking_part[:, :, i], columns[:, :, i], dtype.type(np.nan))
                if result is None:
                    result = column
                    continue
                both = pick(result, column, nan=nan)
                result = np.where(taking_part[:, :, i], both, result)
            return np.asarray(result)
        else:
            limits = np.iinfo(dtype)
            function = np.minimum if operation == "min" else np.maximum
            neutral = dtype.type(limits.max if operation == "min" else limits.min)
        return np.asarray(function.reduce(np.where(taking_part, columns, neutral), axis=2))

    def body(group: Group) -> None:
        rows = np.abs(value) if magnitude else value
        taking_part = _member_matrix(group, members, width)
        columns = np.broadcast_to(rows.reshape(-1, 1, LANES), taking_part.shape)
        result = combine(columns, taking_part).astype(dtype).reshape(-1)
        np.copyto(target, result, where=group.where)

    return warp_step(binder, pc, members_operand, body)


@opcode("activemask")
def _active_mask(binder: Binder, instruction: Instruction, pc: int) -> Step:
    target = binder.target(instruction.operands[0], "b32")

    def step(group: Group) -> None:
        np.copyto(target, lane_bits(group.mask).repeat(LANES), where=group.where)

    return step


@opcode("elect")
def _elect(binder: Binder, instruction: Instruction, pc: int) -> Step:
    target, predicate = _pair(binder, instruction.operands[0], "b32")
    members = binder.value(instruction.operands[1], "u32")
    lane = binder.machine.specials["laneid"]

    def body(group: Group) -> None:
        here = lane_bits(group.mask).repeat(LANES) & members
        lowest = np.bitwise_count((here & -here.view(np.int32).view(np.uint32)) - np.uint32(1))
        np.copyto(target, lowest, where=group.where)
        np.copyto(predicate, lane == lowest, where=group.where)

    return warp_step(binder, pc, instruction.operands[1], body)


@opcode("wmma")
def _old_matrix(binder: Binder, instruction: Instruction, pc: int) -> Step:
    raise EmulatorError("`wmma` is not modelled: use `mma.sync`")
