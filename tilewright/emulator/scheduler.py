"""Running the threads of a machine: the lowest place first, fairly, until all have ended.

The threads that are at the lowest instruction run together, across warps and blocks: that is what
makes diverged threads meet again. They run until they branch, wait, or reach others. Threads that
jump back many times while others could run give way to those, so that a loop which waits for
another thread ends; they do so at once if they have looked at something that others may change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.emulator.groups import LANES, Group, Signal, State, Step
from tilewright.emulator.machine import CLUSTER_BARRIER, Machine
from tilewright.emulator.memory import OutOfBounds
from tilewright.emulator.program import EmulatorError, Instruction

__all__ = ["Scheduler"]

_PATIENCE = 32  # jumps back before a group gives way
_STALL_LIMIT = 50_000_000  # instructions without any progress
_POLL_LIMIT = 50_000  # looks at memory that nobody changes
# Since a thread has ended: with these, a loop that also stores what it counts comes to an end.
_LOOK_LIMIT = 500_000
_STEP_LIMIT = 200_000_000
_TIMEOUT_ROUNDS = 3


class Scheduler:
    """Executes `steps`, one for each instruction, on a machine."""

    def __init__(
        self, machine: Machine, instructions: Sequence[Instruction], steps: Sequence[Step]
    ) -> None:
        self.machine, self.instructions, self.steps = machine, instructions, steps
        self.instructions_run = 0
        self.thread_instructions = 0
        self._jumps = np.zeros(machine.width, np.int32)
        self._yielded = np.zeros(machine.width, bool)
        self._timeouts = 0
        self._last_progress = (0, 0)
        self._last_change = (0, 0)
        self._last_end = (0, 0, 0)

    def run(self) -> None:
        """Run until every thread has ended."""
        while (group := self._select()) is not None:
            self._run_group(group)
        self.machine.asynchronous.drain()

    # -- choosing ---------------------------------------------------------------------------------

    def _select(self) -> Group | None:
        machine = self.machine
        machine.has_woken = False
        runnable = machine.state == State.RUNNING
        candidates = runnable & ~self._yielded
        if not candidates.any():
            if not runnable.any():
                return self._nothing_runs()
            self._yielded[:] = False
            candidates = runnable
        places = machine.pc[candidates]
        lowest = int(places.min())
        mask = candidates & (machine.pc == lowest)
        others = places[places > lowest]
        stop = int(others.min()) if others.size else -1
        is_alone = not others.size and np.array_equal(runnable, mask)
        return Group(mask, stop=stop, is_alone=is_alone)

    def _nothing_runs(self) -> Group | None:
        machine = self.machine
        if not machine.live.any():
            return None
        if machine.progress != self._last_progress[0]:
            self._timeouts = 0
        self._last_progress = (machine.progress, self.instructions_run)
        self._timeouts += 1
        if self._timeouts <= _TIMEOUT_ROUNDS:
            waiting = machine.state == State.MBARRIER
            machine.timed_out[waiting] = True
            if machine.wake(State.MBARRIER):
                return self._select()
        raise EmulatorError("deadlock: no thread can go on\n" + self._waiting_report())

    # -- running ----------------------------------------------------------------------------------

    def _run_group(self, group: Group) -> None:
        machine, steps = self.machine, self.steps
        pc = first = int(machine.pc[group.mask.argmax()])
        try:
            while True:
                outcome = steps[pc](group)
                if outcome is None:
                    pc += 1
                    if pc == group.stop:
                        machine.pc[group.mask] = pc
                        break
                elif isinstance(outcome, Signal):
                    pc += 1
                    break
                elif isinstance(outcome, int):
                    self._count(group, pc + 1 - first)
                    is_back = outcome <= pc
                    pc = first = outcome
                    if is_back:
                        self._check_progress()
                    if not group.is_alone or machine.has_woken:
                        machine.pc[group.mask] = pc
                        if is_back:
                            self._jump_back(group)
                        break
                else:
                    self._count(group, pc + 1 - first)
                    pc = first = pc + 1
                    group = outcome
                    machine.pc[group.mask] = pc
                    break
        except EmulatorError as error:
            raise self._explain(error, group, pc) from None
        except (IndexError, KeyError, TypeError, ValueError) as error:
            wrong = EmulatorError(f"the emulator cannot run the instruction ({error})")
            raise self._explain(wrong, group, pc) from error
        self._count(group, pc - first)

    def _count(self, group: Group, instructions: int) -> None:
        self.instructions_run += instructions
        self.thread_instructions += instructions * group.count

    def _jump_back(self, group: Group) -> None:
        machine, blocks = self.machine, self.machine.block_of_thread[group.lanes]
        has_polled = machine.has_polled[blocks].any()
        machine.has_polled[blocks] = False
        self._jumps[group.mask] += 1
        gives_way = self._jumps[group.mask.argmax()] >= _PATIENCE
        if not has_polled and gives_way:  # it computes what it may write later
            self._last_change = (machine.changes, machine.polls)
        if has_polled or gives_way:
            self._jumps[group.mask] = 0
            self._yielded |= group.mask

    def _check_progress(self) -> None:
        machine = self.machine
        if machine.progress != self._last_progress[0]:
            self._last_progress = (machine.progress, self.instructions_run)
        elif self.instructions_run - self._last_progress[1] > _STALL_LIMIT:
            raise self._livelock(
                f"no thread has written, arrived or ended for {_STALL_LIMIT} instructions"
            )
        if machine.changes != self._last_change[0]:
            self._last_change = (machine.changes, machine.polls)
        elif machine.polls - self._last_change[1] > _POLL_LIMIT:
            raise self._livelock(
                f"threads look again and again ({_POLL_LIMIT} times) at memory that no thread "
                "changes"
            )
        self._check_ends()

    def _check_ends(self) -> None:
        """Stop what goes on and on, whatever it writes."""
        machine = self.machine
        ends, polls, instructions = self._last_end
        if machine.ends != ends:
            self._last_end = (machine.ends, machine.polls, self.instructions_run)
        elif machine.polls - polls > _LOOK_LIMIT:
            raise self._livelock(
                f"threads have looked {_LOOK_LIMIT} times at what others may change, and none has "
                "ended meanwhile"
            )
        elif self.instructions_run - instructions > _STEP_LIMIT:
            raise self._livelock(f"no thread has ended for {_STEP_LIMIT} instructions")

    def _livelock(self, why: str) -> EmulatorError:
        return EmulatorError(f"livelock: {why}\n{self._waiting_report()}")

    # -- messages ---------------------------------------------------------------------------------

    def _explain(self, error: EmulatorError, group: Group, pc: int) -> EmulatorError:
        if pc >= len(self.instructions) or "PTX line" in error.message:
            return error
        thread = error.lane if isinstance(error, OutOfBounds) else int(group.lanes[0])
        who = self.machine.thread_name(thread)
        instruction = self.instructions[pc]
        return EmulatorError(
            f"{error.message}\n  {who}, {instruction.place()}", location=instruction.location()
        )

    def _waiting_report(self) -> str:
        machine, lines = self.machine, []
        for start in range(0, machine.width, LANES):
            warp = slice(start, start + LANES)
            for pc in np.unique(machine.pc[warp][machine.live[warp]]):
                lanes = np.flatnonzero(machine.live[warp] & (machine.pc[warp] == pc)) + start
                lines.append(self._waiting_line(int(lanes[0]), lanes.size, int(pc)))
        return "\n".join(lines[:40])

    def _waiting_line(self, thread: int, count: int, pc: int) -> str:
        machine = self.machine
        block = int(machine.block_of_thread[thread])
        warp = int(machine.thread_in_block[thread]) // LANES
        state = State(int(machine.state[thread]))
        why = {
            State.RUNNING: "runs",
            State.CONVERGING: "waits for other lanes of its warp",
            State.MBARRIER: "waits for an mbarrier",
        }.get(state, "")
        if state is State.BARRIER:
            barrier = int(machine.waiting_for[thread])
            arrived = int(machine.barrier_arrived[block, barrier])
            goal = int(machine.barrier_goal[block, barrier]) or "all"
            name = "the cluster barrier" if barrier == CLUSTER_BARRIER else f"barrier {barrier}"
            why, pc = f"waits at {name} ({arrived} of {goal} arrived)", pc - 1
        where = machine.block_ids[block] if block < len(machine.block_ids) else (0, 0, 0)
        instruction = self.instructions[min(max(pc, 0), len(self.instructions) - 1)]
        return f"  block {where} warp {warp} ({count} lanes) {why}: {instruction.place()}"
